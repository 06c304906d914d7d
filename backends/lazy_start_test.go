package backends_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

// fillCache runs backends once, so that their lists are cached.
func fillCache(t *testing.T, o backends.Options, tools ...string) {
	t.Helper()
	for i, c := range o.Backends {
		c.Lazy = false
		alone := o
		alone.Backends = []config.Backend{c}
		withHarness(t, alone, func(t *testing.T, h *harness) {
			p := h.nextProcess(c.Name)
			if c.Generation == "modern" {
				p.ServeDiscover("")
				p.ServeToolsList(mcptest.ToolsResult(tools[i]))
			} else {
				p.ServeStartup(tools[i])
			}
			synctest.Wait()
		})
	}
}

// A lazy backend whose tools are known is started by the first call, which is queued.
func TestLazy_FirstCallStartsBackend(t *testing.T) {
	o := backends.Options{Backends: []config.Backend{legacyBackends("a")[0], perSessionBackend("b"),
		legacyBackends("c")[0]}, StateDir: t.TempDir()}
	o.Backends[1].Sharing = "shared"
	o.Backends[2].Generation = "modern"
	for i := range o.Backends {
		o.Backends[i].Lazy = true
	}
	fillCache(t, o, "t", "u", "v")
	withHarness(t, o, func(t *testing.T, h *harness) {
		time.Sleep(time.Hour)
		h.wantNames("t", "u", "v")
		if !h.View().Complete {
			t.Error("the View waits for lazy backends")
		}
		for _, c := range o.Backends {
			h.wantState(c.Name, backends.Stopped)
			if s := h.status(c.Name); len(h.dialTimes(c.Name)) != 0 || s.Err != nil ||
				s.Counts[catalog.Tools] != 1 || !s.Settled {
				t.Errorf("%s: dialled at %v, %+v", c.Name, h.dialTimes(c.Name), s)
			}
			if n := len(h.log.Lines("level=INFO", "start deferred to the first call (lazy)",
				"backend="+c.Name)); n != 1 {
				t.Errorf("%s: logged %d times that it is lazy", c.Name, n)
			}
			one, _ := h.call(c.Name)
			two, _ := h.call(c.Name)
			p := h.nextProcess(c.Name)
			h.wantState(c.Name, backends.Starting)
			if n := len(h.log.Lines("level=INFO", "starting backend on demand",
				"backend="+c.Name)); n != 1 {
				t.Errorf("%s: logged %d times that it is started", c.Name, n)
			}
			if c.Generation == "modern" {
				p.ServeDiscover("")
			} else {
				p.ServeHandshake("")
			}
			p.SendResult(p.WantRequest("tools/call").ID(), `{"content":[]}`)
			p.SendResult(p.WantRequest("tools/call").ID(), `{"content":[]}`)
			one.wantResult(t)
			two.wantResult(t)
			p.ServeToolsList(mcptest.ToolsResult("new" + c.Name)) // the cache may be outdated
			h.wantState(c.Name, backends.Ready)
		}
		h.wantNames("newa", "newb", "newc")
		if warnings := h.log.Warnings(); len(warnings) != 0 {
			t.Errorf("logged %q", warnings)
		}
	})
}

// Without a cached catalog, or with IgnoreCache or NoRestart, a lazy backend is started like any
// other, and keeps running.
func TestLazy_UnknownBackendIsStarted(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	o.Backends[0].Lazy = true
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.wantState("a", backends.Ready)
	})
	for _, verb := range []backends.Options{{IgnoreCache: true}, {NoRestart: true}} {
		verb.Backends, verb.StateDir = o.Backends, o.StateDir
		withHarness(t, verb, func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			h.wantState("a", backends.Ready)
		})
	}
}

// A subscription also starts a lazy backend; a log level that was set before is sent to the
// backend.
func TestLazy_SubscriptionStartsBackend(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	o.Backends[0].Lazy = true
	fillCache(t, o, "t")
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.OpenSession("one", nil, false)
		done := false
		h.SetLevel("one", "error", func() { done = true })
		if !done || len(h.dialTimes("a")) != 0 {
			t.Error("a log level has started the backend")
		}
		sub := h.subscribe("one", "a", "x:y", true)
		p := h.nextProcess("a")
		p.ServeHandshake(loggingServer)
		p.SendResult(p.WantRequest("logging/setLevel").ID(), "{}")
		p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
		sub.wantResult(t)
	})
}

// The lists of a lazy backend with per-session connections are read over the shared connection,
// which is started when the first per-session connection is ready.
func TestLazy_PerSessionConnections(t *testing.T) {
	o := backends.Options{Backends: []config.Backend{perSessionBackend("a")}, StateDir: t.TempDir()}
	o.Backends[0].Lazy = true
	fillCache(t, o, "t")
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.OpenSession("one", nil, false)
		call := h.callFor("one", "a")
		own := h.nextProcess("a")
		h.wantState("a", backends.Stopped)
		own.ServeHandshake("")
		own.SendResult(own.WantRequest("tools/call").ID(), "{}")
		call.wantResult(t)
		h.nextProcess("a").ServeStartup("u")
		h.wantNames("u")
		h.wantState("a", backends.Ready)
	})
}

// A lazy backend that cannot be started is treated like any other backend.
func TestLazy_FailingBackend(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	o.Backends[0].Lazy = true
	fillCache(t, o, "t")
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.breakDial("a", errors.New("no such file"))
		c, _ := h.call("a")
		time.Sleep(100 * time.Millisecond)
		c.want(t, "it did not start: no such file")
		c, _ = h.call("a")
		c.wantErrorPrefix(t, "it is not running: no such file; next try in ")
		h.wantNames("t")
		time.Sleep(10 * time.Second)
		h.wantState("a", backends.BreakerOpen)
	})
}

// A change neither waits for a lazy backend whose tools are known nor starts it. Disabled backends
// have a status, in configuration order.
func TestApply_DoesNotStartLazyBackend(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	o.Backends[0].Lazy = true
	fillCache(t, o, "t")
	withHarness(t, o, func(t *testing.T, h *harness) {
		next := append(legacyBackends("off"), o.Backends[0])
		next[0].Enabled = false
		next[1].CallTimeout = time.Hour
		time.Sleep(time.Second) // so that Run has started the backends
		began := time.Now()
		if err := h.Apply(t.Context(), backends.Change{Backends: next,
			Catalog: h.Catalog}); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) != 0 || len(h.dialTimes("a")) != 0 {
			t.Errorf("Apply took %v, and started the backend %d times", time.Since(began),
				len(h.dialTimes("a")))
		}
		all := h.Status()
		if len(all) != 2 || all[0].Name != "off" || all[0].State != backends.Disabled ||
			all[1].State != backends.Stopped {
			t.Errorf("status: %+v", all)
		}
		h.wantNames("t")
		c, _ := h.call("a")
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.SendResult(p.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
	})
}
