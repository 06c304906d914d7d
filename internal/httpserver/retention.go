package httpserver

import (
	"container/list"
	"sync"
)

// A retentionQuota limits the bytes that all sessions together retain for resumption. When the
// limit is exceeded, the session that was the first to begin retaining events drops its retained
// events, sent or unsent, until the limit is met.
type retentionQuota struct {
	limit int64

	mu    sync.Mutex
	total int64
	// retainers contains each *retainer with retained events, in the order of the first retention.
	retainers list.List
}

// A retainer counts the bytes that one session retains.
type retainer struct {
	drop func() // drops the retained events; called without locks held

	reported reportedSize

	// Guarded by retentionQuota.mu.
	elem   *list.Element // element of retentionQuota.retainers; nil = none
	closed bool          // the session has ended; it does not enter the list again
}

// add adds delta to the bytes of r. If the limit is then exceeded, it drops events of sessions.
// Like [backlogQuota.add] it accepts differences in any order.
func (q *retentionQuota) add(r *retainer, delta int) {
	if delta == 0 {
		return
	}
	q.mu.Lock()
	q.total += int64(delta)
	if delta > 0 && r.elem == nil && !r.closed {
		r.elem = q.retainers.PushBack(r)
	}
	q.mu.Unlock()
	if delta < 0 {
		return
	}
	for excess := q.takeExcess(); excess != nil; excess = q.takeExcess() {
		excess.drop()
	}
}

// takeExcess removes and returns the first retainer if the limit is exceeded; nil = it is not.
func (q *retentionQuota) takeExcess() *retainer {
	q.mu.Lock()
	defer q.mu.Unlock()
	front := q.retainers.Front()
	if q.total <= q.limit || front == nil {
		return nil
	}
	r := q.retainers.Remove(front).(*retainer)
	r.elem = nil
	return r
}

// remove removes the retainer of a session that has ended. Its bytes are still counted until the
// session subtracts them.
func (q *retentionQuota) remove(r *retainer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.closed = true
	if r.elem != nil {
		q.retainers.Remove(r.elem)
		r.elem = nil
	}
}
