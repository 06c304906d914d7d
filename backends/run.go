package backends

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// runShared keeps the shared line up until ctx is done; one that is stopped until it is needed
// comes up then.
func (bc *backendConn) runShared(ctx context.Context) {
	needed := !bc.b.needsNoStart()
	if !needed {
		bc.log.Info("backend is started by its first call (lazy)")
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

// needsNoStart reports whether the backend need not be started to be listed.
func (b *Backend) needsNoStart() bool {
	_, answered := b.currentListing()
	return b.cfg.Lazy && answered && !b.set.NoRestart && !b.set.IgnoreCache
}

// wakeIfUnlisted has the shared line come up if it was not yet: somebody uses the backend, and
// what it lists may be another thing by now than what is known of it.
func (b *Backend) wakeIfUnlisted() {
	b.mu.Lock()
	listed := b.status.Settled
	b.mu.Unlock()
	if !listed {
		b.shared.wake()
	}
}

// awaitDemand waits until something is wanted of the shared line; it reports false if ctx is
// done first.
func (bc *backendConn) awaitDemand(ctx context.Context) bool {
	select {
	case <-bc.wakeup:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false
	}
	bc.log.Info("backend is started, for it is needed")
	return true
}

// runPerSession keeps a session's own line up for as long as something is wanted of it:
// a call waits for it, or there are subscriptions.
func (bc *backendConn) runPerSession(all context.Context) {
	ctx, cancel := context.WithCancel(all)
	defer cancel()
	bc.mu.Lock()
	bc.disconnect = cancel
	over := bc.closed
	bc.mu.Unlock()
	if !over && bc.reconnectLoop(ctx) {
		return
	}
	if all.Err() != nil {
		bc.markStopped(errStopped)
	} else {
		bc.markStopped(errSessionOver)
	}
}

// reconnectLoop is runOwn for as long as the session and the gateway go on; it reports whether it
// came to its end before.
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

// mayStart reports whether a session's own line may be started now, as far as the others
// of its backend are concerned; if not, what waits for it ends with the reason.
func (bc *backendConn) mayStart() bool {
	now := time.Now()
	bc.b.mu.Lock()
	next, reason := bc.b.sessionBreaker.allowStart(now, rand.Float64())
	bc.b.mu.Unlock()
	if reason == nil {
		return true
	}
	bc.mu.Lock()
	bc.sup.blockUntil(reason, next)
	why := bc.sup.rejectError(now)
	var dropped []queuedCall
	dropped, bc.queued = bc.queued, nil
	bc.mu.Unlock()
	bc.failCalls(dropped, why)
	return false
}

// exitIfIdle reports whether nothing is wanted of the line; its goroutine then ends, and
// the next call starts another.
func (bc *backendConn) exitIfIdle() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if len(bc.queued) > 0 || !bc.subs.empty() {
		return false
	}
	bc.running = false
	return true
}

// awaitRetry waits until the next try is due.
func (bc *backendConn) awaitRetry(ctx context.Context) {
	for ctx.Err() == nil {
		bc.mu.Lock()
		pause := time.Until(bc.sup.retryAt())
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

// retrySoon has what has failed so far count no more: there is a next try soon, and calls wait for
// it.
func (bc *backendConn) retrySoon() { bc.retryWithin(firstPause) }

// retryNow is pardon, and has the next try be made at once.
func (bc *backendConn) retryNow() { bc.retryWithin(0) }

func (bc *backendConn) retryWithin(pause time.Duration) {
	bc.mu.Lock()
	bc.sup.resetBackoff(time.Now(), pause)
	bc.mu.Unlock()
	select {
	case bc.retrySooner <- struct{}{}:
	default:
	}
}
