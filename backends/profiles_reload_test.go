package backends_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
)

func profileOf(names ...string) map[string]config.Profile {
	return map[string]config.Profile{"p": {Backends: names}}
}

// wantNamesFor checks the tools that clients with the profile p see.
func (h *harness) wantNamesFor(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := h.namesFor(withProfiles("p")); got != want {
		t.Errorf("tools of the profile: %q, want %q", got, want)
	}
}

// A backend is renamed, together with the profile that permits it: it remains visible until the
// backend with the new name is ready.
func TestRenamedBackendStaysInItsProfile(t *testing.T) {
	all := legacyBackends("a", "b", "c")
	all[1].Command = all[0].Command
	o := backends.Options{Backends: []config.Backend{all[0], all[2]}, Profiles: profileOf("a")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		h.nextProcess("c").ServeStartup("u")
		h.wantNamesFor(t, "t")
		next := change(all[1], all[2])
		next.Profiles = profileOf("b")
		done := h.startApply(next)
		b := h.nextProcess("b")
		time.Sleep(20 * time.Second)
		h.wantNamesFor(t, "t")
		h.Set.OpenSession("s", withProfiles("p"), nil, false)
		h.callTool("s", "t")
		wantToolCalls(t, a, "t")
		b.ServeStartup("t")
		<-done
		h.wantNamesFor(t, "t")
	})
}

// Two backends exchange their names: a client that may use only one of them does not see the other
// one, not even until the new processes are ready.
func TestBackendsThatExchangeNamesStayHidden(t *testing.T) {
	before, after := legacyBackends("a", "b"), legacyBackends("a", "b")
	after[0].Command, after[1].Command = "b", "a"
	o := backends.Options{Backends: before, Profiles: profileOf("a")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("mine")
		h.nextProcess("b").ServeStartup("secret")
		h.wantNamesFor(t, "mine")
		h.Set.OpenSession("s", withProfiles("p"), nil, false)
		next := change(after...)
		next.Profiles = profileOf("b")
		done := h.startApply(next)
		a, b := h.nextProcess("a"), h.nextProcess("b")
		time.Sleep(20 * time.Second)
		h.wantNamesFor(t, "")
		h.sendTo("b", "tools/call", `{"name":"secret"}`).wantForbidden(t, "the old backend b")
		a.ServeStartup("secret")
		b.ServeStartup("mine")
		<-done
		h.wantNamesFor(t, "mine")
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "the new backend a")
	})
}

// The program of a backend changes, together with the filters of its profile: until the new process
// is ready, both the previous and the new filters apply to the old one.
func TestFiltersOfAProfileDuringReplacement(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"),
		Profiles: map[string]config.Profile{"p": toolsProfile("one two")}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("one", "two", "three")
		h.wantNamesFor(t, "one two")
		next := change(withEnv(o.Backends[0], "x"))
		next.Profiles = map[string]config.Profile{"p": toolsProfile("two three")}
		done := h.startApply(next)
		a := h.nextProcess("a")
		time.Sleep(20 * time.Second)
		h.wantNamesFor(t, "two")
		h.Set.OpenSession("s", withProfiles("p"), nil, false)
		h.sendTo("a", "tools/call", `{"name":"three"}`).wantForbidden(t, "three")
		a.ServeStartup("one", "two", "three")
		<-done
		h.wantNamesFor(t, "three two")
	})
}

// Before a reload replaces the tokens, which select profiles, clients may use only what their
// profiles permit both before and after the reload.
func TestRestrictProfilesBeforeReload(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), Profiles: map[string]config.Profile{
		"p": toolsProfile("one two"), "kept": toolsProfile("one"), "removed": toolsProfile("two")}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("one", "two", "three")
		synctest.Wait()
		next := map[string]config.Profile{
			"p": toolsProfile("two three"), "kept": toolsProfile("one"), "new": toolsProfile("three")}
		want := func(names map[string]string) {
			t.Helper()
			for profile, want := range names {
				if got := h.namesFor(withProfiles(profile)); got != want {
					t.Errorf("%s: %q, want %q", profile, got, want)
				}
			}
		}
		h.namesFor(withProfiles("p")) // its view is kept
		h.Set.RestrictProfiles(next)
		want(map[string]string{"p": "two", "kept": "one", "removed": "two", "new": "three"})
		c := change(o.Backends...)
		c.Profiles = next
		<-h.startApply(c)
		want(map[string]string{"p": "three two", "kept": "one", "removed": "", "new": "three"})
	})
}

// Clients begin to use profiles while the profiles are changed: afterwards each of them has the
// changed profile.
func TestProfileChangedWhileFirstUsed(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), Profiles: map[string]config.Profile{}}
	const number = 60
	for i := range number {
		o.Profiles[fmt.Sprint("p", i)] = config.Profile{}
	}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("open", "secret")
		synctest.Wait()
		for round := range 60 {
			next := make(map[string]config.Profile)
			for i := range number {
				next[fmt.Sprint("p", i)] = toolsProfile(fmt.Sprint("open none", round))
			}
			var using sync.WaitGroup
			for i := range number {
				using.Go(func() {
					h.ViewFor(withProfiles(fmt.Sprint("p", i), fmt.Sprint("p", round%number)))
				})
			}
			runtime.Gosched()
			h.Set.RestrictProfiles(next)
			using.Wait()
			for i := range number {
				who := withProfiles(fmt.Sprint("p", i), fmt.Sprint("p", round%number))
				if got := h.namesFor(who); got != "open" {
					t.Fatalf("%s: %q", who.ProfileKey(), got)
				}
			}
			c := change(o.Backends...)
			c.Profiles = o.Profiles
			<-h.startApply(c)
			time.Sleep(2 * time.Hour) // no view is kept
			h.Publish()
		}
	})
}

// A call that the profile does not permit fails at once, also while the backend is starting or
// busy.
func TestHiddenCallDoesNotWait(t *testing.T) {
	o := withMaxInFlight(1, time.Minute)
	o.Profiles = map[string]config.Profile{"p": toolsProfile("open")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		h.Set.OpenSession("s", withProfiles("p"), nil, false)
		refused := func(what string) {
			t.Helper()
			began := time.Now()
			h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, what)
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: refused after %v", what, took)
			}
		}
		refused("starting")
		p.ServeStartup("open", "secret")
		h.callTool("s", "open")
		wantToolCalls(t, p, "open")
		h.callTool("s", "open") // queued
		refused("busy")
		p.WantNothing()
	})
}

// The prefix of a hidden backend is a name like any other: no tool gets a prefix because of it, and
// the error for a name that begins with it is that for any unknown name.
func TestPrefixOfHiddenBackendIsNotReserved(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a", "b", "a__x"), Profiles: profileOf("a")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("b__tool", "c__tool")
		h.nextProcess("b").ServeStartup()
		h.nextProcess("a__x").ServeStartup()
		h.wantNamesFor(t, "b__tool c__tool")
		h.wantNames("a__b__tool", "c__tool")
	})
	o.Profiles = profileOf("a")
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").Close()
		h.nextProcess("b").Close()
		h.nextProcess("a__x").Close()
		synctest.Wait()
		for _, name := range []string{"a__x__tool", "a__y__tool"} {
			backend, err := h.WhyUnavailable(withProfiles("p"), name)
			if backend != "a" || err == nil {
				t.Errorf("%s: %q, %v", name, backend, err)
			}
		}
	})
}

// A lazy backend with a cached catalog is in the views of its profiles before it has started, and
// its read-only tools are known.
func TestLazyBackendInReadOnlyProfile(t *testing.T) {
	lazy := legacyBackends("a")
	lazy[0].Lazy = true
	o := backends.Options{Backends: lazy, StateDir: t.TempDir(),
		Profiles: map[string]config.Profile{"p": {Tools: config.ProfileTools{ReadOnly: true}}}}
	list := `{"tools":[{"name":"get","inputSchema":{"type":"object"},"annotations":` +
		`{"readOnlyHint":true}},{"name":"put","inputSchema":{"type":"object"}}]}`
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(list)
		h.wantNamesFor(t, "get")
	})
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.wantNamesFor(t, "get")
		if n := len(h.View().Entries(catalog.Tools)); n != 2 {
			t.Errorf("%d tools are known", n)
		}
		h.Set.OpenSession("s", withProfiles("p"), nil, false)
		h.sendTo("a", "tools/call", `{"name":"put"}`).wantForbidden(t, "put")
		h.sendTo("a", "tools/call", `{"name":"get"}`)
		p := h.nextProcess("a")
		p.ServeHandshake("")
		wantToolCalls(t, p, "get")
	})
}

// A name that is approved for a hidden backend is a name like any other, and the error of a call
// does not have the name of this backend.
func TestApprovedNameOfHiddenBackendIsFree(t *testing.T) {
	all := legacyBackends("a", "b")
	for i := range all {
		all[i].Tools.Pin = config.PinBlock
	}
	tool := pins.New([]byte(`{"name":"same","inputSchema":{"type":"object"}}`))
	lock := &pins.Lock{
		Names:    map[string]string{"same": "a"},
		Backends: map[string]pins.Tools{"a": {"same": tool}, "b": {"same": tool}},
	}
	o := backends.Options{Backends: all, Profiles: profileOf("b"), Lock: lock}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("same")
		b := h.nextProcess("b")
		b.ServeStartup("same")
		h.wantNamesFor(t, "same")
		h.wantNames("same", "b__same")
		h.Set.OpenSession("s", withProfiles("p"), nil, false)
		h.sendTo("b", "tools/call", `{"name":"same"}`)
		wantToolCalls(t, b, "same")
	})
}
