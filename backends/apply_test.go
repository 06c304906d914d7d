package backends_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

// catalogOptions are the catalog options of every harness.
var catalogOptions = catalog.Options{Prefix: catalog.PrefixOnCollision, Separator: "__",
	NameLimit: 50}

const removed = "it was removed from the configuration"

// change returns a Change to these backends.
func change(all ...config.Backend) backends.Change {
	return backends.Change{Backends: all, Catalog: catalogOptions, CatalogWait: 3 * time.Second}
}

// startApply begins a change, and returns a channel that is closed at the end of the change.
func (h *harness) startApply(c backends.Change) <-chan struct{} {
	h.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Apply(context.Background(), c); err != nil {
			h.t.Errorf("Apply: %v", err)
		}
	}()
	return done
}

// withEnv returns a backend's configuration with another argument.
func withEnv(c config.Backend, how string) config.Backend {
	c.Args = []string{how}
	return c
}

func TestApply_ReplacesChangedBackendOnly(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		done := h.startApply(change(withEnv(all[0], "new"), all[1]))
		next := h.nextProcess("a")
		h.wantNames("t", "u") // the old server serves until the new one is ready
		next.ServeStartup("v")
		<-done
		h.wantNames("v", "u")
		if !a.Disconnected() || b.Disconnected() {
			t.Error("the wrong backend ended")
		}
		c, _ := h.call("a")
		next.SendResult(next.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		if n := len(h.dialTimes("b")); n != 1 {
			t.Errorf("b was started %d times", n)
		}
	})
}

// A change of the order starts no backend; only the owner of the bare name changes.
func TestApply_OrderChangesNamesOnly(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("t")
		b.ServeStartup("t")
		h.wantNames("t", "b__t")
		v := h.View()
		<-h.startApply(change(all[1], all[0]))
		h.wantNames("t", "a__t")
		select {
		case <-v.Changed:
		default:
			t.Error("no notification")
		}
		if len(h.dialTimes("a"))+len(h.dialTimes("b")) != 2 || a.Disconnected() ||
			b.Disconnected() {
			t.Error("a backend was started again")
		}
	})
}

func TestApply_BeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := legacyBackends("a", "b", "c")
		h := newHarness(t, backends.Options{Backends: all[:2]})
		early, _ := h.call("a")
		back, pending := h.call("a")
		gone, _ := h.call("b")
		began := time.Now()
		<-h.startApply(change(withEnv(all[0], "new"), all[2]))
		if took := time.Since(began); took != 0 {
			t.Errorf("Apply took %v", took)
		}
		gone.want(t, removed)
		pending.Cancel(nil)
		back.want(t, "cancelled")
		early.want(t, "")
		h.Start()
		a, c := h.nextProcess("a"), h.nextProcess("c")
		a.ServeHandshake("")
		a.SendResult(a.WantRequest("tools/call").ID(), "{}")
		early.wantResult(t)
		a.ServeToolsList(mcptest.ToolsResult("t"))
		c.ServeStartup("u")
		h.wantNames("t", "u")
		if len(h.dialTimes("a")) != 1 || len(h.dialTimes("b")) != 0 {
			t.Error("a removed backend was started")
		}
	})
}

func TestApply_AfterRun(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.stop()
		<-h.done
		<-h.startApply(change(withEnv(all[0], "new"), legacyBackends("b")[0]))
		for _, name := range []string{"a", "b"} {
			c, _ := h.call(name)
			c.want(t, "it is not running: the gateway is ending")
		}
	})
}

// A removed backend disappears from the list at once, even if the change starts other backends. A
// call to the removed backend fails with the reason, because a client may have read the name
// before. An added backend is listed when it is ready.
func TestApply_AddsAndRemoves(t *testing.T) {
	all := legacyBackends("a", "b", "c")
	withHarness(t, backends.Options{Backends: all[:2]}, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		done := h.startApply(change(all[0], all[2]))
		c := h.nextProcess("c")
		h.wantNames("t")
		gone, _ := h.call("b")
		gone.want(t, removed)
		c.ServeStartup("v")
		<-done
		h.wantNames("t", "v")
		if !b.Disconnected() {
			t.Error("b is still running")
		}
		call, _ := h.call("b")
		call.want(t, removed)
		h.subscribe("", "b", "x:y", true).want(t, removed)
		call, _ = h.call("d")
		call.want(t, "it is not configured")
		var names []string
		for _, s := range h.Status() {
			names = append(names, s.Name)
		}
		if !slices.Equal(names, []string{"a", "c"}) {
			t.Errorf("got the status of %q", names)
		}

		again := h.startApply(change(all...)) // b is added again
		h.nextProcess("b").ServeStartup("u")
		<-again
		h.wantNames("t", "u", "v")
		call, _ = h.call("b")
		call.want(t, "")
	})
}

// While a change starts a backend, a removed backend does not get a name, although the filters deny
// the tool that has the name from now on.
func TestApply_RemovedBackendGetsNoNames(t *testing.T) {
	all := legacyBackends("a", "b", "c")
	withHarness(t, backends.Options{Backends: all[:2]}, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("t")
		b.ServeStartup("t")
		h.wantNames("t", "b__t")
		h.startApply(change(withDenied(all[0], "t", "", ""), all[2]))
		h.nextProcess("c") // c hangs
		time.Sleep(time.Second)
		h.wantNames()
		gone, _ := h.call("b")
		gone.want(t, removed)
		b.WantNothing()
	})
}

// One of two changed backends hangs. The other backend is replaced when its successor is ready; the
// predecessor of the hanging one serves until the timeout.
func TestApply_HangingBackendDelaysNoOther(t *testing.T) {
	all := legacyBackends("a", "b", "c")
	withHarness(t, backends.Options{Backends: all[:2]}, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		c := change(withEnv(all[0], "new"), withEnv(all[1], "new"), all[2])
		c.Catalog.Prefix = catalog.PrefixAlways
		done := h.startApply(c)
		h.nextProcess("a") // a hangs
		slow := h.nextProcess("b")
		h.nextProcess("c").ServeStartup("v")
		h.wantNames("a__t", "b__u")
		time.Sleep(2 * time.Second)
		h.wantNames("a__t", "b__u", "c__v")
		slow.ServeStartup("w")
		h.wantNames("a__t", "b__w", "c__v")
		if a.Disconnected() || !b.Disconnected() {
			t.Error("the wrong backend ended")
		}
		call, _ := h.call("a")
		a.SendResult(a.WantRequest("tools/call").ID(), "{}")
		call.wantResult(t)
		<-done
		h.wantNames("b__w", "c__v")
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}
	})
}

// A renamed backend serves under the old name until it is ready under the new one.
func TestApply_RenamesBackend(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all[:1]}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		all[1].Command = all[0].Command
		done := h.startApply(change(all[1]))
		next := h.nextProcess("b")
		h.wantNames("t")
		next.ServeStartup("u")
		<-done
		h.wantNames("u")
	})
}

// The same if it is slow to start: in the meantime it has the status and the calls of the old name.
// Only one backend replaces the renamed one, even if another new backend has the same program.
func TestApply_RenamesSlowBackend(t *testing.T) {
	all := legacyBackends("a", "b", "c")
	all[1].Command, all[2].Command = all[0].Command, all[0].Command
	withHarness(t, backends.Options{Backends: all[:1]}, func(t *testing.T, h *harness) {
		old := h.nextProcess("a")
		old.ServeStartup("t")
		h.wantNames("t")
		done := h.startApply(change(all[1:]...))
		b, c := h.nextProcess("b"), h.nextProcess("c")
		time.Sleep(5 * time.Second)
		h.wantNames("t")
		call, _ := h.call("a")
		old.SendResult(old.WantRequest("tools/call").ID(), "{}")
		call.wantResult(t)
		if s := h.Status(); len(s) != 2 || s[0].Name != "a" || s[0].State != backends.Ready ||
			s[1].Name != "c" || s[1].State != backends.Starting {
			t.Errorf("status %+v", s)
		}
		b.ServeStartup("u")
		h.wantNames("u")
		if !old.Disconnected() {
			t.Error("the old backend is still running")
		}
		c.ServeStartup("v")
		<-done
		h.wantNames("u", "v")
		if s := h.Status(); s[0].Name != "b" || s[1].Name != "c" {
			t.Errorf("status %+v", s)
		}
	})
}

// A disabled backend is treated like a removed one.
func TestApply_Disables(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		h.nextProcess("b").ServeStartup("u")
		off := all[0]
		off.Enabled = false
		<-h.startApply(change(off, all[1]))
		h.wantNames("u")
		if !a.Disconnected() {
			t.Error("the disabled backend is still running")
		}
		c, _ := h.call("a")
		c.want(t, "it is disabled in the configuration")
		if s := h.status("a"); s.State != backends.Disabled {
			t.Errorf("status: %+v", s)
		}
		done := h.startApply(change(all...))
		h.nextProcess("a").ServeStartup("t")
		<-done
		h.wantNames("t", "u")
	})
}

// A changed backend that fails to start also replaces the old one, and is retried like any other
// backend. The other backends are not affected.
func TestApply_FailingBackendTakesEffect(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		done := h.startApply(change(withBrokenCommand(all[0]), all[1]))
		h.nextProcess("a").Exit("exit 1", "")
		<-done
		h.wantNames("u")
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}
		c, _ := h.call("b")
		b.SendResult(b.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		if lines := h.log.Lines("level=WARN", "backend=a", "exit 1"); len(lines) != 1 {
			t.Errorf("logged %q", h.log.Warnings())
		}
		h.nextProcess("a").ServeStartup("v")
		h.wantNames("v", "u")
	})
}

// withBrokenCommand returns a configuration with another program.
func withBrokenCommand(c config.Backend) config.Backend {
	c.Command = "other"
	return c
}

// A changed backend with the same program keeps its catalog while it cannot be listed, as it would
// after a restart.
func TestApply_KeepsCatalogOfSameProgram(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t", "delete")
		h.nextProcess("b").ServeStartup("u")
		h.wantNames("t", "delete", "u")
		next := all[0]
		next.Env = map[string]string{"KEY": "wrong"}
		next.Tools.Deny = []string{"del*"}
		done := h.startApply(change(next, all[1]))
		h.nextProcess("a").Exit("exit 1", "")
		<-done
		h.wantNames("t", "u")
	})
}

func TestApply_UsesCachedCatalog(t *testing.T) {
	all := legacyBackends("a", "b")
	dir := t.TempDir()
	withHarness(t, backends.Options{Backends: all, StateDir: dir}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.nextProcess("b").ServeStartup("u")
		h.wantNames("t", "u")
	})
	withHarness(t, backends.Options{Backends: all[1:], StateDir: dir},
		func(t *testing.T, h *harness) {
			h.nextProcess("b").ServeStartup("u")
			done := h.startApply(change(all...))
			h.nextProcess("a") // a hangs
			time.Sleep(time.Second - time.Nanosecond)
			h.wantNames("u")
			time.Sleep(time.Nanosecond)
			h.wantNames("t", "u")
			<-done
		})
}

func TestApply_Timeout(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.nextProcess("b").ServeStartup("u")
		began := time.Now()
		done := h.startApply(change(withBrokenCommand(all[0]), all[1]))
		slow := h.nextProcess("a")
		<-done
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("Apply took %v", took)
		}
		h.wantNames("u")
		c, _ := h.call("a") // queued for the start, like any other call
		c.want(t, "")
		slow.ServeHandshake("")
		slow.SendResult(slow.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
	})
}

func TestApply_ContextEndsWaitOnly(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		if err := h.Apply(ctx, change(withBrokenCommand(all[0]))); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("Apply took %v", took)
		}
		if !a.Disconnected() {
			t.Error("nothing was changed")
		}
		h.nextProcess("a").ServeStartup("v")
		h.wantNames("v")
	})
}

func TestApply_RejectsDuplicateName(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		err := h.Apply(context.Background(), change(withBrokenCommand(all[0]), all[0]))
		if err == nil || err.Error() != "backend a: the name occurs twice" {
			t.Errorf("Apply: %v", err)
		}
		h.wantNames("t")
		if a.Disconnected() {
			t.Error("something was changed")
		}
	})
}

// Changes are made one at a time: the later change wins.
func TestApply_OneAtATime(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		first := h.startApply(change(withEnv(all[0], "1")))
		one := h.nextProcess("a")
		second := h.startApply(change(withEnv(all[0], "2")))
		if n := len(h.dialTimes("a")); n != 2 {
			t.Errorf("started %d times", n)
		}
		one.ServeStartup("u")
		<-first
		two := h.nextProcess("a")
		two.ServeStartup("v")
		<-second
		h.wantNames("v")
		if !one.Disconnected() || two.Disconnected() {
			t.Error("the wrong backend ended")
		}
	})
}

func TestApply_CatalogOptions(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.nextProcess("b").ServeStartup("t")
		h.wantNames("t", "b__t")
		c := change(all...)
		c.Catalog = catalog.Options{Prefix: catalog.PrefixAlways, Separator: "--", NameLimit: 50}
		<-h.startApply(c)
		h.wantNames("a--t", "b--t")
		if len(h.dialTimes("a")) != 1 {
			t.Error("backend a was started again")
		}
	})
}

// CatalogWait counts from the start of the backends, even if it is changed later.
func TestApply_CatalogWait(t *testing.T) {
	all := legacyBackends("a")
	all[0].StartTimeout = 0
	withHarness(t, backends.Options{Backends: all, CatalogWait: time.Hour},
		func(t *testing.T, h *harness) {
			h.nextProcess("a")
			time.Sleep(time.Minute)
			c := change(all...)
			c.CatalogWait = 2 * time.Minute
			<-h.startApply(c)
			time.Sleep(time.Minute - time.Second)
			synctest.Wait()
			if h.View().Settled {
				t.Error("the wait is over too early")
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if !h.View().Settled {
				t.Error("the wait is not over")
			}
		})
}

// Backends that delay a change are named, once; the end of the wait does not undo the change.
func TestApply_OnSlowStart(t *testing.T) {
	all := legacyBackends("a", "quick", "hang", "slow")
	withHarness(t, backends.Options{Backends: all[:1]}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		ctx, hurry := context.WithCancel(t.Context())
		late, done := make(chan []string, 2), make(chan error, 1)
		began := time.Now()
		c := change(all...)
		c.OnSlowStart = func(names []string) { late <- names }
		go func() { done <- h.Apply(ctx, c) }()
		h.nextProcess("quick").ServeStartup("q")
		h.nextProcess("hang")
		slow := h.nextProcess("slow")
		if names := <-late; !slices.Equal(names, []string{"hang", "slow"}) ||
			time.Since(began) != time.Second {
			t.Errorf("waits for %v after %v", names, time.Since(began))
		}
		h.wantNames("t", "q") // the others are not affected
		slow.ServeStartup("s")
		h.wantNames("t", "q", "s")
		hurry()
		if err := <-done; err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		h.wantNames("t", "q", "s")
		h.wantState("hang", backends.Starting)
		if len(late) > 0 {
			t.Error("OnSlowStart was called twice")
		}
		c = change(all[:2]...)
		c.OnSlowStart = func(names []string) { t.Errorf("waits for %v", names) }
		<-h.startApply(c)
	})
}

// A renamed backend gets stricter filters: they must hold also while the new one is starting.
func TestApply_FiltersOfARenamedBackendThatIsSlow(t *testing.T) {
	all := legacyBackends("a", "b")
	all[1].Command = all[0].Command
	all[1].Tools = config.ToolSettings{Deny: []string{"t"}}
	withHarness(t, backends.Options{Backends: all[:1]}, func(t *testing.T, h *harness) {
		old := h.nextProcess("a")
		old.ServeStartup("t", "u")
		h.wantNames("t", "u")
		done := h.startApply(change(all[1:]...))
		b := h.nextProcess("b")
		time.Sleep(20 * time.Second)
		h.wantNames("u")
		b.ServeStartup("t", "u")
		<-done
		h.wantNames("u")
	})
}
