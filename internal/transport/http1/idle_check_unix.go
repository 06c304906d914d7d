//go:build unix

package http1

import (
	"net"
	"syscall"
)

// A pollCheck reads the socket without waiting when the connection is to be used again.
type pollCheck struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // the method read, allocated once
	buf [1]byte
	err error // result of read
}

// newIdleCheck returns the idleCheck of c.
func newIdleCheck(c net.Conn) idleCheck {
	if socket, ok := c.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			k := &pollCheck{raw: raw}
			k.try = k.read
			return k
		}
	}
	return &readCheck{c, make(chan error, 1)}
}

func (k *pollCheck) begin() {}

func (k *pollCheck) end() bool {
	k.err = nil
	err := k.raw.Read(k.try)
	return err == nil && (k.err == syscall.EAGAIN || k.err == syscall.EWOULDBLOCK)
}

// read reads from the socket, which is in non-blocking mode.
func (k *pollCheck) read(fd uintptr) bool {
	for {
		if _, k.err = syscall.Read(int(fd), k.buf[:]); k.err != syscall.EINTR {
			return true
		}
	}
}
