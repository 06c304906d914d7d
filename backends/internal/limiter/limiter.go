// Package limiter limits the number of calls in flight. A call that gets no slot is queued for a
// limited time. The sessions of the queued calls take turns, so that a session with many calls does
// not delay the others.
//
// The package does not know what a call is, and sends nothing by itself: it calls the functions of
// [Options] without holding its lock, except IsCancelled.
package limiter

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// Reasons for which a call gets no slot.
var (
	ErrCancelled = errors.New("the call was cancelled")
	ErrNoQueue   = errors.New("no slot is free, and no call may be queued")
	ErrQueueFull = errors.New("no slot is free, and the queue is full")
	ErrExpired   = errors.New("no slot was free in time")
)

// Options of a Limiter.
type Options[C any] struct {
	MaxInFlight int           // number of slots, at least 1
	QueueLimit  int           // number of calls that may be queued
	QueueWait   time.Duration // how long a call may be queued; 0 = no call is queued
	// IsCancelled reports whether a call was cancelled. It is called with the lock of the Limiter
	// held, so that a call is either found by Remove, or cancelled before it is queued.
	IsCancelled func(C) bool
	Send        func(C)        // sends a queued call that has got its slot
	Reject      func(C, error) // ends a queued call with ErrQueueFull or ErrExpired
}

// A Limiter limits calls of type C. Its methods are safe for concurrent use and do not block,
// except by the functions of Options.
type Limiter[C any] struct {
	Options[C]

	mu       sync.Mutex
	closed   bool                        // calls are sent without a slot
	inFlight int                         // slots in use
	queued   int                         // number of queued calls
	queues   map[string]*sessionQueue[C] // queues that are not empty, by session
	ring     []*sessionQueue[C]          // the queues, in the order of their next grant
}

// A sessionQueue contains the queued calls of a session, in order of arrival.
type sessionQueue[C any] struct {
	session string
	calls   []*Queued[C]
}

// A Queued is a call that was queued, until it has been sent.
type Queued[C any] struct {
	call    C
	session string
	slot    *Slot
	timer   *time.Timer
}

// A Slot is the right of one call to be in flight. The caller of Submit owns it, and must not copy
// it after Submit. The zero Slot belongs to no call.
type Slot struct {
	state slotState // guarded by Limiter.mu
}

type slotState uint8

const (
	none    slotState = iota // not submitted, queued, rejected or released
	held                     // the call is in flight
	sending                  // the call was queued, has its slot and is being sent
	ended                    // the call has ended while being sent
)

// New returns a Limiter. It starts nothing.
func New[C any](o Options[C]) *Limiter[C] {
	return &Limiter[C]{Options: o, queues: make(map[string]*sessionQueue[C])}
}

// Submit requests a slot for a call of a session. If it reports true, the caller must send the
// call. If it reports false and no error, the call is queued, and may already have been passed to
// Send or Reject. To queue the call, Submit may reject another queued call with ErrQueueFull: the
// newest call of the session with the most queued calls, if that session has more of them than this
// one. Otherwise the error is ErrCancelled, ErrNoQueue or ErrQueueFull.
func (l *Limiter[C]) Submit(session string, call C, slot *Slot) (sendNow bool, err error) {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return true, nil
	case l.inFlight < l.MaxInFlight:
		l.inFlight++
		slot.state = held
		l.mu.Unlock()
		return true, nil
	}
	evicted, err := l.enqueueLocked(session, call, slot)
	l.mu.Unlock()
	if evicted != nil {
		l.Reject(evicted.call, ErrQueueFull)
	}
	return false, err
}

// enqueueLocked queues a call. It returns the call that was evicted for it, if any.
func (l *Limiter[C]) enqueueLocked(session string, call C, slot *Slot) (evicted *Queued[C],
	err error) {
	switch {
	case l.IsCancelled(call):
		return nil, ErrCancelled
	case l.QueueWait <= 0:
		return nil, ErrNoQueue
	}
	sq := l.queues[session]
	if sq == nil {
		sq = &sessionQueue[C]{session: session}
	}
	if l.queued >= l.QueueLimit {
		if evicted = l.evictLocked(len(sq.calls) + 1); evicted == nil {
			return nil, ErrQueueFull
		}
	}
	q := &Queued[C]{call: call, session: session, slot: slot}
	q.timer = time.AfterFunc(l.QueueWait, func() { l.expire(q) })
	if sq.calls = append(sq.calls, q); len(sq.calls) == 1 {
		l.queues[session] = sq
		l.ring = append(l.ring, sq)
	}
	l.queued++
	return evicted, nil
}

// evictLocked removes and returns the newest call of the session with the longest queue, to make
// room for a session that would then have n queued calls. It returns nil if no session has more
// than n calls.
func (l *Limiter[C]) evictLocked(n int) *Queued[C] {
	sq := slices.MaxFunc(l.ring,
		func(a, b *sessionQueue[C]) int { return len(a.calls) - len(b.calls) })
	if len(sq.calls) <= n {
		return nil
	}
	return l.removeLocked(sq, len(sq.calls)-1)
}

// removeLocked removes call i of a queue, and returns it.
func (l *Limiter[C]) removeLocked(sq *sessionQueue[C], i int) *Queued[C] {
	q := sq.calls[i]
	q.timer.Stop()
	l.queued--
	if sq.calls[i] = nil; i == 0 {
		sq.calls = sq.calls[1:]
	} else {
		sq.calls = slices.Delete(sq.calls, i, i+1)
	}
	if len(sq.calls) == 0 {
		delete(l.queues, sq.session)
		if l.ring[0] == sq { // when called by nextLocked
			l.ring = l.ring[1:]
		} else {
			l.ring = slices.DeleteFunc(l.ring,
				func(other *sessionQueue[C]) bool { return other == sq })
		}
	}
	return q
}

// nextLocked removes and returns the first queued call of the next session, and moves the session
// to the end of the ring if it has further queued calls. It returns nil if no call is queued.
func (l *Limiter[C]) nextLocked() *Queued[C] {
	if len(l.ring) == 0 {
		return nil
	}
	sq := l.ring[0]
	q := l.removeLocked(sq, 0)
	if len(sq.calls) > 0 {
		l.ring = append(l.ring[1:], sq)
	}
	return q
}

// Release releases the slot of a call that has ended. If a queued call gets the slot, Release
// returns that call, and the caller must pass it to SendQueued. A Slot that is not held is ignored.
func (l *Limiter[C]) Release(slot *Slot) (next *Queued[C]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch slot.state {
	case held:
		return l.releaseLocked(slot)
	case sending: // SendQueued releases it
		slot.state = ended
	}
	return nil
}

func (l *Limiter[C]) releaseLocked(slot *Slot) (next *Queued[C]) {
	slot.state = none
	if next = l.nextLocked(); next == nil {
		l.inFlight--
		return nil
	}
	next.slot.state = sending
	return next
}

// SendQueued sends a call that Release has returned; nil = nothing. If the call ends at once,
// SendQueued continues with the next call in a loop: at a backend that is gone, thousands of calls
// may end in this way, too many for recursion.
func (l *Limiter[C]) SendQueued(q *Queued[C]) {
	for q != nil {
		l.Send(q.call)
		q = l.afterSend(q)
	}
}

func (l *Limiter[C]) afterSend(q *Queued[C]) (next *Queued[C]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.slot.state == ended {
		return l.releaseLocked(q.slot)
	}
	q.slot.state = held
	return nil
}

// expire rejects a call that was queued for QueueWait.
func (l *Limiter[C]) expire(q *Queued[C]) {
	l.mu.Lock()
	sq, i := l.queues[q.session], -1
	if sq != nil {
		i = slices.Index(sq.calls, q)
	}
	if i >= 0 {
		l.removeLocked(sq, i)
	}
	l.mu.Unlock()
	if i >= 0 {
		l.Reject(q.call, ErrExpired)
	}
}

// Queued returns the number of queued calls.
func (l *Limiter[C]) Queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued
}

// Remove removes and returns the queued call of a session for which isIt reports true. ok is false
// if there is none. isIt is called with the lock of the Limiter held.
func (l *Limiter[C]) Remove(session string, isIt func(C) bool) (call C, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sq := l.queues[session]; sq != nil {
		for i, q := range sq.calls {
			if isIt(q.call) {
				return l.removeLocked(sq, i).call, true
			}
		}
	}
	return call, false
}

// RemoveSession removes and returns the queued calls of a session.
func (l *Limiter[C]) RemoveSession(session string) (calls []C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for sq := l.queues[session]; sq != nil && len(sq.calls) > 0; {
		calls = append(calls, l.removeLocked(sq, 0).call)
	}
	return calls
}

// Close ends the queueing: later calls are sent at once, without a slot. It removes and returns the
// queued calls, in the order in which they would have been sent.
func (l *Limiter[C]) Close() (calls []C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for q := l.nextLocked(); q != nil; q = l.nextLocked() {
		calls = append(calls, q.call)
	}
	return calls
}
