// Package supervise decides when a connection to a backend is started and whether calls go to it.
// Except for [StartSlots], it is pure: events, their times and random numbers are arguments. It has
// no locks: the caller serializes the methods of one value.
package supervise

import (
	"cmp"
	"fmt"
	"time"
)

// A State is the state of a backend.
type State string

// States that a Supervisor decides.
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
	// it could not be started because somebody has to log in first; see Supervisor.AwaitLogin
	NeedsLogin State = "needs login"
)

// IsUp reports whether calls go to a backend in this state.
func (s State) IsUp() bool { return s == Ready || s == Degraded }

// A HealthIssue is a fault of a backend that is connected.
type HealthIssue uint8

const (
	IssueLists       HealthIssue = iota // its lists cannot be read
	IssueNoPong                         // it does not respond to pings
	IssueUnreachable                    // requests do not reach it
	numIssues
)

// A Disposition is the decision about a call.
type Disposition uint8

const (
	SendCall   Disposition = iota // send it to the backend
	QueueCall                     // queue it until the backend is ready, or has failed to start
	RejectCall                    // fail it at once: see Supervisor.RejectError
)

// A Supervisor is the state machine of one connection to a backend. Its methods record events and
// their times; the Supervisor decides the state, the pause before the next try, and the disposition
// of calls. It performs no actions and has no clock. The zero value is stopped until there is
// demand.
//
//	stopped, backing off, open ─ Start ─► starting ─ Up ─► ready, degraded ─ Stop ─► stopped
//	         starting, ready, degraded ─ Disconnected, Failed ─► backing off, open
//	         starting, ready, degraded ─ AwaitLogin ─► needs login
type Supervisor struct {
	breaker         Breaker
	state           State            // "" = Stopped; Ready also stands for Degraded
	stopReason      error            // reason for a permanent stop; nil = none
	reachedReady    bool             // it has become ready at least once since the start
	failureCounted  bool             // a failure since the start was counted
	lastStartFailed bool             // the latest completed start has failed
	readyAt         time.Time        // time when it last became ready
	downAt          time.Time        // time of the first end or failure since readyAt; zero = none
	issues          [numIssues]error // current faults while it is up; nil = none
	history         History
	onChange        func() // called when State has changed; nil = not called
}

// A History is what has happened to a connection.
type History struct {
	Since       time.Time // when it entered its state
	Restarts    int       // starts after it had ended or had failed to start
	LastError   error     // latest failure or issue, nil = none; it may be over
	LastErrorAt time.Time
}

// New returns a Supervisor that is stopped until there is demand. It calls onChange each time that
// State has changed, in the call of the method that reports the event.
func New(now time.Time, onChange func()) Supervisor {
	return Supervisor{history: History{Since: now}, onChange: onChange}
}

// History returns the history.
func (s *Supervisor) History() History { return s.history }

// noteChange is called after an event; before is the State before it.
func (s *Supervisor) noteChange(now time.Time, before State) {
	if s.State() == before {
		return
	}
	s.history.Since = now
	if s.onChange != nil {
		s.onChange()
	}
}

func (s *Supervisor) noteError(now time.Time, err error) {
	s.history.LastError, s.history.LastErrorAt = err, now
}

// State returns the state.
func (s *Supervisor) State() State {
	switch {
	case s.state == "":
		return Stopped
	case s.state == Ready && s.issue() != nil:
		return Degraded
	}
	return s.state
}

func (s *Supervisor) issue() error { return cmp.Or(s.issues[:]...) }

// SetIssue sets a current fault; nil = it is resolved.
func (s *Supervisor) SetIssue(now time.Time, which HealthIssue, err error) {
	defer s.noteChange(now, s.State())
	s.issues[which] = err
	if err != nil {
		s.noteError(now, err)
	}
}

// HasIssue reports whether a fault is set.
func (s *Supervisor) HasIssue(which HealthIssue) bool { return s.issues[which] != nil }

// ReachedReady reports whether the connection has become ready at least once since the start.
func (s *Supervisor) ReachedReady() bool { return s.reachedReady }

// WasReady reports whether the connection has ever become ready.
func (s *Supervisor) WasReady() bool { return !s.readyAt.IsZero() }

// LastStartFailed reports whether the latest completed start has failed.
func (s *Supervisor) LastStartFailed() bool { return s.lastStartFailed }

// Breaker returns a copy of the breaker.
func (s *Supervisor) Breaker() Breaker { return s.breaker }

// Problem returns the reason for a state other than Ready, nil if the state is Ready or the reason
// is not known.
func (s *Supervisor) Problem() error {
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
	return s.breaker.reason
}

// RetryAt returns the time of the next try, zero if none is scheduled.
func (s *Supervisor) RetryAt() time.Time {
	switch s.state {
	case BackingOff, BreakerOpen, NeedsLogin:
		return s.breaker.nextTry
	}
	return time.Time{}
}

// Disposition returns the decision about a call. Calls to a backend that is not ready are queued,
// with two exceptions: a call is rejected if the backend is stopped permanently, and also, until
// the next try is due, if the breaker is open or the last start failed.
func (s *Supervisor) Disposition(now time.Time) Disposition {
	switch s.State() {
	case Ready, Degraded:
		return SendCall
	case Stopped:
		if s.stopReason != nil {
			return RejectCall
		}
	case BackingOff:
		if s.lastStartFailed && now.Before(s.breaker.nextTry) {
			return RejectCall
		}
	case BreakerOpen, NeedsLogin:
		if now.Before(s.breaker.nextTry) {
			return RejectCall
		}
	}
	return QueueCall
}

// RejectError returns the error of a rejected call.
func (s *Supervisor) RejectError(now time.Time) error {
	switch s.State() {
	case Stopped:
		return fmt.Errorf("it is not running: %w", s.stopReason)
	case NeedsLogin:
		return s.breaker.reason
	}
	return fmt.Errorf("it is not running: %w; next try in %v", s.breaker.reason,
		wholeSeconds(s.breaker.nextTry.Sub(now)))
}

// wholeSeconds rounds up, to at least one second, so that the next try is due when the announced
// time is over.
func wholeSeconds(d time.Duration) time.Duration {
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}

// Start is called when a start begins.
func (s *Supervisor) Start(now time.Time) {
	defer s.noteChange(now, s.State())
	if s.state == BackingOff || s.state == BreakerOpen {
		s.history.Restarts++
	}
	s.state, s.reachedReady, s.failureCounted, s.stopReason = Starting, false, false, nil
	s.issues = [numIssues]error{}
}

// Up is called when the connection is ready. It returns the downtime, 0 if no failure preceded.
func (s *Supervisor) Up(now time.Time) (downtime time.Duration) {
	defer s.noteChange(now, s.State())
	if !s.downAt.IsZero() {
		downtime = now.Sub(s.downAt)
	}
	s.state, s.reachedReady, s.lastStartFailed = Ready, true, false
	s.readyAt, s.downAt = now, time.Time{}
	return downtime
}

// Disconnected is called when the connection is no longer ready, with the reason. The caller then
// calls Failed, possibly with a more precise reason.
func (s *Supervisor) Disconnected(now time.Time, why error) {
	defer s.noteChange(now, s.State())
	s.state = BackingOff
	s.breaker.reason, s.breaker.nextTry = why, time.Time{}
	s.downAt = now
}

// Failed is called when a start has failed or a connection has ended, with the reason. The next try
// follows after one pause. A second call for the same connection, after all of its resources are
// released, restarts the pause and counts nothing.
func (s *Supervisor) Failed(now time.Time, reason error, random float64) {
	defer s.noteChange(now, s.State())
	s.history.LastError = reason
	switch {
	case s.failureCounted:
		s.breaker.setPause(now, reason, s.breaker.pause, 0)
	case s.reachedReady && now.Sub(s.readyAt) >= StableAfter:
		s.breaker.failures = 0
		s.breaker.setPause(now, reason, FirstPause, random)
	default:
		s.breaker.fail(now, reason, random)
	}
	if !s.failureCounted { // else ResetBackoff may have been called since
		s.failureCounted, s.lastStartFailed = true, !s.reachedReady
		s.history.LastErrorAt = now
	}
	if s.downAt.IsZero() {
		s.downAt = now
	}
	s.state = BackingOff
	if s.breaker.IsOpen() {
		s.state = BreakerOpen
	}
}

// ResetBackoff forgets the failures; it does nothing if no try is scheduled. The scheduled try is
// moved to a time that is at most pause from now, and calls are queued for it. The pauses after
// further failures begin with FirstPause again. If the last failure is recorded a second time (see
// Failed), the pause that restarts is at most FirstPause, even if the argument pause is longer.
func (s *Supervisor) ResetBackoff(now time.Time, pause time.Duration) {
	defer s.noteChange(now, s.State())
	switch s.state {
	case BackingOff, BreakerOpen, NeedsLogin:
	default:
		return
	}
	s.state, s.lastStartFailed = BackingOff, false
	b := &s.breaker
	b.failures, b.pause = 0, min(b.pause, pause, FirstPause)
	if soon := now.Add(pause); soon.Before(b.nextTry) {
		b.nextTry = soon
	}
}

// LoginRetry is the pause before the next try of a connection that needs a login. A login ends the
// pause: see ResetBackoff.
const LoginRetry = 5 * time.Minute

// AwaitLogin is called instead of Failed when a start has failed or a connection has ended because
// somebody has to log in first. It is not a failure of the backend.
func (s *Supervisor) AwaitLogin(now time.Time, why error) {
	defer s.noteChange(now, s.State())
	s.noteError(now, why)
	s.breaker = Breaker{reason: why, nextTry: now.Add(LoginRetry)}
	s.state = NeedsLogin
	if s.downAt.IsZero() {
		s.downAt = now
	}
}

// BlockUntil prevents a try before the time next, for a reason outside of the connection.
func (s *Supervisor) BlockUntil(now time.Time, reason error, next time.Time) {
	defer s.noteChange(now, s.State())
	s.state = BreakerOpen
	s.breaker.reason, s.breaker.nextTry = reason, next
}

// Stop is called when the connection is stopped: permanently if why is set, else until there is
// demand. A stop until there is demand also resets the failures.
func (s *Supervisor) Stop(now time.Time, why error) {
	defer s.noteChange(now, s.State())
	s.state, s.stopReason = Stopped, why
	if why == nil {
		s.breaker = Breaker{}
	}
}
