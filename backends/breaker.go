package backends

import (
	"time"
)

const (
	// firstPause is the pause after the first of several failures; it doubles with each.
	firstPause = 200 * time.Millisecond
	// breakerThreshold is how many failures in a row open the circuit. From then on there are longer
	// pauses, from firstOpenPause to lastOpenPause.
	breakerThreshold = 5
	firstOpenPause   = 30 * time.Second
	lastOpenPause    = 5 * time.Minute
	// stableAfter is how long a backend must have been ready for its end not to count as
	// one failure more.
	stableAfter = 30 * time.Second
)

// A breaker counts failures in a row. The zero value has seen none.
type breaker struct {
	failures int
	pause    time.Duration // after the last of them
	nextTry  time.Time     // the next try
	reason   error         // of the last
}

// fail counts a failure. Random is of [0,1): by it the pause is up to a quarter longer,
// so that what has failed together is not tried together.
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

// A sessionBreaker bounds the starts of the own lines of one backend, of which each session may
// have one, and each session's first call would start it. When those of breakerThreshold sessions
// in a row have failed there is one start in each pause, for all of them together; and
// while the circuit of the shared line is open there is none. What one session does not
// come through with is its own affair. The zero value bounds nothing.
type sessionBreaker struct {
	breaker
	failedSessions map[string]bool // that are in breaker.failures
	sharedBreaker  *breaker        // of the shared line, while its circuit is open
}

// allowStart asks for a start. If there is a reason against it, next is when to ask again.
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

// failed notes that a session's start failed.
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

// up notes that a session's start did not fail.
func (sb *sessionBreaker) up() { sb.breaker, sb.failedSessions = breaker{}, nil }
