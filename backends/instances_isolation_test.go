package backends_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/wire"
)

// A principal that connects at the moment at which the backends start gets one connection.
func TestInstances_StartedOnceDuringTheStart(t *testing.T) {
	const principals = 40
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{Backends: append(legacyBackends(manyNames(100)...),
			ownLogins("own")...)})
		h.Start()
		var all sync.WaitGroup
		for i := range principals {
			all.Go(func() { h.ViewFor(named(fmt.Sprint("user", i))) })
		}
		all.Wait()
		if n := len(h.dialTimes("own")); n != principals {
			t.Errorf("%d connections for %d principals", n, principals)
		}
	})
}

func manyNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("b", i))
	}
	return names
}

// Calls that are queued while a reload sets oauth.per: principal get the login of their principal,
// not that of the gateway: they wait for a slot, or for the start of the backend.
func TestInstances_QueuedCallsGetTheOwnLoginAfterAReload(t *testing.T) {
	for _, starts := range []bool{false, true} {
		t.Run(fmt.Sprint("the backend is starting: ", starts), func(t *testing.T) {
			before := legacyBackends("own")
			before[0].Sharing, before[0].MaxInFlight = config.SharingShared, 1
			before[0].QueueWait = time.Hour
			withHarness(t, backends.Options{Backends: before}, func(t *testing.T, h *harness) {
				alice := named("alice")
				h.Set.OpenSession("a1", alice, nil, false)
				shared := h.nextProcess("own")
				if !starts {
					shared.ServeStartup("t")
					h.toolCall("own", "a1", "t")
					shared.WantRequest("tools/call") // it gets no response
				}
				queued := h.toolCall("own", "a1", "t")
				queued.want(t, "")
				after := ownLogins("own")
				after[0].Sharing = config.SharingShared
				<-h.startApply(change(after...))
				p := h.nextProcess("own")
				p.ServeHandshake("")
				serve(t, p, "t")
				queued.wantResult(t)
				h.ViewFor(alice) // needs no further connection
				if n := len(h.dialTimes("own")); n != 2 {
					t.Errorf("%d processes: the call has used the login of the gateway", n)
				}
			})
		})
	}
}

// Subscriptions move to the instance of their principal when a reload sets oauth.per: principal.
func TestInstances_SubscriptionsGetTheOwnLoginAfterAReload(t *testing.T) {
	const greeting = `{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"own","version":"1"}}`
	before := legacyBackends("own")
	before[0].Sharing = config.SharingShared
	withHarness(t, backends.Options{Backends: before}, func(t *testing.T, h *harness) {
		h.Set.OpenSession("a1", named("alice"), nil, false)
		shared := h.nextProcess("own")
		shared.ServeHandshake(greeting)
		c := &callRecorder{}
		h.SendCall("own", "a1", wire.NewRequest("0", "resources/subscribe",
			[]byte(`{"uri":"x:a"}`)), c)
		serveUntilSubscribed(shared)
		c.wantResult(t)
		after := ownLogins("own")
		after[0].Sharing = config.SharingShared
		<-h.startApply(change(after...))
		p := h.nextProcess("own")
		p.ServeHandshake(greeting)
		serveUntilSubscribed(p)
		h.ViewFor(named("alice")) // needs no further connection
		if n := len(h.dialTimes("own")); n != 2 {
			t.Errorf("%d processes: the subscription has used the login of the gateway", n)
		}
	})
}

// serveUntilSubscribed responds to requests until resources/subscribe.
func serveUntilSubscribed(p *mcptest.Peer) {
	for {
		m := p.NextMessage()
		p.SendResult(m.ID(), `{"tools":[],"resources":[],"resourceTemplates":[]}`)
		if m.Method() == "resources/subscribe" {
			return
		}
	}
}

// While reloads add and remove a backend with oauth.per: principal, and while several requests of a
// principal come at once, its lists are never those of the login of the gateway, and never settled
// without its own connection.
func TestInstances_ListsDuringReloads(t *testing.T) {
	o := backends.Options{Backends: ownLogins("own"), StateDir: t.TempDir()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.StartFor(nil)
		h.nextProcess("own").ServeStartup("zqofgateway") // it is in the cache now
		h.wantNames("zqofgateway")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 4 {
			who := named(fmt.Sprint("user", i%2))
			all.Go(func() {
				for ctx.Err() == nil {
					v := h.ViewFor(who)
					for _, name := range exposed(v) {
						if strings.Contains(name, "zq") {
							t.Errorf("%s sees %s", who.Name(), name)
						}
					}
					if n := len(v.BackendsWith("tools")); v.Settled && n > 0 {
						t.Errorf("%s has settled lists without its connection: %d", who.Name(), n)
					}
				}
			})
		}
		for i := range 100 {
			next := ownLogins("own")
			next[0].Enabled = i%2 == 1
			if err := h.Apply(ctx, change(next...)); err != nil {
				t.Error(err)
			}
		}
		cancel()
		all.Wait()
	})
}

// The lists of the first client without authentication wait for the backend, although it was not
// started before.
func TestInstances_FirstClientWithoutAuthenticationWaits(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			time.Sleep(time.Hour)
			v := h.StartFor(nil)
			if v.Settled {
				t.Error("the lists do not wait for the backend")
			}
			h.nextProcess("own").ServeStartup("t")
			for ; !v.Settled; v = h.ViewFor(nil) {
				<-v.Changed
			}
			if got := exposed(v); len(got) != 1 {
				t.Errorf("the client got %s", got)
			}
		})
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			time.Sleep(time.Hour)
			began, v := time.Now(), h.StartFor(nil)
			for ; !v.Settled; v = h.ViewFor(nil) {
				<-v.Changed
			}
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("the lists came after %v", took)
			}
		})
}

// A reload of the backend waits until its successor has listed the tools for the clients without
// authentication, so that these do not see an empty list meanwhile.
func TestInstances_ReloadKeepsTheListsWithoutAuthentication(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			h.StartFor(nil)
			h.nextProcess("own").ServeStartup("one")
			h.wantNames("one")
			applied := h.startApply(change(withEnv(ownLogins("own")[0], "changed")))
			next := h.nextProcess("own")
			h.wantNames("one")
			next.ServeStartup("two")
			<-applied
			h.wantNames("two")
		})
}

// The log level of a client is set at the connections of its principal only.
func TestInstances_LogLevelIsOfThePrincipal(t *testing.T) {
	const greeting = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"own","version":"1"}}`
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			start := func(session, name string) *mcptest.Peer {
				h.connect(session, named(name))
				p := h.nextProcess("own")
				p.ServeHandshake(greeting)
				p.ServeToolsList(`{"tools":[]}`)
				return p
			}
			ofAlice := start("a1", "alice")
			ofBob := start("b1", "bob")
			h.SetLevel("b1", "debug", func() {})
			m := ofBob.WantRequest("logging/setLevel")
			ofBob.SendResult(m.ID(), `{}`)
			h.SetLevel("a1", "error", func() {})
			m = ofAlice.WantRequest("logging/setLevel")
			level, _ := wire.Lookup(m.Part(wire.PartParams), "level")
			if string(level) != `"error"` {
				t.Errorf("the level of alice is %s", level)
			}
			ofAlice.SendResult(m.ID(), `{}`)
			ofCarol := start("c1", "carol")
			h.CloseSession("b1")
			ofAlice.WantNothing()
			ofCarol.WantNothing()
		})
}

// An instance that is opened while a reload changes tools.pin has the new value.
func TestInstances_PinOfOneThatIsOpenedDuringAReload(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("own")},
		func(t *testing.T, h *harness) {
			modes := []config.Pin{config.PinOff, config.PinBlock}
			for i := range 40 {
				next := ownLogins("own")
				next[0].Tools.Pin = modes[i%2]
				applied := h.startApply(change(next...))
				h.ViewFor(named(fmt.Sprint("user", i)))
				<-applied
				for _, mode := range h.PinsOf("own") {
					if mode != modes[i%2] {
						t.Fatalf("an instance has tools.pin: %s after the reload to %s", mode,
							modes[i%2])
					}
				}
			}
		})
}

// The command in errors names the principal, unless a shell may interpret the name, or the name
// does not identify the principal.
func TestLoginCommandNamesThePrincipal(t *testing.T) {
	subject := func(id string) *principal.Principal {
		return principal.FromSubject(principal.Subject{Issuer: "https://i", ID: id})
	}
	const page = "open the page of the gateway that a client is asked to open"
	for _, c := range []struct {
		who  *principal.Principal
		want string
	}{
		{nil, "gateway login own"},
		{named("alice"), "gateway login own --principal alice"},
		{subject("alice@example.com"), "gateway login own --principal oauth:alice@example.com"},
		{subject("$(reboot)"), "gateway login own --principal NAME"},
		{subject("`id`;x"), "gateway login own --principal NAME"},
		{subject("Zoë"), "gateway login own --principal NAME"},
		{subject("a\nb"), page},
		{subject("a?b~01234567"), page},
		{principal.FromToken(principal.TokenIdentity{Number: 2}), page},
	} {
		b := ownLogins("own")[0]
		b.Command, b.URL = "", "https://notes.example/mcp"
		set := backends.New(backends.Options{Backends: []config.Backend{b}, LoginAs: c.who,
			Logins: oauthclient.NewStore("", nil), Log: slog.New(slog.DiscardHandler)})
		if got := set.Login("own").Command; got != c.want {
			t.Errorf("%s: %s, want %s", c.who.Name(), got, c.want)
		}
	}
}
