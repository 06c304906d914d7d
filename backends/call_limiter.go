package backends

import (
	"bytes"
	"fmt"
	"time"

	"mcpgateway/backends/internal/limiter"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
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
	slots      *limiter.Limiter[*queuedCall]
	queue      callQueue // the calls that wait for a slot
}

// sendNow sends a call that has a slot, or needs none.
func sendNow(q *queuedCall) { q.b.send(q) }

// minQueueLimit is the limit of queued calls. If max_in_flight is larger, the limit of queued calls
// is max_in_flight.
const minQueueLimit = 1000

func newCallLimiter(c config.Backend) *callLimiter {
	cl := &callLimiter{limit: c.MaxInFlight, queueLimit: max(minQueueLimit, c.MaxInFlight),
		queueWait: c.QueueWait}
	cl.slots = limiter.New(limiter.Options[*queuedCall]{
		MaxInFlight: cl.limit,
		QueueLimit:  cl.queueLimit,
		QueueWait:   cl.queueWait,
		IsCancelled: (*queuedCall).IsCancelled,
		Send:        sendNow,
		Reject:      func(q *queuedCall, why error) { q.fail(cl.rejectError(why)) },
	})
	cl.queue.remove = func(q *queuedCall) bool {
		_, ok := cl.slots.Remove(q.request.Session,
			func(other *queuedCall) bool { return other == q })
		return ok
	}
	return cl
}

// submit sends a call, now or when it gets a slot, or rejects it. To queue the call, it may reject
// another queued call: see limiter.Limiter.Submit. A request about a task needs no slot, because it
// lets tasks of the backend continue and end.
func (cl *callLimiter) submit(q *queuedCall) {
	method := q.request.Message.Part(wire.PartMethod)
	if cl.limit == 0 || bytes.HasPrefix(method, []byte(`"tasks/`)) {
		sendNow(q)
		return
	}
	q.enter(&cl.queue) // Submit reads the mark
	hasSlot, err := cl.slots.Submit(q.request.Session, q, q.slot)
	switch {
	case err != nil:
		q.fail(cl.rejectError(err))
	case hasSlot:
		sendNow(q)
	}
}

// release releases the slot of a call, if it has one, and returns the queued call that gets it.
func (cl *callLimiter) release(q *queuedCall) (next *limiter.Queued[*queuedCall]) {
	if cl.limit == 0 {
		return nil
	}
	return cl.slots.Release(q.slot)
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
	return notSent("%w: it takes %d %s at a time (max_in_flight), and %s", contract.ErrQueueFull,
		cl.limit, calls, text)
}
