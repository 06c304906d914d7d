package peer

import "time"

// This file attributes unsolicited messages to sessions, for connections that several sessions
// share and that have a single stream. [Peer.SoleSession] attributes a message only if all calls in
// flight and all recently ended calls belong to one session.

const (
	// abandonedTTL is the time for which the remote side may still work on an abandoned call. A
	// cancelled request gets no response ("SHOULD NOT send a response"), so its end is not visible.
	abandonedTTL = 30 * time.Second
	// respondedTTL is the time after the response to a call during which the remote side may still
	// send messages that belong to the call, such as a notification of the end of the call.
	respondedTTL = 2 * time.Second
	// maxRecentCalls bounds the recorded abandoned calls, and the recorded sessions with a recent
	// response. If there are more, nothing is attributed for abandonedTTL or respondedTTL.
	maxRecentCalls = 1024
)

// A sessionRecord records the sessions that an unsolicited message may belong to. The zero value is
// empty.
type sessionRecord struct {
	inFlight sessionCounts // calls in flight
	relays   sessionCounts // progress relays
	recent   recentCalls   // ended calls that the remote side may still work on
}

// recentCalls records the ended calls to which unsolicited messages may still belong. The zero
// value is empty.
type recentCalls struct {
	abandoned      map[int64]abandonedCall
	respondedUntil map[string]time.Time // by session: respondedTTL after its latest response
	overflowUntil  time.Time            // until then nothing is attributed: too many records
	sweptAt        time.Time            // time of the last sweep
}

type abandonedCall struct {
	session string
	until   time.Time
}

// noteAbandoned records a call that was abandoned. A call without a session is not recorded.
func (s *recentCalls) noteAbandoned(id int64, session string) {
	if session == "" {
		return
	}
	now := time.Now()
	if len(s.abandoned) >= maxRecentCalls {
		s.sweep(now)
	}
	switch {
	case len(s.abandoned) >= maxRecentCalls:
		s.overflowUntil = now.Add(abandonedTTL)
		return
	case s.abandoned == nil:
		s.abandoned = make(map[int64]abandonedCall)
	}
	s.abandoned[id] = abandonedCall{session, now.Add(abandonedTTL)}
}

// noteResponded records that a call of the session got its response.
func (s *recentCalls) noteResponded(session string) {
	if session == "" {
		return
	}
	now := time.Now()
	if len(s.respondedUntil) >= maxRecentCalls {
		s.sweep(now)
	}
	switch _, known := s.respondedUntil[session]; {
	case !known && len(s.respondedUntil) >= maxRecentCalls:
		s.overflowUntil = now.Add(respondedTTL)
		return
	case s.respondedUntil == nil:
		s.respondedUntil = make(map[string]time.Time)
	}
	s.respondedUntil[session] = now.Add(respondedTTL)
}

// noteLateResponse records the response to a call, if the call was abandoned before.
func (s *recentCalls) noteLateResponse(id int64) {
	if c, ok := s.abandoned[id]; ok {
		delete(s.abandoned, id)
		s.noteResponded(c.session)
	}
}

// sweep calls expire, at most once per respondedTTL.
func (s *recentCalls) sweep(now time.Time) {
	if now.Sub(s.sweptAt) >= respondedTTL {
		s.sweptAt = now
		s.expire(now)
	}
}

// expire removes the expired records.
func (s *recentCalls) expire(now time.Time) {
	for id, c := range s.abandoned {
		if now.After(c.until) {
			delete(s.abandoned, id)
		}
	}
	for session, until := range s.respondedUntil {
		if now.After(until) {
			delete(s.respondedUntil, session)
		}
	}
}

// ambiguous reports whether an unsolicited message may belong to an ended call of another session.
// It returns true while this is unknown, because too many calls have ended.
func (s *recentCalls) ambiguous(session string) bool {
	now := time.Now()
	if now.Before(s.overflowUntil) {
		return true
	}
	for id, c := range s.abandoned {
		switch {
		case now.After(c.until):
			delete(s.abandoned, id)
		case c.session != session:
			return true
		}
	}
	for other, until := range s.respondedUntil {
		switch {
		case now.After(until):
			delete(s.respondedUntil, other)
		case other != session:
			return true
		}
	}
	return false
}

// sessionCounts counts the calls (or relays) of each session, so that counting does not need a
// search of the table of calls. Calls without a session are not counted. The zero value is empty.
type sessionCounts map[string]int

func (s *sessionCounts) add(session string, n int) {
	if session == "" {
		return
	}
	if *s == nil {
		*s = make(sessionCounts)
	}
	if (*s)[session] += n; (*s)[session] == 0 {
		delete(*s, session)
	}
}

// sole returns the session if exactly one has calls (or relays); "" = none or several.
func (s sessionCounts) sole() string {
	if len(s) == 1 {
		for session := range s {
			return session
		}
	}
	return ""
}

// SoleSession returns the session that an unsolicited message of the remote side must belong to. It
// returns false unless one session has
//  1. all calls in flight, and there is at least one (calls without a session are ignored),
//  2. every [ProgressRelay],
//  3. every call that was abandoned within the last 30 s and has got no response since, and
//  4. every call that got its response within the last 2 s.
//
// SoleSession also returns false for a while after an overflow of the records (see maxRecentCalls).
func (p *Peer) SoleSession() (session string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	session = p.sessions.inFlight.sole()
	others := len(p.sessions.relays) > 0 && p.sessions.relays.sole() != session
	if session == "" || others || p.sessions.recent.ambiguous(session) {
		return "", false
	}
	return session, true
}

// SoleSessionWhere returns the session that a message must belong to, provided that the message
// concerns a call in flight of a session for which match returns true. It is intended for remote
// sides that send nothing about a call after its response. It returns false unless exactly one
// matching session has a call in flight, and no other matching session has abandoned a call within
// the last 30 s without a response since. After an overflow of the records (see maxRecentCalls) it
// returns false for a while. The function match must not use the Peer, because the lock of the Peer
// is held.
func (p *Peer) SoleSessionWhere(match func(session string) bool) (session string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	several := false
	for s := range p.sessions.inFlight {
		if match(s) {
			several, session = several || session != "", s
		}
	}
	now := time.Now()
	p.sessions.recent.expire(now)
	for _, c := range p.sessions.recent.abandoned {
		several = several || c.session != session && match(c.session)
	}
	return session, session != "" && !several && !now.Before(p.sessions.recent.overflowUntil)
}

// OldestSession returns the session of the oldest call in flight that has a session; "" = none.
func (p *Peer) OldestSession() (session string) {
	first := int64(0)
	p.calls.Each(func(c *Call) {
		if n := c.number(); c.SessionID != "" && (first == 0 || n < first) {
			session, first = c.SessionID, n
		}
	})
	return session
}
