package backends

import (
	"cmp"
	"time"
)

// A State is the state of a backend.
type State string

const (
	Stopped  State = "stopped"  // not started yet, waiting for demand, or stopped permanently
	Starting State = "starting" // from the wait for a start slot until calls go to it
	Ready    State = "ready"    // calls go to it
	Degraded State = "degraded" // calls go to it, but it has an issue
	// it has ended or failed to start, and will be started again soon
	BackingOff State = "backing off"
	// its breaker is open, because it has failed five times in a row: calls fail at once, and
	// starts are tried after 30 s at first, after 5 min at last
	BreakerOpen State = "open"
	Disabled    State = "disabled" // disabled in the configuration

	// a variable that it needs is missing: it is never started
	Misconfigured State = "misconfigured"
)

// IsUp reports whether calls go to a backend in this state.
func (s State) IsUp() bool { return s == Ready || s == Degraded }

// A healthIssue is a fault of a backend that is connected.
type healthIssue uint8

const (
	issueLists       healthIssue = iota // its lists cannot be read
	issueNoPong                         // it does not respond to pings
	issueUnreachable                    // requests do not reach it
	numIssues
)

// A disposition is the decision about a call.
type disposition uint8

const (
	sendCall   disposition = iota // send it to the backend
	queueCall                     // queue it until the backend is ready, or has failed to start
	rejectCall                    // fail it at once: see supervisor.rejectError
)

// A supervisor is the state machine of a backendConn. Its methods record events and their times;
// the supervisor decides the state, the pause before the next try, and the disposition of calls. It
// performs no actions and has no clock. The zero value is stopped until there is demand.
//
//	stopped, backing off, open ─ start ─► starting ─ up ─► ready, degraded ─ stop ─► stopped
//	         starting, ready, degraded ─ disconnected, failed ─► backing off, open
type supervisor struct {
	breaker
	state           State            // "" = Stopped; Ready also stands for Degraded
	stopReason      error            // reason for a permanent stop; nil = none
	reachedReady    bool             // it has become ready at least once since the start
	failureCounted  bool             // a failure since the start was counted
	lastStartFailed bool             // the latest completed start has failed
	readyAt         time.Time        // time when it last became ready
	downAt          time.Time        // time of the first end or failure since readyAt; zero = none
	issues          [numIssues]error // current faults while it is up; nil = none
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

// problem returns the reason for a state other than Ready, nil if the state is Ready or the reason
// is not known.
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

// retryAt returns the time of the next try, zero if none is scheduled.
func (s *supervisor) retryAt() time.Time {
	if s.state == BackingOff || s.state == BreakerOpen {
		return s.nextTry
	}
	return time.Time{}
}

// disposition returns the decision about a call. Calls to a backend that is not ready are queued,
// with two exceptions: a call is rejected if the backend is stopped permanently, and also, until
// the next try is due, if the breaker is open or the last start failed.
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

// rejectError returns the error of a rejected call.
func (s *supervisor) rejectError(now time.Time) error {
	if s.State() == Stopped {
		return notSent("it is not running: %w", s.stopReason)
	}
	return notSent("it is not running: %w; next try in %v", s.reason,
		wholeSeconds(s.nextTry.Sub(now)))
}

// wholeSeconds rounds up, to at least one second, so that the next try is due when the announced
// time is over.
func wholeSeconds(d time.Duration) time.Duration {
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}

// start is called when a start begins.
func (s *supervisor) start() {
	s.state, s.reachedReady, s.failureCounted, s.stopReason = Starting, false, false, nil
	s.issues = [numIssues]error{}
}

// up is called when the connection is ready. It returns the downtime, 0 if no failure preceded.
func (s *supervisor) up(now time.Time) (downtime time.Duration) {
	if !s.downAt.IsZero() {
		downtime = now.Sub(s.downAt)
	}
	s.state, s.reachedReady, s.lastStartFailed = Ready, true, false
	s.readyAt, s.downAt = now, time.Time{}
	return downtime
}

// disconnected is called when the connection is no longer ready, with the reason. The caller then
// calls the method failed, possibly with a more precise reason.
func (s *supervisor) disconnected(now time.Time, why error) {
	s.state, s.reason, s.nextTry = BackingOff, why, time.Time{}
	s.downAt = now
}

// failed is called when a start has failed or a connection has ended, with the reason. The next try
// follows after one pause. A second call for the same connection, after all of its resources are
// released, restarts the pause and counts nothing.
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
	if !s.failureCounted { // else resetBackoff may have been called since
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

// resetBackoff forgets the failures; it does nothing if no try is scheduled. The scheduled try is
// moved to a time that is at most pause from now, and calls are queued for it. The pauses after
// further failures begin with firstPause again. If the last failure is recorded a second time (see
// failed), the pause that restarts is at most firstPause, even if the argument pause is longer.
func (s *supervisor) resetBackoff(now time.Time, pause time.Duration) {
	if s.state != BackingOff && s.state != BreakerOpen {
		return
	}
	s.state, s.lastStartFailed = BackingOff, false
	s.breaker = breaker{reason: s.reason, nextTry: s.nextTry,
		pause: min(s.pause, pause, firstPause)}
	if soon := now.Add(pause); soon.Before(s.nextTry) {
		s.nextTry = soon
	}
}

// blockUntil prevents a try before the time next, for a reason outside of the connection.
func (s *supervisor) blockUntil(reason error, next time.Time) {
	s.state, s.reason, s.nextTry = BreakerOpen, reason, next
}

// stop is called when the connection is stopped: permanently if why is set, else until there is
// demand. A stop until there is demand also resets the failures.
func (s *supervisor) stop(why error) {
	s.state, s.stopReason = Stopped, why
	if why == nil {
		s.breaker = breaker{}
	}
}
