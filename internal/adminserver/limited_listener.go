package adminserver

import (
	"net"
	"sync"
)

// A limitedListener closes connections beyond a maximum number of open ones.
type limitedListener struct {
	net.Listener
	slots chan struct{}
}

func newLimitedListener(ln net.Listener, limit int) *limitedListener {
	return &limitedListener{ln, make(chan struct{}, limit)}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &limitedConn{Conn: conn, release: func() { <-l.slots }}, nil
		default:
			conn.Close()
		}
	}
}

// A limitedConn is a connection that has a slot of a limitedListener until it is closed.
type limitedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.once.Do(c.release)
	return c.Conn.Close()
}
