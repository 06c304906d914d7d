package peer

import "time"

const (
	// abandonedTTL is how long the far side may still be at a call that was given up:
	// "SHOULD NOT send a response" leaves nothing to tell by.
	abandonedTTL = 30 * time.Second
	// respondedTTL is how long after its answer the far side may still say what
	// belongs to a call, such as that it has ended.
	respondedTTL = 2 * time.Second
	// maxRecentCalls bounds the calls, and the owners, that are remembered so. With more
	// of them nobody can be told from the others, for as long.
	maxRecentCalls = 1024
)

// recentCalls are the calls that are not in flight any more, as far as the far side may
// still be at them. The zero value is none.
type recentCalls struct {
	abandoned      map[int64]abandonedCall
	respondedUntil map[string]time.Time // owner → until when
	overflowUntil  time.Time            // until then there were too many to tell them apart
	sweptAt        time.Time            // when it was looked last which of them are over
}

type abandonedCall struct {
	session string
	until   time.Time
}

// noteAbandoned notes that a call was given up. One that nobody owns is nobody's concern.
func (s *recentCalls) noteAbandoned(id int64, owner string) {
	if owner == "" {
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
	s.abandoned[id] = abandonedCall{owner, now.Add(abandonedTTL)}
}

// noteResponded notes that a call of that owner was answered.
func (s *recentCalls) noteResponded(owner string) {
	if owner == "" {
		return
	}
	now := time.Now()
	if len(s.respondedUntil) >= maxRecentCalls {
		s.sweep(now)
	}
	switch _, known := s.respondedUntil[owner]; {
	case !known && len(s.respondedUntil) >= maxRecentCalls:
		s.overflowUntil = now.Add(respondedTTL)
		return
	case s.respondedUntil == nil:
		s.respondedUntil = make(map[string]time.Time)
	}
	s.respondedUntil[owner] = now.Add(respondedTTL)
}

// noteLateResponse is answered for a call that may have been given up.
func (s *recentCalls) noteLateResponse(id int64) {
	if one, ok := s.abandoned[id]; ok {
		delete(s.abandoned, id)
		s.noteResponded(one.session)
	}
}

// sweep is expire, but not for each call that finds no room.
func (s *recentCalls) sweep(now time.Time) {
	if now.Sub(s.sweptAt) >= respondedTTL {
		s.sweptAt = now
		s.expire(now)
	}
}

func (s *recentCalls) expire(now time.Time) {
	for id, one := range s.abandoned {
		if now.After(one.until) {
			delete(s.abandoned, id)
		}
	}
	for owner, until := range s.respondedUntil {
		if now.After(until) {
			delete(s.respondedUntil, owner)
		}
	}
}

// ambiguous reports whether somebody other than owner may be concerned.
func (s *recentCalls) ambiguous(owner string) bool {
	now := time.Now()
	if now.Before(s.overflowUntil) {
		return true
	}
	for id, one := range s.abandoned {
		switch {
		case now.After(one.until):
			delete(s.abandoned, id)
		case one.session != owner:
			return true
		}
	}
	for other, until := range s.respondedUntil {
		switch {
		case now.After(until):
			delete(s.respondedUntil, other)
		case other != owner:
			return true
		}
	}
	return false
}

// sessionCounts counts what there is of each owner, so that nobody has to look through all calls to see whose
// they are. What nobody owns does not count. The zero value has counted nothing.
type sessionCounts map[string]int

func (o *sessionCounts) add(owner string, n int) {
	if owner == "" {
		return
	}
	if *o == nil {
		*o = make(sessionCounts)
	}
	if (*o)[owner] += n; (*o)[owner] == 0 {
		delete(*o, owner)
	}
}

// sole returns the owner of all that is counted, "" if there are several or none.
func (o sessionCounts) sole() string {
	if len(o) == 1 {
		for owner := range o {
			return owner
		}
	}
	return ""
}

// SoleSession returns the [Call.CancelHandler] of all calls in flight, if it is one and
// the same, and if what the far side says unasked can concern nobody else: there is
// no [ProgressRelay] of another's, no call of another's that was given up and not answered
// within the last half minute, and none that was answered within the last two
// seconds. On a connection that is shared and has one stream for everything there
// is no better way to know.
func (p *Peer) SoleSession() (owner string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	owner = p.inFlight.sole()
	others := len(p.relaySessions) > 0 && p.relaySessions.sole() != owner
	if owner == "" || others || p.recent.ambiguous(owner) {
		return "", false
	}
	return owner, true
}

// SoleSessionWhere is SoleOwner for what can concern none but the calls in flight of certain
// owners, because the far side says nothing of a call that it has answered: there is
// only one of them, and none that has given a call up within the last half minute.
func (p *Peer) SoleSessionWhere(is func(owner string) bool) (owner string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	several := false
	for one := range p.inFlight {
		if is(one) {
			several, owner = several || owner != "", one
		}
	}
	now := time.Now()
	p.recent.expire(now)
	for _, one := range p.recent.abandoned {
		several = several || one.session != owner && is(one.session)
	}
	return owner, owner != "" && !several && !now.Before(p.recent.overflowUntil)
}

// OldestSession returns the owner of the call in flight that was sent first and has one, ""
// if none has.
func (p *Peer) OldestSession() (owner string) {
	first := int64(0)
	p.calls.Each(func(c *Call) {
		if n := c.number(); c.SessionID != "" && (first == 0 || n < first) {
			owner, first = c.SessionID, n
		}
	})
	return owner
}
