package backends

import (
	"context"
	"errors"
	"time"

	"mcpgateway/backends/internal/supervise"
)

// runShared keeps the shared connection up until ctx is done. A backend that is started on demand
// is connected when there is demand. With Options.NoRestart, a connection that has ended is not
// replaced.
func (bc *backendConn) runShared(ctx context.Context) {
	needed := !bc.b.needsNoStart()
	if !needed {
		bc.log.Info("start deferred to the first call (lazy)")
	}
	for needed || bc.awaitDemand(ctx) {
		bc.markStarting()
		err := bc.connect(ctx)
		needed = ctx.Err() == nil && !errors.Is(err, errIdle)
		switch {
		case !needed:
		case bc.b.set.NoRestart:
			bc.markStopped(err)
			<-ctx.Done()
			return
		default:
			bc.recordEnd(err)
			bc.awaitRetry(ctx)
			needed = ctx.Err() == nil
		}
	}
	bc.markStopped(errStopped)
}

// awaitDemand waits until there is demand for the shared connection. It reports false if ctx is
// done first.
func (bc *backendConn) awaitDemand(ctx context.Context) bool {
	select {
	case <-bc.wakeup:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false
	}
	bc.log.Info("starting backend on demand")
	return true
}

// runPerSession keeps a per-session connection up while there is demand: queued calls or
// subscriptions.
func (bc *backendConn) runPerSession(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	bc.mu.Lock()
	bc.disconnect = cancel
	closed := bc.closed
	bc.mu.Unlock()
	if !closed && bc.reconnectLoop(ctx) {
		return
	}
	if parent.Err() != nil {
		bc.markStopped(errStopped)
	} else {
		bc.markStopped(errSessionOver)
	}
}

// reconnectLoop connects again and again. It reports true if demand has ended or the connection was
// merged into the shared one, and false if the session or the gateway has ended, or the backend was
// removed.
func (bc *backendConn) reconnectLoop(ctx context.Context) bool {
	for {
		bc.awaitRetry(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case !bc.mayStart():
			if bc.exitIfIdle() {
				return true
			}
			continue
		}
		bc.markStarting()
		err := bc.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errMergedIntoShared):
			return true
		case !errors.Is(err, errIdle):
			bc.recordEnd(err)
		}
		if bc.exitIfIdle() {
			return true
		}
	}
}

// mayStart reports whether the breaker of all per-session connections allows a start now. If the
// breaker does not allow it, mayStart fails the queued calls with the reason.
func (bc *backendConn) mayStart() bool {
	now := time.Now()
	next, reason := bc.b.perSession.allowStart(now)
	if reason == nil {
		return true
	}
	bc.mu.Lock()
	bc.sup.BlockUntil(reason, next)
	why := notSent("%w", bc.sup.RejectError(now))
	var dropped []*queuedCall
	dropped, bc.queued = bc.queued, nil
	bc.mu.Unlock()
	bc.failCalls(dropped, why)
	return false
}

// exitIfIdle reports whether there is no demand for the connection. If there is none, the goroutine
// of the connection must exit, and the next call starts another.
func (bc *backendConn) exitIfIdle() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if len(bc.queued) > 0 || !bc.subs.empty() {
		return false
	}
	bc.running = false
	return true
}

// recordEnd counts and logs the end of a connection, or the failure to make one. It is called when
// nothing of the connection is left.
func (bc *backendConn) recordEnd(err error) {
	bc.markFailed(err)
	bc.mu.Lock()
	wasReady, breaker := bc.sup.ReachedReady(), bc.sup.Breaker()
	sameReason := bc.loggedReason == err.Error()
	bc.loggedReason = err.Error()
	bc.mu.Unlock()
	bc.b.perSession.noteEnded(bc, wasReady, breaker)
	next := roundDuration(breaker.Pause())
	switch {
	case breaker.JustOpened():
		bc.log.Warn("backend failed repeatedly; calls rejected between its starts", "err", err,
			"next", next)
	case wasReady:
		bc.log.Warn("backend ended; will restart", "err", err, "next", next)
	case sameReason:
		bc.log.Debug("backend failed to start, as before", "err", err, "next", next)
	default:
		bc.log.Warn("backend failed to start; will retry", "err", err, "next", next)
	}
}

// awaitRetry waits until the next try is due, or ctx is done.
func (bc *backendConn) awaitRetry(ctx context.Context) {
	for ctx.Err() == nil {
		bc.mu.Lock()
		pause := time.Until(bc.sup.RetryAt())
		bc.mu.Unlock()
		if pause <= 0 {
			return
		}
		select {
		case <-time.After(pause):
		case <-bc.retrySooner:
		case <-ctx.Done():
		}
	}
}

// retrySoon resets the failures of a connection that is backing off. The next try follows within
// supervise.FirstPause, and calls wait for it.
func (bc *backendConn) retrySoon() { bc.retryWithin(supervise.FirstPause) }

// retryNow resets the failures of a connection that is backing off, and makes the next try at once.
func (bc *backendConn) retryNow() { bc.retryWithin(0) }

func (bc *backendConn) retryWithin(pause time.Duration) {
	bc.mu.Lock()
	bc.sup.ResetBackoff(time.Now(), pause)
	bc.mu.Unlock()
	select {
	case bc.retrySooner <- struct{}{}:
	default:
	}
}

// roundDuration rounds a duration for the log.
func roundDuration(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
