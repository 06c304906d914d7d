package backends_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// wantState checks the state of a backend.
func (h *harness) wantState(name string, want backends.State) {
	h.t.Helper()
	if s := h.status(name); s.State != want {
		h.t.Errorf("%s is %s (%v), want %s", name, s.State, s.Err, want)
	}
}

// A backend that fails to start is retried rarely, and its calls fail at once meanwhile. When it
// can be started again, it is used again, and the recovery is logged.
func TestOpenBreaker(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		h.nextProcess("a").Exit("exit 1", "")
		h.breakDial("a", errors.New("no such file"))
		time.Sleep(5 * time.Second)
		h.wantState("a", backends.BreakerOpen)
		s := h.status("a")
		if s.NextTry.IsZero() || s.Err == nil || s.Err.Error() != "no such file" {
			t.Errorf("status: %+v", s)
		}
		n := len(h.dialTimes("a"))
		if n != 5 {
			t.Errorf("dialled %d times", n)
		}
		began := time.Now()
		for range 100 {
			c, _ := h.call("a")
			c.wantErrorPrefix(t, "it is not running: no such file; next try in ")
		}
		if len(h.dialTimes("a")) != n || time.Since(began) != 0 {
			t.Error("a call waited, or has started the backend")
		}
		time.Sleep(40 * time.Second)
		if len(h.dialTimes("a")) != n+1 {
			t.Errorf("started %d times", len(h.dialTimes("a"))-n)
		}
		h.breakDial("a", nil)
		a := h.nextProcess("a")
		waits, _ := h.call("a") // calls wait for the end of the current start
		a.ServeHandshake("")
		a.SendResult(a.WantRequest("tools/call").ID(), "{}")
		waits.wantResult(t)
		a.ServeToolsList(`{"tools":[]}`)
		h.wantState("a", backends.Ready)
		if lines := h.log.Lines("level=INFO", `"backend recovered"`, "backend=a"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
	})
}

// A crash loop opens the breaker and starts few processes, although there is a call each second.
func TestCrashLoopOpensBreaker(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		stop := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			for {
				select {
				case p := <-h.processes("a"):
					p.ServeHandshake("")
					p.Exit("exit 3", "")
				case <-stop:
					return
				}
			}
		})
		var calls []*callRecorder
		for range 3600 {
			c, _ := h.call("a")
			calls = append(calls, c)
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Minute)
		close(stop)
		running.Wait()
		if n := len(h.dialTimes("a")); n > 25 || n < 15 {
			t.Errorf("started %d times in an hour", n)
		}
		refused := 0
		for i, c := range calls {
			c.mu.Lock()
			if len(c.results) != 1 {
				t.Errorf("call %d ended %d times", i, len(c.results))
			} else if strings.HasPrefix(c.results[0], "it is not running: exit 3; next try in ") {
				refused++
			}
			c.mu.Unlock()
		}
		if refused < 3500 {
			t.Errorf("%d calls of an hour failed at once", refused)
		}
	})
}

// A call that was queued after the end of a connection ends when the breaker opens.
func TestQueuedCallEndsWhenBreakerOpens(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		for range 4 {
			a := h.nextProcess("a")
			a.ServeStartup("t")
			a.Exit("exit 3", "")
		}
		a := h.nextProcess("a")
		a.ServeStartup("t")
		a.Exit("exit 3", "")
		var late []*callRecorder
		for range 3 { // some calls are in flight and others are queued when the end is noticed
			c, _ := h.call("a")
			late = append(late, c)
		}
		synctest.Wait()
		h.wantState("a", backends.BreakerOpen)
		for _, c := range late {
			c.mu.Lock()
			if len(c.results) != 1 || !strings.Contains(c.results[0], "exit 3") {
				t.Errorf("the queued call ended with %q", c.results)
			}
			c.mu.Unlock()
		}
		c, _ := h.call("a")
		c.wantErrorPrefix(t, "it is not running: exit 3; next try in 3")
	})
}

// New sessions do not start a backend whose breaker is open.
func TestOpenBreakerAppliesToNewSessions(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").Exit("gone", "")
			h.breakDial("a", errors.New("connection refused"))
			time.Sleep(5 * time.Second)
			h.wantState("a", backends.BreakerOpen)
			n := len(h.dialTimes("a"))
			for i := range 50 {
				session := fmt.Sprint("s", i)
				h.OpenSession(session, nil, false)
				h.callFor(session, "a").wantErrorPrefix(t,
					"it is not running: connection refused; next try in ")
				h.callFor(session, "a").wantErrorPrefix(t,
					"it is not running: connection refused; next try in ")
			}
			if more := len(h.dialTimes("a")) - n; more != 0 {
				t.Errorf("dialled %d times for sessions", more)
			}
			h.breakDial("a", nil)
			shared := h.nextProcess("a")
			shared.ServeStartup("t")
			time.Sleep(time.Minute)
			call := h.callFor("s7", "a")
			own := h.nextProcess("a")
			own.ServeHandshake("")
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
		})
}

// A backend whose connections fail for one session after another is not started for each session.
// Failures of a single session do not affect the others.
func TestSessionBreakerLimitsStarts(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			h.breakDial("a", errors.New("no more sessions"))
			for i := range 200 {
				session := fmt.Sprint("s", i)
				h.OpenSession(session, nil, false)
				h.callFor(session, "a")
				// starts that have not failed yet are not counted: wait for the failure
				synctest.Wait()
			}
			if n := len(h.dialTimes("a")) - 1; n < 5 || n > 10 {
				t.Errorf("%d starts of 200 sessions", n)
			}
			h.callFor("s199", "a").wantErrorPrefix(t,
				"it is not running: no more sessions; next try in ")
			before := len(h.dialTimes("a"))
			for range 600 { // ten minutes, with a call of every tenth session each second
				time.Sleep(time.Second)
				for i := range 20 {
					h.callFor(fmt.Sprint("s", 10*i), "a")
				}
			}
			if n := len(h.dialTimes("a")) - before; n > 10 || n < 2 {
				t.Errorf("%d starts in ten minutes", n)
			}
			h.wantState("a", backends.Ready) // the shared connection
			h.breakDial("a", nil)
			time.Sleep(10 * time.Minute)
			call := h.callFor("s3", "a")
			own := h.nextProcess("a")
			own.ServeHandshake("")
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
			other := h.callFor("s4", "a")
			own = h.nextProcess("a")
			own.ServeHandshake("")
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			other.wantResult(t)
		})
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			h.OpenSession("bad", nil, false)
			h.breakDial("a", errors.New("no"))
			for range 600 {
				time.Sleep(time.Second)
				h.callFor("bad", "a")
			}
			if n := len(h.dialTimes("a")) - 1; n > 12 {
				t.Errorf("%d starts in ten minutes", n)
			}
			h.breakDial("a", nil)
			h.OpenSession("good", nil, false)
			call := h.callFor("good", "a")
			own := h.nextProcess("a")
			own.ServeHandshake("")
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
		})
}

// A session whose calls crash its own server does not start that server for each call.
func TestCrashLoopOfSessionConnection(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			h.OpenSession("one", nil, false)
			stop := make(chan struct{})
			var running sync.WaitGroup
			running.Go(func() {
				for {
					select {
					case p := <-h.processes("a"):
						p.ServeHandshake("")
						p.WantRequest("tools/call")
						p.Exit("exit 3", "")
					case <-stop:
						return
					}
				}
			})
			for range 600 {
				h.callFor("one", "a")
				time.Sleep(time.Second)
			}
			close(stop)
			running.Wait()
			if n := len(h.dialTimes("a")) - 1; n > 12 || n < 6 {
				t.Errorf("%d starts in ten minutes", n)
			}
			h.wantState("a", backends.Ready)
			time.Sleep(10 * time.Minute)
		})
}

// An errRecorder keeps the error with which its call ends.
type errRecorder struct {
	callRecorder
	err error
}

func (a *errRecorder) OnResponse(r contract.BackendResponse) {
	a.err = r.Err
	a.callRecorder.OnResponse(r)
}

// CONC-04: a call that may have run is not sent again. Its error reports that it may have run.
func TestCONC04_NoRetryOfCallThatMayHaveRun(t *testing.T) {
	for name, own := range map[string]bool{"shared": false, "own": true} {
		t.Run(name, func(t *testing.T) {
			all := []config.Backend{legacyBackends("a")[0]}
			if own {
				all[0].Sharing = "session"
			}
			withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
				h.OpenSession("one", nil, false)
				p := h.nextProcess("a")
				p.ServeStartup("t")
				call := &errRecorder{}
				h.SendCall("a", "one", wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)),
					call)
				if own {
					p = h.nextProcess("a")
					p.ServeHandshake("")
				}
				// the call runs, and the server crashes before the response
				p.WantRequest("tools/call")
				p.Exit("signal: killed", "")
				call.want(t, "signal: killed")
				if lost, ok := errors.AsType[*transport.CallLostError](call.err); !ok ||
					!lost.MayHaveRun {
					t.Errorf("the call ended with %#v", call.err)
				}
				other := h.callFor("one", "a")
				p = h.nextProcess("a")
				p.ServeHandshake("")
				p.SendResult(p.WantRequest("tools/call").ID(), "{}") // the other call
				other.wantResult(t)
				if !own {
					p.ServeToolsList(`{"tools":[]}`)
				}
				p.WantNothing()
			})
		})
	}
}
