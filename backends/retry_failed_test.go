package backends_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
)

// A repaired backend is started at once, and others are not affected.
func TestRetryFailed_SharedConnections(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a", "b", "c")},
		func(t *testing.T, h *harness) {
			h.nextProcess("b").ServeStartup("t")
			h.nextProcess("c") // c is starting
			h.nextProcess("a").Exit("exit 1", "")
			h.breakDial("a", errors.New("no such file"))
			time.Sleep(40 * time.Second)
			h.wantState("a", backends.BreakerOpen)
			tries := len(h.dialTimes("a"))
			if names := h.RetryFailed(); !slices.Equal(names, []string{"a"}) {
				t.Errorf("retried %v", names)
			}
			time.Sleep(time.Second)
			// the start fails again, and counts as the first failure
			if n := len(h.dialTimes("a")) - tries; n < 2 {
				t.Errorf("tried %d times", n)
			}
			time.Sleep(time.Minute)
			h.wantState("a", backends.BreakerOpen)
			h.breakDial("a", nil)
			began := time.Now()
			h.RetryFailed()
			c, _ := h.call("a")
			a := h.nextProcess("a")
			if took := time.Since(began); took != 0 {
				t.Errorf("tried after %v", took)
			}
			a.ServeHandshake("")
			a.SendResult(a.WantRequest("tools/call").ID(), "{}")
			c.wantResult(t)
			a.ServeToolsList(`{"tools":[]}`)
			if names := h.RetryFailed(); len(names) != 0 || len(h.dialTimes("b")) != 1 {
				t.Errorf("tried are %v; b %d times", names, len(h.dialTimes("b")))
			}
		})
}

// Per-session connections are also retried.
func TestRetryFailed_SessionConnections(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").Exit("gone", "")
			h.breakDial("a", errors.New("connection refused"))
			time.Sleep(5 * time.Second)
			h.OpenSession("s", nil, false)
			h.callFor("s", "a").wantErrorPrefix(t,
				"it is not running: connection refused; next try in ")
			h.breakDial("a", nil)
			if names := h.RetryFailed(); !slices.Equal(names, []string{"a"}) {
				t.Errorf("retried %v", names)
			}
			h.nextProcess("a").ServeStartup("t")
			c := h.callFor("s", "a")
			own := h.nextProcess("a")
			own.ServeHandshake("")
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			c.wantResult(t)
		})
}

// RetryFailed spreads the starts of per-session connections over a second, because many handshakes
// at the same moment would delay the calls of all backends.
func TestRetryFailed_SpreadsSessionConnections(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	var all []config.Backend
	for _, name := range names {
		all = append(all, perSessionBackend(name))
	}
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		const sessions = 4 // few enough for the session breaker to stay closed
		callAll := func() {
			for _, name := range names {
				for i := range sessions {
					h.callFor(strconv.Itoa(i), name)
				}
			}
		}
		for i := range sessions {
			h.OpenSession(strconv.Itoa(i), nil, false)
		}
		for _, name := range names {
			h.nextProcess(name).ServeStartup("t")
			h.breakDial(name, errors.New("connection refused"))
		}
		callAll()
		time.Sleep(10 * time.Millisecond) // every connection has failed and is in its pause
		before := make(map[string]int)
		for _, name := range names {
			h.breakDial(name, nil)
			before[name] = len(h.dialTimes(name))
		}
		began := time.Since(h.start)
		h.RetryFailed()
		callAll()
		time.Sleep(3 * time.Second)
		var dials []time.Duration
		for _, name := range names {
			dials = append(dials, h.dialTimes(name)[before[name]:]...)
		}
		if len(dials) != sessions*len(names) {
			t.Fatalf("%d connections were tried", len(dials))
		}
		slices.Sort(dials)
		if last := dials[len(dials)-1] - began; last > time.Second {
			t.Errorf("the last was tried after %v", last)
		}
		if moments := slices.Compact(slices.Clone(dials)); len(moments) < len(dials)/2 {
			t.Errorf("%d connections were tried at %d moments", len(dials), len(moments))
		}
	})
}
