package backends

import (
	"errors"
)

// Calls and subscriptions move between connections in three cases:
//
//   - A session gets its own connection (sessionConns.open): its accepted subscriptions move there
//     from the shared connection.
//   - The handshake of a per-session connection shows that the backend is modern (mergeIntoShared).
//   - A backend drains (Backend.drain): its calls and subscriptions move to the successor.

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
	bc.b.shared.addSubscriptions(bc.session, accepted[bc.session])
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

// addSubscriptions takes over a session's subscriptions from another connection to the backend,
// unless the session is over. If this connection is draining, the successor of the backend takes
// them over. A connection to a legacy backend must not have begun to start, because the
// subscriptions are sent during the start.
func (bc *backendConn) addSubscriptions(session string, uris []string) {
	bc.mu.Lock()
	if bc.phase == connDraining {
		bc.mu.Unlock()
		bc.b.redirectSubscriptions(session, uris)
		return
	}
	defer bc.mu.Unlock()
	for _, uri := range uris {
		bc.subs.add(uri, session)
		bc.subs.accept(uri, session)
	}
	if !bc.b.set.sessions.isOpen(session) {
		bc.subs.removeAll(session, false)
	}
	if !bc.isPerSession() && !bc.subs.empty() {
		bc.wakeLocked() // it may be stopped and wait for demand
	}
	bc.subs.signalReopen()
}

// takeOverSubscriptions takes over a session's subscriptions from the predecessor of the backend.
// The server is subscribed now or when it is ready. After that the session gets an update of each
// URI, because an update may have been missed. If the session is over, or a limit of subscriptions
// is reached, the subscription is dropped.
func (bc *backendConn) takeOverSubscriptions(session string, uris []string) {
	bc.mu.Lock()
	switch bc.phase {
	case connDraining:
		bc.mu.Unlock()
		bc.b.redirectSubscriptions(session, uris)
		return
	case connMerged:
		bc.mu.Unlock()
		bc.b.shared.takeOverSubscriptions(session, uris)
		return
	}
	defer bc.mu.Unlock()
	if !bc.b.set.sessions.isOpen(session) {
		return // after this check, CloseSession removes the subscriptions
	}
	for _, uri := range uris {
		if bc.subs.add(uri, session) {
			bc.subs.accept(uri, session)
			bc.subs.resubscribe = append(bc.subs.resubscribe, uri)
		}
	}
	bc.wakeLocked()
	bc.resubscribeLocked()
}
