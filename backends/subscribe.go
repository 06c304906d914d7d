package backends

import (
	"cmp"
	"context"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// recordSubscriptionLocked records a subscription that is being sent or queued. The subscription
// counts from now on, so that the end of another subscription does not unsubscribe the URI. It is
// removed if the backend refuses it. If a limit is reached, recordSubscriptionLocked records
// nothing and reports false.
func (bc *backendConn) recordSubscriptionLocked(q *queuedCall) bool {
	q.subscription.conn = bc
	return bc.subs.add(q.subscription.uri, q.request.Session)
}

// subscribeDone records the result of a resources/subscribe. If the backend has accepted it and is
// draining, the subscription moves to the backend's successor.
func (bc *backendConn) subscribeDone(q *queuedCall, accepted bool) {
	uri, session := q.subscription.uri, q.request.Session
	bc.mu.Lock()
	draining := bc.phase == connDraining
	switch {
	case draining:
	case accepted:
		bc.subs.accept(uri, session)
	default:
		bc.subs.reject(uri, session)
	}
	bc.mu.Unlock()
	if draining && accepted {
		bc.b.redirectSubscriptions(session, []string{uri})
	}
}

func (bc *backendConn) hasSubscription(uri, session string) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	_, held := bc.subs.byURI[uri][session]
	return held
}

// unsubscribe ends a subscription. If it was the last subscription to the URI, and the backend may
// know it, the request is sent to the backend. Otherwise the result is {}. A queued subscribe
// request is removed, because it might be sent over another connection; its result is also {}.
func (bc *backendConn) unsubscribe(q *queuedCall) {
	uri, session := q.subscription.uri, q.request.Session
	bc.mu.Lock()
	removed := bc.calls.takeSubscribes(session, func(u string) bool { return u == uri })
	// a subscribe request may have been sent to the backend
	known := len(removed) == 0 || bc.subs.byURI[uri][session]
	last := bc.subs.remove(uri, session)
	if last {
		bc.subs.signalReopen() // a listen may have the URI, or may be about to
	}
	bc.mu.Unlock()
	for _, other := range removed {
		other.subscription.conn = nil // the subscribe was never sent, and is not recorded any more
		other.succeed()
	}
	if last && known {
		q.subscription.conn, q.staysOnConn = bc, true
		bc.send(q)
		return
	}
	q.succeed()
}

// resubscribeIfWanted is called when a resources/unsubscribe has ended. If another session has
// subscribed meanwhile, the backend is subscribed once more, because that session's request may
// have arrived before the unsubscribe request.
func (bc *backendConn) resubscribeIfWanted(uri string) {
	bc.mu.Lock()
	wanted, l := len(bc.subs.byURI[uri]) > 0, bc.link
	bc.mu.Unlock()
	if wanted && l != nil && !l.isModern() && bc.b.filters.permitsEntry(catalog.Resources, uri) {
		l.peer.Send(subscribeRequest(uri, true), &peer.Call{Handler: ignoreResponse{},
			Timeout: restoreTimeout})
	}
}

// endSession removes the subscriptions of a session that is over, and fails its queued subscribe
// calls, which would otherwise create subscriptions that never end.
func (bc *backendConn) endSession(session string) {
	bc.mu.Lock()
	subscribes := bc.calls.takeSubscribes(session, func(string) bool { return true })
	bc.mu.Unlock()
	failAll(subscribes, notSent("%w", errSessionOver))
	bc.dropSubscriptions(session, false)
}

// dropSubscriptions removes a session's subscriptions, or only the accepted ones, and returns their
// URIs. The backend is unsubscribed from the URIs to which no other session is subscribed.
func (bc *backendConn) dropSubscriptions(session string, acceptedOnly bool) []string {
	bc.mu.Lock()
	dropped, last := bc.subs.removeAll(session, acceptedOnly)
	l := bc.link
	if len(last) > 0 {
		bc.subs.signalReopen()
	}
	bc.mu.Unlock()
	if l == nil || l.isModern() {
		return dropped
	}
	for _, uri := range last {
		q := bc.b.newCall(contract.BackendRequest{Message: subscribeRequest(uri, false)})
		q.subscription.conn, q.Timeout = bc, restoreTimeout
		l.peer.Send(q.request.Message, &q.Call)
	}
	return dropped
}

// subscribeByListenLocked handles resources/subscribe and resources/unsubscribe for a modern
// backend. The response to a subscribe request is sent when the server has acknowledged a listen
// with the URI, and at once if the current listen covers the URI. A subscribe request is refused at
// once if the filters do not permit it, the server has no subscriptions, or a limit is reached. It
// waits for a listen for at most its call_timeout, or noTimeoutWait if it has no timeout, and then
// ends as not run. The response to an unsubscribe request is sent at once. respond sends a response
// that is due at once, and must be called without bc.mu.
func (bc *backendConn) subscribeByListenLocked(q *queuedCall) (respond func()) {
	uri, session := q.subscription.uri, q.request.Session
	q.modern = false // the gateway itself responds
	if q.subscription.ends {
		if bc.subs.remove(uri, session) {
			bc.subs.signalReopen()
		}
		return q.succeed
	}
	switch {
	case bc.b.permits(&q.request) != nil:
		bc.subs.reject(uri, session)
		return func() { q.fail(contract.ErrForbidden) }
	case !bc.link.info().has("resources", "subscribe"):
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
	case bc.subs.isListenedTo(uri):
		return bc.acceptSubscribeLocked(q, nil)
	case !q.enter(&bc.calls.callQueue):
		bc.subs.reject(uri, session)
		return func() { q.fail(peer.ErrCancelled) }
	}
	wait := cmp.Or(q.Timeout, noTimeoutWait)
	if q.subscription.expiry != nil {
		q.subscription.expiry.Stop() // it waited at another connection, or for another link
	}
	q.subscription.expiry = time.AfterFunc(wait, func() { bc.expireSubscribe(q, wait) })
	bc.calls.subscribes = append(bc.calls.subscribes, q)
	bc.subs.signalReopen()
	return func() {}
}

// expireSubscribe ends a subscribe that still waits for a listen.
func (bc *backendConn) expireSubscribe(q *queuedCall, waited time.Duration) {
	bc.mu.Lock()
	waits := removeCall(&bc.calls.subscribes, q)
	bc.mu.Unlock()
	if waits {
		q.fail(notSent("it has not accepted subscriptions/listen within %v", waited))
	}
}

// resolveSubscribesLocked removes the pending subscribe calls whose result is known according to
// the function state, or that the filters no longer permit. It returns functions that send the
// responses, and that must be called without bc.mu.
func (bc *backendConn) resolveSubscribesLocked(
	state func(uri string) (known bool, err *wire.Error),
) (respond []func()) {
	var rest []*queuedCall
	for _, q := range bc.calls.subscribes {
		if bc.b.permits(&q.request) != nil { // the filters may have changed meanwhile
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
	bc.calls.subscribes = rest
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

// listenAcknowledged handles the acknowledgement of the listen that is being opened, and ignores
// any other.
func (bc *backendConn) listenAcknowledged(m wire.Message, origin peer.Origin) {
	bc.mu.Lock()
	ls := bc.subs.opening
	bc.mu.Unlock()
	if ls == nil || origin.Call != nil && origin.Call != ls.call ||
		origin.Call == nil && !ls.matches(m) {
		return
	}
	select {
	case ls.acked <- m.Part(wire.PartParams):
	default: // acknowledged before
	}
}

// resubscribeLocked subscribes the server to the URIs in subs.resubscribe that the filters permit,
// if the server is ready, and then forwards an update of each URI. During a handshake, replayState
// or sendQueued subscribes the server.
func (bc *backendConn) resubscribeLocked() {
	uris := bc.subs.resubscribe
	l := bc.link
	if l == nil || len(uris) == 0 {
		return
	}
	if l.isModern() {
		bc.subs.signalReopen() // listenLoop clears subs.resubscribe
		return
	}
	bc.subs.resubscribe = nil
	bc.b.lifetime.goWorker(func(ctx context.Context) {
		if l.info().has("resources", "subscribe") {
			ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
			defer cancel()
			l.sendRestoring(ctx, subscribeRequests(bc.b.filters.permittedURIs(uris)))
		}
		for _, uri := range uris {
			bc.forwardUpdate(updatedNotification(uri), contract.Attribution{})
		}
	})
}

// resubscribePermitted subscribes the server to the subscribed URIs that the new filter (after)
// permits and the previous filter (before) did not permit. A server that was started under the
// previous filter is not subscribed to them.
func (bc *backendConn) resubscribePermitted(before, after config.Filter) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	for _, uri := range bc.subs.acceptedURIs() {
		if !before.PermitsURI(uri) && after.PermitsURI(uri) {
			bc.subs.resubscribe = append(bc.subs.resubscribe, uri)
		}
	}
	bc.resubscribeLocked()
	bc.subs.signalReopen()
}

// ignoreResponse is a ResponseHandler that ignores the response.
type ignoreResponse struct{}

func (ignoreResponse) OnProgress(wire.Message) {}

func (ignoreResponse) OnResponse(wire.Message, error) {}

// forwardUpdate forwards resources/updated. An update over a shared connection goes to the
// subscribed sessions. If there are none, but there is a single client, the update goes to the
// session that clientSessions.sole returns. An update over a per-session connection goes to its
// session. An update of a resource that the filters, or the profiles of the session, do not permit
// is dropped.
func (bc *backendConn) forwardUpdate(m wire.Message, from contract.Attribution) {
	set, backend := bc.b.set, bc.b.cfg.Name
	if !bc.b.filters.permitsEntry(catalog.Resources, uriParam(m)) {
		return
	}
	var sessions []string
	if bc.isPerSession() {
		sessions = []string{bc.session}
	} else {
		bc.mu.Lock()
		sessions = bc.subs.sessionsFor(uriParam(m))
		bc.mu.Unlock()
		switch {
		case !set.SingleClient:
			from = contract.Attribution{IsFor: from.IsFor}
		case len(sessions) == 0:
			sessions = []string{set.sessions.sole()}
		}
	}
	for _, session := range sessions {
		if p := set.sessions.restrictedPrincipal(session); p != nil &&
			!set.publisher.audiences.of(p).permitsEntry(bc.b, catalog.Resources, uriParam(m)) {
			continue
		}
		from.Session = session
		set.clients.HandleNotification(backend, from, m)
	}
}

func subscribeRequests(uris []string) (requests []wire.Message) {
	for _, uri := range uris {
		requests = append(requests, subscribeRequest(uri, true))
	}
	return requests
}

func subscribeRequest(uri string, subscribe bool) wire.Message {
	method := protocol.MethodResourcesUnsubscribe
	if subscribe {
		method = protocol.MethodResourcesSubscribe
	}
	return wire.NewRequest("0", method, wire.Encode(map[string]string{"uri": uri}))
}

func updatedNotification(uri string) wire.Message {
	return wire.NewNotification(protocol.NotificationResourceUpdated,
		wire.Encode(map[string]string{"uri": uri}))
}

func uriParam(m wire.Message) string {
	uri, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	return wire.Unquote(uri)
}
