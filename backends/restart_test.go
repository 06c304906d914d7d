package backends_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

func TestStartTimeout(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a", "unbound")}
	o.Backends[0].StartTimeout = 10 * time.Second
	o.Backends[1].StartTimeout = 0
	withHarness(t, o, func(t *testing.T, h *harness) {
		c, _ := h.call("a")
		unbound, _ := h.call("unbound")
		first, slow := h.nextProcess("a"), h.nextProcess("unbound")
		time.Sleep(9999 * time.Millisecond)
		c.want(t, "")
		time.Sleep(time.Millisecond)
		c.want(t, "it did not start: it was not ready within 10s (start_timeout)")
		if !first.Disconnected() {
			t.Error("the process was not ended")
		}
		first.WantRequest("initialize")
		first.WantNothing() // "The initialize request MUST NOT be cancelled by clients"
		c, _ = h.call("a")
		c.want(t, "it is not running: it was not ready within 10s (start_timeout); next try in 1s")
		h.nextProcess("a").ServeStartup("t")
		h.wantNames("t")

		time.Sleep(time.Hour) // start_timeout: 0 means no timeout
		unbound.want(t, "")
		slow.ServeHandshake("")
		slow.WantRequest("tools/call")
	})
}

func TestRestartPausesGrow(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		h.nextProcess("a").Exit("exit 1", "")
		h.breakDial("a", errors.New("no such file"))
		time.Sleep(30 * time.Minute)
		at := h.dialTimes("a")
		for i := 1; i < len(at); i++ {
			pause := at[i] - at[i-1]
			least := 200 * time.Millisecond << (i - 1)
			if i >= 5 {
				least = min(30*time.Second<<(i-5), 5*time.Minute)
			}
			if pause < least || pause > least*5/4 {
				t.Errorf("pause %d was %v, want %v and up to a quarter more", i, pause, least)
			}
		}
		if len(at) < 12 || len(at) > 14 {
			t.Errorf("dialled %d times in half an hour", len(at))
		}
	})
}

// After a connection was ready for more than half a minute, the pauses begin with the shortest one
// again.
func TestRestartPausesReset(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		for range 5 {
			h.nextProcess("a").Exit("exit 1", "")
		}
		a := h.nextProcess("a")
		a.ServeStartup("t")
		time.Sleep(31 * time.Second)
		a.Exit("exit 1", "")
		died := time.Now()
		h.nextProcess("a")
		if pause := time.Since(died); pause > 250*time.Millisecond {
			t.Errorf("the pause was %v", pause)
		}
	})
}

func TestPROC06_CrashFailsCallsInFlightAndQueuesOthers(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a", "b")},
		func(t *testing.T, h *harness) {
			a, b := h.nextProcess("a"), h.nextProcess("b")
			a.ServeStartup("t")
			b.ServeStartup("u")
			one, _ := h.call("a")
			two, _ := h.call("a")
			other, _ := h.call("b")
			a.Exit("signal: killed", "boom")
			one.want(t, "signal: killed; its last words: boom")
			two.want(t, "signal: killed; its last words: boom")
			other.want(t, "")
			waits, _ := h.call("a")
			back, pending := h.call("a")
			waits.want(t, "")
			pending.Cancel(nil)
			back.want(t, "cancelled")
			if s := h.status("a"); s.State != backends.BackingOff || s.Counts[catalog.Tools] != 1 {
				t.Errorf("status: %+v", s)
			}
			h.wantNames("t", "u") // PROC-08: tools stay listed
			again := h.nextProcess("a")
			again.ServeHandshake("")
			m := again.WantRequest("tools/call")
			again.SendResult(m.ID(), "{}")
			waits.want(t, result("2", "{}"))
			again.ServeToolsList(mcptest.ToolsResult("t"))
			again.WantNothing() // the cancelled call is not sent, and no call is sent twice
		})
}

func TestCallsAfterFailedStartFailAtOnce(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		waits, _ := h.call("a")
		h.nextProcess("a").Exit("exit 127", "sh: npx: not found")
		waits.want(t, "it did not start: exit 127; its last words: sh: npx: not found")
		h.breakDial("a", errors.New("no such file"))
		c, _ := h.call("a")
		c.want(t, "it is not running: exit 127; its last words: sh: npx: not found; next try in 1s")
		if lines := h.log.Lines("level=WARN",
			"exit 127; its last words: sh: npx: not found"); len(lines) != 1 {
			t.Errorf("logged %q", h.log.Warnings())
		}
		if !h.View().Complete || !h.View().Settled {
			t.Error("the catalog still waits for a failed backend")
		}
	})
}

// FRAME-08: only messages that a backend does not read fail.
func TestFRAME08_BackendThatReadsNothing(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a")}
	o.Backends[0].CallTimeout = time.Second
	withHarness(t, o, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		began := time.Now()
		c, _ := h.call("a")
		time.Sleep(time.Second)
		c.want(t, "no answer within 1s")
		if took := time.Since(began); took != time.Second {
			t.Errorf("the call took %v", took)
		}
	})
}

// The crash of a backend during tools/list is reported as its end, not as a failed list.
func TestCrashDuringListing(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeHandshake("")
		a.WantRequest("tools/list")
		a.Exit("exit 1", "")
		synctest.Wait()
		c, _ := h.call("a")
		c.want(t, "")
		if warnings := h.log.Warnings(); len(warnings) != 1 ||
			!strings.Contains(warnings[0], "backend ended") {
			t.Errorf("logged %q", warnings)
		}
		if !h.View().Complete {
			t.Error("the catalog still waits for the backend")
		}
		h.nextProcess("a").ServeHandshake("")
	})
}

// A crash right after the handshake is reported as the end of the backend, for each order in which
// its effects are noticed.
func TestCrashAfterHandshake(t *testing.T) {
	for range 100 {
		withHarness(t, backends.Options{Backends: legacyBackends("a")},
			func(t *testing.T, h *harness) {
				a := h.nextProcess("a")
				m := a.WantRequest("initialize")
				a.SendResult(m.ID(), mcptest.InitializeResult)
				a.Exit("exit 1", "")
				synctest.Wait()
				if warnings := h.log.Warnings(); len(warnings) != 1 ||
					!strings.Contains(warnings[0], `backend=a err="exit 1"`) {
					t.Fatalf("logged %q", warnings)
				}
				h.nextProcess("a").ServeStartup("t")
				h.wantNames("t")
			})
	}
}

// A backend restarts while calls are made and cancelled: every call ends once, and no goroutine is
// left.
func TestCallsRestartsAndCancellationsRace(t *testing.T) {
	for round := range 60 {
		withHarness(t, backends.Options{Backends: legacyBackends("a")},
			func(t *testing.T, h *harness) {
				var all [24]*callRecorder
				for i := range all {
					go func() {
						time.Sleep(time.Duration(i%3) * 100 * time.Millisecond)
						c, p := h.call("a")
						all[i] = c
						if i%2 == 0 {
							time.Sleep(time.Duration(i%5) * 50 * time.Millisecond)
							p.Cancel(nil)
						}
					}()
				}
				a := h.nextProcess("a")
				if round%3 == 0 {
					a.Exit("exit 1", "") // a does not start
					a = h.nextProcess("a")
				}
				a.ServeHandshake("")
				time.Sleep(time.Duration(round%4) * 50 * time.Millisecond)
				a.Exit("exit 2", "")
				a = h.nextProcess("a")
				a.ServeHandshake("")
				time.Sleep(time.Second)
				for _, line := range a.TakeAll() {
					if m, _ := wire.Parse([]byte(line)); m.Kind() == wire.Request {
						a.SendResult(m.ID(), `{"tools":[]}`)
					}
				}
				synctest.Wait()
				for i, c := range all {
					if len(c.results) != 1 {
						t.Errorf("round %d: call %d ended %d times", round, i, len(c.results))
					}
				}
			})
	}
}

// The failure of a backend that never starts is logged once, and again when the reason changes, or
// when the breaker opens.
func TestFailureIsLoggedOnce(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		h.nextProcess("a").Exit("exit 1", "")
		for range 6 {
			h.nextProcess("a").Exit("exit 2", "")
		}
		time.Sleep(time.Second)
		if warnings := h.log.Warnings(); len(warnings) != 3 ||
			!strings.Contains(warnings[0], "exit 1") ||
			!strings.Contains(warnings[1], "exit 2") ||
			!strings.Contains(warnings[2], "failed repeatedly") {
			t.Errorf("logged %q", warnings)
		}
	})
}
