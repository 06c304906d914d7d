//go:build !unix

package http1

import "net"

// newIdleCheck returns the idleCheck of c.
func newIdleCheck(c net.Conn) idleCheck { return &readCheck{c, make(chan error, 1)} }
