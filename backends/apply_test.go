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

// options are the catalog's of every house.
var options = catalog.Options{Prefix: catalog.PrefixOnCollision, Separator: "__", NameLimit: 50}

const removed = "it was removed from the configuration"

// change returns a Change to these backends.
func change(all ...config.Backend) backends.Change {
	return backends.Change{Backends: all, Catalog: options, CatalogWait: 3 * time.Second}
}

// apply begins a change, and returns what is closed when it is over.
func (h *house) apply(c backends.Change) <-chan struct{} {
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

// edited returns a backend's configuration with something else in it.
func edited(c config.Backend, how string) config.Backend {
	c.Args = []string{how}
	return c
}

func TestApply_ChangesOneAndKeepsTheOther(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		done := h.apply(change(edited(all[0], "new"), all[1]))
		next := h.next("a")
		h.wantNames("t", "u") // the old one serves until the new one is ready
		next.ServeStartup("v")
		<-done
		h.wantNames("v", "u")
		if !a.Disconnected() || b.Disconnected() {
			t.Error("the wrong one ended")
		}
		c, _ := h.call("a")
		next.SendResult(next.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
		if n := len(h.dials("b")); n != 1 {
			t.Errorf("b was started %d times", n)
		}
	})
}

// Another order is no reason to start anything; only who has the bare name is another.
func TestApply_OrderAloneChangesNames(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.ServeStartup("t")
		b.ServeStartup("t")
		h.wantNames("t", "b__t")
		v := h.View()
		<-h.apply(change(all[1], all[0]))
		h.wantNames("t", "a__t")
		select {
		case <-v.Changed:
		default:
			t.Error("nobody is told")
		}
		if len(h.dials("a"))+len(h.dials("b")) != 2 || a.Disconnected() || b.Disconnected() {
			t.Error("something was started anew")
		}
	})
}

func TestApply_BeforeStartSwapsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := plain("a", "b", "c")
		h := newHouse(t, backends.Options{Backends: all[:2]})
		early, _ := h.call("a")
		back, pending := h.call("a")
		gone, _ := h.call("b")
		began := time.Now()
		<-h.apply(change(edited(all[0], "new"), all[2]))
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		gone.want(t, removed)
		h.Cancel("a", pending, nil)
		back.want(t, "cancelled")
		early.want(t, "")
		h.Start()
		a, c := h.next("a"), h.next("c")
		a.ServeHandshake("")
		a.SendResult(a.HandleRequest("tools/call").ID(), "{}")
		early.ok(t)
		a.ServeToolsList(mcptest.ToolsResult("t"))
		c.ServeStartup("u")
		h.wantNames("t", "u")
		if len(h.dials("a")) != 1 || len(h.dials("b")) != 0 {
			t.Error("what was never a member when it began was started")
		}
	})
}

func TestApply_AfterTheEnd(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.stop()
		<-h.done
		<-h.apply(change(edited(all[0], "new"), plain("b")[0]))
		for _, name := range []string{"a", "b"} {
			c, _ := h.call(name)
			c.want(t, "it is not running: the gateway is ending")
		}
	})
}

// What is removed is listed no more at once, whatever else is started, and a call to it says so: a
// client may have read its name before. What is added is listed when it is ready.
func TestApply_AddsAndRemoves(t *testing.T) {
	all := plain("a", "b", "c")
	inHouse(t, backends.Options{Backends: all[:2]}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		done := h.apply(change(all[0], all[2]))
		c := h.next("c")
		h.wantNames("t")
		gone, _ := h.call("b")
		gone.want(t, removed)
		c.ServeStartup("v")
		<-done
		h.wantNames("t", "v")
		if !b.Disconnected() {
			t.Error("b goes on")
		}
		call, _ := h.call("b")
		call.want(t, removed)
		h.subscribe("", "b", "x:y", true).want(t, removed)
		call, _ = h.call("d")
		call.want(t, "is not configured")
		var names []string
		for _, s := range h.Status() {
			names = append(names, s.Name)
		}
		if !slices.Equal(names, []string{"a", "c"}) {
			t.Errorf("status of %q", names)
		}

		again := h.apply(change(all...)) // it comes back
		h.next("b").ServeStartup("u")
		<-again
		h.wantNames("t", "u", "v")
		call, _ = h.call("b")
		call.want(t, "")
	})
}

// A backend that is removed does not get a name while another backend of the same change starts, though
// the one that has the name denies it from now on.
func TestApply_ARemovedBackendGetsNoNames(t *testing.T) {
	all := plain("a", "b", "c")
	inHouse(t, backends.Options{Backends: all[:2]}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.ServeStartup("t")
		b.ServeStartup("t")
		h.wantNames("t", "b__t")
		h.apply(change(denying(all[0], "t", "", ""), all[2]))
		h.next("c") // it hangs
		time.Sleep(time.Second)
		h.wantNames()
		gone, _ := h.call("b")
		gone.want(t, removed)
		b.WantNothing()
	})
}

// One of two changed backends hangs. The other is changed when it is ready, and the backend that
// hangs is what it was until its time is over.
func TestApply_ABackendThatHangsHoldsNobodyUp(t *testing.T) {
	all := plain("a", "b", "c")
	inHouse(t, backends.Options{Backends: all[:2]}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		c := change(edited(all[0], "new"), edited(all[1], "new"), all[2])
		c.Catalog.Prefix = catalog.PrefixAlways
		done := h.apply(c)
		h.next("a") // it hangs
		slow := h.next("b")
		h.next("c").ServeStartup("v")
		h.wantNames("a__t", "b__u")
		time.Sleep(2 * time.Second)
		h.wantNames("a__t", "b__u", "c__v")
		slow.ServeStartup("w")
		h.wantNames("a__t", "b__w", "c__v")
		if a.Disconnected() || !b.Disconnected() {
			t.Error("the wrong one ended")
		}
		call, _ := h.call("a")
		a.SendResult(a.HandleRequest("tools/call").ID(), "{}")
		call.ok(t)
		<-done
		h.wantNames("b__w", "c__v")
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}
	})
}

// A backend that gets another name serves under the old one until it is ready under the new one.
func TestApply_ABackendIsRenamed(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all[:1]}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		all[1].Command = all[0].Command
		done := h.apply(change(all[1]))
		next := h.next("b")
		h.wantNames("t")
		next.ServeStartup("u")
		<-done
		h.wantNames("u")
	})
}

// One that is disabled is as good as removed.
func TestApply_Disables(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		h.next("b").ServeStartup("u")
		off := all[0]
		off.Enabled = false
		<-h.apply(change(off, all[1]))
		h.wantNames("u")
		if !a.Disconnected() {
			t.Error("it goes on")
		}
		c, _ := h.call("a")
		c.want(t, "it is disabled in the configuration")
		if s := h.status("a"); s.State != backends.Disabled {
			t.Errorf("status: %+v", s)
		}
		done := h.apply(change(all...))
		h.next("a").ServeStartup("t")
		<-done
		h.wantNames("t", "u")
	})
}

// A backend that does not start is changed all the same. The others do not notice, and it is
// tried again like any other.
func TestApply_ABackendThatDoesNotStartIsSwappedIn(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		done := h.apply(change(broken(all[0]), all[1]))
		h.next("a").Exit("exit 1", "")
		<-done
		h.wantNames("u")
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}
		c, _ := h.call("b")
		b.SendResult(b.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
		if lines := h.log.Lines("level=WARN", "backend=a", "exit 1"); len(lines) != 1 {
			t.Errorf("logged %q", h.log.Warnings())
		}
		h.next("a").ServeStartup("v")
		h.wantNames("v", "u")
	})
}

// broken is a configuration of which the program is another.
func broken(c config.Backend) config.Backend {
	c.Command = "other"
	return c
}

// What is the same program keeps its catalog while it cannot be listed anew, as it would if
// it had been started again.
func TestApply_WhatIsKnownOfTheSameProgramStands(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t", "delete")
		h.next("b").ServeStartup("u")
		h.wantNames("t", "delete", "u")
		next := all[0]
		next.Env = map[string]string{"KEY": "wrong"}
		next.Tools.Deny = []string{"del*"}
		done := h.apply(change(next, all[1]))
		h.next("a").Exit("exit 1", "")
		<-done
		h.wantNames("t", "u")
	})
}

func TestApply_TheLastKnownCatalogStandsIn(t *testing.T) {
	all := plain("a", "b")
	dir := t.TempDir()
	inHouse(t, backends.Options{Backends: all, StateDir: dir}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.next("b").ServeStartup("u")
		h.wantNames("t", "u")
	})
	inHouse(t, backends.Options{Backends: all[1:], StateDir: dir}, func(t *testing.T, h *house) {
		h.next("b").ServeStartup("u")
		done := h.apply(change(all...))
		h.next("a") // which hangs
		time.Sleep(time.Second - time.Nanosecond)
		h.wantNames("u")
		time.Sleep(time.Nanosecond)
		h.wantNames("t", "u")
		<-done
	})
}

func TestApply_WaitsHalfAMinuteAtMost(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.next("b").ServeStartup("u")
		began := time.Now()
		done := h.apply(change(broken(all[0]), all[1]))
		slow := h.next("a")
		<-done
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("it took %v", took)
		}
		h.wantNames("u")
		c, _ := h.call("a") // it waits for the start, as at any other
		c.want(t, "")
		slow.ServeHandshake("")
		slow.SendResult(slow.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
	})
}

func TestApply_CtxEndsTheWaitAndNotTheChange(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		if err := h.Apply(ctx, change(broken(all[0]))); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if !a.Disconnected() {
			t.Error("nothing was changed")
		}
		h.next("a").ServeStartup("v")
		h.wantNames("v")
	})
}

func TestApply_TheSameNameTwiceIsRefused(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		err := h.Apply(context.Background(), change(broken(all[0]), all[0]))
		if err == nil || err.Error() != "backend a: the name is there twice" {
			t.Errorf("Apply: %v", err)
		}
		h.wantNames("t")
		if a.Disconnected() {
			t.Error("something was changed")
		}
	})
}

// One change at a time: the later one has the last word.
func TestApply_OneAtATime(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		first := h.apply(change(edited(all[0], "1")))
		one := h.next("a")
		second := h.apply(change(edited(all[0], "2")))
		if n := len(h.dials("a")); n != 2 {
			t.Errorf("started %d times", n)
		}
		one.ServeStartup("u")
		<-first
		two := h.next("a")
		two.ServeStartup("v")
		<-second
		h.wantNames("v")
		if !one.Disconnected() || two.Disconnected() {
			t.Error("the wrong one ended")
		}
	})
}

func TestApply_CatalogOptions(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.next("b").ServeStartup("t")
		h.wantNames("t", "b__t")
		c := change(all...)
		c.Catalog = catalog.Options{Prefix: catalog.PrefixAlways, Separator: "--", NameLimit: 50}
		<-h.apply(c)
		h.wantNames("a--t", "b--t")
		if len(h.dials("a")) != 1 {
			t.Error("it was started anew")
		}
	})
}

// Wait counts from the start of the backends, whenever it is changed.
func TestApply_Wait(t *testing.T) {
	all := plain("a")
	all[0].StartTimeout = 0
	inHouse(t, backends.Options{Backends: all, CatalogWait: time.Hour}, func(t *testing.T, h *house) {
		h.next("a")
		time.Sleep(time.Minute)
		c := change(all...)
		c.CatalogWait = 2 * time.Minute
		<-h.apply(c)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if h.View().Settled {
			t.Error("it is over too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !h.View().Settled {
			t.Error("it is not over")
		}
	})
}

// Who keeps a change waiting is named, once; and a wait that is ended leaves the change made.
func TestApply_SaysWhomItWaitsFor(t *testing.T) {
	all := plain("a", "quick", "hang", "slow")
	inHouse(t, backends.Options{Backends: all[:1]}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		ctx, hurry := context.WithCancel(t.Context())
		late, done := make(chan []string, 2), make(chan error, 1)
		began := time.Now()
		c := change(all...)
		c.OnSlowStart = func(names []string) { late <- names }
		go func() { done <- h.Apply(ctx, c) }()
		h.next("quick").ServeStartup("q")
		h.next("hang")
		slow := h.next("slow")
		if names := <-late; !slices.Equal(names, []string{"hang", "slow"}) || time.Since(began) != time.Second {
			t.Errorf("waits for %v after %v", names, time.Since(began))
		}
		h.wantNames("t", "q") // the others do not wait
		slow.ServeStartup("s")
		h.wantNames("t", "q", "s")
		hurry()
		if err := <-done; err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		h.wantNames("t", "q", "s")
		h.wantState("hang", backends.Starting)
		if len(late) > 0 {
			t.Error("it is told twice")
		}
		c = change(all[:2]...)
		c.OnSlowStart = func(names []string) { t.Errorf("waits for %v", names) }
		<-h.apply(c)
	})
}
