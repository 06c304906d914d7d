package supervise

import "time"

const (
	// FirstPause is the pause after the first failure. The pause doubles with each further failure
	// until the breaker opens.
	FirstPause = 200 * time.Millisecond
	// BreakerThreshold is the number of failures in a row that open the breaker. From then on the
	// pauses between the starts grow from firstOpenPause to lastOpenPause.
	BreakerThreshold = 5
	firstOpenPause   = 30 * time.Second
	lastOpenPause    = 5 * time.Minute
	// The end of a connection that was ready for StableAfter resets the count of failures.
	StableAfter = 30 * time.Second
)

// A Breaker counts failures in a row and determines the pause before the next start. It opens at
// the fifth failure. From then on calls fail at once during the pauses (see
// Supervisor.Disposition), but starts are still tried: after 30 s, then after pauses that double up
// to 5 min. The end of a connection that was ready for StableAfter resets the count, and so do an
// idle stop and Supervisor.ResetBackoff. The zero value has seen no failure.
type Breaker struct {
	failures int
	pause    time.Duration // pause after the last failure
	nextTry  time.Time     // end of that pause; zero = no pause
	reason   error         // reason of the last failure
}

// fail counts a failure. The argument random, from the interval [0,1), lengthens the pause by up to
// a quarter, so that backends that have failed at the same time are not retried at the same time.
func (b *Breaker) fail(now time.Time, reason error, random float64) {
	b.failures++
	b.setPause(now, reason, backoffAfter(b.failures), random)
}

func (b *Breaker) setPause(now time.Time, reason error, pause time.Duration, random float64) {
	b.reason, b.pause = reason, pause+time.Duration(random*float64(pause)/4)
	b.nextTry = now.Add(b.pause)
}

// IsOpen reports whether the breaker is open.
func (b Breaker) IsOpen() bool { return b.failures >= BreakerThreshold }

// JustOpened reports whether the last failure has opened the breaker.
func (b Breaker) JustOpened() bool { return b.failures == BreakerThreshold }

// Pause returns the pause after the last failure.
func (b Breaker) Pause() time.Duration { return b.pause }

// Reason returns the reason of the last failure.
func (b Breaker) Reason() error { return b.reason }

func backoffAfter(failures int) time.Duration {
	if failures < BreakerThreshold {
		return FirstPause << max(failures-1, 0)
	}
	return min(firstOpenPause<<min(failures-BreakerThreshold, 10), lastOpenPause)
}

// A SessionBreaker limits the starts of a backend's per-session connections, because the first call
// of each session would start one. After BreakerThreshold different sessions have failed in a row,
// one start per pause is allowed for all sessions together. While the breaker of the shared
// connection is open, no per-session connection is started: the tries of the shared connection find
// out when the backend works again. Until the SessionBreaker itself is open, further failures of
// the same session do not count. The zero value limits nothing.
type SessionBreaker struct {
	breaker        Breaker
	failedSessions map[string]bool // sessions that are counted in breaker.failures
	shared         Breaker         // copy of the breaker of the shared connection
}

// AllowStart requests a start. If the start is refused, the result reason is not nil, and the
// result next is the time for the next request. A start that is allowed while the SessionBreaker is
// open begins the next pause.
func (sb *SessionBreaker) AllowStart(now time.Time, random float64) (next time.Time, reason error) {
	b := &sb.breaker
	switch {
	case sb.shared.IsOpen():
		if next = now.Add(time.Second); next.Before(sb.shared.nextTry) {
			next = sb.shared.nextTry
		}
		return next, sb.shared.reason
	case !b.IsOpen():
		return time.Time{}, nil
	case now.Before(b.nextTry):
		return b.nextTry, b.reason
	}
	b.setPause(now, b.reason, backoffAfter(b.failures), random)
	return time.Time{}, nil
}

// SharedEnded is called when the shared connection has ended or failed to start, with its breaker.
func (sb *SessionBreaker) SharedEnded(b Breaker) { sb.shared = b }

// SharedUp is called when a start of the shared connection has succeeded.
func (sb *SessionBreaker) SharedUp() { sb.shared = Breaker{} }

// Failed is called when a session's start has failed.
func (sb *SessionBreaker) Failed(now time.Time, session string, reason error, random float64) {
	if sb.failedSessions[session] && !sb.breaker.IsOpen() {
		return
	}
	if sb.failedSessions == nil {
		sb.failedSessions = make(map[string]bool)
	}
	if !sb.breaker.IsOpen() {
		sb.failedSessions[session] = true
	}
	sb.breaker.fail(now, reason, random)
}

// Up is called when a session's start has succeeded.
func (sb *SessionBreaker) Up() { sb.breaker, sb.failedSessions = Breaker{}, nil }
