package backends

import (
	"math/rand/v2"
	"time"
)

// recordEnd records and logs that a connection has ended, or could not be made, and that
// nothing of it is left.
func (bc *backendConn) recordEnd(err error) {
	bc.markFailed(err)
	bc.mu.Lock()
	wasReady, open, state := bc.sup.reachedReady, bc.sup.isOpen(), bc.sup.breaker
	sameReason := bc.loggedReason == err.Error()
	bc.loggedReason = err.Error()
	bc.mu.Unlock()
	bc.b.noteConnEnded(bc, wasReady, state)
	next := roundDuration(state.pause)
	switch justOpened := state.failures == breakerThreshold; {
	case open && justOpened:
		bc.log.Warn("backend fails repeatedly; until it is up, its calls fail at once", "err", err,
			"next", next)
	case wasReady:
		bc.log.Warn("backend ended; will restart", "err", err, "next", next)
	case sameReason:
		bc.log.Debug("backend failed to start, as before", "err", err, "next", next)
	default:
		bc.log.Warn("backend failed to start; will retry", "err", err, "next", next)
	}
}

// roundDuration rounds a duration for the log.
func roundDuration(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// noteConnEnded updates the breaker of the per-session connections after the end of a
// connection.
func (b *Backend) noteConnEnded(bc *backendConn, wasReady bool, state breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !bc.isPerSession() && state.isOpen():
		b.sessionBreaker.sharedBreaker = &state
	case !bc.isPerSession():
		b.sessionBreaker.sharedBreaker = nil // its backoff was reset
	case !wasReady:
		b.sessionBreaker.failed(time.Now(), bc.session, state.reason, rand.Float64())
	}
}

// noteStartSucceeded updates the breaker of the per-session connections after a successful
// start.
func (b *Backend) noteStartSucceeded(bc *backendConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bc.isPerSession() {
		b.sessionBreaker.up()
	} else {
		b.sessionBreaker.sharedBreaker = nil
	}
}
