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

const (
	// firstPause is the pause after the first of several failures; it doubles with each.
	firstPause = 200 * time.Millisecond
	// opensAt is how many failures in a row open the circuit. From then on there are longer
	// pauses, from openPause to longestPause.
	opensAt      = 5
	openPause    = 30 * time.Second
	longestPause = 5 * time.Minute
	// settledAfter is how long a backend must have been ready for its end not to count as
	// one failure more.
	settledAfter = 30 * time.Second
)

// A breaker counts failures in a row. The zero value has seen none.
type breaker struct {
	failures int
	pause    time.Duration // after the last of them
	next     time.Time     // the next try
	reason   error         // of the last
}

// fail counts a failure. Random is of [0,1): by it the pause is up to a quarter longer,
// so that what has failed together is not tried together.
func (b *breaker) fail(now time.Time, reason error, random float64) {
	b.failures++
	b.hold(now, reason, pauseAfter(b.failures), random)
}

func (b *breaker) hold(now time.Time, reason error, pause time.Duration, random float64) {
	b.reason, b.pause = reason, pause+time.Duration(random*float64(pause)/4)
	b.next = now.Add(b.pause)
}

func (b *breaker) open() bool { return b.failures >= opensAt }

func pauseAfter(failures int) time.Duration {
	if failures < opensAt {
		return firstPause << max(failures-1, 0)
	}
	return min(openPause<<min(failures-opensAt, 10), longestPause)
}

// An ill is what can be wrong with a backend to which there is a connection.
type ill uint8

const (
	illLists   ill = iota // its lists cannot be read
	illSilent             // it does not answer pings
	illNowhere            // it cannot be reached
	numIlls
)

// A course is what becomes of a call.
type course uint8

const (
	goes  course = iota // to the backend
	waits               // until it is up, or has failed to come up
	fails               // at once: see supervisor.refusal
)

// A supervisor decides how a line stands, from what it is told of it and when: the state,
// the pause before the next try, and what becomes of a call. It does nothing itself and
// has no clock. The zero value is stopped until something is wanted.
//
//	stopped, backing off, open ─ start ─► starting ─ up ─► ready, degraded ─ stop ─► stopped
//	         starting, ready, degraded ─ lost, failed ─► backing off, open
type supervisor struct {
	breaker
	state  State          // "" = Stopped; Ready is also kept for Degraded
	why    error          // why it is stopped for good, nil if it is not
	ran    bool           // it has come up since it was started
	over   bool           // it has failed since it was started
	sour   bool           // the last start that has come to its end failed
	upAt   time.Time      // when it came up last
	downAt time.Time      // of the first end or failure since then; zero = there was none
	ills   [numIlls]error // while it is up
}

// stands returns the state.
func (s *supervisor) stands() State {
	switch {
	case s.state == "":
		return Stopped
	case s.state == Ready && s.ill() != nil:
		return Degraded
	}
	return s.state
}

func (s *supervisor) ill() error { return cmp.Or(s.ills[:]...) }

// problem returns why it is not as it should be, nil if it is or that is not known.
func (s *supervisor) problem() error {
	switch s.stands() {
	case Ready, Degraded:
		return s.ill()
	case Stopped:
		return s.why
	case Starting:
		if s.downAt.IsZero() {
			return nil
		}
	}
	return s.reason
}

// due returns when the next try is, zero if none is.
func (s *supervisor) due() time.Time {
	if s.state == BackingOff || s.state == BreakerOpen {
		return s.next
	}
	return time.Time{}
}

// course says what becomes of a call. What has run and is made anew is waited for, as is
// every start under way; so is a try that is due.
func (s *supervisor) course(now time.Time) course {
	switch s.stands() {
	case Ready, Degraded:
		return goes
	case Stopped:
		if s.why != nil {
			return fails
		}
	case BackingOff:
		if s.sour && now.Before(s.next) {
			return fails
		}
	case BreakerOpen:
		if now.Before(s.next) {
			return fails
		}
	}
	return waits
}

// refusal says why a call fails.
func (s *supervisor) refusal(now time.Time) error {
	if s.stands() == Stopped {
		return notSent("it is not running: %w", s.why)
	}
	return notSent("it is not running: %w; next try in %v", s.reason, wholeSeconds(s.next.Sub(now)))
}

// wholeSeconds rounds up: what is said to be in 1s is not there before.
func wholeSeconds(d time.Duration) time.Duration {
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}

// start notes that a start begins.
func (s *supervisor) start() {
	s.state, s.ran, s.over, s.why = Starting, false, false, nil
	s.ills = [numIlls]error{}
}

// up notes that it is ready. It returns for how long it was not, 0 if that was not for a
// failure.
func (s *supervisor) up(now time.Time) (down time.Duration) {
	if !s.downAt.IsZero() {
		down = now.Sub(s.downAt)
	}
	s.state, s.ran, s.sour = Ready, true, false
	s.upAt, s.downAt = now, time.Time{}
	return down
}

// lost notes that it is not ready any more, for the reason why; failed follows, and may know a
// better one.
func (s *supervisor) lost(now time.Time, why error) {
	s.state, s.reason, s.next = BackingOff, why, time.Time{}
	s.downAt = now
}

// failed notes why a start failed, or what was up has ended. The next try is a pause later.
// It may be told again when nothing is left of it: only then the pause begins.
func (s *supervisor) failed(now time.Time, reason error, random float64) {
	switch {
	case s.over:
		s.hold(now, reason, s.pause, 0)
	case s.ran && now.Sub(s.upAt) >= settledAfter:
		s.failures = 0
		s.hold(now, reason, firstPause, random)
	default:
		s.fail(now, reason, random)
	}
	if !s.over { // else it may have been pardoned
		s.over, s.sour = true, !s.ran
	}
	if s.downAt.IsZero() {
		s.downAt = now
	}
	s.state = BackingOff
	if s.open() {
		s.state = BreakerOpen
	}
}

// pardon forgets what has failed: if it waits for the next try that is in a pause at most, and
// calls wait for it. Later pauses start from at most firstPause, however long this pause is.
func (s *supervisor) pardon(now time.Time, pause time.Duration) {
	if s.state != BackingOff && s.state != BreakerOpen {
		return
	}
	s.state, s.sour = BackingOff, false
	s.breaker = breaker{reason: s.reason, next: s.next, pause: min(s.pause, pause, firstPause)}
	if soon := now.Add(pause); soon.Before(s.next) {
		s.next = soon
	}
}

// bar notes that it may not be tried before next, for a reason that is not its own.
func (s *supervisor) bar(reason error, next time.Time) {
	s.state, s.reason, s.next = BreakerOpen, reason, next
}

// stop notes that it was stopped: for good if there is a reason, else until it is needed.
func (s *supervisor) stop(why error) {
	s.state, s.why = Stopped, why
	if why == nil {
		s.breaker = breaker{}
	}
}

// A crowd bounds the starts of the own lines of one backend, of which each session may
// have one, and each session's first call would start it. When those of opensAt sessions
// in a row have failed there is one start in each pause, for all of them together; and
// while the circuit of the shared line is open there is none. What one session does not
// come through with is its own affair. The zero value bounds nothing.
type crowd struct {
	breaker
	sessions map[string]bool // that are in breaker.failures
	shared   *breaker        // of the shared line, while its circuit is open
}

// claim asks for a start. If there is a reason against it, next is when to ask again.
func (c *crowd) claim(now time.Time, random float64) (next time.Time, reason error) {
	switch {
	case c.shared != nil:
		return later(c.shared.next, now.Add(time.Second)), c.shared.reason
	case !c.open():
		return time.Time{}, nil
	case now.Before(c.next):
		return c.next, c.reason
	}
	c.hold(now, c.reason, pauseAfter(c.failures), random)
	return time.Time{}, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// failed notes that a session's start failed.
func (c *crowd) failed(now time.Time, session string, reason error, random float64) {
	if c.sessions[session] && !c.open() {
		return
	}
	if c.sessions == nil {
		c.sessions = make(map[string]bool)
	}
	if !c.open() {
		c.sessions[session] = true
	}
	c.fail(now, reason, random)
}

// up notes that a session's start did not fail.
func (c *crowd) up() { c.breaker, c.sessions = breaker{}, nil }
