package backends

import (
	"slices"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// isSubscriptionRequest reports whether a request is one that the stateless era has not, for
// there is the listen.
func isSubscriptionRequest(m wire.Message) bool {
	method := m.Method()
	return method == protocol.MethodResourcesSubscribe || method == protocol.MethodResourcesUnsubscribe
}

func uriParam(m wire.Message) string {
	uri, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	return wire.Unquote(uri)
}

// subscribeByListenLocked sees to a request to subscribe, or to end that, at a backend of the
// stateless era: it is answered when the URI is listened to, at once if it is already;
// its end at once. It returns what tells the caller so, to be called without l.mu.
func (bc *backendConn) subscribeByListenLocked(q queuedCall) (tell func()) {
	uri := uriParam(q.request)
	q.call.Modern, q.call.InterceptResponse = false, nil // it is answered by the gateway
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
			q.call.Handler.OnResponse(wire.NewErrorResponse("0", wire.Errorf(wire.CodeMethodNotFound, "Method not found: the backend has no subscriptions")), nil)
		}
	case !bc.subs.add(uri, q.call.SessionID):
		return func() {
			q.call.Handler.OnResponse(wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, "Too many subscriptions: there may be %d, of which one client has half at most", maxSubscriptions)), nil)
		}
	case bc.listen != nil && slices.Contains(bc.listen.uris, uri) && bc.listen.covers(uri):
		return bc.acceptSubscribeLocked(q, uri, nil)
	}
	bc.pendingSubscribes = append(bc.pendingSubscribes, q)
	bc.signalReopen()
	return func() {}
}

// resolveSubscribesLocked takes those out that wait for a URI of which it is known whether it is
// listened to, and returns what tells them.
func (bc *backendConn) resolveSubscribesLocked(state func(uri string) (known bool, err *wire.Error)) (tell []func()) {
	var rest []queuedCall
	for _, q := range bc.pendingSubscribes {
		uri := uriParam(q.request)
		if !bc.b.permits(q.request, q.call) { // since it began to wait
			bc.subs.reject(uri, q.call.SessionID)
			tell = append(tell, func() { q.call.Handler.OnResponse(wire.Message{}, peer.ErrForbidden) })
			continue
		}
		known, err := state(uri)
		if !known {
			rest = append(rest, q)
			continue
		}
		tell = append(tell, bc.acceptSubscribeLocked(q, uri, err))
	}
	bc.pendingSubscribes = rest
	return tell
}

func (bc *backendConn) acceptSubscribeLocked(q queuedCall, uri string, err *wire.Error) func() {
	if err != nil {
		bc.subs.reject(uri, q.call.SessionID)
		return func() { q.call.Handler.OnResponse(wire.NewErrorResponse("0", err), nil) }
	}
	bc.subs.accept(uri, q.call.SessionID)
	return func() { q.call.Handler.OnResponse(wire.NewResult("0", emptyObject), nil) }
}
