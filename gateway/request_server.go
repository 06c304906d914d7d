package gateway

import (
	"context"
	"sync"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A RequestServer serves single requests of modern clients, each in a session of its own. Create it
// with NewRequestServer.
type RequestServer struct {
	gateway *Gateway
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// NewRequestServer returns a RequestServer. It starts nothing.
func NewRequestServer(g *Gateway) *RequestServer {
	s := &RequestServer{gateway: g}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// ServeRequest serves the request m and does not wait for the response. Notifications and the
// response are written to out. id and principal are those of [Gateway.Serve]. The function cancel
// cancels the request; it may be called at any time.
func (s *RequestServer) ServeRequest(
	id, principal string, m wire.Message, out transport.Writer,
) (cancel func()) {
	c := &requestConn{Writer: out, request: m, ended: make(chan struct{})}
	s.running.Go(func() {
		_ = s.gateway.Serve(s.ctx, id, principal, c) // logged by the gateway
		_ = c.Close()
	})
	return c.end
}

// ShutDown ends all requests, after the grace period of the gateway. ServeRequest must not be
// called afterwards.
func (s *RequestServer) ShutDown() {
	s.stop()
	s.running.Wait()
}

// A requestConn is the connection of a single request. It ends with the response.
type requestConn struct {
	transport.Writer
	request wire.Message
	read    bool // Read has returned request; used by the reading goroutine only
	ended   chan struct{}
	once    sync.Once
}

// Read implements transport.Conn.
func (c *requestConn) Read() (wire.Message, wire.ID, error) {
	if !c.read {
		c.read = true
		return c.request, "", nil
	}
	<-c.ended
	return wire.Message{}, "", transport.ErrClosed
}

// Write implements transport.Conn.
func (c *requestConn) Write(m wire.Message, relatedTo wire.ID) error {
	err := c.Writer.Write(m, relatedTo)
	if err == nil && m.Kind() == wire.Response && m.ID() == c.request.ID() {
		c.end()
	}
	return err
}

// Close implements transport.Conn.
func (c *requestConn) Close() error {
	c.end()
	return c.Writer.Close()
}

// Backlogged reports whether much of what was written is unread; see [peer.Peer.Backlogged].
func (c *requestConn) Backlogged() bool {
	out, ok := c.Writer.(interface{ Backlogged() bool })
	return ok && out.Backlogged()
}

func (c *requestConn) end() { c.once.Do(func() { close(c.ended) }) }
