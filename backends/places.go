package backends

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// places bound how many calls of clients are at a backend at one time, over all of
// its lines (max_in_flight). A call has its place from before it is sent, or waits for
// a start, until it ends, however often it is sent; who finds none waits for one, for
// queue_wait at most. Sessions take turns, so that one that asks for very much keeps
// nobody else waiting: see nextLocked and makeRoomLocked.
type places struct {
	max  int // 0 = there is no bound
	most int // how many may wait
	wait time.Duration
	send func(waiting) // sends a call that has a place

	mu     sync.Mutex
	closed bool // the backend is retired: what comes goes by, and is passed on
	taken  int
	queued int
	turns  map[string]*turn // owner → its calls that wait
	ring   []*turn          // the same, in the order in which they come to their turn
}

// A turn is one owner's: its calls that wait for a place, in the order of their arrival.
type turn struct {
	owner string
	calls []*seat
}

// A seat is the Asker of a call that has a place, or waits for one.
type seat struct {
	peer.ResponseHandler // whose the call is
	at                   *places
	late                 *late // nil if there was a place at once
}

// late is what there is beside of a call that had to wait.
type late struct {
	waiting
	timer   *time.Timer
	sending bool // who has given it the place is sending it
	ended   bool // meanwhile
}

// leastQueue is how many calls may wait for a place, if there are not more places.
const leastQueue = 1000

func newPlaces(c config.Backend, send func(waiting)) *places {
	return &places{max: c.MaxInFlight, most: max(leastQueue, c.MaxInFlight), wait: c.QueueWait, send: send, turns: make(map[string]*turn)}
}

// needsPlace reports whether a request takes a place. Those about a task do not: it is
// by them that what the backend is at goes on and ends.
func needsPlace(m wire.Message) bool {
	return !bytes.HasPrefix(m.Part(wire.PartMethod), []byte(`"tasks/`))
}

// enter sends a call, now or when it has come to its turn, or refuses it.
func (p *places) enter(w waiting) {
	if p.max == 0 || !needsPlace(w.m) {
		p.send(w)
		return
	}
	s := &seat{ResponseHandler: w.c.Handler, at: p}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.send(w)
		return
	}
	if p.taken < p.max {
		p.taken++
		w.c.Handler = s
		p.mu.Unlock()
		p.send(w)
		return
	}
	refused, why := p.queueLocked(s, w)
	p.mu.Unlock()
	if why != nil {
		refused.ResponseHandler.OnResponse(wire.Message{}, why)
	}
}

// queueLocked has a call wait for a place. It returns what is refused, if anything is:
// that call or another in its stead.
func (p *places) queueLocked(s *seat, w waiting) (refused *seat, why error) {
	switch {
	case w.c.IsCancelled():
		return s, peer.ErrCancelled
	case p.wait <= 0:
		return s, p.busy("none may wait (queue_wait: 0s)")
	}
	t := p.turns[w.c.SessionID]
	if t == nil {
		t = &turn{owner: w.c.SessionID}
	}
	if p.queued >= p.most {
		refused, why = p.makeRoomLocked(len(t.calls)+1), p.busy(fmt.Sprintf("%d wait already", p.most))
		if refused == nil {
			return s, why
		}
	}
	w.c.Handler, s.late = s, &late{waiting: w}
	s.late.timer = time.AfterFunc(p.wait, func() { p.expire(s) })
	if t.calls = append(t.calls, s); len(t.calls) == 1 {
		p.turns[t.owner] = t
		p.ring = append(p.ring, t)
	}
	p.queued++
	return refused, why
}

// busy returns why a call is refused that finds no place, and why it does not wait for one, or
// not any longer.
func (p *places) busy(and string) error {
	calls := "calls"
	if p.max == 1 {
		calls = "call"
	}
	return notSent("%w: it takes %d %s at a time (max_in_flight), and %s", peer.ErrQueueFull, p.max, calls, and)
}

// makeRoomLocked takes out the call that came last of the owner who has most that wait, for
// one who would have no more than mine. It returns nil if nobody has more than that.
func (p *places) makeRoomLocked(mine int) *seat {
	t := slices.MaxFunc(p.ring, func(a, b *turn) int { return len(a.calls) - len(b.calls) })
	if len(t.calls) <= mine {
		return nil
	}
	return p.takeLocked(t, len(t.calls)-1)
}

// takeLocked takes a call out that waits.
func (p *places) takeLocked(t *turn, i int) *seat {
	s := t.calls[i]
	s.late.timer.Stop()
	p.queued--
	if t.calls[i] = nil; i == 0 {
		t.calls = t.calls[1:]
	} else {
		t.calls = slices.Delete(t.calls, i, i+1)
	}
	if len(t.calls) == 0 {
		delete(p.turns, t.owner)
		if p.ring[0] == t { // it is, if its turn has come
			p.ring = p.ring[1:]
		} else {
			p.ring = slices.DeleteFunc(p.ring, func(other *turn) bool { return other == t })
		}
	}
	return s
}

// nextLocked hands a place that has become free on to the first call of the owner whose turn
// it is, who is the last then to come to it again. It returns nil if none waits.
func (p *places) nextLocked() *seat {
	if len(p.ring) == 0 {
		p.taken--
		return nil
	}
	t := p.ring[0]
	s := p.takeLocked(t, 0)
	if len(t.calls) > 0 {
		p.ring = append(p.ring[1:], t)
	}
	s.late.sending = true
	return s
}

// Done implements peer.ResponseHandler: the call has ended, and its place is free before anybody
// hears of it. Whose it is now is sent behind that.
func (s *seat) OnResponse(m wire.Message, err error) {
	next := s.at.free(s)
	s.ResponseHandler.OnResponse(m, err)
	s.at.seat(next)
}

// free takes the place of a call that has ended, and returns who has it now. That of a
// call which is still being sent is seen to by its sender.
func (p *places) free(s *seat) (next *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.late != nil && s.late.sending {
		s.late.ended = true
		return nil
	}
	return p.nextLocked()
}

// seat sends a call that has waited for its place, if it is one; and if that has ended at once,
// whoever has the place then. A backend that is gone fails thousands so, and none within another.
func (p *places) seat(s *seat) {
	for s != nil {
		p.send(s.late.waiting)
		s = p.sent(s)
	}
}

func (p *places) sent(s *seat) (next *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.late.waiting, s.late.sending = waiting{}, false
	if s.late.ended {
		return p.nextLocked()
	}
	return nil
}

// expire refuses a call that has waited for too long.
func (p *places) expire(s *seat) {
	p.mu.Lock()
	t, i := p.findLocked(s.late.c)
	if i >= 0 {
		p.takeLocked(t, i)
	}
	p.mu.Unlock()
	if i >= 0 {
		s.ResponseHandler.OnResponse(wire.Message{}, p.busy(fmt.Sprintf("this one's turn did not come within %v (queue_wait)", p.wait)))
	}
}

// findLocked returns where a call waits, i < 0 if it does not.
func (p *places) findLocked(c *peer.Call) (t *turn, i int) {
	if c == nil {
		return nil, -1
	}
	if t = p.turns[c.SessionID]; t == nil {
		return nil, -1
	}
	return t, slices.IndexFunc(t.calls, func(s *seat) bool { return s.late.c == c })
}

// takeBack ends a call that waits and was cancelled, and reports whether it did.
func (p *places) takeBack(c *peer.Call) bool {
	p.mu.Lock()
	var s *seat
	t, i := p.findLocked(c)
	if i >= 0 {
		s = p.takeLocked(t, i)
	}
	p.mu.Unlock()
	if s == nil {
		return false
	}
	s.ResponseHandler.OnResponse(wire.Message{}, peer.ErrCancelled)
	return true
}

// leave ends the calls that wait of a session that is over.
func (p *places) leave(session string) {
	var left []*seat
	p.mu.Lock()
	for t := p.turns[session]; t != nil && len(t.calls) > 0; {
		left = append(left, p.takeLocked(t, 0))
	}
	p.mu.Unlock()
	for _, s := range left {
		s.ResponseHandler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
	}
}

// close has none wait any more. It returns the calls that do, in the order in which they would
// have come to their turn. They are as they were before they came: another backend may have them.
func (p *places) close() (all []waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for len(p.ring) > 0 {
		t := p.ring[0]
		s := p.takeLocked(t, 0)
		if len(t.calls) > 0 {
			p.ring = append(p.ring[1:], t)
		}
		s.late.c.Handler = s.ResponseHandler
		all = append(all, s.late.waiting)
	}
	return all
}
