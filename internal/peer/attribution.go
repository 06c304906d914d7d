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

// noteResponded records that a call of the session got its response now.
func (s *recentCalls) noteResponded(session string, now time.Time) {
	if session == "" {
		return
	}
	if len(s.respondedUntil) >= maxRecentCalls {
		s.sweep(now)
	}
	switch _, known := s.respondedUntil[session]; {
	case !known && len(s.respondedUntil) >= maxRecentCalls:
		if until := now.Add(respondedTTL); until.After(s.overflowUntil) {
			s.overflowUntil = until
		}
		return
	case s.respondedUntil == nil:
		s.respondedUntil = make(map[string]time.Time)
	}
	s.respondedUntil[session] = now.Add(respondedTTL)
}

// noteLateResponse records that a response has arrived now, if its call was abandoned before.
func (s *recentCalls) noteLateResponse(id int64, now time.Time) {
	if c, ok := s.abandoned[id]; ok {
		delete(s.abandoned, id)
		s.noteResponded(c.session, now)
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
	if n += (*s)[session]; n == 0 {
		delete(*s, session)
	} else {
		(*s)[session] = n
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

// sole implements [Peer.SoleSession].
func (s *sessionRecord) sole() (session string, ok bool) {
	session = s.inFlight.sole()
	others := len(s.relays) > 0 && s.relays.sole() != session
	if session == "" || others || s.recent.ambiguous(session) {
		return "", false
	}
	return session, true
}

// soleWhere implements [Peer.SoleSessionWhere].
func (s *sessionRecord) soleWhere(match func(session string) bool) (session string, ok bool) {
	several := false
	for id := range s.inFlight {
		if match(id) {
			several, session = several || session != "", id
		}
	}
	now := time.Now()
	s.recent.expire(now)
	for _, c := range s.recent.abandoned {
		several = several || c.session != session && match(c.session)
	}
	return session, session != "" && !several && !now.Before(s.recent.overflowUntil)
}
