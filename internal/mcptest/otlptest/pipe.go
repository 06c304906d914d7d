package otlptest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Pipe serves a handler over connections in memory, which work in a bubble of testing/synctest. It
// returns the function that connects. The test must close all connections before it ends.
func Pipe(t testing.TB, h http.Handler) func(context.Context, string, string) (net.Conn, error) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		served.Wait()
	})
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, remote := net.Pipe()
		select {
		case l.conns <- remote:
			return client, nil
		case <-l.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// A pipeListener accepts connections in memory.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
