package peer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The recorded calls and sessions are bounded. If there are more, nothing is attributed for a
// while.
func TestRecentCallsAreBounded(t *testing.T) {
	for name, add := range map[string]func(*recentCalls, int){
		"abandoned": func(s *recentCalls, n int) { s.noteAbandoned(int64(n), fmt.Sprint(n)) },
		"responded": func(s *recentCalls, n int) { s.noteResponded(fmt.Sprint(n), time.Now()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var s recentCalls
			for n := range maxRecentCalls {
				add(&s, n)
			}
			if !s.overflowUntil.IsZero() {
				t.Errorf("%s: %d records overflow", name, maxRecentCalls)
			}
			add(&s, maxRecentCalls)
			if len(s.abandoned)+len(s.respondedUntil) != maxRecentCalls ||
				!time.Now().Before(s.overflowUntil) {
				t.Errorf("%s: %d and %d are recorded, overflow until %v", name, len(s.abandoned),
					len(s.respondedUntil), s.overflowUntil)
			}
			time.Sleep(abandonedTTL + time.Second)
			add(&s, 7)
			if n := len(s.abandoned) + len(s.respondedUntil); n != 1 ||
				time.Now().Before(s.overflowUntil) {
				t.Errorf("%s: %d are left, overflow until %v", name, n, s.overflowUntil)
			}
		})
	}
}

// An overflow of the sessions with a response does not shorten the time after an overflow of the
// abandoned calls.
func TestOverflowOfRecentCallsIsNotShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessionRecord
		for n := range maxRecentCalls + 1 {
			s.recent.noteAbandoned(int64(n), "other")
		}
		for n := range maxRecentCalls + 1 {
			s.recent.noteResponded(fmt.Sprint(n), time.Now())
		}
		clear(s.recent.abandoned) // they were answered late
		s.inFlight.add("mine", 1)
		time.Sleep(abandonedTTL - time.Second)
		if session, ok := s.sole(); ok {
			t.Errorf("a message is attributed to %s", session)
		}
		time.Sleep(2 * time.Second)
		if _, ok := s.sole(); !ok {
			t.Error("a message is not attributed")
		}
	})
}

// While the records are full, a call does not always search for expired records: there may be one
// record for the session of each client.
func TestRecentCallsAreNotSweptForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s recentCalls
		for n := range maxRecentCalls + 1 {
			s.noteResponded(fmt.Sprint(n), time.Now())
		}
		s.respondedUntil["0"] = time.Now().Add(-time.Second)
		s.noteResponded("one more", time.Now())
		if len(s.respondedUntil) != maxRecentCalls {
			t.Error("the records were swept again")
		}
		time.Sleep(respondedTTL + 1)
		s.noteResponded("one more", time.Now())
		if len(s.respondedUntil) >= maxRecentCalls {
			t.Error("the records were not swept again")
		}
	})
}

// The calls in flight are counted per session, regardless of how the calls end.
func TestCallsInFlightAreCountedBySession(t *testing.T) {
	p := connect(t, respondingHandler{[]byte(`{}`)})
	to := make(ResponseChan, 1)
	send := func(session string, c *Call) *Call {
		c.Handler, c.SessionID = to, session
		p.Send(toolsCall, c)
		return c
	}
	inFlight := func() int {
		p.calls.mu.Lock()
		defer p.calls.mu.Unlock()
		return len(p.calls.sessions.inFlight)
	}
	for end, do := range map[string]func(){
		"answered":              func() { send("a", &Call{}) },
		"without a session":     func() { send("", &Call{}) },
		"cancelled":             func() { send("a", &Call{}).Cancel(nil) },
		"cancelled before Send": func() { c := &Call{}; c.Cancel(nil); send("a", c) },
		"timed out":             func() { send("a", &Call{Timeout: 1}) },
	} {
		do()
		if <-to; inFlight() != 0 {
			t.Errorf("%s: %d sessions are counted", end, inFlight())
		}
	}
}

// A second cancellation of a call does not count as the response to the call.
func TestACallCancelledTwiceStaysAbandoned(t *testing.T) {
	p := connect(t, ignoringHandler{})
	c := &Call{Handler: make(ResponseChan, 1), SessionID: "a"}
	p.Send(toolsCall, c)
	c.Cancel(nil)
	c.Cancel(nil)
	p.Send(toolsCall, &Call{Handler: make(ResponseChan, 1), SessionID: "b"})
	all := func(string) bool { return true }
	if session, ok := p.SoleSessionWhere(all); ok {
		t.Errorf("a message is attributed to %s", session)
	}
}
