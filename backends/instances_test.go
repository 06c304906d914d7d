package backends_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/wire"
)

// ownLogins returns backends with a login for each principal.
func ownLogins(names ...string) []config.Backend {
	all := legacyBackends(names...)
	for i := range all {
		all[i].OAuth.Per = config.PerPrincipal
	}
	return all
}

func named(name string) *principal.Principal {
	return principal.FromToken(principal.TokenIdentity{Name: name})
}

// connect opens a session of a principal. A process starts for each principal that has none.
func (h *harness) connect(session string, p *principal.Principal) {
	h.StartFor(p)
	h.Set.OpenSession(session, p, nil, false)
}

// toolCall sends a tools/call of a session.
func (h *harness) toolCall(backend, session, tool string) *callRecorder {
	c := &callRecorder{}
	h.SendCall(backend, session,
		wire.NewRequest("0", "tools/call", fmt.Appendf(nil, `{"name":%q}`, tool)), c)
	return c
}

func wantDisconnected(t *testing.T, p *mcptest.Peer) {
	t.Helper()
	synctest.Wait()
	if !p.Disconnected() {
		t.Error("the process is still connected")
	}
}

// serve responds to the next call that a process gets, and checks the name of the tool.
func serve(t *testing.T, p *mcptest.Peer, tool string) {
	t.Helper()
	m := p.WantRequest("tools/call")
	if m.Name() != tool {
		t.Errorf("the call is for %s, want %s", m.Name(), tool)
	}
	p.SendResult(m.ID(), `{"content":[]}`)
}

// alice and bob have their own processes. Neither sees the tools of the other, and calls reach only
// the own process, whatever the name of the tool.
func TestInstances_EachPrincipalHasItsOwn(t *testing.T) {
	withHarness(t, backends.Options{Backends: append(ownLogins("own"), legacyBackends("all")...)},
		func(t *testing.T, h *harness) {
			h.nextProcess("all").ServeStartup("common")
			alice, bob := named("alice"), named("bob")
			h.connect("a1", alice)
			ofAlice := h.nextProcess("own")
			ofAlice.ServeStartup("secret", "same")
			h.connect("b1", bob)
			ofBob := h.nextProcess("own")
			ofBob.ServeStartup("same", "other")
			h.connect("a2", alice)
			synctest.Wait()
			for who, want := range map[*principal.Principal]string{
				alice: "common same secret", bob: "common other same", nil: "common",
				named("carol"): "common",
			} {
				if who == nil {
					h.wantNames("common")
				} else if got := h.namesFor(who); got != want {
					t.Errorf("%s sees %s, want %s", who.Name(), got, want)
				}
			}
			for session, p := range map[string]*mcptest.Peer{
				"a1": ofAlice, "a2": ofAlice, "b1": ofBob,
			} {
				c := h.toolCall("own", session, "secret")
				serve(t, p, "secret")
				c.wantResult(t)
			}
			ofAlice.WantNothing()
			ofBob.WantNothing()
			for who, known := range map[*principal.Principal]bool{alice: true, bob: false} {
				if _, ok := h.ViewFor(who).Lookup(catalog.Tools, "secret"); ok != known {
					t.Errorf("%s finds the tool: %v", who.Name(), ok)
				}
			}
			// carol has got a process by the request for a list, and a client without
			// authentication gets one too
			if n := len(h.dialTimes("own")); n != 3 {
				t.Errorf("%d processes", n)
			}
			h.StartFor(nil)
			if n := len(h.dialTimes("own")); n != 4 {
				t.Errorf("%d processes", n)
			}
		})
}

// A call of a session that is not known, or is over, is not sent: the access of no principal may be
// used for it.
func TestInstances_CallWithoutASessionIsNotSent(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			h.connect("a1", named("alice"))
			p := h.nextProcess("own")
			p.ServeStartup("t")
			h.CloseSession("a1")
			for _, session := range []string{"a1", "never", ""} {
				h.toolCall("own", session, "t").want(t, "the session is over")
			}
			p.WantNothing()
		})
}

// The lists of a new principal wait for its connection, for at most catalog.wait.
func TestInstances_ListsWaitForTheConnection(t *testing.T) {
	withHarness(t, backends.Options{Backends: append(ownLogins("own"), legacyBackends("all")...)},
		func(t *testing.T, h *harness) {
			h.nextProcess("all").ServeStartup("common")
			time.Sleep(time.Hour)
			alice := named("alice")
			v := h.StartFor(alice)
			if v.Settled || !h.View().Settled {
				t.Error("the lists do not wait, or other clients wait too")
			}
			p := h.nextProcess("own")
			p.ServeStartup("t")
			<-v.Changed
			if v = h.ViewFor(alice); !v.Settled || h.namesFor(alice) != "common t" {
				t.Errorf("settled %v: %s", v.Settled, h.namesFor(alice))
			}
			began, bob := time.Now(), named("bob")
			for v = h.StartFor(bob); !v.Settled; v = h.ViewFor(bob) {
				<-v.Changed
			}
			if took := time.Since(began); took != 3*time.Second || h.namesFor(bob) != "common" {
				t.Errorf("after %v: %s", took, h.namesFor(bob))
			}
		})
}

// A change of one principal's list changes the view of no other principal.
func TestInstances_ChangesOfOthersAreNotSeen(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			alice, bob := named("alice"), named("bob")
			h.connect("a1", alice)
			ofAlice := h.nextProcess("own")
			ofAlice.ServeStartup("one")
			h.connect("b1", bob)
			h.nextProcess("own").ServeStartup("two")
			synctest.Wait()
			before := h.ViewFor(bob)
			ofAlice.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			ofAlice.ServeToolsList(mcptest.ToolsResult("three"))
			synctest.Wait()
			if got := h.namesFor(alice); got != "three" {
				t.Errorf("alice sees %s", got)
			}
			if after := h.ViewFor(bob); after.Snapshot != before.Snapshot {
				t.Error("bob has another list")
			}
		})
}

// Without sessions, the connection of a principal ends after some minutes. Another request opens a
// new one.
func TestInstances_IdleOnesEnd(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			alice := named("alice")
			h.connect("a1", alice)
			h.connect("a2", alice)
			p := h.nextProcess("own")
			p.ServeStartup("t")
			h.CloseSession("a1")
			time.Sleep(time.Hour)
			c := h.toolCall("own", "a2", "t")
			serve(t, p, "t")
			c.wantResult(t)
			time.Sleep(4 * time.Minute) // so that the end is between two checks
			h.CloseSession("a2")
			time.Sleep(9 * time.Minute)
			if p.WantNothing(); p.Disconnected() {
				t.Error("the connection has ended too early")
			}
			time.Sleep(7 * time.Minute)
			wantDisconnected(t, p)
			if n := len(h.dialTimes("own")); n != 1 {
				t.Errorf("%d connections were opened", n)
			}
			h.connect("a3", alice)
			h.nextProcess("own").ServeStartup("t")
			synctest.Wait()
			if got := h.namesFor(alice); got != "t" {
				t.Errorf("alice sees %q", got)
			}
		})
}

// The number of instances is bounded. A further principal takes the place of one without sessions.
func TestInstances_AreBounded(t *testing.T) {
	const limit = 256
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			for i := range limit {
				name := fmt.Sprint("user", i)
				h.connect(name, named(name))
				h.nextProcess("own") // it never responds
			}
			h.connect("more", named("more"))
			want := "it has connections for 256 principals already"
			h.toolCall("own", "more", "t").want(t, want)
			h.CloseSession("user7")
			h.connect("more", named("more"))
			h.nextProcess("own").ServeStartup("t")
			synctest.Wait()
			if got := h.namesFor(named("more")); got != "t" {
				t.Errorf("the further principal sees %q", got)
			}
			h.connect("user7", named("user7"))
			h.toolCall("own", "user7", "t").want(t, want)
		})
}

// Filters that a reload changes apply to all principals at once, in place. A changed backend gets
// new connections for the principals; calls in flight end at the old ones.
func TestInstances_Reload(t *testing.T) {
	all := ownLogins("own")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		alice, bob := named("alice"), named("bob")
		h.connect("a1", alice)
		ofAlice := h.nextProcess("own")
		ofAlice.ServeStartup("one", "two")
		h.connect("b1", bob)
		ofBob := h.nextProcess("own")
		ofBob.ServeStartup("one", "three")
		synctest.Wait()

		changed := ownLogins("own")
		changed[0].Tools.Deny = []string{"one"}
		<-h.startApply(change(changed...))
		if a, b := h.namesFor(alice), h.namesFor(bob); a != "two" || b != "three" {
			t.Errorf("alice sees %s, bob %s", a, b)
		}
		h.toolCall("own", "b1", "one").wantErrorPrefix(t, "the configuration does not permit it")
		ofBob.WantNothing()

		inFlight := h.toolCall("own", "a1", "two")
		m := ofAlice.WantRequest("tools/call")
		changed[0].Args = []string{"-v"}
		<-h.startApply(change(changed...))
		h.ViewFor(alice)
		newOfAlice := h.nextProcess("own")
		newOfAlice.ServeStartup("two", "four")
		synctest.Wait()
		if got := h.namesFor(alice); got != "four two" {
			t.Errorf("alice sees %s", got)
		}
		wantDisconnected(t, ofBob)
		ofAlice.SendResult(m.ID(), `{"content":[]}`)
		inFlight.wantResult(t)
		wantDisconnected(t, ofAlice)
		c := h.toolCall("own", "a1", "four")
		serve(t, newOfAlice, "four")
		c.wantResult(t)
	})
}

// The log names the principal of a connection.
func TestInstances_LogNamesThePrincipal(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			h.connect("a1", named("alice"))
			p := h.nextProcess("own")
			p.ServeStartup("t")
			p.Close()
			synctest.Wait()
			if len(h.log.Lines("backend ended", "backend=own", "principal=alice")) != 1 {
				t.Errorf("the log: %q", h.log.Warnings())
			}
		})
}
