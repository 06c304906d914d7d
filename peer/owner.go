package peer

import "time"

// lingering is how long the far side of a stdio connection may still be at a call
// that was given up: "SHOULD NOT send a response" leaves nothing to tell by.
const lingering = 30 * time.Second

// maxStrays bounds the calls that are remembered so.
const maxStrays = 1024

// strays are the calls that were given up and not answered since, as far as the
// far side may still be at them. The zero value is none.
type strays struct {
	rows  map[int64]stray
	crowd time.Time // until then there were too many to tell them apart
}

type stray struct {
	owner string
	until time.Time
}

func (s *strays) add(id int64, owner string) {
	now := time.Now()
	if s.rows == nil {
		s.rows = make(map[int64]stray)
	}
	if len(s.rows) >= maxStrays {
		s.expire(now)
	}
	if len(s.rows) >= maxStrays {
		s.crowd = now.Add(lingering)
		return
	}
	s.rows[id] = stray{owner, now.Add(lingering)}
}

func (s *strays) ended(id int64) { delete(s.rows, id) }

func (s *strays) expire(now time.Time) {
	for id, one := range s.rows {
		if now.After(one.until) {
			delete(s.rows, id)
		}
	}
}

// veto reports whether somebody other than owner may be concerned.
func (s *strays) veto(owner string) bool {
	now := time.Now()
	s.expire(now)
	if now.Before(s.crowd) {
		return true
	}
	for _, one := range s.rows {
		if one.owner != owner {
			return true
		}
	}
	return false
}

// SoleOwner returns the [Pending.Owner] of all calls in flight, if it is one and
// the same. What the far side says unasked can then concern nobody else: calls
// that were given up lately and not answered yet count, too. On a connection
// that is shared and has one stream for everything there is no better way to know.
func (p *Peer) SoleOwner() (owner string, ok bool) {
	several := false
	p.calls.Each(func(c *Pending) {
		switch {
		case c.Owner == "" || c.Owner == owner:
		case owner == "":
			owner = c.Owner
		default:
			several = true
		}
	})
	if owner == "" || several {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.strays.veto(owner) {
		return "", false
	}
	return owner, true
}
