package backends

import (
	"errors"
)

// errMergedIntoShared is the reason for the end of a per-session connection whose handshake has
// shown that the backend is modern.
var errMergedIntoShared = errors.New("it does not need a connection for each session")

// mergeIntoShared ends a per-session connection: its accepted subscriptions move to the shared
// connection, and its queued calls and all later ones go over that connection.
func (bc *backendConn) mergeIntoShared() {
	bc.b.perSession.remove(bc)
	bc.mu.Lock()
	bc.mergedIntoShared = true
	calls, uris := bc.queued, bc.subs.acceptedURIs()
	bc.queued, bc.subs = nil, subscriptions{}
	bc.mu.Unlock()
	bc.b.shared.addSubscriptions(bc.session, uris)
	for _, q := range calls {
		bc.b.shared.send(q)
	}
}

// addSubscriptions takes over a session's subscriptions from another connection to the backend,
// unless the session is over. If this connection is draining, the successor of the backend takes
// them over. A connection to a legacy backend must not have begun to start, because the
// subscriptions are sent during the start.
func (bc *backendConn) addSubscriptions(session string, uris []string) {
	bc.mu.Lock()
	if bc.draining {
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
	bc.signalReopen()
}
