package backends

import (
	"bytes"
	"fmt"
	"time"

	"mcpgateway/backends/internal/limiter"
	"mcpgateway/internal/config"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// A callLimiter limits the calls of clients that are in flight at a backend, over all of its
// connections (max_in_flight). A call gets a slot before it is sent or is queued for a start, and
// holds the slot until the call ends, however often it is sent. Requests about tasks and
// subscriptions need no slot. If no slot is free, the call is queued for at most queue_wait. It is
// rejected if it gets no slot, or if the queue is full.
type callLimiter struct {
	limit      int // 0 = no limit
	queueLimit int // number of calls that may be queued
	queueWait  time.Duration
	send       func(queuedCall) // sends a call that has a slot, or needs none
	slots      *limiter.Limiter[limitedCall]
}

// A callSlot is the ResponseHandler of a call that has a slot or is queued for a slot.
type callSlot struct {
	peer.ResponseHandler // original handler of the call
	limiter              *callLimiter
	slot                 limiter.Slot
}

// A limitedCall is a call in the queue of a callLimiter.
type limitedCall struct {
	queuedCall
	slot *callSlot
}

// minQueueLimit is the limit of queued calls. If max_in_flight is larger, the limit of queued calls
// is max_in_flight.
const minQueueLimit = 1000

func newCallLimiter(c config.Backend, send func(queuedCall)) *callLimiter {
	cl := &callLimiter{limit: c.MaxInFlight, queueLimit: max(minQueueLimit, c.MaxInFlight),
		queueWait: c.QueueWait, send: send}
	cl.slots = limiter.New(limiter.Options[limitedCall]{
		MaxInFlight: cl.limit,
		QueueLimit:  cl.queueLimit,
		QueueWait:   cl.queueWait,
		IsCancelled: func(c limitedCall) bool { return c.call.IsCancelled() },
		Send:        func(c limitedCall) { send(c.queuedCall) },
		Reject: func(c limitedCall, why error) {
			c.slot.ResponseHandler.OnResponse(wire.Message{}, cl.rejectError(why))
		},
	})
	return cl
}

// needsSlot reports whether a request needs a slot. Requests about tasks do not need a slot,
// because they let tasks of the backend continue and end.
func needsSlot(m wire.Message) bool {
	return !bytes.HasPrefix(m.Part(wire.PartMethod), []byte(`"tasks/`))
}

// submit sends a call, now or when it gets a slot, or rejects it. To queue the call, it may reject
// another queued call: see limiter.Limiter.Submit.
func (cl *callLimiter) submit(q queuedCall) {
	if cl.limit == 0 || !needsSlot(q.request) {
		cl.send(q)
		return
	}
	s := &callSlot{ResponseHandler: q.call.Handler, limiter: cl}
	q.call.Handler = s // before the call can be sent by another goroutine
	sendNow, err := cl.slots.Submit(q.call.SessionID, limitedCall{q, s}, &s.slot)
	switch {
	case err != nil:
		s.ResponseHandler.OnResponse(wire.Message{}, cl.rejectError(err))
	case sendNow:
		cl.send(q)
	}
}

// rejectError returns the error of a call that gets no slot.
func (cl *callLimiter) rejectError(why error) error {
	var text string
	switch why {
	case limiter.ErrCancelled:
		return peer.ErrCancelled
	case limiter.ErrNoQueue:
		text = "none may wait (queue_wait: 0s)"
	case limiter.ErrQueueFull:
		text = fmt.Sprintf("%d wait already", cl.queueLimit)
	default:
		text = fmt.Sprintf("this one's turn did not come within %v (queue_wait)", cl.queueWait)
	}
	calls := "calls"
	if cl.limit == 1 {
		calls = "call"
	}
	return notSent("%w: it takes %d %s at a time (max_in_flight), and %s", peer.ErrQueueFull,
		cl.limit, calls, text)
}

// OnResponse implements peer.ResponseHandler: the call has ended. The slot is released before the
// caller gets the response; the next queued call is sent after that.
func (s *callSlot) OnResponse(m wire.Message, err error) {
	next := s.limiter.slots.Release(&s.slot)
	s.ResponseHandler.OnResponse(m, err)
	s.limiter.slots.SendQueued(next)
}

// cancel ends a queued call that was cancelled, and reports whether it was queued.
func (cl *callLimiter) cancel(c *peer.Call) bool {
	queued, ok := cl.slots.Remove(c.SessionID,
		func(other limitedCall) bool { return other.call == c })
	if ok {
		queued.slot.ResponseHandler.OnResponse(wire.Message{}, peer.ErrCancelled)
	}
	return ok
}

// endSession fails the queued calls of a session that is over.
func (cl *callLimiter) endSession(session string) {
	for _, c := range cl.slots.RemoveSession(session) {
		c.slot.ResponseHandler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
	}
}

// close ends the queueing: later calls are sent at once. It returns the queued calls in the order
// of their grants, with their original handlers, so that another backend can take them.
func (cl *callLimiter) close() (all []queuedCall) {
	for _, c := range cl.slots.Close() {
		c.call.Handler = c.slot.ResponseHandler
		all = append(all, c.queuedCall)
	}
	return all
}
