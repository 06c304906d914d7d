package backends

import (
	"errors"
)

// errMergedIntoShared is why a session's own line ends that has found the backend to be of
// the stateless era.
var errMergedIntoShared = errors.New("it needs no connection for each session")

// mergeIntoShared ends a session's own line: what waits for it goes over the one that all
// share, as does what is sent from now on.
func (bc *backendConn) mergeIntoShared() {
	bc.b.mu.Lock()
	if bc.b.perSession[bc.session] == bc {
		delete(bc.b.perSession, bc.session)
	}
	bc.b.mu.Unlock()
	bc.mu.Lock()
	bc.mergedIntoShared = true
	waiting, uris := bc.queued, bc.subs.acceptedURIs()
	bc.queued, bc.subs = nil, subscriptions{}
	bc.mu.Unlock()
	bc.b.shared.addSubscriptions(bc.session, uris)
	for _, q := range waiting {
		bc.b.shared.send(q)
	}
}

// addSubscriptions takes over a session's subscriptions from another line, unless it is over. A line
// of the session era must not have begun to start: it tells the backend then.
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
	if !bc.b.set.isSessionOpen(session) {
		bc.subs.removeAll(session, false)
	}
	if !bc.isPerSession() && !bc.subs.empty() {
		bc.wakeLocked() // it may be stopped until it is needed
	}
	bc.signalReopen()
}
