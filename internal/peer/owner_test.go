package peer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Of calls that were given up, and of those whose calls were just answered, so many are remembered. While there are more
// nothing is taken to be anybody's.
func TestStraysAreBounded(t *testing.T) {
	for name, add := range map[string]func(*strays, int){
		"given up": func(s *strays, n int) { s.giveUp(int64(n), fmt.Sprint(n)) },
		"answered": func(s *strays, n int) { s.answered(fmt.Sprint(n)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var s strays
			for n := range maxStrays {
				add(&s, n)
			}
			if !s.crowd.IsZero() {
				t.Errorf("%s: there are too many of %d", name, maxStrays)
			}
			add(&s, maxStrays)
			if len(s.givenUp)+len(s.echoes) != maxStrays || !time.Now().Before(s.crowd) {
				t.Errorf("%s: %d and %d are remembered, crowded until %v", name, len(s.givenUp), len(s.echoes), s.crowd)
			}
			time.Sleep(lingering + time.Second)
			add(&s, 7)
			if n := len(s.givenUp) + len(s.echoes); n != 1 || time.Now().Before(s.crowd) {
				t.Errorf("%s: %d are left, crowded until %v", name, n, s.crowd)
			}
		})
	}
}

// While there is no room for more of them it is not looked at each call which are over: they are the
// sessions of all clients.
func TestStraysAreNotLookedThroughForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s strays
		for n := range maxStrays + 1 {
			s.answered(fmt.Sprint(n))
		}
		s.echoes["0"] = time.Now().Add(-time.Second)
		s.answered("one more")
		if len(s.echoes) != maxStrays {
			t.Error("it was looked again which of them are over")
		}
		time.Sleep(echoing + 1)
		s.answered("one more")
		if len(s.echoes) >= maxStrays {
			t.Error("it was not looked again which of them are over")
		}
	})
}

// Who owns what is in flight is counted wherever a call comes to its end.
func TestOwnersAreCounted(t *testing.T) {
	p := connect(t, answering{[]byte(`{}`)})
	to := make(ResponseChan, 1)
	send := func(owner string, c *Call) *Call {
		c.Handler, c.SessionID = to, owner
		p.Send(callOfATool, c)
		return c
	}
	flying := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.flying)
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
