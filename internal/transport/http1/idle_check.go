package http1

import (
	"net"
	"time"
)

// An idleCheck finds out whether the server has closed an idle connection, or has sent bytes
// without a request. In both cases the connection must not be used again.
type idleCheck interface {
	// begin is called when the connection becomes idle.
	begin()
	// end is called when the connection is to be used again, or after it was closed. It reports
	// whether the connection can be used.
	end() bool
}

// A readCheck reads in a goroutine for as long as the connection is idle.
type readCheck struct {
	c      net.Conn
	result chan error // result of the read
}

func (k *readCheck) begin() {
	go func() {
		_, err := k.c.Read(make([]byte, 1))
		k.result <- err
	}()
}

func (k *readCheck) end() bool {
	if k.c.SetReadDeadline(time.Unix(1, 0)) != nil {
		<-k.result // the connection was closed
		return false
	}
	err := <-k.result
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout() && k.c.SetReadDeadline(time.Time{}) == nil
}
