package backends_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

const stoppedA = "it was stopped with gateway stop; gateway start a starts it"

// control runs a stop, start or restart, and returns the channel of its result.
func control(f func(context.Context, string) error, backend string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f(context.Background(), backend) }()
	synctest.Wait()
	return done
}

func (h *harness) control() backends.Control { return backends.NewControl(h.Set) }

// wantDone checks that a stop, start or restart has ended with an error; "" = none.
func wantDone(t *testing.T, done <-chan error, want string) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		if text := fmt.Sprint(err); err == nil && want != "" || err != nil && text != want {
			t.Errorf("ended with %v, want %q", err, want)
		}
	default:
		t.Error("has not ended")
	}
}

func wantWaiting(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	if len(done) > 0 {
		t.Errorf("ended already: %v", <-done)
	}
}

// startServer waits for the next process of a backend, which lists the tool "t".
func (h *harness) startServer(name string) *mcptest.Peer {
	h.t.Helper()
	p := h.nextProcess(name)
	p.ServeStartup("t")
	synctest.Wait() // until the list is stored
	return p
}

// A restart drains the calls in flight first. Queued and new calls wait for the new process, which
// starts when the old one has ended. Clients see the lists all the time.
func TestRestart_DrainsThenStarts(t *testing.T) {
	all := legacyBackends("a", "b")
	all[0].MaxInFlight, all[0].QueueWait = 1, time.Minute
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		old, b := h.startServer("a"), h.nextProcess("b")
		b.ServeStartup("u")
		h.wantNames("t", "u")
		inFlight, _ := h.call("a")
		first := old.WantRequest("tools/call")
		queued, _ := h.call("a") // for the only slot
		done := control(h.control().Restart, "a")
		since, _ := h.call("a")
		h.wantState("a", backends.Starting)
		h.wantNames("t", "u")
		time.Sleep(5 * time.Second)
		if n := len(h.dialTimes("a")); n != 1 || old.Disconnected() {
			t.Fatalf("started %d times during the drain", n)
		}
		queued.want(t, "")
		since.want(t, "")
		old.SendResult(first.ID(), "{}")
		inFlight.wantResult(t)
		wantDisconnected(t, old)
		old.WantNothing()
		wantWaiting(t, done)
		h.wantNames("t", "u")
		next := h.nextProcess("a")
		next.ServeHandshake("")
		for range 3 { // the list may be read before or after the second call is sent
			if m := next.NextMessage(); m.Method() == "tools/list" {
				next.SendResult(m.ID(), mcptest.ToolsResult("t"))
			} else {
				next.SendResult(m.ID(), "{}")
			}
		}
		queued.wantResult(t)
		since.wantResult(t)
		wantDone(t, done, "")
		h.wantState("a", backends.Ready)
		h.wantNames("t", "u")
		if b.WantNothing(); b.Disconnected() || len(h.dialTimes("b")) != 1 {
			t.Error("the other backend was restarted too")
		}
		if warnings := h.log.Warnings(); len(warnings) > 0 {
			t.Errorf("logged %q", warnings)
		}
	})
}

// A call that does not end within 30 seconds ends as a call that may have run.
func TestRestart_DrainTimeout(t *testing.T) {
	for _, verb := range []string{"restart", "stop"} {
		t.Run(verb, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: legacyBackends("a")},
				func(t *testing.T, h *harness) {
					p := h.startServer("a")
					ended := make(backends.ResponseChan, 1)
					h.SendCall("a", "", wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)),
						ended)
					p.WantRequest("tools/call")
					f := h.control().Restart
					if verb == "stop" {
						f = h.control().Stop
					}
					done := control(f, "a")
					time.Sleep(30*time.Second - time.Nanosecond)
					wantWaiting(t, done)
					if len(ended) > 0 {
						t.Fatal("the call has ended early")
					}
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					r := <-ended
					lost, _ := errors.AsType[*transport.CallLostError](r.Err)
					if lost == nil || !lost.MayHaveRun || !strings.Contains(r.Err.Error(),
						"stopped or restarted, and the call did not end within 30s") {
						t.Errorf("the call ended with %v", r.Err)
					}
					wantDisconnected(t, p)
					if verb == "restart" {
						h.startServer("a")
					}
					wantDone(t, done, "")
				})
		})
	}
}

// A stop lets calls in flight end. Queued and new calls fail at once, with the command that starts
// the backend, and its entries disappear from the lists.
func TestStop_DrainsAndRejects(t *testing.T) {
	all := legacyBackends("a", "b")
	all[0].MaxInFlight, all[0].QueueWait = 1, time.Minute
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		p, b := h.nextProcess("a"), h.nextProcess("b")
		p.ServeStartup("t")
		b.ServeStartup("u")
		h.wantNames("t", "u")
		inFlight, _ := h.call("a")
		first := p.WantRequest("tools/call")
		queued, _ := h.call("a")
		before := h.View()
		done := control(h.control().Stop, "a")
		queued.want(t, stoppedA)
		since, _ := h.call("a")
		since.want(t, stoppedA)
		select {
		case <-before.Changed:
		default:
			t.Error("clients are not notified")
		}
		h.wantNames("u")
		wantWaiting(t, done)
		inFlight.want(t, "")
		p.SendResult(first.ID(), "{}")
		inFlight.wantResult(t)
		wantDisconnected(t, p)
		wantDone(t, done, "")
		if s := h.status("a"); s.State != backends.StoppedByUser || fmt.Sprint(s.Err) != stoppedA ||
			!s.Settled {
			t.Errorf("status %+v", s)
		}
		if text := h.whyUnavailable("a__t"); text != "a: "+stoppedA {
			t.Errorf("a call by the name with the prefix gets %q", text)
		}
		wantDone(t, control(h.control().Stop, "a"), "") // is no error
		time.Sleep(time.Hour)
		if n := len(h.dialTimes("a")); n != 1 {
			t.Errorf("started %d times", n)
		}

		done = control(h.control().Start, "a")
		waits, _ := h.call("a")
		p = h.nextProcess("a")
		wantWaiting(t, done)
		p.ServeHandshake("")
		p.SendResult(p.WantRequest("tools/call").ID(), "{}")
		waits.wantResult(t)
		p.ServeToolsList(mcptest.ToolsResult("t"))
		wantDone(t, done, "")
		h.wantNames("t", "u")
	})
}

// A restart starts a backend that was stopped.
func TestRestart_StartsAStoppedBackend(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")},
		func(t *testing.T, h *harness) {
			h.startServer("a")
			wantDone(t, control(h.control().Stop, "a"), "")
			done := control(h.control().Restart, "a")
			h.startServer("a")
			wantDone(t, done, "")
			h.wantState("a", backends.Ready)
		})
}

// To start a backend that runs does nothing.
func TestStart_RunningBackend(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")},
		func(t *testing.T, h *harness) {
			p := h.startServer("a")
			wantDone(t, control(h.control().Start, "a"), "")
			if n := len(h.dialTimes("a")); n != 1 || p.Disconnected() {
				t.Errorf("started %d times", n)
			}
		})
}

// A restart or start of a backend that has failed tries at once, returns the error of this try, and
// resets the breaker.
func TestRestart_FailedBackend(t *testing.T) {
	fails := startErrors{"a": errors.New("no such program")}
	for _, verb := range []string{"restart", "start"} {
		t.Run(verb, func(t *testing.T) {
			withFailingHarness(t, fails, backends.Options{Backends: legacyBackends("a")},
				func(t *testing.T, h *harness) {
					time.Sleep(time.Minute)
					h.wantState("a", backends.BreakerOpen)
					f := h.control().Restart
					if verb == "start" {
						f = h.control().Start
					}
					before := len(h.dialTimes("a"))
					h.breakDial("a", errors.New("still no such program"))
					wantDone(t, control(f, "a"), "backend a: still no such program")
					if n := len(h.dialTimes("a")); n != before+1 {
						t.Errorf("%d tries", n-before)
					}
					h.wantState("a", backends.BackingOff) // the breaker is closed
					h.breakDial("a", nil)
					done := control(f, "a")
					h.startServer("a")
					wantDone(t, done, "")
				})
		})
	}
}

// A backend that waits for its next try is stopped: there is no further try.
func TestStop_DuringBackoff(t *testing.T) {
	withFailingHarness(t, startErrors{"a": errors.New("no")},
		backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
			time.Sleep(500 * time.Millisecond)
			h.wantState("a", backends.BackingOff)
			wantDone(t, control(h.control().Stop, "a"), "")
			before := len(h.dialTimes("a"))
			time.Sleep(time.Hour)
			if names := h.RetryFailed(); len(names) > 0 { // SIGHUP
				t.Errorf("retried %q", names)
			}
			time.Sleep(time.Hour)
			if n := len(h.dialTimes("a")); n != before {
				t.Errorf("%d tries after the stop", n-before)
			}
			h.wantState("a", backends.StoppedByUser)
		})
}

// A restart while the backend starts ends that start. The queued calls wait for the next process.
func TestRestart_DuringStart(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")},
		func(t *testing.T, h *harness) {
			old := h.nextProcess("a")
			old.WantRequest("initialize")
			waits, _ := h.call("a")
			first := control(h.control().Restart, "a")
			wantDisconnected(t, old)
			between := h.nextProcess("a")
			second := control(h.control().Restart, "a")
			wantDone(t, first, "backend a: a reload, a restart or a stop has replaced it before "+
				"it was ready")
			wantDisconnected(t, between)
			waits.want(t, "")
			p := h.nextProcess("a")
			p.ServeHandshake("")
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			waits.wantResult(t)
			p.ServeToolsList(mcptest.ToolsResult("t"))
			wantDone(t, second, "")
		})
}

// A lazy backend is started by a start and by a restart, not only by the next call.
func TestRestart_LazyBackend(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	o.Backends[0].Lazy, o.Backends[0].IdleStop = true, time.Minute
	fillCache(t, o, "t")
	withHarness(t, o, func(t *testing.T, h *harness) {
		time.Sleep(time.Second)
		h.wantState("a", backends.Stopped)
		c := h.control()
		for _, f := range []func(context.Context, string) error{c.Start, c.Restart} {
			done := control(f, "a")
			wantWaiting(t, done)
			p := h.startServer("a")
			wantDone(t, done, "")
			h.wantState("a", backends.Ready)
			time.Sleep(10 * time.Minute)
			wantDisconnected(t, p)
			h.wantState("a", backends.Stopped)
		}
		wantDone(t, control(h.control().Stop, "a"), "")
		h.wantNames()
		done := control(h.control().Start, "a")
		h.wantNames("t") // from the cache
		h.startServer("a")
		wantDone(t, done, "")
		h.wantNames("t")
	})
}

// The connections of sessions are drained too, and opened again on demand.
func TestRestart_SessionConnections(t *testing.T) {
	all := legacyBackends("a")
	all[0].Sharing = config.SharingSession
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		shared := h.startServer("a")
		h.OpenSession("one", nil, false)
		inFlight := h.callFor("one", "a")
		own := h.nextProcess("a")
		own.ServeHandshake("")
		first := own.WantRequest("tools/call")
		done := control(h.control().Restart, "a")
		since := h.callFor("one", "a")
		wantDisconnected(t, shared)
		if n := len(h.dialTimes("a")); n != 2 || own.Disconnected() {
			t.Fatalf("started %d times during the drain", n)
		}
		own.SendResult(first.ID(), "{}")
		inFlight.wantResult(t)
		wantDisconnected(t, own)
		one, two := h.nextProcess("a"), h.nextProcess("a")
		for _, p := range []*mcptest.Peer{one, two} {
			p.ServeHandshake("")
		}
		for _, p := range []*mcptest.Peer{one, two} {
			switch m := p.NextMessage(); m.Method() {
			case "tools/list":
				p.SendResult(m.ID(), mcptest.ToolsResult("t"))
			default:
				p.SendResult(m.ID(), "{}")
			}
		}
		since.wantResult(t)
		wantDone(t, done, "")

		wantDone(t, control(h.control().Stop, "a"), "")
		wantDisconnected(t, one)
		wantDisconnected(t, two)
		h.callFor("one", "a").want(t, stoppedA)
		if n := len(h.dialTimes("a")); n != 4 {
			t.Errorf("a call to the stopped backend has started a process: %d", n)
		}
	})
}

// The instances of principals are stopped and restarted together, and keep their lists.
func TestRestart_Instances(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("a")}, func(t *testing.T, h *harness) {
		alice, bob := named("alice"), named("bob")
		h.connect("a1", alice)
		ofAlice := h.nextProcess("a")
		ofAlice.ServeStartup("one")
		h.connect("b1", bob)
		ofBob := h.nextProcess("a")
		ofBob.ServeStartup("two")
		synctest.Wait()
		inFlight := h.toolCall("a", "a1", "one")
		first := ofAlice.WantRequest("tools/call")
		done := control(h.control().Restart, "a")
		wantDisconnected(t, ofBob)
		since := h.toolCall("a", "a1", "one")
		wantLists := func(ofA, ofB string) {
			t.Helper()
			synctest.Wait()
			if a, b := h.namesFor(alice), h.namesFor(bob); a != ofA || b != ofB {
				t.Errorf("alice sees %q, bob %q", a, b)
			}
		}
		wantLists("one", "two")
		ofAlice.SendResult(first.ID(), "{}")
		inFlight.wantResult(t)
		wantDisconnected(t, ofAlice)
		for range 2 {
			p := h.nextProcess("a")
			p.ServeHandshake("")
			m := p.NextMessage()
			if m.Method() == "tools/call" { // of alice
				p.SendResult(m.ID(), `{"content":[]}`)
				p.ServeToolsList(mcptest.ToolsResult("three"))
			} else {
				p.SendResult(m.ID(), mcptest.ToolsResult("two"))
			}
		}
		since.wantResult(t)
		wantDone(t, done, "")
		wantLists("three", "two")
		if n := len(h.dialTimes("a")); n != 4 {
			t.Errorf("%d processes", n)
		}

		wantDone(t, control(h.control().Stop, "a"), "")
		wantLists("", "")
		h.toolCall("a", "b1", "two").want(t, stoppedA)
		h.connect("c1", named("carol"))
		h.toolCall("a", "c1", "two").want(t, stoppedA)
		done = control(h.control().Start, "a")
		wantDone(t, done, "") // it starts for each principal on demand
		c := h.toolCall("a", "b1", "two")
		p := h.nextProcess("a")
		p.ServeHandshake("")
		serve(t, p, "two")
		c.wantResult(t)
	})
}

// A stop is kept when the configuration is loaded again, and when its filters change. It ends when
// the backend is changed, disabled or removed.
func TestStop_Reload(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.startServer("a")
		h.startServer("b")
		wantDone(t, control(h.control().Stop, "a"), "")
		<-h.startApply(change(all...))
		denied := withDenied(all[0], "t", "", "")
		<-h.startApply(change(denied, all[1]))
		h.wantState("a", backends.StoppedByUser)
		if n := len(h.dialTimes("a")); n != 1 {
			t.Errorf("the reload has started the backend: %d", n)
		}
		started := control(h.control().Start, "a") // with the filters of the reload
		h.startServer("a")
		wantDone(t, started, "")
		h.wantNames("t")
		if s := h.status("a"); s.Counts[catalog.Tools] != 0 {
			t.Errorf("the filters of the reload are not in force: %+v", s)
		}
		wantDone(t, control(h.control().Stop, "a"), "")
		h.replace(withEnv(all[0], "new"), all[1])
		h.wantState("a", backends.Ready)
		wantDone(t, control(h.control().Stop, "a"), "")
		<-h.startApply(change(disabled(all[0]), all[1]))
		h.wantState("a", backends.Disabled)
		h.replace(withEnv(all[0], "new"), all[1])
		h.wantState("a", backends.Ready)
	})
}

// Errors about backends that cannot be started or stopped say why, and name what to do.
func TestControl_Errors(t *testing.T) {
	all := legacyBackends("a", "off", "bad")
	all[1].Enabled = false
	all[2].Misconfigured = "variable TOKEN is not set"
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.startServer("a")
		for name, want := range map[string]string{
			"off": "backend off is disabled in the configuration: remove enabled: false and " +
				"reload the configuration",
			"bad": "backend bad is misconfigured: variable TOKEN is not set; correct it and " +
				"reload the configuration",
			"none": `no backend is named "none"; the backends are: a, off, bad`,
		} {
			c := h.control()
			for _, f := range []func(context.Context, string) error{c.Start, c.Stop, c.Restart} {
				err := f(t.Context(), name)
				why, ok := errors.AsType[*backends.NotRunnableError](err)
				if !ok || err.Error() != want || why.Unknown != (name == "none") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
	var names []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	o := backends.Options{Backends: legacyBackends(names...)}
	withHarness(t, o, func(t *testing.T, h *harness) {
		if err := h.control().Stop(t.Context(), "none"); !strings.HasSuffix(err.Error(), "n19, …") {
			t.Error(err)
		}
	})
}

// The end of ctx ends the wait, not the restart.
func TestRestart_ContextEndsWaitOnly(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")},
		func(t *testing.T, h *harness) {
			p := h.startServer("a")
			c, _ := h.call("a")
			m := p.WantRequest("tools/call")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := h.control().Restart(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "its calls have not ended yet") {
				t.Error(err)
			}
			p.SendResult(m.ID(), "{}")
			c.wantResult(t)
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := h.control().Start(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "it is not ready yet") {
				t.Error(err)
			}
			h.startServer("a")
			h.wantState("a", backends.Ready)
		})
}

// Before the backends start, a stop is noted, and a start does not start them.
func TestControl_BeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{Backends: legacyBackends("a", "b", "c")})
		wantDone(t, control(h.control().Stop, "a"), "")
		wantDone(t, control(h.control().Restart, "b"), "")
		wantDone(t, control(h.control().Stop, "c"), "")
		wantDone(t, control(h.control().Start, "c"), "")
		if n := len(h.dialTimes("b")) + len(h.dialTimes("c")); n != 0 {
			t.Errorf("%d processes", n)
		}
		h.Start()
		h.startServer("b")
		h.startServer("c")
		h.wantState("a", backends.StoppedByUser)
		if len(h.dialTimes("a")) != 0 || len(h.dialTimes("b")) != 1 || len(h.dialTimes("c")) != 1 {
			t.Error("the wrong backends were started")
		}
	})
}

// A restart restores the subscriptions, and tells the client that updates may have been missed.
func TestRestart_RestoresSubscriptions(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")},
		func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeHandshake(loggingServer)
			h.serveLists(p)
			h.OpenSession("one", nil, false)
			c := h.subscribe("one", "a", "x://1", true)
			p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
			c.wantResult(t)
			done := control(h.control().Restart, "a")
			wantDisconnected(t, p)
			p = h.nextProcess("a")
			p.ServeHandshake(loggingServer)
			p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
			h.serveLists(p)
			wantDone(t, done, "")
			synctest.Wait()
			h.clients.want(t, "one notified by a: notifications/resources/updated")
		})
}

// The end of the gateway ends all waits.
func TestRestart_EndOfGateway(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a", "b")},
		func(t *testing.T, h *harness) {
			h.startServer("a")
			p := h.startServer("b")
			c, _ := h.call("b")
			p.WantRequest("tools/call")
			restart, stop := control(h.control().Restart, "a"), control(h.control().Stop, "b")
			wantWaiting(t, restart)
			wantWaiting(t, stop)
			h.stop()
			<-h.done
			synctest.Wait()
			if len(restart) != 1 || len(stop) != 1 || <-restart == nil {
				t.Error("a wait has not ended")
			}
			c.wantErrorPrefix(t, "context canceled")
		})
}
