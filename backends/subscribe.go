package backends

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// subscribe sends a resources/subscribe.
func (b *Backend) subscribe(uri string, m wire.Message, c *peer.Call) {
	sub := &subscribeCall{ResponseHandler: c.Handler, uri: uri, session: c.SessionID}
	c.Handler = sub
	b.conn(c.SessionID, false).send(queuedCall{request: m, call: c, subscribe: sub})
}

// A subscribeCall is the ResponseHandler of a resources/subscribe.
type subscribeCall struct {
	peer.ResponseHandler
	// the connection that has the subscription; nil = the request was neither sent nor queued yet
	conn         *backendConn
	uri, session string
}

// recordSubscriptionLocked records a subscription that is being sent or queued. The subscription
// counts from now on, so that the end of another subscription does not unsubscribe the URI. It is
// removed if the backend refuses it. If a limit is reached, recordSubscriptionLocked records
// nothing and reports false.
func (bc *backendConn) recordSubscriptionLocked(s *subscribeCall) bool {
	s.conn = bc
	return bc.subs.add(s.uri, s.session)
}

// OnResponse implements peer.ResponseHandler.
func (s *subscribeCall) OnResponse(m wire.Message, err error) {
	if s.conn != nil {
		s.conn.subscribeDone(s, err == nil && m.Part(wire.PartError) == nil)
	}
	s.ResponseHandler.OnResponse(m, err)
}

// subscribeDone records the result of a resources/subscribe. If the backend has accepted it and is
// draining, the subscription moves to the backend's successor.
func (bc *backendConn) subscribeDone(s *subscribeCall, accepted bool) {
	bc.mu.Lock()
	draining := bc.draining
	switch {
	case draining:
	case accepted:
		bc.subs.accept(s.uri, s.session)
	default:
		bc.subs.reject(s.uri, s.session)
	}
	bc.mu.Unlock()
	if draining && accepted {
		bc.b.redirectSubscriptions(s.session, []string{s.uri})
	}
}

// unsubscribe ends a subscription on the connection that has it.
func (b *Backend) unsubscribe(uri string, m wire.Message, c *peer.Call) {
	bc := b.conn(c.SessionID, true)
	if bc != b.shared && b.shared.hasSubscription(uri, c.SessionID) {
		// the subscribe was queued on the shared connection before the session had its own
		// connection, where the session may have subscribed again
		if bc != nil && bc.hasSubscription(uri, c.SessionID) {
			b.shared.unsubscribe(uri, m, &peer.Call{Handler: ignoreResponse{},
				SessionID: c.SessionID})
		} else {
			bc = b.shared
		}
	}
	if bc == nil {
		bc = b.conn(c.SessionID, false)
	}
	bc.unsubscribe(uri, m, c)
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
func (bc *backendConn) unsubscribe(uri string, m wire.Message, c *peer.Call) {
	bc.mu.Lock()
	removed := bc.removeQueuedSubscribesLocked(uri, c.SessionID)
	// a subscribe request may have been sent to the backend
	known := len(removed) == 0 || bc.subs.byURI[uri][c.SessionID]
	last := bc.subs.remove(uri, c.SessionID)
	bc.mu.Unlock()
	for _, q := range removed {
		// the subscribe was never sent
		q.subscribe.ResponseHandler.OnResponse(wire.NewResult("0", emptyObject), nil)
	}
	if last && known {
		c.Handler = &unsubscribeCall{ResponseHandler: c.Handler, conn: bc, uri: uri}
		bc.send(queuedCall{request: m, call: c, staysOnConn: true})
		return
	}
	c.Handler.OnResponse(wire.NewResult("0", emptyObject), nil)
}

// removeQueuedSubscribesLocked removes the queued calls that would subscribe a session to a
// URI.
func (bc *backendConn) removeQueuedSubscribesLocked(uri, session string) (removed []queuedCall) {
	var rest []queuedCall
	for _, q := range bc.queued {
		if q.subscribe != nil && q.subscribe.uri == uri && q.subscribe.session == session {
			removed = append(removed, q)
		} else {
			rest = append(rest, q)
		}
	}
	bc.queued = rest
	return removed
}

// An unsubscribeCall is the ResponseHandler of a resources/unsubscribe. If another session has
// subscribed meanwhile, the backend is subscribed once more, because that session's request may
// have arrived before the unsubscribe request.
type unsubscribeCall struct {
	peer.ResponseHandler
	conn *backendConn
	uri  string
}

// OnResponse implements peer.ResponseHandler.
func (u *unsubscribeCall) OnResponse(m wire.Message, err error) {
	u.conn.mu.Lock()
	wanted, p, server := len(u.conn.subs.byURI[u.uri]) > 0, u.conn.peer, u.conn.server
	u.conn.mu.Unlock()
	if wanted && p != nil && !server.modern && u.conn.b.permitsEntry(catalog.Resources, u.uri) {
		p.Send(subscribeRequest(u.uri, true), &peer.Call{Handler: ignoreResponse{},
			Timeout: restoreTimeout})
	}
	u.ResponseHandler.OnResponse(m, err)
}

// endSession removes the subscriptions of a session that is over, and fails its queued subscribe
// calls, which would otherwise create subscriptions that never end.
func (bc *backendConn) endSession(session string) {
	var calls []queuedCall
	bc.mu.Lock()
	for _, list := range []*[]queuedCall{&bc.queued, &bc.pendingSubscribes} {
		var rest []queuedCall
		for _, q := range *list {
			if q.subscribe != nil && q.subscribe.session == session {
				calls = append(calls, q)
			} else {
				rest = append(rest, q)
			}
		}
		*list = rest
	}
	bc.mu.Unlock()
	for _, q := range calls {
		q.call.Handler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
	}
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
		to := &unsubscribeCall{ResponseHandler: ignoreResponse{}, conn: bc, uri: uri}
		p.Send(subscribeRequest(uri, false), &peer.Call{Handler: to, Timeout: restoreTimeout})
	}
	return dropped
}

// ignoreResponse is a ResponseHandler that ignores the response.
type ignoreResponse struct{}

func (ignoreResponse) OnProgress(wire.Message) {}

func (ignoreResponse) OnResponse(wire.Message, error) {}

// forwardUpdate forwards resources/updated. An update over a shared connection goes to the
// subscribed sessions. If there are none, but there is a single client, the update goes to the
// session that soleSession returns. An update over a per-session connection goes to its session. An
// update of a resource that the filters do not permit is dropped.
func (bc *backendConn) forwardUpdate(m wire.Message, origin peer.Origin) {
	set, backend := bc.b.set, bc.b.cfg.Name
	if !bc.b.permitsEntry(catalog.Resources, uriParam(m)) {
		return
	}
	if bc.isPerSession() {
		set.clientSide().HandleNotification(bc.session, backend, m, origin)
		return
	}
	value, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	bc.mu.Lock()
	sessions := bc.subs.sessionsFor(wire.Unquote(value))
	bc.mu.Unlock()
	switch {
	case !set.SingleClient:
		origin = peer.Origin{}
	case len(sessions) == 0:
		sessions = []string{set.soleSession()}
	}
	for _, session := range sessions {
		set.clientSide().HandleNotification(session, backend, m, origin)
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
