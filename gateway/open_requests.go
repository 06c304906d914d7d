package gateway

import (
	"context"
	"errors"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An openRequest is a modern request with a connection of its own, as over HTTP. It is the Writer
// of its Request, so that it knows when the response was written.
type openRequest struct {
	clientConn
	out transport.Writer
	r   *peer.Request
}

// ServeRequest serves the modern request m, whose notifications and response are written to out. It
// does not block. The function cancel cancels the request, for example because the client has
// disconnected; it may be called at any time after ServeRequest has returned. id is the session id
// in logs and audit records, p the authenticated identity of the client.
func (g *Gateway) ServeRequest(id string, p *principal.Principal, m wire.Message,
	out transport.Writer) (cancel func()) {
	o := &openRequest{out: out, clientConn: clientConn{g: g, id: id, principal: p,
		transport: StreamableHTTP,
		work:      g.requestWork, backlogged: func() bool { return false }}}
	if out, ok := out.(interface{ Backlogged() bool }); ok {
		o.backlogged = out.Backlogged
	}
	o.r = peer.NewRequest(o, m)
	accepted := g.requests.add(o)
	panics := true
	defer func() {
		o.clients.releaseAll() // calls and subscriptions retain their client themselves
		if panics {
			o.cancel()
		}
	}()
	o.serveModern(o.r, !accepted)
	panics = false
	return o.cancel
}

// Write implements transport.Writer.
func (o *openRequest) Write(m wire.Message, relatedTo wire.ID) error {
	err := o.out.Write(m, relatedTo)
	if errors.Is(err, transport.ErrFull) {
		o.log().Warn("disconnecting a remote side that does not read", "err", err)
	}
	if m.Kind() == wire.Response {
		o.g.requests.remove(o)
	}
	return err
}

// Close implements transport.Writer.
func (o *openRequest) Close() error { return o.out.Close() }

func (o *openRequest) cancel() {
	o.r.Close(nil)
	o.g.requests.remove(o)
}

// ShutDownRequests ends the requests of [Gateway.ServeRequest] when the gateway shuts down:
// subscriptions end with their response, other requests have the grace period DrainTimeout for
// theirs. Requests that arrive later are rejected.
func (g *Gateway) ShutDownRequests() {
	open := g.requests.close()
	for _, o := range open {
		o.stopped.Store(true)
		o.finishListens()
	}
	g.grace.wait(context.Background(), g.DrainTimeout, g.requests.drain)
	for _, o := range open {
		o.r.Close(errGatewayStopped)
	}
}
