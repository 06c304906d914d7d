package backends_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// Capabilities that the only client declares, in different sessions.
const (
	canSample = `{"sampling":{}}`
	canElicit = `{"elicitation":{}}`
)

// serveInitialize plays the server's side of the handshake, and checks the declared capabilities.
func serveInitialize(t *testing.T, p *mcptest.Peer, can string) {
	t.Helper()
	m := p.WantRequest("initialize")
	if got := declaredIn(m); got != can {
		t.Errorf("declared %s, want %s", got, can)
	}
	p.SendResult(m.ID(), loggingServer)
	p.WantNotification("notifications/initialized")
}

// withOtherCapabilities runs a test in which the server of the single client's shared connection
// received the capabilities of session "one"; the next process receives those of session "two".
func withOtherCapabilities(t *testing.T, test func(t *testing.T, h *harness, p *mcptest.Peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{Backends: legacyBackends("a"), SingleClient: true})
		h.OpenSession("one", []byte(canSample), true)
		h.Start()
		p := h.nextProcess("a")
		serveInitialize(t, p, canSample)
		h.serveLists(p)
		synctest.Wait()
		h.OpenSession("two", []byte(canElicit), true)
		test(t, h, p)
	})
}

// respondEmpty takes a request, checks its URI, and responds with {}.
func respondEmpty(t *testing.T, p *mcptest.Peer, method, uri string) {
	t.Helper()
	m := p.WantRequest(method)
	if value, _ := wire.Lookup(m.Part(wire.PartParams), "uri"); wire.Unquote(value) != uri {
		t.Errorf("got %s, want %s", m.Raw(), uri)
	}
	p.SendResult(m.ID(), "{}")
}

// Queued calls are sent over a connection whose handshake declared the capabilities of their
// session.
func TestQueuedCallsUseHandshakeOfTheirSession(t *testing.T) {
	t.Run("at the start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, backends.Options{Backends: legacyBackends("a"), SingleClient: true})
			h.OpenSession("one", []byte(canSample), true)
			h.Start()
			one := h.callFor("one", "a")
			p := h.nextProcess("a")
			hello := p.WantRequest("initialize")
			h.OpenSession("two", []byte(canElicit), true)
			two := h.callFor("two", "a")
			p.SendResult(hello.ID(), loggingServer)
			p.WantNotification("notifications/initialized")
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			one.wantResult(t)
			own := h.nextProcess("a")
			serveInitialize(t, own, canElicit)
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			two.wantResult(t)
			h.serveLists(p)
			p.WantNothing()
		})
	})
	t.Run("at a restart", func(t *testing.T) {
		withOtherCapabilities(t, func(t *testing.T, h *harness, p *mcptest.Peer) {
			p.Close()
			synctest.Wait()
			one, two := h.callFor("one", "a"), h.callFor("two", "a")
			p = h.nextProcess("a")
			serveInitialize(t, p, canElicit)
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			two.wantResult(t)
			own := h.nextProcess("a")
			serveInitialize(t, own, canSample)
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			one.wantResult(t)
			h.serveLists(p)
			p.WantNothing()
		})
	})
	t.Run("same capabilities again", func(t *testing.T) {
		withOtherCapabilities(t, func(t *testing.T, h *harness, p *mcptest.Peer) {
			h.CloseSession("two")
			p.Close()
			synctest.Wait()
			one := h.callFor("one", "a")
			p = h.nextProcess("a")
			serveInitialize(t, p, canSample)
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			one.wantResult(t)
			if n := len(h.dialTimes("a")); n != 2 {
				t.Errorf("dialled %d times", n)
			}
		})
	})
	// The backend was modern when the calls were queued, so its handshake declared no capabilities.
	t.Run("the generation has changed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t,
				backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...),
					SingleClient: true})
			h.OpenSession("one", []byte(canSample), true)
			h.OpenSession("two", []byte(canElicit), true)
			h.Start()
			p := h.nextProcess("a")
			p.ServeDiscover("")
			p.ServeToolsList(mcptest.ToolsResult("t"))
			p.Close()
			synctest.Wait()
			one, two := h.callFor("one", "a"), h.callFor("two", "a")
			p = h.nextProcess("a")
			p.SendError(p.WantRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
			serveInitialize(t, p, canElicit)
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			two.wantResult(t)
			own := h.nextProcess("a")
			serveInitialize(t, own, canSample)
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			one.wantResult(t)
		})
	})
	// The backend supports both generations and was probed before there was a session. The
	// generation of the session is used.
	t.Run("both generations", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t,
				backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...),
					SingleClient: true})
			h.OpenSession("stateless", []byte(canSample), true)
			h.Start()
			p := h.nextProcess("a")
			p.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `["2026-07-28"]`,
				`["2026-07-28","2025-11-25"]`, 1))
			p.ServeToolsList(mcptest.ToolsResult("t"))
			synctest.Wait()
			h.OpenSession("session", []byte(canElicit), false)
			p.Close()
			synctest.Wait()
			stateless, session := h.callFor("stateless", "a"), h.callFor("session", "a")
			p = h.nextProcess("a")
			serveInitialize(t, p, canElicit)
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			session.wantResult(t)
			own := h.nextProcess("a")
			serveInitialize(t, own, canSample)
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			stateless.wantResult(t)
			if n := len(h.dialTimes("a")); n != 3 {
				t.Errorf("dialled %d times", n)
			}
		})
	})
}

// A subscription belongs to the connection over which it was last made, and is restored there.
func TestSubscriptionStaysOnItsConnection(t *testing.T) {
	// held checks that the subscription is restored on the next connection of session one, that it
	// ends there, and that the shared connection receives nothing.
	held := func(t *testing.T, h *harness, shared, own *mcptest.Peer) {
		t.Helper()
		own.Close()
		own = h.nextProcess("a")
		own.ServeHandshake(loggingServer)
		respondEmpty(t, own, "resources/subscribe", "x:y")
		// an update may have been missed
		h.clients.want(t, "one notified by a: notifications/resources/updated")
		off := h.subscribe("one", "a", "x:y", false)
		respondEmpty(t, own, "resources/unsubscribe", "x:y")
		off.wantResult(t)
		shared.WantNothing()
		n := len(h.dialTimes("a"))
		own.Close()
		time.Sleep(time.Hour)
		if len(h.dialTimes("a")) != n {
			t.Error("the session's connection stays up without demand")
		}
	}
	t.Run("queued on the shared connection", func(t *testing.T) {
		withOtherCapabilities(t, func(t *testing.T, h *harness, p *mcptest.Peer) {
			p.Close()
			synctest.Wait()
			on := h.subscribe("one", "a", "x:y", true)
			p = h.nextProcess("a")
			serveInitialize(t, p, canElicit)
			own := h.nextProcess("a")
			serveInitialize(t, own, canSample)
			respondEmpty(t, own, "resources/subscribe", "x:y")
			on.wantResult(t)
			h.serveLists(p)
			held(t, h, p, own)
		})
	})
	t.Run("made over the shared connection", func(t *testing.T) {
		withOtherCapabilities(t, func(t *testing.T, h *harness, p *mcptest.Peer) {
			on := h.subscribe("one", "a", "x:y", true)
			respondEmpty(t, p, "resources/subscribe", "x:y")
			on.wantResult(t)
			p.Close()
			p = h.nextProcess("a")
			serveInitialize(t, p, canElicit)
			respondEmpty(t, p, "resources/subscribe", "x:y")
			h.serveLists(p)
			h.clients.want(t, "one notified by a: notifications/resources/updated")

			call := h.callFor("one", "a")
			own := h.nextProcess("a")
			serveInitialize(t, own, canSample)
			respondEmpty(t, own, "resources/subscribe", "x:y")
			own.SendResult(own.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
			respondEmpty(t, p, "resources/unsubscribe", "x:y")
			h.clients.want(t, "one notified by a: notifications/resources/updated")
			held(t, h, p, own)
		})
	})
	t.Run("per-session connections", func(t *testing.T) {
		each := legacyBackends("a")
		each[0].Sharing = "session"
		withHarness(t, backends.Options{Backends: withUnknownGeneration(each...)},
			func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.ServeDiscover(discoverWith(`{"resources":{"subscribe":true}}`))
				p.WantRequest("tools/list")
				p.Close()
				h.OpenSession("one", []byte(canSample), false)
				synctest.Wait()
				on := h.subscribe("one", "a", "x:y", true)
				p = h.nextProcess("a")
				p.SendError(p.WantRequest("server/discover").ID(),
					`{"code":-32601,"message":"no"}`)
				serveInitialize(t, p, "{}")
				own := h.nextProcess("a")
				serveInitialize(t, own, canSample)
				respondEmpty(t, own, "resources/subscribe", "x:y")
				on.wantResult(t)
				h.serveLists(p)
				held(t, h, p, own)
			})
	})
}

// A subscription of the shared connection ends there, even if the session has, or would get, its
// own connection.
func TestUnsubscribeFindsSharedConnection(t *testing.T) {
	t.Run("no connection yet", func(t *testing.T) {
		withOtherCapabilities(t, func(t *testing.T, h *harness, p *mcptest.Peer) {
			on := h.subscribe("one", "a", "x:y", true)
			respondEmpty(t, p, "resources/subscribe", "x:y")
			on.wantResult(t)
			p.Close()
			p = h.nextProcess("a")
			serveInitialize(t, p, canElicit)
			respondEmpty(t, p, "resources/subscribe", "x:y")
			h.serveLists(p)
			off := h.subscribe("one", "a", "x:y", false)
			respondEmpty(t, p, "resources/unsubscribe", "x:y")
			off.wantResult(t)
			if n := len(h.dialTimes("a")); n != 2 {
				t.Errorf("a process was started for the unsubscribe request: %d", n)
			}
		})
	})
	t.Run("while it is down", func(t *testing.T) {
		withOtherCapabilities(t, func(t *testing.T, h *harness, p *mcptest.Peer) {
			on := h.subscribe("one", "a", "x:y", true)
			respondEmpty(t, p, "resources/subscribe", "x:y")
			on.wantResult(t)
			p.Close()
			synctest.Wait()
			off := h.subscribe("one", "a", "x:y", false)
			p = h.nextProcess("a")
			serveInitialize(t, p, canElicit)
			respondEmpty(t, p, "resources/unsubscribe", "x:y")
			off.wantResult(t)
			h.serveLists(p)
			p.WantNothing()
			if n := len(h.dialTimes("a")); n != 2 {
				t.Errorf("dialled %d times", n)
			}
		})
	})
	// A subscribe call that is queued on the shared connection when the session gets its own
	// connection is not sent after an unsubscribe, even if the session has subscribed again over
	// its own connection.
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("it waits, again: ", again), func(t *testing.T) {
			each := legacyBackends("a")
			each[0].Sharing = "session"
			withHarness(t, backends.Options{Backends: withUnknownGeneration(each...)},
				func(t *testing.T, h *harness) {
					p := h.nextProcess("a")
					p.ServeDiscover(discoverWith(`{"resources":{"subscribe":true}}`))
					p.WantRequest("tools/list")
					p.Close()
					h.OpenSession("one", []byte(canSample), false)
					synctest.Wait()
					on := []*callRecorder{h.subscribe("one", "a", "x:y", true)}
					p = h.nextProcess("a")
					p.SendError(p.WantRequest("server/discover").ID(),
						`{"code":-32601,"message":"no"}`)
					hello := p.WantRequest("initialize")
					// from now on the session needs its own connection
					call := h.callFor("one", "a")
					own := h.nextProcess("a")
					serveInitialize(t, own, canSample)
					own.SendResult(own.WantRequest("tools/call").ID(), "{}")
					call.wantResult(t)
					if again {
						on = append(on, h.subscribe("one", "a", "x:y", true))
						respondEmpty(t, own, "resources/subscribe", "x:y")
					}
					off := h.subscribe("one", "a", "x:y", false)
					if again {
						respondEmpty(t, own, "resources/unsubscribe", "x:y")
					}
					off.wantResult(t)
					p.SendResult(hello.ID(), loggingServer)
					p.WantNotification("notifications/initialized")
					for _, one := range on {
						one.wantResult(t)
					}
					h.serveLists(p)
					p.WantNothing()
					own.WantNothing()
				})
		})
	}
}
