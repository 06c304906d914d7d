package backends

import (
	"mcpgateway/catalog"
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
	draining := bc.draining
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

// unsubscribe ends a subscription on the connection that has it.
func (b *Backend) unsubscribe(q *queuedCall) {
	uri, session := q.subscription.uri, q.request.Session
	bc := b.conn(session, true)
	if bc != b.shared && b.shared.hasSubscription(uri, session) {
		// the subscribe was queued on the shared connection before the session had its own
		// connection, where the session may have subscribed again
		if bc != nil && bc.hasSubscription(uri, session) {
			b.shared.unsubscribe(b.newCall(q.request))
		} else {
			bc = b.shared
		}
	}
	if bc == nil {
		bc = b.conn(session, false)
	}
	bc.unsubscribe(q)
}

// newCall returns a call of the gateway itself, whose response does not matter.
func (b *Backend) newCall(r contract.BackendRequest) *queuedCall {
	q := b.set.newCall(b.cfg.Name, r, ignoreOutcome{})
	q.b = b
	return q
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
	removed := bc.removeQueuedSubscribesLocked(uri, session)
	// a subscribe request may have been sent to the backend
	known := len(removed) == 0 || bc.subs.byURI[uri][session]
	last := bc.subs.remove(uri, session)
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

// removeQueuedSubscribesLocked removes the queued calls that would subscribe a session to a
// URI.
func (bc *backendConn) removeQueuedSubscribesLocked(uri, session string) (removed []*queuedCall) {
	bc.queued, removed = partition(bc.queued, func(q *queuedCall) bool {
		return q.subscribes() && q.subscription.uri == uri && q.request.Session == session
	})
	return removed
}

// partition returns the calls for which match reports false, and those for which it reports true.
func partition(calls []*queuedCall, match func(*queuedCall) bool) (rest, matching []*queuedCall) {
	for _, q := range calls {
		if match(q) {
			matching = append(matching, q)
		} else {
			rest = append(rest, q)
		}
	}
	return rest, matching
}

// resubscribeIfWanted is called when a resources/unsubscribe has ended. If another session has
// subscribed meanwhile, the backend is subscribed once more, because that session's request may
// have arrived before the unsubscribe request.
func (bc *backendConn) resubscribeIfWanted(uri string) {
	bc.mu.Lock()
	wanted, p, server := len(bc.subs.byURI[uri]) > 0, bc.peer, bc.server
	bc.mu.Unlock()
	if wanted && p != nil && !server.modern && bc.b.filters.permitsEntry(catalog.Resources, uri) {
		p.Send(subscribeRequest(uri, true), &peer.Call{Handler: ignoreResponse{},
			Timeout: restoreTimeout})
	}
}

// endSession removes the subscriptions of a session that is over, and fails its queued subscribe
// calls, which would otherwise create subscriptions that never end.
func (bc *backendConn) endSession(session string) {
	subscribes := func(q *queuedCall) bool {
		return q.subscribes() && q.request.Session == session
	}
	var queued, pending []*queuedCall
	bc.mu.Lock()
	bc.queued, queued = partition(bc.queued, subscribes)
	bc.pendingSubscribes, pending = partition(bc.pendingSubscribes, subscribes)
	bc.mu.Unlock()
	failAll(append(queued, pending...), notSent("%w", errSessionOver))
	bc.dropSubscriptions(session, false)
}

// dropSubscriptions removes a session's subscriptions, or only the accepted ones, and returns their
// URIs. The backend is unsubscribed from the URIs to which no other session is subscribed.
func (bc *backendConn) dropSubscriptions(session string, acceptedOnly bool) []string {
	bc.mu.Lock()
	dropped, last := bc.subs.removeAll(session, acceptedOnly)
	p, server := bc.peer, bc.server
	if len(last) > 0 {
		bc.signalReopen()
	}
	bc.mu.Unlock()
	if p == nil || server.modern {
		return dropped
	}
	for _, uri := range last {
		q := bc.b.newCall(contract.BackendRequest{Message: subscribeRequest(uri, false)})
		q.subscription.conn, q.Timeout = bc, restoreTimeout
		p.Send(q.request.Message, &q.Call)
	}
	return dropped
}

// ignoreResponse is a ResponseHandler that ignores the response.
type ignoreResponse struct{}

func (ignoreResponse) OnProgress(wire.Message) {}

func (ignoreResponse) OnResponse(wire.Message, error) {}

// forwardUpdate forwards resources/updated. An update over a shared connection goes to the
// subscribed sessions. If there are none, but there is a single client, the update goes to the
// session that clientSessions.sole returns. An update over a per-session connection goes to its
// session. An update of a resource that the filters do not permit is dropped.
func (bc *backendConn) forwardUpdate(m wire.Message, from contract.Attribution) {
	set, backend := bc.b.set, bc.b.cfg.Name
	if !bc.b.filters.permitsEntry(catalog.Resources, uriParam(m)) {
		return
	}
	if bc.isPerSession() {
		from.Session = bc.session
		set.clientSide().HandleNotification(backend, from, m)
		return
	}
	bc.mu.Lock()
	sessions := bc.subs.sessionsFor(uriParam(m))
	bc.mu.Unlock()
	switch {
	case !set.SingleClient:
		from = contract.Attribution{}
	case len(sessions) == 0:
		sessions = []string{set.sessions.sole()}
	}
	for _, session := range sessions {
		from.Session = session
		set.clientSide().HandleNotification(backend, from, m)
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
