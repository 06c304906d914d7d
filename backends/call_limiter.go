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

// A callLimiter limits the calls of clients that are in flight at a backend, over all of its
// connections (max_in_flight). A call gets a slot before it is sent or is queued for a start, and
// holds the slot until the call ends, however often it is sent. Requests about tasks and
// subscriptions need no slot. If no slot is free, the call is queued for at most queue_wait. It is
// rejected if it gets no slot, or if the queue is full. Sessions take turns, so that a session with
// many calls does not delay the others: see grantNextLocked and evictLocked.
type callLimiter struct {
	limit      int // 0 = no limit
	queueLimit int // number of calls that may be queued
	queueWait  time.Duration
	send       func(queuedCall) // sends a call that has a slot

	mu       sync.Mutex
	closed   bool                     // the backend is draining: calls are sent without a slot
	inFlight int                      // slots in use
	queued   int                      // number of queued calls
	queues   map[string]*sessionQueue // queues that are not empty, by session
	ring     []*sessionQueue          // the queues, in the order of their next grant
}

// A sessionQueue contains the queued calls of a session, in order of arrival.
type sessionQueue struct {
	session string
	calls   []*callSlot
}

// A callSlot is the ResponseHandler of a call that has a slot or is queued for a slot.
type callSlot struct {
	peer.ResponseHandler // original handler of the call
	limiter              *callLimiter
	entry                *queueEntry // nil if a slot was free at once
}

// A queueEntry is the additional state of a call that was queued.
type queueEntry struct {
	queuedCall
	timer   *time.Timer
	sending bool // the call has its slot and is being sent
	ended   bool // the call has ended while being sent
}

// minQueueLimit is the limit of queued calls. If max_in_flight is larger, the limit of queued calls
// is max_in_flight.
const minQueueLimit = 1000

func newCallLimiter(c config.Backend, send func(queuedCall)) *callLimiter {
	return &callLimiter{limit: c.MaxInFlight, queueLimit: max(minQueueLimit, c.MaxInFlight),
		queueWait: c.QueueWait, send: send, queues: make(map[string]*sessionQueue)}
}

// needsSlot reports whether a request needs a slot. Requests about tasks do not need a slot,
// because they let tasks of the backend continue and end.
func needsSlot(m wire.Message) bool {
	return !bytes.HasPrefix(m.Part(wire.PartMethod), []byte(`"tasks/`))
}

// submit sends a call, now or when it gets a slot, or rejects it. To queue the call, it may reject
// another queued call: see enqueueLocked.
func (cl *callLimiter) submit(q queuedCall) {
	if cl.limit == 0 || !needsSlot(q.request) {
		cl.send(q)
		return
	}
	s := &callSlot{ResponseHandler: q.call.Handler, limiter: cl}
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

// enqueueLocked queues a call. It returns the rejected call, if any, and the reason: s itself, or
// another call that was evicted for s.
func (cl *callLimiter) enqueueLocked(s *callSlot, q queuedCall) (refused *callSlot, why error) {
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
		refused, why = cl.evictLocked(len(sq.calls)+1),
			cl.queueFullError(fmt.Sprintf("%d wait already", cl.queueLimit))
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

// queueFullError returns the error of a call that gets no slot. why is the reason why the call is
// not queued, or is removed from the queue.
func (cl *callLimiter) queueFullError(why string) error {
	calls := "calls"
	if cl.limit == 1 {
		calls = "call"
	}
	return notSent("%w: it takes %d %s at a time (max_in_flight), and %s", peer.ErrQueueFull,
		cl.limit, calls, why)
}

// evictLocked removes and returns the newest call of the session with the longest queue, to make
// room for a session that would then have n queued calls. It returns nil if no session has more
// than n calls.
func (cl *callLimiter) evictLocked(n int) *callSlot {
	sq := slices.MaxFunc(cl.ring,
		func(a, b *sessionQueue) int { return len(a.calls) - len(b.calls) })
	if len(sq.calls) <= n {
		return nil
	}
	return cl.removeLocked(sq, len(sq.calls)-1)
}

// removeLocked removes call i of a queue, and returns it.
func (cl *callLimiter) removeLocked(sq *sessionQueue, i int) *callSlot {
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
		if cl.ring[0] == sq { // when called by grantNextLocked
			cl.ring = cl.ring[1:]
		} else {
			cl.ring = slices.DeleteFunc(cl.ring,
				func(other *sessionQueue) bool { return other == sq })
		}
	}
	return s
}

// grantNextLocked gives a released slot to the first queued call of the next session, and moves the
// session to the end of the ring if it has further queued calls. It returns nil, and the slot is
// free, if no call is queued.
func (cl *callLimiter) grantNextLocked() *callSlot {
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

// OnResponse implements peer.ResponseHandler: the call has ended. The slot is released before the
// caller gets the response; the next queued call is sent after that.
func (s *callSlot) OnResponse(m wire.Message, err error) {
	next := s.limiter.release(s)
	s.ResponseHandler.OnResponse(m, err)
	s.limiter.sendGranted(next)
}

// release releases the slot of a call that has ended, and returns the call that gets it. If the
// call is still being sent, its sender releases the slot.
func (cl *callLimiter) release(s *callSlot) (next *callSlot) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if s.entry != nil && s.entry.sending {
		s.entry.ended = true
		return nil
	}
	return cl.grantNextLocked()
}

// sendGranted sends a call that was granted a slot. If the call ends at once, sendGranted continues
// with the next call in a loop: at a backend that is gone, thousands of calls may end in this way,
// too many for recursion.
func (cl *callLimiter) sendGranted(s *callSlot) {
	for s != nil {
		cl.send(s.entry.queuedCall)
		s = cl.afterSend(s)
	}
}

func (cl *callLimiter) afterSend(s *callSlot) (next *callSlot) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	s.entry.queuedCall, s.entry.sending = queuedCall{}, false
	if s.entry.ended {
		return cl.grantNextLocked()
	}
	return nil
}

// expire rejects a call that was queued for queue_wait.
func (cl *callLimiter) expire(s *callSlot) {
	cl.mu.Lock()
	sq, i := cl.findLocked(s.entry.call)
	if i >= 0 {
		cl.removeLocked(sq, i)
	}
	cl.mu.Unlock()
	if i >= 0 {
		s.ResponseHandler.OnResponse(wire.Message{},
			cl.queueFullError(fmt.Sprintf("this one's turn did not come within %v (queue_wait)",
				cl.queueWait)))
	}
}

// findLocked returns the queue of a call and its index there; i < 0 if the call is not queued.
func (cl *callLimiter) findLocked(c *peer.Call) (sq *sessionQueue, i int) {
	if c == nil {
		return nil, -1
	}
	if sq = cl.queues[c.SessionID]; sq == nil {
		return nil, -1
	}
	return sq, slices.IndexFunc(sq.calls, func(s *callSlot) bool { return s.entry.call == c })
}

// cancel ends a queued call that was cancelled, and reports whether it was queued.
func (cl *callLimiter) cancel(c *peer.Call) bool {
	cl.mu.Lock()
	var s *callSlot
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

// endSession fails the queued calls of a session that is over.
func (cl *callLimiter) endSession(session string) {
	var calls []*callSlot
	cl.mu.Lock()
	for sq := cl.queues[session]; sq != nil && len(sq.calls) > 0; {
		calls = append(calls, cl.removeLocked(sq, 0))
	}
	cl.mu.Unlock()
	for _, s := range calls {
		s.ResponseHandler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
	}
}

// close ends the queueing: later calls are sent at once. It returns the queued calls in the order
// of their grants, with their original handlers, so that another backend can take them.
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
