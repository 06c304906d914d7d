package peer

import "time"

const (
	// lingering is how long the far side may still be at a call that was given up:
	// "SHOULD NOT send a response" leaves nothing to tell by.
	lingering = 30 * time.Second
	// echoing is how long after its answer the far side may still say what
	// belongs to a call, such as that it has ended.
	echoing = 2 * time.Second
	// maxStrays bounds the calls, and the owners, that are remembered so. With more
	// of them nobody can be told from the others, for as long.
	maxStrays = 1024
)

// strays are the calls that are not in flight any more, as far as the far side may
// still be at them. The zero value is none.
type strays struct {
	givenUp map[int64]stray
	echoes  map[string]time.Time // owner → until when
	crowd   time.Time            // until then there were too many to tell them apart
	swept   time.Time            // when it was looked last which of them are over
}

type stray struct {
	owner string
	until time.Time
}

// giveUp notes that a call was given up. One that nobody owns is nobody's concern.
func (s *strays) giveUp(id int64, owner string) {
	if owner == "" {
		return
	}
	now := time.Now()
	if len(s.givenUp) >= maxStrays {
		s.sweep(now)
	}
	switch {
	case len(s.givenUp) >= maxStrays:
		s.crowd = now.Add(lingering)
		return
	case s.givenUp == nil:
		s.givenUp = make(map[int64]stray)
	}
	s.givenUp[id] = stray{owner, now.Add(lingering)}
}

// answered notes that a call of that owner was answered.
func (s *strays) answered(owner string) {
	if owner == "" {
		return
	}
	now := time.Now()
	if len(s.echoes) >= maxStrays {
		s.sweep(now)
	}
	switch _, known := s.echoes[owner]; {
	case !known && len(s.echoes) >= maxStrays:
		s.crowd = now.Add(echoing)
		return
	case s.echoes == nil:
		s.echoes = make(map[string]time.Time)
	}
	s.echoes[owner] = now.Add(echoing)
}

// answeredLate is answered for a call that may have been given up.
func (s *strays) answeredLate(id int64) {
	if one, ok := s.givenUp[id]; ok {
		delete(s.givenUp, id)
		s.answered(one.owner)
	}
}

// sweep is expire, but not for each call that finds no room.
func (s *strays) sweep(now time.Time) {
	if now.Sub(s.swept) >= echoing {
		s.swept = now
		s.expire(now)
	}
}

func (s *strays) expire(now time.Time) {
	for id, one := range s.givenUp {
		if now.After(one.until) {
			delete(s.givenUp, id)
		}
	}
	for owner, until := range s.echoes {
		if now.After(until) {
			delete(s.echoes, owner)
		}
	}
}

// veto reports whether somebody other than owner may be concerned.
func (s *strays) veto(owner string) bool {
	now := time.Now()
	if now.Before(s.crowd) {
		return true
	}
	for id, one := range s.givenUp {
		switch {
		case now.After(one.until):
			delete(s.givenUp, id)
		case one.owner != owner:
			return true
		}
	}
	for other, until := range s.echoes {
		switch {
		case now.After(until):
			delete(s.echoes, other)
		case other != owner:
			return true
		}
	}
	return false
}

// owners counts what there is of each owner, so that nobody has to look through all calls to see whose
// they are. What nobody owns does not count. The zero value has counted nothing.
type owners map[string]int

func (o *owners) add(owner string, n int) {
	if owner == "" {
		return
	}
	if *o == nil {
		*o = make(owners)
	}
	if (*o)[owner] += n; (*o)[owner] == 0 {
		delete(*o, owner)
	}
}

// only returns the owner of all that is counted, "" if there are several or none.
func (o owners) only() string {
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
	owner = p.flying.only()
	others := len(p.trailing) > 0 && p.trailing.only() != owner
	if owner == "" || others || p.strays.veto(owner) {
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
	for one := range p.flying {
		if is(one) {
			several, owner = several || owner != "", one
		}
	}
	now := time.Now()
	p.strays.expire(now)
	for _, one := range p.strays.givenUp {
		several = several || one.owner != owner && is(one.owner)
	}
	return owner, owner != "" && !several && !now.Before(p.strays.crowd)
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
