package gateway

// inFlightCalls is the list of a session client's calls that were sent and have not ended, the
// oldest first. Its length is bounded by MaxInFlight.
type inFlightCalls struct{ oldest, newest *sessionCall }

// addInFlight adds a call to the list. It must be called before the call is sent.
func (s *Session) addInFlight(c *sessionCall) {
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

// removeInFlight removes a call from the list, if it is in the list, and ends the server requests
// that belong to the call with certainty.
func (s *Session) removeInFlight(c *sessionCall) {
	s.mu.Lock()
	s.removeInFlightLocked(c)
	var ending []*serverRequest
	if len(s.serverRequests.open) > 0 {
		ending = s.detachRequestsLocked(c)
	}
	s.mu.Unlock()
	for _, sr := range ending {
		sr.withdraw(errCallEnded)
	}
}

func (s *Session) isInFlightLocked(c *sessionCall) bool {
	return c.older != nil || s.inFlight.oldest == c
}

func (s *Session) removeInFlightLocked(c *sessionCall) {
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
