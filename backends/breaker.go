package backends

import (
	"time"
)

const (
	// firstPause is the pause after the first failure. The pause doubles with each further failure
	// until the breaker opens.
	firstPause = 200 * time.Millisecond
	// breakerThreshold is the number of failures in a row that open the breaker. From then on the
	// pauses between the starts grow from firstOpenPause to lastOpenPause.
	breakerThreshold = 5
	firstOpenPause   = 30 * time.Second
	lastOpenPause    = 5 * time.Minute
	// The end of a connection that was ready for stableAfter resets the count of failures.
	stableAfter = 30 * time.Second
)

// A breaker counts failures in a row and determines the pause before the next start. It opens at
// the fifth failure. From then on calls fail at once during the pauses (see
// supervisor.disposition), but starts are still tried: after 30 s, then after pauses that double up
// to 5 min. The end of a connection that was ready for stableAfter resets the count, and so do an
// idle stop and supervisor.resetBackoff. The zero value has seen no failure.
type breaker struct {
	failures int
	pause    time.Duration // pause after the last failure
	nextTry  time.Time     // end of that pause; zero = no pause
	reason   error         // reason of the last failure
}

// fail counts a failure. The argument random, from the interval [0,1), lengthens the pause by up to
// a quarter, so that backends that have failed at the same time are not retried at the same time.
func (b *breaker) fail(now time.Time, reason error, random float64) {
	b.failures++
	b.setPause(now, reason, backoffAfter(b.failures), random)
}

func (b *breaker) setPause(now time.Time, reason error, pause time.Duration, random float64) {
	b.reason, b.pause = reason, pause+time.Duration(random*float64(pause)/4)
	b.nextTry = now.Add(b.pause)
}

func (b *breaker) isOpen() bool { return b.failures >= breakerThreshold }

func backoffAfter(failures int) time.Duration {
	if failures < breakerThreshold {
		return firstPause << max(failures-1, 0)
	}
	return min(firstOpenPause<<min(failures-breakerThreshold, 10), lastOpenPause)
}

// A sessionBreaker limits the starts of a backend's per-session connections, because the first call
// of each session would start one. After breakerThreshold different sessions have failed in a row,
// one start per pause is allowed for all sessions together. While the breaker of the shared
// connection is open, no per-session connection is started: the tries of the shared connection find
// out when the backend works again. Until the sessionBreaker itself is open, further failures of
// the same session do not count. The zero value limits nothing.
type sessionBreaker struct {
	breaker
	failedSessions map[string]bool // sessions that are counted in breaker.failures
	// copy of the breaker of the shared connection; nil = that breaker is closed
	sharedBreaker *breaker
}

// allowStart requests a start. If the start is refused, the result reason is not nil, and the
// result next is the time for the next request. A start that is allowed while the sessionBreaker is
// open begins the next pause.
func (sb *sessionBreaker) allowStart(now time.Time, random float64) (next time.Time, reason error) {
	switch {
	case sb.sharedBreaker != nil:
		return laterOf(sb.sharedBreaker.nextTry, now.Add(time.Second)), sb.sharedBreaker.reason
	case !sb.isOpen():
		return time.Time{}, nil
	case now.Before(sb.nextTry):
		return sb.nextTry, sb.reason
	}
	sb.setPause(now, sb.reason, backoffAfter(sb.failures), random)
	return time.Time{}, nil
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// failed is called when a session's start has failed.
func (sb *sessionBreaker) failed(now time.Time, session string, reason error, random float64) {
	if sb.failedSessions[session] && !sb.isOpen() {
		return
	}
	if sb.failedSessions == nil {
		sb.failedSessions = make(map[string]bool)
	}
	if !sb.isOpen() {
		sb.failedSessions[session] = true
	}
	sb.fail(now, reason, random)
}

// up is called when a session's start has succeeded.
func (sb *sessionBreaker) up() { sb.breaker, sb.failedSessions = breaker{}, nil }
