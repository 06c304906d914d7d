package backends

import (
	"slices"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

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
func (bc *backendConn) subscribeByListenLocked(q *queuedCall) (respond func()) {
	uri, session := q.subscription.uri, q.request.Session
	q.modern = false // the gateway itself responds
	if q.subscription.ends {
		if bc.subs.remove(uri, session) {
			bc.signalReopen()
		}
		return q.succeed
	}
	switch {
	case !bc.b.filters.permits(&q.request):
		bc.subs.reject(uri, session)
		return func() { q.fail(contract.ErrForbidden) }
	case !bc.server.has("resources", "subscribe"):
		bc.subs.reject(uri, session)
		return func() {
			q.refuse(wire.Errorf(wire.CodeMethodNotFound,
				"Method not found: the backend has no subscriptions"))
		}
	case !bc.subs.add(uri, session):
		return func() {
			q.refuse(wire.Errorf(wire.CodeInternalError,
				"Too many subscriptions: at most %d, half of them for one client",
				maxSubscriptions))
		}
	case bc.listen != nil && slices.Contains(bc.listen.uris, uri) && bc.listen.covers(uri):
		return bc.acceptSubscribeLocked(q, nil)
	case !q.enter(&bc.queue):
		bc.subs.reject(uri, session)
		return func() { q.fail(peer.ErrCancelled) }
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
	var rest []*queuedCall
	for _, q := range bc.pendingSubscribes {
		if !bc.b.filters.permits(&q.request) { // the filters may have changed meanwhile
			bc.subs.reject(q.subscription.uri, q.request.Session)
			respond = append(respond, func() { q.fail(contract.ErrForbidden) })
			continue
		}
		known, err := state(q.subscription.uri)
		if !known {
			rest = append(rest, q)
			continue
		}
		respond = append(respond, bc.acceptSubscribeLocked(q, err))
	}
	bc.pendingSubscribes = rest
	return respond
}

func (bc *backendConn) acceptSubscribeLocked(q *queuedCall, err *wire.Error) func() {
	if err != nil {
		bc.subs.reject(q.subscription.uri, q.request.Session)
		return func() { q.refuse(err) }
	}
	bc.subs.accept(q.subscription.uri, q.request.Session)
	return q.succeed
}
