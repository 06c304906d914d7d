package gateway

import (
	"encoding/json"
	"strconv"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// This file handles modern requests. Each request contains its client metadata, and its response
// does not depend on earlier messages of the connection. A connection may contain messages of both
// generations.

// ValidateHeaders checks a modern request of a principal and its HTTP headers: the method must
// exist, and the headers must match the body (streamable HTTP, "Standard Request Headers"). The
// function get returns the values of a header. The result is nil if the request is valid.
func (g *Gateway) ValidateHeaders(p *principal.Principal, m wire.Message,
	get func(header string) []string) *wire.Error {
	view := g.Backends.ViewFor(p)
	if err := checkMethod(view, m.Method()); err != nil {
		return err
	}
	var schema []byte
	if m.Method() == protocol.MethodToolsCall {
		schema = view.Schema(m.Name())
	}
	return protocol.CheckHeaders(m, get, schema)
}

// checkMethod returns an error if the gateway does not offer the method to modern clients with this
// view.
func checkMethod(view *catalog.View, name string) *wire.Error {
	m := methods[name]
	if m == nil || m.modern == nil ||
		len(m.modern) > 0 && !catalog.Declares(modernCaps(view), m.modern...) {
		return methodNotFound(name)
	}
	return nil
}

// serveModern handles a modern request. Closing is true if the connection no longer accepts
// requests.
func (cc *clientConn) serveModern(r *peer.Request, closing bool) {
	m := methods[r.Method()]
	meta, err := protocol.ParseClientMeta(r.Message)
	if err == nil {
		err = checkMethod(cc.view(), r.Method())
	}
	if err == nil {
		err = m.checkID(r)
	}
	switch {
	case err != nil:
	case len(meta.Capabilities)+len(meta.ClientInfo) > maxClientMeta:
		err = wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: the client metadata in _meta is longer than %d bytes", maxClientMeta)
	case closing:
		err = errClosing
	case r.Method() == protocol.MethodServerDiscover:
		cc.discover(r)
		return
	}
	if err != nil {
		cc.failModern(r, err)
		return
	}
	client, full := cc.clients.acquire(cc, meta)
	if full != nil {
		cc.failModern(r, wire.Errorf(wire.CodeInternalError, "%v", full))
		return
	}
	if !cc.servesModern.Load() {
		cc.servesModern.Store(true)
	}
	cc.g.Backends.StartFor(cc.principal) // may be the first request; the client is registered
	switch {
	case m.call == taskSpec && !protocol.HasTasksExtension(meta.Capabilities):
		cc.failModern(r, protocol.MissingTasksError())
	case m.call != nil:
		cc.startCall(client, r, m.call)
	case m.stateless != nil:
		m.stateless(cc, client, r)
	default:
		cc.listStateless(r, m.list)
	}
}

// discover responds with the capabilities in the current view. It starts no backend, because some
// clients start several copies of a server only to send this request, and because the backends'
// handshakes depend on the client's next request.
func (cc *clientConn) discover(r *peer.Request) {
	view := cc.view()
	ttl := time.Minute
	if !view.Complete {
		ttl = 0 // capabilities may still shrink
	}
	scope := "public"
	if view.Private {
		scope = "private"
	}
	cc.g.replyModern(r, wire.Encode(struct {
		Versions     []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions,omitempty"`
		TTL          int64           `json:"ttlMs"`
		Scope        string          `json:"cacheScope"`
	}{protocol.RevisionDates(), modernCaps(view), view.Instructions, ttl.Milliseconds(), scope}))
}

// replyModern responds to a modern request with a result that the gateway has created. It reports
// whether the request was still open.
func (g *Gateway) replyModern(r *peer.Request, result []byte) bool {
	return r.Forward(protocol.ToModern(wire.NewResult("0", result), r.Method(), g.info, true))
}

// listStateless responds with a page of the merged list, which is the same for all clients with the
// same profiles: "lists MUST NOT vary by connection", but may by authorization. The request waits
// only while backends start for the first time.
func (cc *clientConn) listStateless(r *peer.Request, kind catalog.Kind) {
	if v := cc.view(); v.Settled {
		cc.replyPage(r, kind, v)
	} else {
		cc.awaitSettled(r, func(v *catalog.View) { cc.replyPage(r, kind, v) })
	}
}

func (cc *clientConn) replyPage(r *peer.Request, kind catalog.Kind, v *catalog.View) {
	page, ok := v.Page(kind, r.Part(wire.PartCursor))
	if !ok {
		cc.failModern(r, errUnknownCursor)
		return
	}
	if kind == catalog.Tools {
		page = withoutExecution(page)
	}
	ttl, private := v.Freshness(kind)
	scope := `"public"`
	if private || v.Private {
		scope = `"private"`
	}
	cc.g.replyModern(r, wire.EditObject(page, nil,
		wire.Member{Key: "ttlMs", Text: strconv.AppendInt(nil, ttl.Milliseconds(), 10)},
		wire.Member{Key: "cacheScope", Text: []byte(scope)}))
}
