package backends

import "errors"

// Accepted subscriptions move between connections in three cases. They are taken from the table of
// one connection, and put into that of the other; the mutexes of two connections are never held
// together.
//
//   - A session gets its own connection (sessionConns.open): dropSubscriptions takes them from the
//     shared connection, whose server is unsubscribed.
//   - The handshake of a per-session connection shows that the backend is modern: mergeIntoShared.
//   - A backend drains: startDraining takes them, redirectSubscriptions puts them into a connection
//     of the successor.

// errMergedIntoShared is the reason for the end of a per-session connection whose handshake has
// shown that the backend is modern.
var errMergedIntoShared = errors.New("it does not need a connection for each session")

// mergeIntoShared ends a per-session connection: its accepted subscriptions move to the shared
// connection, and its queued calls and all later ones go over that connection.
func (bc *backendConn) mergeIntoShared() {
	bc.b.perSession.remove(bc)
	bc.mu.Lock()
	if bc.phase == connOpen {
		bc.phase = connMerged
	}
	calls, accepted := bc.calls.take(), bc.subs.takeAccepted()
	bc.mu.Unlock()
	if uris := accepted[bc.session]; len(uris) > 0 {
		bc.b.shared.put(bc.session, uris, true) // no server has had them since bc was down
	}
	for _, q := range calls {
		bc.b.shared.send(q)
	}
}

// startDraining stops the sending of calls. It returns the queued calls, and the accepted
// subscriptions of each session.
func (bc *backendConn) startDraining() ([]*queuedCall, map[string][]string) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if bc.phase == connOpen {
		bc.phase = connDraining
	}
	bc.calls.disconnected()
	return bc.calls.take(), bc.subs.takeAccepted()
}

// put takes over accepted subscriptions of a session, which were taken from another connection. If
// the session is over, or a limit of subscriptions is reached, they are dropped. If bc is draining
// or merged, they go where its calls go.
//
// If missed is set, updates may have been missed: the server is subscribed now or when it is ready,
// and after that the session gets an update of each URI. Otherwise bc must be a per-session
// connection that has not begun to start: it is started by its first call.
func (bc *backendConn) put(session string, uris []string, missed bool) {
	bc.mu.Lock()
	switch bc.phase {
	case connDraining:
		bc.mu.Unlock()
		bc.b.redirectSubscriptions(session, uris)
		return
	case connMerged:
		bc.mu.Unlock()
		bc.b.shared.put(session, uris, missed)
		return
	}
	defer bc.mu.Unlock()
	if !bc.b.set.sessions.isOpen(session) {
		return // after this check, CloseSession removes the subscriptions
	}
	for _, uri := range uris {
		if bc.subs.add(uri, session) {
			bc.subs.accept(uri, session)
			if missed {
				bc.subs.resubscribe = append(bc.subs.resubscribe, uri)
			}
		}
	}
	if missed {
		bc.wakeLocked() // it may be stopped and wait for demand
		bc.resubscribeLocked()
	}
}
