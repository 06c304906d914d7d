package gateway

import "sync"

// A callTracker contains the calls in flight of a session client, and the requests and task
// statuses of backends that belong to these calls. The zero value is empty. Its methods may be
// called concurrently.
//
//	the call to which a message belongs             attribution.go
//	requests of backends to the client              open_server_requests.go
//	statuses that precede the response to a call    early_status.go
type callTracker struct {
	mu             sync.Mutex
	inFlight       inFlightCalls
	serverRequests openServerRequests
	earlyStatuses  []earlyStatus
}

// add adds a call. It must be called before the call is sent.
func (t *callTracker) add(c *sessionCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight.add(c)
}

// remove removes a call with its early statuses, and ends the server requests that belong to the
// call with certainty. A call that was not added is ignored.
func (t *callTracker) remove(c *sessionCall) {
	t.mu.Lock()
	if len(t.earlyStatuses) > 0 {
		t.takeEarlyStatusesLocked(c)
	}
	t.inFlight.remove(c)
	var ending []*serverRequest
	if len(t.serverRequests.open) > 0 {
		ending = t.detachRequestsLocked(c)
	}
	t.mu.Unlock()
	for _, sr := range ending {
		sr.withdraw(errCallEnded)
	}
}

// inFlightCalls is the list of a session client's calls that were sent and have not ended, the
// oldest first. Its length is bounded by MaxInFlight.
type inFlightCalls struct{ oldest, newest *sessionCall }

func (l *inFlightCalls) add(c *sessionCall) {
	c.older = l.newest
	if c.older == nil {
		l.oldest = c
	} else {
		c.older.newer = c
	}
	l.newest = c
}

func (l *inFlightCalls) contains(c *sessionCall) bool { return c.older != nil || l.oldest == c }

// remove removes a call, if it is in the list.
func (l *inFlightCalls) remove(c *sessionCall) {
	if !l.contains(c) {
		return
	}
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		l.oldest = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		l.newest = c.older
	}
	c.older, c.newer = nil, nil
}

// newestAt returns the newest call at a backend, nil if there is none.
func (l *inFlightCalls) newestAt(backend string) *sessionCall {
	c := l.newest
	for c != nil && c.Route.Backend != backend {
		c = c.older
	}
	return c
}
