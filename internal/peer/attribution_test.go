package peer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Of calls that were given up, and of those whose calls were just answered, so many are
// remembered. While there are more nothing is taken to be anybody's.
func TestRecentCallsAreBounded(t *testing.T) {
	for name, add := range map[string]func(*recentCalls, int){
		"given up": func(s *recentCalls, n int) { s.noteAbandoned(int64(n), fmt.Sprint(n)) },
		"answered": func(s *recentCalls, n int) { s.noteResponded(fmt.Sprint(n)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var s recentCalls
			for n := range maxRecentCalls {
				add(&s, n)
			}
			if !s.overflowUntil.IsZero() {
				t.Errorf("%s: there are too many of %d", name, maxRecentCalls)
			}
			add(&s, maxRecentCalls)
			if len(s.abandoned)+len(s.respondedUntil) != maxRecentCalls || !time.Now().Before(s.overflowUntil) {
				t.Errorf("%s: %d and %d are remembered, crowded until %v", name, len(s.abandoned), len(s.respondedUntil), s.overflowUntil)
			}
			time.Sleep(abandonedTTL + time.Second)
			add(&s, 7)
			if n := len(s.abandoned) + len(s.respondedUntil); n != 1 || time.Now().Before(s.overflowUntil) {
				t.Errorf("%s: %d are left, crowded until %v", name, n, s.overflowUntil)
			}
		})
	}
}

// While there is no room for more of them it is not looked at each call which are over: they are
// the sessions of all clients.
func TestRecentCallsAreNotSweptForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s recentCalls
		for n := range maxRecentCalls + 1 {
			s.noteResponded(fmt.Sprint(n))
		}
		s.respondedUntil["0"] = time.Now().Add(-time.Second)
		s.noteResponded("one more")
		if len(s.respondedUntil) != maxRecentCalls {
			t.Error("it was looked again which of them are over")
		}
		time.Sleep(respondedTTL + 1)
		s.noteResponded("one more")
		if len(s.respondedUntil) >= maxRecentCalls {
			t.Error("it was not looked again which of them are over")
		}
	})
}

// Who owns what is in flight is counted wherever a call comes to its end.
func TestCallsInFlightAreCountedBySession(t *testing.T) {
	p := connect(t, respondingHandler{[]byte(`{}`)})
	to := make(ResponseChan, 1)
	send := func(owner string, c *Call) *Call {
		c.Handler, c.SessionID = to, owner
		p.Send(toolsCall, c)
		return c
	}
	flying := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.inFlight)
	}
	for end, do := range map[string]func(){
		"answered":                 func() { send("a", &Call{}) },
		"of nobody":                func() { send("", &Call{}) },
		"taken back":               func() { send("a", &Call{}).Cancel(nil) },
		"taken back before it was": func() { c := &Call{}; c.Cancel(nil); send("a", c) },
		"in no time":               func() { send("a", &Call{Timeout: 1}) },
	} {
		do()
		if <-to; flying() != 0 {
			t.Errorf("%s: %d owners are counted", end, flying())
		}
	}
}
