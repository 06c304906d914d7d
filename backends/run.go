package backends

import (
	"context"
	"errors"
	"time"

	"mcpgateway/internal/oauthclient"
)

// A startLoop connects a backendConn again and again: the shared connection until its backend is
// removed, a per-session connection while there is demand.
type startLoop struct {
	conn         *backendConn
	wakeup       chan struct{} // capacity 1: start the stopped shared connection
	retrySooner  chan struct{} // capacity 1: the next try is due earlier than it was
	loggedReason string        // reason for the last end of the connection, as logged

	// Guarded by conn.mu, for a per-session connection:
	running    bool               // a goroutine runs runPerSession
	disconnect context.CancelFunc // ends the connection and its reconnecting
}

func newStartLoop(bc *backendConn) startLoop {
	return startLoop{conn: bc, wakeup: make(chan struct{}, 1), retrySooner: make(chan struct{}, 1)}
}

// signal puts a signal into a channel of capacity 1, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runShared keeps the shared connection up until ctx is done. A backend that is started on demand
// is connected when there is demand. With Options.NoRestart, a connection that has ended is not
// replaced.
func (sl *startLoop) runShared(ctx context.Context) {
	bc := sl.conn
	needed := !bc.b.needsNoStart()
	if !needed {
		bc.log.Info("start deferred to the first call (lazy)")
	}
	for needed || sl.awaitDemand(ctx) {
		err := sl.connect(ctx)
		needed = ctx.Err() == nil && !errors.Is(err, errIdle)
		switch {
		case !needed:
		case bc.b.set.NoRestart:
			bc.markStopped(err)
			<-ctx.Done()
			return
		default:
			sl.recordEnd(err)
			sl.awaitRetry(ctx)
			needed = ctx.Err() == nil
		}
	}
	bc.markStopped(errStopped)
}

// connect makes one connection, and returns the reason for its end when nothing of it is left.
func (sl *startLoop) connect(ctx context.Context) error {
	sl.conn.markStarting()
	if err := sl.conn.b.lifetime.awaitPredecessors(ctx); err != nil {
		return err
	}
	c := connector{conn: sl.conn, detection: sl.conn.b.known.detection}
	return c.connect(ctx)
}

// awaitDemand waits until there is demand for the shared connection. It reports false if ctx is
// done first.
func (sl *startLoop) awaitDemand(ctx context.Context) bool {
	select {
	case <-sl.wakeup:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false
	}
	sl.conn.log.Info("starting backend on demand")
	return true
}

// runPerSession keeps a per-session connection up while there is demand: queued calls or
// subscriptions.
func (sl *startLoop) runPerSession(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if sl.onClose(cancel) && sl.reconnect(ctx) {
		return
	}
	if parent.Err() != nil {
		sl.conn.markStopped(errStopped)
	} else {
		sl.conn.markStopped(errSessionOver)
	}
}

// onClose lets backendConn.close call the function disconnect. It reports false if the connection
// is closed already.
func (sl *startLoop) onClose(disconnect context.CancelFunc) bool {
	sl.conn.mu.Lock()
	defer sl.conn.mu.Unlock()
	sl.disconnect = disconnect
	return sl.conn.phase != connClosed
}

// reconnect connects again and again. It reports true if demand has ended or the connection was
// merged into the shared one, and false if the session or the gateway has ended, or the backend was
// removed.
func (sl *startLoop) reconnect(ctx context.Context) bool {
	for {
		sl.awaitRetry(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case !sl.mayStart():
			if sl.exitIfIdle() {
				return true
			}
			continue
		}
		err := sl.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errMergedIntoShared):
			return true
		case !errors.Is(err, errIdle):
			sl.recordEnd(err)
		}
		if sl.exitIfIdle() {
			return true
		}
	}
}

// mayStart reports whether the breaker of all per-session connections allows a start now. If the
// breaker does not allow it, mayStart fails the queued calls with the reason.
func (sl *startLoop) mayStart() bool {
	bc, now := sl.conn, time.Now()
	next, reason := bc.b.perSession.allowStart(now)
	if reason == nil {
		return true
	}
	bc.mu.Lock()
	bc.sup.BlockUntil(now, reason, next)
	why := notSent("%w", bc.sup.RejectError(now))
	dropped := bc.calls.take()
	bc.mu.Unlock()
	bc.failCalls(dropped, why)
	return false
}

// exitIfIdle reports whether there is no demand for the connection. If there is none, the goroutine
// of the connection must exit, and the next call starts another.
func (sl *startLoop) exitIfIdle() bool {
	bc := sl.conn
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if len(bc.calls.waiting) > 0 || !bc.subs.empty() {
		return false
	}
	sl.running = false
	return true
}

// recordEnd counts and logs the end of a connection, or the failure to make one. It is called when
// nothing of the connection is left.
func (sl *startLoop) recordEnd(err error) {
	bc := sl.conn
	why, needsLogin := errors.AsType[*oauthclient.LoginError](err)
	if needsLogin {
		bc.b.login.offerTool() // before lists without the tool are sent
	}
	bc.markFailed(err)
	bc.mu.Lock()
	wasReady, breaker := bc.sup.ReachedReady(), bc.sup.Breaker()
	bc.mu.Unlock()
	sameReason := sl.loggedReason == err.Error()
	sl.loggedReason = err.Error()
	if needsLogin {
		bc.b.login.RequireLogin(why) // which logs it
		return
	}
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
func (sl *startLoop) awaitRetry(ctx context.Context) {
	for ctx.Err() == nil {
		sl.conn.mu.Lock()
		pause := time.Until(sl.conn.sup.RetryAt())
		sl.conn.mu.Unlock()
		if pause <= 0 {
			return
		}
		select {
		case <-time.After(pause):
		case <-sl.retrySooner:
		case <-ctx.Done():
		}
	}
}

// retryWithin resets the failures of a connection that is backing off. The next try follows within
// the pause, 0 = at once, and calls wait for it.
func (sl *startLoop) retryWithin(pause time.Duration) {
	sl.conn.mu.Lock()
	sl.conn.sup.ResetBackoff(time.Now(), pause)
	sl.conn.mu.Unlock()
	signal(sl.retrySooner)
}

// roundDuration rounds a duration for the log.
func roundDuration(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
