package backends

import (
	"slices"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// isSubscriptionRequest reports whether a request is a subscribe or unsubscribe request. Modern
// servers have subscriptions/listen instead of these requests.
func isSubscriptionRequest(m wire.Message) bool {
	method := m.Method()
	return method == protocol.MethodResourcesSubscribe ||
		method == protocol.MethodResourcesUnsubscribe
}

func uriParam(m wire.Message) string {
	uri, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	return wire.Unquote(uri)
}

// subscribeByListenLocked handles resources/subscribe and resources/unsubscribe for a modern
// backend. The response to a subscribe request is sent when the server has acknowledged a listen
// with the URI, and at once if the current listen covers the URI. A subscribe request is refused at
// once if the filters do not permit it, the server has no subscriptions, or a limit is reached. The
// response to an unsubscribe request is sent at once. respond sends a response that is due at once,
// and must be called without bc.mu.
func (bc *backendConn) subscribeByListenLocked(q queuedCall) (respond func()) {
	uri := uriParam(q.request)
	q.call.Modern, q.call.InterceptResponse = false, nil // the gateway itself responds
	if q.request.Method() == protocol.MethodResourcesUnsubscribe {
		if bc.subs.remove(uri, q.call.SessionID) {
			bc.signalReopen()
		}
		return func() { q.call.Handler.OnResponse(wire.NewResult("0", emptyObject), nil) }
	}
	switch {
	case !bc.b.permits(q.request, q.call):
		bc.subs.reject(uri, q.call.SessionID)
		return func() { q.call.Handler.OnResponse(wire.Message{}, peer.ErrForbidden) }
	case !bc.server.has("resources", "subscribe"):
		bc.subs.reject(uri, q.call.SessionID)
		return func() {
			q.call.Handler.OnResponse(wire.NewErrorResponse("0",
				wire.Errorf(wire.CodeMethodNotFound,
					"Method not found: the backend has no subscriptions")), nil)
		}
	case !bc.subs.add(uri, q.call.SessionID):
		return func() {
			q.call.Handler.OnResponse(wire.NewErrorResponse("0",
				wire.Errorf(wire.CodeInternalError,
					"Too many subscriptions: at most %d, half of them for one client",
					maxSubscriptions)), nil)
		}
	case bc.listen != nil && slices.Contains(bc.listen.uris, uri) && bc.listen.covers(uri):
		return bc.acceptSubscribeLocked(q, uri, nil)
	}
	bc.pendingSubscribes = append(bc.pendingSubscribes, q)
	bc.signalReopen()
	return func() {}
}

// resolveSubscribesLocked removes the pending subscribe calls whose result is known according to
// the function state, or that the filters no longer permit. It returns functions that send the
// responses, and that must be called without bc.mu.
func (bc *backendConn) resolveSubscribesLocked(
	state func(uri string) (known bool, err *wire.Error),
) (respond []func()) {
	var rest []queuedCall
	for _, q := range bc.pendingSubscribes {
		uri := uriParam(q.request)
		if !bc.b.permits(q.request, q.call) { // the filters may have changed meanwhile
			bc.subs.reject(uri, q.call.SessionID)
			respond = append(respond,
				func() { q.call.Handler.OnResponse(wire.Message{}, peer.ErrForbidden) })
			continue
		}
		known, err := state(uri)
		if !known {
			rest = append(rest, q)
			continue
		}
		respond = append(respond, bc.acceptSubscribeLocked(q, uri, err))
	}
	bc.pendingSubscribes = rest
	return respond
}

func (bc *backendConn) acceptSubscribeLocked(q queuedCall, uri string, err *wire.Error) func() {
	if err != nil {
		bc.subs.reject(uri, q.call.SessionID)
		return func() { q.call.Handler.OnResponse(wire.NewErrorResponse("0", err), nil) }
	}
	bc.subs.accept(uri, q.call.SessionID)
	return func() { q.call.Handler.OnResponse(wire.NewResult("0", emptyObject), nil) }
}
