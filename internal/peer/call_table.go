package peer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/idmap"
	"mcpgateway/internal/transport"
)

// A callTable contains the outbound calls in flight of a Peer, and the sessions to which an
// unsolicited message may belong. Both change in one step, so that a message is never attributed
// while a call is only in one of them.
//
// All timeouts share one timer: most calls end long before their deadline, so a timer for each call
// would be started and stopped in vain. The timer fires at the earliest deadline of the calls that
// were in flight when it was set; then the table searches for the next deadline.
type callTable struct {
	peer *Peer              // its method abandon ends expired calls
	byID idmap.Table[*Call] // changed only with mu held

	mu           sync.Mutex
	sessions     sessionRecord            // sessions that an unsolicited message may belong to
	relays       map[int64]*ProgressRelay // answered calls with further progress
	sendErr      error                    // reason why calls cannot be sent; nil = they can
	abandoning   int                      // abandoned calls whose cancellation is not written yet
	drainWaiters []chan struct{}          // each is closed when there are no calls
	timer        *time.Timer              // calls expire; nil before the first deadline
	wakeAt       time.Time                // time at which timer fires; zero = never

	disconnectErr atomic.Pointer[closedError] // reason for the end of the connection; nil = open
}

// closedError is the error of a call that cannot be sent, or that was in flight when the connection
// ended. Its text is the reason why the connection has ended or accepts no calls. It wraps that
// reason and [transport.ErrClosed].
type closedError struct{ reason error }

func (e closedError) Error() string   { return e.reason.Error() }
func (e closedError) Unwrap() []error { return []error{e.reason, transport.ErrClosed} }

// errDraining is the reason why TrySend fails after [Peer.DrainCalls].
var errDraining = errors.New("the connection is draining: further calls are rejected")

// insert adds the call to the table as the entry sent. If the table is closed, it returns the
// reason.
func (t *callTable) insert(c *Call, sent *transmission) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.byID.Insert(func(id int64) *Call {
		sent.peer, sent.id, sent.at = t.peer, id, time.Now()
		sent.phase.Store(beingWritten)
		c.sentVia.Store(sent)
		return c
	}) {
		return t.sendErr
	}
	if deadline := c.startTimeout(sent.at); !deadline.IsZero() {
		t.expireAtLocked(deadline)
	}
	t.sessions.inFlight.add(c.SessionID, 1)
	return nil
}

// takeResponded removes a call whose response has arrived now. The end of the call is recorded, so
// that a late message about the call is not attributed to another session. If the call was
// abandoned before, its response is recorded.
func (t *callTable) takeResponded(id int64, now time.Time) (*Call, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.takeLocked(id)
	if ok {
		t.sessions.recent.noteResponded(c.SessionID, now)
	} else {
		t.sessions.recent.noteLateResponse(id, now)
	}
	return c, ok
}

// takeAbandoned removes a call on which the remote side may still work. If it returns true, the
// caller must call cancellationWritten.
func (t *callTable) takeAbandoned(id int64) (*Call, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.abandoning++ // first, so that takeLocked does not wake drain
	c, ok := t.takeLocked(id)
	if !ok {
		t.abandoning--
		return nil, false
	}
	t.sessions.recent.noteAbandoned(id, c.SessionID)
	return c, true
}

// cancellationWritten is called when the cancellation of an abandoned call has been written, or
// when it is certain that none will be written.
func (t *callTable) cancellationWritten() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.abandoning--
	t.wakeDrainLocked()
}

// take removes a call that was not sent, or whose connection has ended.
func (t *callTable) take(id int64) (*Call, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeLocked(id)
}

func (t *callTable) takeLocked(id int64) (*Call, bool) {
	c, ok := t.byID.Take(id)
	if ok {
		t.sessions.inFlight.add(c.SessionID, -1)
		t.wakeDrainLocked()
	}
	return c, ok
}

// reject sets the reason why TrySend fails.
func (t *callTable) reject(reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sendErr = reason
}

// disconnect closes the table and the relays when the connection has ended. It removes and returns
// the calls in flight, except those that are being written.
func (t *callTable) disconnect(reason closedError) []*Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disconnectErr.Store(&reason)
	t.relays, t.sessions.relays = nil, nil
	lost := t.byID.Drain(func(c *Call) bool {
		d := c.sentVia.Load()
		return d != nil && d.phase.Load() == beingWritten
	})
	for _, c := range lost {
		t.sessions.inFlight.add(c.SessionID, -1)
	}
	t.wakeDrainLocked()
	if t.timer != nil {
		t.timer.Stop()
	}
	return lost
}

// closeIfIdle closes the table and returns true if it is open, if no relay is active, if isIdle
// returns true, and if no call is in flight other than except. isIdle is called with mu held.
func (t *callTable) closeIfIdle(reason closedError, except *Call, isIdle func() bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := t.sendErr == nil && len(t.relays) == 0 && isIdle() &&
		t.byID.CloseIf(func(c *Call) bool { return c == except })
	if idle {
		t.sendErr = reason
	}
	return idle
}

// drain closes the table. It returns when no call is in flight and all cancellations are written,
// or when ctx is done.
func (t *callTable) drain(ctx context.Context) {
	done := make(chan struct{})
	t.mu.Lock()
	if t.sendErr == nil {
		t.sendErr = closedError{errDraining}
	}
	t.byID.Close()
	t.drainWaiters = append(t.drainWaiters, done)
	t.wakeDrainLocked()
	t.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// wakeDrainLocked wakes drain if no call is in flight.
func (t *callTable) wakeDrainLocked() {
	if len(t.drainWaiters) == 0 || t.byID.Len()+t.abandoning > 0 {
		return
	}
	for _, done := range t.drainWaiters {
		close(done)
	}
	t.drainWaiters = nil
}

// expireAt makes the timer fire at this time or earlier.
func (t *callTable) expireAt(deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireAtLocked(deadline)
}

func (t *callTable) expireAtLocked(deadline time.Time) {
	switch {
	case t.disconnectErr.Load() != nil: // no call is in flight, or TrySend ends it
		return
	case !t.wakeAt.IsZero() && !deadline.Before(t.wakeAt):
		return
	}
	t.wakeAt = deadline
	if t.timer == nil {
		t.timer = time.AfterFunc(time.Until(deadline), t.expire)
	} else {
		t.timer.Reset(time.Until(deadline))
	}
}

// expire ends the calls whose deadline has passed, and sets the timer to the next deadline.
func (t *callTable) expire() {
	now := time.Now()
	var next time.Time
	var expired []int64
	t.mu.Lock()
	t.byID.Each(func(c *Call) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case c.deadline.IsZero():
		case !now.Before(c.deadline):
			c.deadline = time.Time{}
			expired = append(expired, c.number())
		case next.IsZero() || c.deadline.Before(next):
			next = c.deadline
		}
	})
	t.wakeAt = time.Time{}
	if !next.IsZero() {
		// The search takes at most a tenth of the time, even if there are very many calls.
		if earliest := now.Add(10 * time.Since(now)); next.Before(earliest) {
			next = earliest
		}
		t.expireAtLocked(next)
	}
	t.mu.Unlock()
	for _, id := range expired {
		t.peer.abandon(id, ErrTimeout, nil)
	}
}

// oldestSession returns the session of the oldest call in flight that has a session; "" = none.
func (t *callTable) oldestSession() (session string) {
	first := int64(0)
	t.byID.Each(func(c *Call) {
		if n := c.number(); c.SessionID != "" && (first == 0 || n < first) {
			session, first = c.SessionID, n
		}
	})
	return session
}
