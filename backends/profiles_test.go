package backends_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/principal"
)

// withProfiles returns a principal with these profiles.
func withProfiles(names ...string) (p *principal.Principal) {
	for _, name := range names {
		p = p.WithProfile(name)
	}
	return p
}

// namesFor returns the names of the tools in the view of a principal.
func (h *harness) namesFor(p *principal.Principal) string {
	var names []string
	for _, e := range h.ViewFor(p).Entries(catalog.Tools) {
		names = append(names, e.Exposed)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func toolsProfile(allow string) config.Profile {
	return config.Profile{Tools: config.ProfileTools{Allow: strings.Fields(allow)}}
}

func TestEachProfileHasItsOwnCatalog(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a", "b"), Profiles: map[string]config.Profile{
		"a": {Backends: []string{"a"}}, "b": {Backends: []string{"b"}},
		"few": toolsProfile("same"), "all": {},
	}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("same", "one")
		h.nextProcess("b").ServeStartup("same", "two")
		synctest.Wait()
		for profiles, want := range map[string]string{
			"": "b__same one same two", "all": "b__same one same two",
			"a": "one same", "b": "same two", // collisions are resolved within the profile
			"few": "b__same same", "b few": "same", // the intersection
			"a b": "", "none": "", "a none": "",
		} {
			if got := h.namesFor(withProfiles(strings.Fields(profiles)...)); got != want {
				t.Errorf("profiles %q: %s, want %s", profiles, got, want)
			}
		}
		route, ok := h.ViewFor(withProfiles("b")).Lookup(catalog.Tools, "same")
		if !ok || route.Backend != "b" {
			t.Errorf("the name leads to %+v", route)
		}
	})
}

func TestProfileForbidsCallsUnderAnyName(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), Profiles: map[string]config.Profile{
		"few": toolsProfile("open"), "other": {Backends: []string{"other"}}}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("open", "secret")
		h.Set.OpenSession("s", withProfiles("few"), nil, false)
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "a hidden tool")
		h.sendTo("a", "tools/call", `{"name":"unknown"}`).wantForbidden(t, "an unknown tool")
		allowed := h.sendTo("a", "tools/call", `{"name":"open"}`)
		ids := wantToolCalls(t, p, "open")
		p.SendResult(ids[0], "{}")
		if a := <-allowed.ResponseChan; a.Err != nil {
			t.Errorf("the permitted call ended with %v", a.Err)
		}
		h.CloseSession("s")
		h.Set.OpenSession("s", withProfiles("other"), nil, false)
		for _, method := range []string{"tools/call", "prompts/get", "resources/read",
			"completion/complete", "resources/subscribe"} {
			h.sendTo("a", method, `{"name":"open","uri":"x:y"}`).wantForbidden(t, method)
		}
		p.WantNothing()
	})
}

func TestReadOnlyProfile(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), Profiles: map[string]config.Profile{
		"reader": {Tools: config.ProfileTools{ReadOnly: true}}}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},` +
			`"serverInfo":{"name":"x","version":"1"}}`)
		p.ServeToolsList(`{"tools":[` +
			`{"name":"get","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
			`{"name":"put","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false}},` +
			`{"name":"text","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"true"}},` +
			`{"name":"none","inputSchema":{"type":"object"}}]}`)
		synctest.Wait()
		if got := h.namesFor(withProfiles("reader")); got != "get" {
			t.Errorf("tools: %s", got)
		}
		h.Set.OpenSession("s", withProfiles("reader"), nil, false)
		for _, name := range []string{"put", "text", "none", "unknown"} {
			h.sendTo("a", "tools/call", `{"name":"`+name+`"}`).wantForbidden(t, name)
		}
		h.sendTo("a", "tools/call", `{"name":"get"}`)
		wantToolCalls(t, p, "get")
	})
}

// A changed profile takes effect for calls that are queued, and in the views.
func TestReloadOfAProfileAppliesInPlace(t *testing.T) {
	o := withMaxInFlight(1, time.Minute)
	o.Profiles = map[string]config.Profile{"p": {}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("open", "secret")
		synctest.Wait()
		who := withProfiles("p")
		h.Set.OpenSession("s", who, nil, false)
		before := h.ViewFor(who)
		first, _ := h.callTool("s", "open")
		ids := wantToolCalls(t, p, "open")
		queued := h.sendTo("a", "tools/call", `{"name":"secret"}`)
		next := change(o.Backends...)
		next.Profiles = map[string]config.Profile{"p": toolsProfile("open")}
		<-h.startApply(next)
		select {
		case <-before.Changed:
		default:
			t.Error("clients are not notified")
		}
		if got := h.namesFor(who); got != "open" {
			t.Errorf("tools: %s", got)
		}
		p.SendResult(ids[0], "{}")
		first.wantResult(t)
		queued.wantForbidden(t, "queued")
		next.Profiles = nil
		<-h.startApply(next)
		if got := h.namesFor(who); got != "" {
			t.Errorf("tools of a removed profile: %s", got)
		}
		h.sendTo("a", "tools/call", `{"name":"open"}`).wantForbidden(t, "removed profile")
	})
}

func TestUpdatesOfHiddenResourcesAreDropped(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"),
		Profiles: map[string]config.Profile{"p": {}}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup()
		h.Set.OpenSession("one", withProfiles("p"), nil, false)
		h.Set.OpenSession("two", nil, nil, false)
		for _, session := range []string{"one", "two"} {
			h.subscribe(session, "a", "x:a", true)
			p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
		}
		synctest.Wait()
		next := change(o.Backends...)
		next.Profiles = map[string]config.Profile{
			"p": {Resources: config.Filter{Deny: []string{"x:*"}}}}
		<-h.startApply(next)
		p.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`)
		h.clients.want(t, "two notified by a: notifications/resources/updated")
	})
}

func TestWhyUnavailableHidesBackendsOfOtherProfiles(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a", "b"), Profiles: map[string]config.Profile{
		"a": {Backends: []string{"a"}}}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.nextProcess("b").Close()
		synctest.Wait()
		if name, err := h.WhyUnavailable(nil, "b__t"); name != "b" || err == nil {
			t.Errorf("without a profile: %q, %v", name, err)
		}
		if name, err := h.WhyUnavailable(withProfiles("a"), "b__t"); name != "" || err != nil {
			t.Errorf("with a profile: %q, %v", name, err)
		}
		if v := h.ViewFor(withProfiles("a")); !v.Complete || v.MayResolveLater("b__t") {
			t.Error("the view waits for a hidden backend")
		}
	})
}

// Lists that depend on the profile must not be shared between clients.
func TestListsArePrivateIfThereAreProfiles(t *testing.T) {
	for _, profiles := range []map[string]config.Profile{nil, {"p": {}}} {
		o := backends.Options{Backends: legacyBackends("a"), Profiles: profiles}
		withHarness(t, o, func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			synctest.Wait()
			if v := h.View(); v.Private != (profiles != nil) {
				t.Errorf("%d profiles: private is %v", len(profiles), v.Private)
			}
		})
	}
}

func TestViewsOfProfilesAreBounded(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), Profiles: map[string]config.Profile{}}
	for i := range 3 * backends.MaxAudiences {
		o.Profiles[fmt.Sprint("p", i)] = toolsProfile("t")
	}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t", "u")
		synctest.Wait()
		for range 2 {
			for name := range o.Profiles {
				if got := h.namesFor(withProfiles(name)); got != "t" {
					t.Errorf("%s: %s", name, got)
				}
			}
		}
		if n := h.Audiences(); n != backends.MaxAudiences {
			t.Errorf("%d views are kept", n)
		}
		time.Sleep(2 * time.Hour)
		h.ViewFor(withProfiles("p1"))
		<-h.startApply(backends.Change{Backends: o.Backends, Profiles: o.Profiles})
		h.Publish()
		if n := h.Audiences(); n != 1 {
			t.Errorf("%d views are kept after two hours", n)
		}
	})
}

// A client whose profiles do not permit a tool gets no error about the approval of the tool. A call
// of a permitted tool that is not approved is refused.
func TestHiddenToolsOfProfiles(t *testing.T) {
	one := legacyBackends("a")
	one[0].Tools.Pin = config.PinBlock
	o := backends.Options{Backends: one, Profiles: map[string]config.Profile{
		"few": toolsProfile("mine")}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("mine", "theirs")
		synctest.Wait()
		who := withProfiles("few")
		h.Set.OpenSession("s", who, nil, false)
		defer h.CloseSession("s")
		if backend, err := h.NotApproved(who, "theirs"); err != nil {
			t.Errorf("%s: %v", backend, err)
		}
		if _, err := h.NotApproved(who, "a__mine"); err == nil {
			t.Error("no reason for a permitted tool that is hidden")
		}
		if got := h.namesFor(who); got != "" {
			t.Errorf("listed %s", got)
		}
		h.sendTo("a", "tools/call", `{"name":"theirs"}`).wantForbidden(t, "a tool of others")
		h.sendTo("a", "tools/call", `{"name":"mine"}`).wantNotApproved(t,
			strings.ReplaceAll(newReason, "tool new", "tool mine"))
	})
}

// A backend that the profile of a client hides does not get the log level of this client, not even
// when it starts later.
func TestProfiles_HiddenBackendGetsNoLogLevel(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a", "b"), Profiles: map[string]config.Profile{
		"b": {Backends: []string{"b"}}}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.Set.OpenSession("s", withProfiles("b"), nil, false)
		h.SetLevel("s", "debug", func() {})
		hidden, visible := h.nextProcess("a"), h.nextProcess("b")
		hidden.ServeHandshake(loggingServer)
		visible.ServeHandshake(loggingServer)
		visible.SendResult(visible.WantRequest("logging/setLevel").ID(), "{}")
		hidden.ServeToolsList(mcptest.ToolsResult("t")) // the first request after the handshake
	})
}
