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

// What the only client says that it can do, at one time and at another.
const (
	canSample = `{"sampling":{}}`
	canElicit = `{"elicitation":{}}`
)

// welcome plays a backend's part of the handshake, in which it must be told this.
func welcome(t *testing.T, p *mcptest.Peer, can string) {
	t.Helper()
	m := p.HandleRequest("initialize")
	if got := capabilitiesIn(m); got != can {
		t.Errorf("told of %s, want %s", got, can)
	}
	p.SendResult(m.ID(), logger)
	p.HandleNotification("notifications/initialized")
}

// turned runs a test in which the shared line of the only client's backend was told of what
// its session "one" can do; when that process ends, the next is told of that of "two".
func turned(t *testing.T, test func(t *testing.T, h *house, p *mcptest.Peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, backends.Options{Backends: plain("a"), SingleClient: true})
		h.OpenSession("one", []byte(canSample), true)
		h.Start()
		p := h.next("a")
		welcome(t, p, canSample)
		h.lists(p)
		synctest.Wait()
		h.OpenSession("two", []byte(canElicit), true)
		test(t, h, p)
	})
}

// answer takes a request and answers it with {}.
func answer(t *testing.T, p *mcptest.Peer, method, uri string) {
	t.Helper()
	m := p.HandleRequest(method)
	if value, _ := wire.Lookup(m.Part(wire.PartParams), "uri"); wire.Unquote(value) != uri {
		t.Errorf("got %s, want %s", m.Raw(), uri)
	}
	p.SendResult(m.ID(), "{}")
}

// Calls that wait for a backend go over a handshake that was made with what their own
// client can do, whatever that is when the backend is there.
func TestCallsWaitForAHandshakeThatIsTheirs(t *testing.T) {
	t.Run("at the start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, backends.Options{Backends: plain("a"), SingleClient: true})
			h.OpenSession("one", []byte(canSample), true)
			h.Start()
			one := h.callFor("one", "a")
			p := h.next("a")
			hello := p.HandleRequest("initialize")
			h.OpenSession("two", []byte(canElicit), true)
			two := h.callFor("two", "a")
			p.SendResult(hello.ID(), logger)
			p.HandleNotification("notifications/initialized")
			p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
			one.ok(t)
			own := h.next("a")
			welcome(t, own, canElicit)
			own.SendResult(own.HandleRequest("tools/call").ID(), "{}")
			two.ok(t)
			h.lists(p)
			p.WantNothing()
		})
	})
	t.Run("at a restart", func(t *testing.T) {
		turned(t, func(t *testing.T, h *house, p *mcptest.Peer) {
			p.Close()
			synctest.Wait()
			one, two := h.callFor("one", "a"), h.callFor("two", "a")
			p = h.next("a")
			welcome(t, p, canElicit)
			p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
			two.ok(t)
			own := h.next("a")
			welcome(t, own, canSample)
			own.SendResult(own.HandleRequest("tools/call").ID(), "{}")
			one.ok(t)
			h.lists(p)
			p.WantNothing()
		})
	})
	t.Run("the same again", func(t *testing.T) {
		turned(t, func(t *testing.T, h *house, p *mcptest.Peer) {
			h.CloseSession("two")
			p.Close()
			synctest.Wait()
			one := h.callFor("one", "a")
			p = h.next("a")
			welcome(t, p, canSample)
			p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
			one.ok(t)
			if n := len(h.dials("a")); n != 2 {
				t.Errorf("dialled %d times", n)
			}
		})
	})
	// It was stateless when the calls began to wait, so that nobody was told anything.
	t.Run("the era has changed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, backends.Options{Backends: unasked(plain("a")...), SingleClient: true})
			h.OpenSession("one", []byte(canSample), true)
			h.OpenSession("two", []byte(canElicit), true)
			h.Start()
			p := h.next("a")
			p.ServeDiscover("")
			p.ServeToolsList(mcptest.ToolsResult("t"))
			p.Close()
			synctest.Wait()
			one, two := h.callFor("one", "a"), h.callFor("two", "a")
			p = h.next("a")
			p.SendError(p.HandleRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
			welcome(t, p, canElicit)
			p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
			two.ok(t)
			own := h.next("a")
			welcome(t, own, canSample)
			own.SendResult(own.HandleRequest("tools/call").ID(), "{}")
			one.ok(t)
		})
	})
	// It was asked before there was a session, is of both eras, and spoken to in the session's own.
	t.Run("of both eras", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, backends.Options{Backends: unasked(plain("a")...), SingleClient: true})
			h.OpenSession("guest", []byte(canSample), true)
			h.Start()
			p := h.next("a")
			p.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `["2026-07-28"]`, `["2026-07-28","2025-11-25"]`, 1))
			p.ServeToolsList(mcptest.ToolsResult("t"))
			synctest.Wait()
			h.OpenSession("session", []byte(canElicit), false)
			p.Close()
			synctest.Wait()
			guest, session := h.callFor("guest", "a"), h.callFor("session", "a")
			p = h.next("a")
			welcome(t, p, canElicit)
			p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
			session.ok(t)
			own := h.next("a")
			welcome(t, own, canSample)
			own.SendResult(own.HandleRequest("tools/call").ID(), "{}")
			guest.ok(t)
			if n := len(h.dials("a")); n != 3 {
				t.Errorf("dialled %d times", n)
			}
		})
	})
}

// A subscription is held by the line over which it was made at last, and is restored there.
func TestASubscriptionIsHeldWhereItIsMade(t *testing.T) {
	// held checks that the process of one's own line has the subscription, that the next one
	// gets it, too, and that it ends there.
	held := func(t *testing.T, h *house, shared, own *mcptest.Peer) {
		t.Helper()
		own.Close()
		own = h.next("a")
		own.ServeHandshake(logger)
		answer(t, own, "resources/subscribe", "x:y")
		h.ear.want(t, "one told by a: notifications/resources/updated") // one may have been missed
		off := h.subscribe("one", "a", "x:y", false)
		answer(t, own, "resources/unsubscribe", "x:y")
		off.ok(t)
		shared.WantNothing()
		n := len(h.dials("a"))
		own.Close()
		time.Sleep(time.Hour)
		if len(h.dials("a")) != n {
			t.Error("the session's line is kept up for nothing")
		}
	}
	t.Run("it waited for the shared one", func(t *testing.T) {
		turned(t, func(t *testing.T, h *house, p *mcptest.Peer) {
			p.Close()
			synctest.Wait()
			on := h.subscribe("one", "a", "x:y", true)
			p = h.next("a")
			welcome(t, p, canElicit)
			own := h.next("a")
			welcome(t, own, canSample)
			answer(t, own, "resources/subscribe", "x:y")
			on.ok(t)
			h.lists(p)
			held(t, h, p, own)
		})
	})
	t.Run("it was made over the shared one", func(t *testing.T) {
		turned(t, func(t *testing.T, h *house, p *mcptest.Peer) {
			on := h.subscribe("one", "a", "x:y", true)
			answer(t, p, "resources/subscribe", "x:y")
			on.ok(t)
			p.Close()
			p = h.next("a")
			welcome(t, p, canElicit)
			answer(t, p, "resources/subscribe", "x:y")
			h.lists(p)
			h.ear.want(t, "one told by a: notifications/resources/updated")

			call := h.callFor("one", "a")
			own := h.next("a")
			welcome(t, own, canSample)
			answer(t, own, "resources/subscribe", "x:y")
			own.SendResult(own.HandleRequest("tools/call").ID(), "{}")
			call.ok(t)
			answer(t, p, "resources/unsubscribe", "x:y")
			h.ear.want(t, "one told by a: notifications/resources/updated")
			held(t, h, p, own)
		})
	})
	t.Run("each session has a line", func(t *testing.T) {
		each := plain("a")
		each[0].Sharing = "session"
		inHouse(t, backends.Options{Backends: unasked(each...)}, func(t *testing.T, h *house) {
			p := h.next("a")
			p.ServeDiscover(discovered(`{"resources":{"subscribe":true}}`))
			p.HandleRequest("tools/list")
			p.Close()
			h.OpenSession("one", []byte(canSample), false)
			synctest.Wait()
			on := h.subscribe("one", "a", "x:y", true)
			p = h.next("a")
			p.SendError(p.HandleRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
			welcome(t, p, "{}")
			own := h.next("a")
			welcome(t, own, canSample)
			answer(t, own, "resources/subscribe", "x:y")
			on.ok(t)
			h.lists(p)
			held(t, h, p, own)
		})
	})
}

// What is held by the shared line though the session has, or would have, one of its own, ends
// at the shared one.
func TestASubscriptionEndsWhereItIsHeld(t *testing.T) {
	t.Run("there is no line yet", func(t *testing.T) {
		turned(t, func(t *testing.T, h *house, p *mcptest.Peer) {
			on := h.subscribe("one", "a", "x:y", true)
			answer(t, p, "resources/subscribe", "x:y")
			on.ok(t)
			p.Close()
			p = h.next("a")
			welcome(t, p, canElicit)
			answer(t, p, "resources/subscribe", "x:y")
			h.lists(p)
			off := h.subscribe("one", "a", "x:y", false)
			answer(t, p, "resources/unsubscribe", "x:y")
			off.ok(t)
			if n := len(h.dials("a")); n != 2 {
				t.Errorf("a process was started to be told of the end: %d", n)
			}
		})
	})
	t.Run("while it is down", func(t *testing.T) {
		turned(t, func(t *testing.T, h *house, p *mcptest.Peer) {
			on := h.subscribe("one", "a", "x:y", true)
			answer(t, p, "resources/subscribe", "x:y")
			on.ok(t)
			p.Close()
			synctest.Wait()
			off := h.subscribe("one", "a", "x:y", false)
			p = h.next("a")
			welcome(t, p, canElicit)
			answer(t, p, "resources/unsubscribe", "x:y")
			off.ok(t)
			h.lists(p)
			p.WantNothing()
			if n := len(h.dials("a")); n != 2 {
				t.Errorf("dialled %d times", n)
			}
		})
	})
	// What waits for the shared line when the session gets its own is not sent any more, be
	// it that it was asked for again.
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("it waits, again: ", again), func(t *testing.T) {
			each := plain("a")
			each[0].Sharing = "session"
			inHouse(t, backends.Options{Backends: unasked(each...)}, func(t *testing.T, h *house) {
				p := h.next("a")
				p.ServeDiscover(discovered(`{"resources":{"subscribe":true}}`))
				p.HandleRequest("tools/list")
				p.Close()
				h.OpenSession("one", []byte(canSample), false)
				synctest.Wait()
				on := []*caller{h.subscribe("one", "a", "x:y", true)}
				p = h.next("a")
				p.SendError(p.HandleRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
				hello := p.HandleRequest("initialize")
				call := h.callFor("one", "a") // from now on it is to have one
				own := h.next("a")
				welcome(t, own, canSample)
				own.SendResult(own.HandleRequest("tools/call").ID(), "{}")
				call.ok(t)
				if again {
					on = append(on, h.subscribe("one", "a", "x:y", true))
					answer(t, own, "resources/subscribe", "x:y")
				}
				off := h.subscribe("one", "a", "x:y", false)
				if again {
					answer(t, own, "resources/unsubscribe", "x:y")
				}
				off.ok(t)
				p.SendResult(hello.ID(), logger)
				p.HandleNotification("notifications/initialized")
				for _, one := range on {
					one.ok(t)
				}
				h.lists(p)
				p.WantNothing()
				own.WantNothing()
			})
		})
	}
}
