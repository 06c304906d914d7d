package gateway

import (
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// flights are a session's calls that were sent and have not ended, the oldest
// first. There are no more of them than requests may be in flight.
type flights struct{ oldest, newest *clientCall }

// track enters a call.
func (s *Session) track(c *clientCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.older = s.inFlight.newest
	if c.older == nil {
		s.inFlight.oldest = c
	} else {
		c.older.newer = c
	}
	s.inFlight.newest = c
}

// untrack takes a call out, if it was ever entered, and ends the questions that belong to it.
func (s *Session) untrack(c *clientCall) {
	s.mu.Lock()
	s.untrackLocked(c)
	var ending []*serverRequest
	if len(s.serverRequests.open) > 0 {
		ending = s.detachRequestsLocked(c)
	}
	s.mu.Unlock()
	for _, sr := range ending {
		sr.withdraw(errCallEnded)
	}
}

func (s *Session) isInFlightLocked(c *clientCall) bool {
	return c.older != nil || s.inFlight.oldest == c
}

func (s *Session) untrackLocked(c *clientCall) {
	if len(s.earlyStatuses) > 0 {
		s.takeEarlyStatusesLocked(c)
	}
	switch {
	case c.older != nil:
		c.older.newer = c.newer
	case s.inFlight.oldest == c:
		s.inFlight.oldest = c.newer
	default:
		return
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		s.inFlight.newest = c.older
	}
	c.older, c.newer = nil, nil
}

// originCall returns the call to which something belongs that a backend says to the
// session: the one on whose stream it came, else the one that waits for the task
// it is about, else the newest that the backend is at, else nil, as it is on the stream of a
// clientCall that is over. Which call it is
// decides on what stream the client hears of it; that it is this client's is
// certain already. The newest, for on older ones the client may have hung up: some
// do when they give a call up, and say nothing.
func (s *Session) originCall(backend string, m wire.Message, origin peer.Origin) *clientCall {
	if origin.Call != nil {
		if c, ok := origin.Call.Tag.(*clientCall); ok && c.s == s {
			return c
		}
	}
	task := relatedTask(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *clientCall
	for c := s.inFlight.newest; c != nil && (newest == nil || task != ""); c = c.older {
		switch {
		case c.Route.Backend != backend:
		case task != "" && c.isMethod(protocol.MethodTasksResult) && c.Route.Original == task:
			return c
		case newest == nil:
			newest = c
		}
	}
	if origin.CallEnded {
		return nil // it is that call's, and none of these
	}
	return newest
}

// newestCallLocked returns the newest call that a backend is at, nil if there is none.
func (s *Session) newestCallLocked(backend string) *clientCall {
	c := s.inFlight.newest
	for c != nil && c.Route.Backend != backend {
		c = c.older
	}
	return c
}

// relatedID returns the client's id of the call that is the cause of something, "" if
// there is none.
func (c *clientCall) relatedID() wire.ID {
	if c == nil {
		return ""
	}
	return c.ID
}

// originCall returns the errand to which something belongs that a backend says to the
// statelessClient: the one on whose stream it came, which is certain, as it is that there is none if
// that is a stream of anything else, or of a call that is over: a guest may be several clients,
// and none is asked or told what is another's. On no call's stream it is the oldest that
// seems best, see errand.rank. That it is this guest's is certain already.
func (sc *statelessClient) originCall(backend string, origin peer.Origin) (rc *resumableCall, certain bool) {
	if origin.Call != nil {
		if rc, ok := origin.Call.Tag.(*resumableCall); ok && rc.client == sc {
			return rc, true
		}
	}
	if origin.Call != nil || origin.CallEnded {
		return nil, true
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	best := 0
	for at := sc.resumable.Front(); at != nil; at = at.Next() {
		candidate := at.Value.(*resumableCall)
		if candidate.route.Backend != backend {
			continue
		}
		if rank := candidate.attributionScore(); rank > best {
			rc, best = candidate, rank
		}
	}
	return rc, false
}

// attributionScore says how likely it is that something is of this errand which does not say so: more
// if a request waits for it, most if nothing is asked on its behalf yet; 0 = the backend
// is not at it any more.
func (rc *resumableCall) attributionScore() int {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	switch {
	case rc.ended, rc.response != nil:
		return 0
	case rc.call == nil:
		return 1
	case len(rc.inputRequests) > 0:
		return 2
	}
	return 3
}
