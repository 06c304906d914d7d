package backends

import (
	"cmp"
	"time"
)

// A State is where a backend stands.
type State string

const (
	Stopped     State = "stopped"     // not started yet, or not until it is needed, or ended for good
	Starting    State = "starting"    // from the dial to the end of the handshake
	Ready       State = "ready"       // calls go to it
	Degraded    State = "degraded"    // calls go to it, but something is wrong
	BackingOff  State = "backing off" // it has ended, or did not start, and is tried again soon
	BreakerOpen State = "open"        // it failed again and again: calls fail at once, and it is tried now and then
	Disabled    State = "disabled"    // by the configuration

	Misconfigured State = "misconfigured" // variables that it needs are missing: it is never started
)

// IsUp reports whether calls go to a backend in this state.
func (s State) IsUp() bool { return s == Ready || s == Degraded }

// An issue is what can be wrong with a backend to which there is a connection.
type issue uint8

const (
	issueLists       issue = iota // its lists cannot be read
	issueNoPong                   // it does not answer pings
	issueUnreachable              // it cannot be reached
	numIssues
)

// A disposition is what becomes of a call.
type disposition uint8

const (
	sendCall   disposition = iota // to the backend
	queueCall                     // until it is up, or has failed to come up
	rejectCall                    // at once: see supervisor.refusal
)

// A supervisor decides how a line stands, from what it is told of it and when: the state,
// the pause before the next try, and what becomes of a call. It does nothing itself and
// has no clock. The zero value is stopped until something is wanted.
//
//	stopped, backing off, open ─ start ─► starting ─ up ─► ready, degraded ─ stop ─► stopped
//	         starting, ready, degraded ─ lost, failed ─► backing off, open
type supervisor struct {
	breaker
	state           State            // "" = Stopped; Ready is also kept for Degraded
	stopReason      error            // why it is stopped for good, nil if it is not
	reachedReady    bool             // it has come up since it was started
	failureCounted  bool             // it has failed since it was started
	lastStartFailed bool             // the last start that has come to its end failed
	readyAt         time.Time        // when it came up last
	downAt          time.Time        // of the first end or failure since then; zero = there was none
	issues          [numIssues]error // while it is up
}

// State returns the state.
func (s *supervisor) State() State {
	switch {
	case s.state == "":
		return Stopped
	case s.state == Ready && s.issue() != nil:
		return Degraded
	}
	return s.state
}

func (s *supervisor) issue() error { return cmp.Or(s.issues[:]...) }

// problem returns why it is not as it should be, nil if it is or that is not known.
func (s *supervisor) problem() error {
	switch s.State() {
	case Ready, Degraded:
		return s.issue()
	case Stopped:
		return s.stopReason
	case Starting:
		if s.downAt.IsZero() {
			return nil
		}
	}
	return s.reason
}

// retryAt returns when the next try is, zero if none is.
func (s *supervisor) retryAt() time.Time {
	if s.state == BackingOff || s.state == BreakerOpen {
		return s.nextTry
	}
	return time.Time{}
}

// disposition says what becomes of a call. What has run and is made anew is waited for, as is
// every start under way; so is a try that is due.
func (s *supervisor) disposition(now time.Time) disposition {
	switch s.State() {
	case Ready, Degraded:
		return sendCall
	case Stopped:
		if s.stopReason != nil {
			return rejectCall
		}
	case BackingOff:
		if s.lastStartFailed && now.Before(s.nextTry) {
			return rejectCall
		}
	case BreakerOpen:
		if now.Before(s.nextTry) {
			return rejectCall
		}
	}
	return queueCall
}

// rejectError says why a call fails.
func (s *supervisor) rejectError(now time.Time) error {
	if s.State() == Stopped {
		return notSent("it is not running: %w", s.stopReason)
	}
	return notSent("it is not running: %w; next try in %v", s.reason, wholeSeconds(s.nextTry.Sub(now)))
}

// wholeSeconds rounds up: what is said to be in 1s is not there before.
func wholeSeconds(d time.Duration) time.Duration {
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}

// start notes that a start begins.
func (s *supervisor) start() {
	s.state, s.reachedReady, s.failureCounted, s.stopReason = Starting, false, false, nil
	s.issues = [numIssues]error{}
}

// up notes that it is ready. It returns for how long it was not, 0 if that was not for a
// failure.
func (s *supervisor) up(now time.Time) (down time.Duration) {
	if !s.downAt.IsZero() {
		down = now.Sub(s.downAt)
	}
	s.state, s.reachedReady, s.lastStartFailed = Ready, true, false
	s.readyAt, s.downAt = now, time.Time{}
	return down
}

// disconnected notes that it is not ready any more, for the reason why; failed follows, and may know a
// better one.
func (s *supervisor) disconnected(now time.Time, why error) {
	s.state, s.reason, s.nextTry = BackingOff, why, time.Time{}
	s.downAt = now
}

// failed notes why a start failed, or what was up has ended. The next try is a pause later.
// It may be told again when nothing is left of it: only then the pause begins.
func (s *supervisor) failed(now time.Time, reason error, random float64) {
	switch {
	case s.failureCounted:
		s.setPause(now, reason, s.pause, 0)
	case s.reachedReady && now.Sub(s.readyAt) >= stableAfter:
		s.failures = 0
		s.setPause(now, reason, firstPause, random)
	default:
		s.fail(now, reason, random)
	}
	if !s.failureCounted { // else it may have been pardoned
		s.failureCounted, s.lastStartFailed = true, !s.reachedReady
	}
	if s.downAt.IsZero() {
		s.downAt = now
	}
	s.state = BackingOff
	if s.isOpen() {
		s.state = BreakerOpen
	}
}

// resetBackoff forgets what has failed: if it waits for the next try that is in a pause at most, and
// calls wait for it. Later pauses start from at most firstPause, however long this pause is.
func (s *supervisor) resetBackoff(now time.Time, pause time.Duration) {
	if s.state != BackingOff && s.state != BreakerOpen {
		return
	}
	s.state, s.lastStartFailed = BackingOff, false
	s.breaker = breaker{reason: s.reason, nextTry: s.nextTry, pause: min(s.pause, pause, firstPause)}
	if soon := now.Add(pause); soon.Before(s.nextTry) {
		s.nextTry = soon
	}
}

// blockUntil notes that it may not be tried before next, for a reason that is not its own.
func (s *supervisor) blockUntil(reason error, next time.Time) {
	s.state, s.reason, s.nextTry = BreakerOpen, reason, next
}

// stop notes that it was stopped: for good if there is a reason, else until it is needed.
func (s *supervisor) stop(why error) {
	s.state, s.stopReason = Stopped, why
	if why == nil {
		s.breaker = breaker{}
	}
}
