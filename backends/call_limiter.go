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

// callLimiter bound how many calls of clients are at a backend at one time, over all of
// its lines (max_in_flight). A call has its place from before it is sent, or waits for
// a start, until it ends, however often it is sent; who finds none waits for one, for
// queue_wait at most. Sessions take turns, so that one that asks for very much keeps
// nobody else waiting: see nextLocked and makeRoomLocked.
type callLimiter struct {
	limit      int // 0 = there is no bound
	queueLimit int // how many may wait
	queueWait  time.Duration
	send       func(queuedCall) // sends a call that has a place

	mu       sync.Mutex
	closed   bool // the backend is retired: what comes goes by, and is passed on
	inFlight int
	queued   int
	queues   map[string]*sessionQueue // owner → its calls that wait
	ring     []*sessionQueue          // the same, in the order in which they come to their turn
}

// A sessionQueue is one owner's: its calls that wait for a place, in the order of their arrival.
type sessionQueue struct {
	session string
	calls   []*slot
}

// A slot is the Asker of a call that has a place, or waits for one.
type slot struct {
	peer.ResponseHandler // whose the call is
	limiter              *callLimiter
	entry                *queueEntry // nil if there was a place at once
}

// queueEntry is what there is beside of a call that had to wait.
type queueEntry struct {
	queuedCall
	timer   *time.Timer
	sending bool // who has given it the place is sending it
	ended   bool // meanwhile
}

// leastQueueLimit is how many calls may wait for a place, if there are not more places.
const leastQueueLimit = 1000

func newCallLimiter(c config.Backend, send func(queuedCall)) *callLimiter {
	return &callLimiter{limit: c.MaxInFlight, queueLimit: max(leastQueueLimit, c.MaxInFlight), queueWait: c.QueueWait, send: send, queues: make(map[string]*sessionQueue)}
}

// needsSlot reports whether a request takes a place. Those about a task do not: it is
// by them that what the backend is at goes on and ends.
func needsSlot(m wire.Message) bool {
	return !bytes.HasPrefix(m.Part(wire.PartMethod), []byte(`"tasks/`))
}

// submit sends a call, now or when it has come to its turn, or refuses it.
func (cl *callLimiter) submit(q queuedCall) {
	if cl.limit == 0 || !needsSlot(q.request) {
		cl.send(q)
		return
	}
	s := &slot{ResponseHandler: q.call.Handler, limiter: cl}
	cl.mu.Lock()
	if cl.closed {
		cl.mu.Unlock()
		cl.send(q)
		return
	}
	if cl.inFlight < cl.limit {
		cl.inFlight++
		q.call.Handler = s
		cl.mu.Unlock()
		cl.send(q)
		return
	}
	refused, why := cl.enqueueLocked(s, q)
	cl.mu.Unlock()
	if why != nil {
		refused.ResponseHandler.OnResponse(wire.Message{}, why)
	}
}

// enqueueLocked has a call wait for a place. It returns what is refused, if anything is:
// that call or another in its stead.
func (cl *callLimiter) enqueueLocked(s *slot, q queuedCall) (refused *slot, why error) {
	switch {
	case q.call.IsCancelled():
		return s, peer.ErrCancelled
	case cl.queueWait <= 0:
		return s, cl.queueFullError("none may wait (queue_wait: 0s)")
	}
	sq := cl.queues[q.call.SessionID]
	if sq == nil {
		sq = &sessionQueue{session: q.call.SessionID}
	}
	if cl.queued >= cl.queueLimit {
		refused, why = cl.evictLocked(len(sq.calls)+1), cl.queueFullError(fmt.Sprintf("%d wait already", cl.queueLimit))
		if refused == nil {
			return s, why
		}
	}
	q.call.Handler, s.entry = s, &queueEntry{queuedCall: q}
	s.entry.timer = time.AfterFunc(cl.queueWait, func() { cl.expire(s) })
	if sq.calls = append(sq.calls, s); len(sq.calls) == 1 {
		cl.queues[sq.session] = sq
		cl.ring = append(cl.ring, sq)
	}
	cl.queued++
	return refused, why
}

// queueFullError returns why a call is refused that finds no place, and why it does not wait for one, or
// not any longer.
func (cl *callLimiter) queueFullError(and string) error {
	calls := "calls"
	if cl.limit == 1 {
		calls = "call"
	}
	return notSent("%w: it takes %d %s at a time (max_in_flight), and %s", peer.ErrQueueFull, cl.limit, calls, and)
}

// evictLocked takes out the call that came last of the owner who has most that wait, for
// one who would have no more than mine. It returns nil if nobody has more than that.
func (cl *callLimiter) evictLocked(mine int) *slot {
	sq := slices.MaxFunc(cl.ring, func(a, b *sessionQueue) int { return len(a.calls) - len(b.calls) })
	if len(sq.calls) <= mine {
		return nil
	}
	return cl.removeLocked(sq, len(sq.calls)-1)
}

// removeLocked takes a call out that waits.
func (cl *callLimiter) removeLocked(sq *sessionQueue, i int) *slot {
	s := sq.calls[i]
	s.entry.timer.Stop()
	cl.queued--
	if sq.calls[i] = nil; i == 0 {
		sq.calls = sq.calls[1:]
	} else {
		sq.calls = slices.Delete(sq.calls, i, i+1)
	}
	if len(sq.calls) == 0 {
		delete(cl.queues, sq.session)
		if cl.ring[0] == sq { // it is, if its turn has come
			cl.ring = cl.ring[1:]
		} else {
			cl.ring = slices.DeleteFunc(cl.ring, func(other *sessionQueue) bool { return other == sq })
		}
	}
	return s
}

// grantNextLocked hands a place that has become free on to the first call of the owner whose turn
// it is, who is the last then to come to it again. It returns nil if none waits.
func (cl *callLimiter) grantNextLocked() *slot {
	if len(cl.ring) == 0 {
		cl.inFlight--
		return nil
	}
	sq := cl.ring[0]
	s := cl.removeLocked(sq, 0)
	if len(sq.calls) > 0 {
		cl.ring = append(cl.ring[1:], sq)
	}
	s.entry.sending = true
	return s
}

// Done implements peer.ResponseHandler: the call has ended, and its place is free before anybody
// hears of it. Whose it is now is sent behind that.
func (s *slot) OnResponse(m wire.Message, err error) {
	next := s.limiter.release(s)
	s.ResponseHandler.OnResponse(m, err)
	s.limiter.sendGranted(next)
}

// release takes the place of a call that has ended, and returns who has it now. That of a
// call which is still being sent is seen to by its sender.
func (cl *callLimiter) release(s *slot) (next *slot) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if s.entry != nil && s.entry.sending {
		s.entry.ended = true
		return nil
	}
	return cl.grantNextLocked()
}

// sendGranted sends a call that has waited for its place, if it is one; and if that has ended at once,
// whoever has the place then. A backend that is gone fails thousands so, and none within another.
func (cl *callLimiter) sendGranted(s *slot) {
	for s != nil {
		cl.send(s.entry.queuedCall)
		s = cl.afterSend(s)
	}
}

func (cl *callLimiter) afterSend(s *slot) (next *slot) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	s.entry.queuedCall, s.entry.sending = queuedCall{}, false
	if s.entry.ended {
		return cl.grantNextLocked()
	}
	return nil
}

// expire refuses a call that has waited for too long.
func (cl *callLimiter) expire(s *slot) {
	cl.mu.Lock()
	sq, i := cl.findLocked(s.entry.call)
	if i >= 0 {
		cl.removeLocked(sq, i)
	}
	cl.mu.Unlock()
	if i >= 0 {
		s.ResponseHandler.OnResponse(wire.Message{}, cl.queueFullError(fmt.Sprintf("this one's turn did not come within %v (queue_wait)", cl.queueWait)))
	}
}

// findLocked returns where a call waits, i < 0 if it does not.
func (cl *callLimiter) findLocked(c *peer.Call) (sq *sessionQueue, i int) {
	if c == nil {
		return nil, -1
	}
	if sq = cl.queues[c.SessionID]; sq == nil {
		return nil, -1
	}
	return sq, slices.IndexFunc(sq.calls, func(s *slot) bool { return s.entry.call == c })
}

// cancel ends a call that waits and was cancelled, and reports whether it did.
func (cl *callLimiter) cancel(c *peer.Call) bool {
	cl.mu.Lock()
	var s *slot
	sq, i := cl.findLocked(c)
	if i >= 0 {
		s = cl.removeLocked(sq, i)
	}
	cl.mu.Unlock()
	if s == nil {
		return false
	}
	s.ResponseHandler.OnResponse(wire.Message{}, peer.ErrCancelled)
	return true
}

// endSession ends the calls that wait of a session that is over.
func (cl *callLimiter) endSession(session string) {
	var left []*slot
	cl.mu.Lock()
	for sq := cl.queues[session]; sq != nil && len(sq.calls) > 0; {
		left = append(left, cl.removeLocked(sq, 0))
	}
	cl.mu.Unlock()
	for _, s := range left {
		s.ResponseHandler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
	}
}

// close has none wait any more. It returns the calls that do, in the order in which they would
// have come to their turn. They are as they were before they came: another backend may have them.
func (cl *callLimiter) close() (all []queuedCall) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.closed = true
	for len(cl.ring) > 0 {
		sq := cl.ring[0]
		s := cl.removeLocked(sq, 0)
		if len(sq.calls) > 0 {
			cl.ring = append(cl.ring[1:], sq)
		}
		s.entry.call.Handler = s.ResponseHandler
		all = append(all, s.entry.queuedCall)
	}
	return all
}
