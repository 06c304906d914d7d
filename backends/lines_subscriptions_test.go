package backends_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

func (h *house) subscribe(session, backend, uri string, on bool) *caller {
	method := "resources/unsubscribe"
	if on {
		method = "resources/subscribe"
	}
	a := &caller{}
	m := wire.NewRequest("7", method, wire.Encode(map[string]string{"uri": uri}))
	h.Subscribe(backend, uri, on, m, &peer.Call{Handler: a, SessionID: session})
	return a
}

func TestSubscriptionsOverASharedConnection(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeHandshake(logger)
		h.lists(p)
		for _, session := range []string{"one", "two", "three"} {
			h.OpenSession(session, nil, false)
		}
		for _, session := range []string{"one", "two"} {
			a := h.subscribe(session, "a", "file:///dir", true)
			p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
			a.ok(t)
		}
		refused := h.subscribe("three", "a", "file:///dir", true)
		p.SendError(p.HandleRequest("resources/subscribe").ID(), `{"code":-32603,"message":"no"}`)
		refused.ok(t)
		note := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///dir/part"}}`
		p.Send(note)
		h.ear.want(t, "one told by a: notifications/resources/updated", "two told by a: notifications/resources/updated")

		h.subscribe("one", "a", "file:///dir", false).ok(t) // two still wants it
		p.WantNothing()
		p.Send(note)
		h.ear.want(t, "two told by a: notifications/resources/updated")

		// The next process is told, and an update may have been missed.
		p.Close()
		p = h.next("a")
		p.ServeHandshake(logger)
		p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
		h.lists(p)
		h.ear.want(t, "two told by a: notifications/resources/updated")

		h.CloseSession("two")
		if m := p.HandleRequest("resources/unsubscribe"); !strings.Contains(string(m.Raw()), "file:///dir") {
			t.Errorf("got %s", m.Raw())
		}
		p.Send(note)
		h.ear.want(t)
	})
}

func TestSubscriptionsKeepAnOwnConnectionUp(t *testing.T) {
	inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
		shared := h.next("a")
		shared.ServeHandshake(logger)
		h.lists(shared)
		h.OpenSession("one", nil, false)
		a := h.subscribe("one", "a", "x:y", true)
		p := h.next("a")
		p.ServeHandshake(logger)
		p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
		a.ok(t)
		p.Close()
		p = h.next("a")
		p.ServeHandshake(logger)
		p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
		h.ear.want(t, "one told by a: notifications/resources/updated")
		p.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:other"}}`)
		h.ear.want(t, "one told by a: notifications/resources/updated")
		off := h.subscribe("one", "a", "x:y", false)
		p.SendResult(p.HandleRequest("resources/unsubscribe").ID(), "{}")
		off.ok(t)
		p.Close()
		time.Sleep(time.Hour)
		if n := len(h.dials("a")); n != 3 {
			t.Errorf("dialled %d times", n)
		}
	})
}

// NOTIF-11: the level goes to the backends that log, and to those that come later.
func TestNOTIF11_LogLevels(t *testing.T) {
	level := func(t *testing.T, p *mcptest.Peer, want string) {
		t.Helper()
		m := p.HandleRequest("logging/setLevel")
		if value, _ := wire.Lookup(m.Part(wire.PartParams), "level"); wire.Unquote(value) != want {
			t.Errorf("level %s, want %s", value, want)
		}
		p.SendResult(m.ID(), "{}")
	}
	inHouse(t, backends.Options{Backends: append(plain("a", "mute"), remote("own"))}, func(t *testing.T, h *house) {
		a, mute, lists := h.next("a"), h.next("mute"), h.next("own")
		a.ServeHandshake(logger)
		h.lists(a)
		mute.ServeStartup("t")
		lists.ServeHandshake(logger)
		h.lists(lists)
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		set := func(session, to string) chan struct{} {
			done := make(chan struct{})
			h.SetLevel(session, to, func() { close(done) })
			return done
		}
		done := set("one", "error")
		synctest.Wait()
		select {
		case <-done:
			t.Error("done before the backend has answered")
		default:
		}
		level(t, a, "error")
		<-done
		done = set("two", "debug")
		level(t, a, "debug")
		<-done
		<-set("one", "warning") // two wants more
		a.WantNothing()
		mute.WantNothing()
		lists.WantNothing()

		h.callFor("one", "own")
		own := h.next("own")
		own.ServeHandshake(logger)
		level(t, own, "warning")
		own.HandleRequest("tools/call")

		a.Close()
		a = h.next("a")
		a.ServeHandshake(logger)
		level(t, a, "debug")
		h.lists(a)
		h.CloseSession("two")
		level(t, a, "warning")

		began := time.Now()
		<-set("one", "alert") // nobody answers
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("waited %v", d)
		}
	})
}

// A session that leaves does not take along what another has just subscribed to.
func TestASubscriptionUnderWayCounts(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeHandshake(logger)
		h.lists(p)
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		h.subscribe("one", "a", "x:y", true)
		p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
		two := h.subscribe("two", "a", "x:y", true)
		under := p.HandleRequest("resources/subscribe")
		h.CloseSession("one")
		p.SendResult(under.ID(), "{}")
		two.ok(t)
		p.WantNothing()

		// The other way round: the request to stop is under way when somebody subscribes.
		off := h.subscribe("two", "a", "x:y", false)
		stop := p.HandleRequest("resources/unsubscribe")
		h.OpenSession("three", nil, false)
		three := h.subscribe("three", "a", "x:y", true)
		p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
		p.SendResult(stop.ID(), "{}")
		off.ok(t)
		three.ok(t)
		p.HandleRequest("resources/subscribe") // once more, for it may have come first
	})
}

// A level that is set while a connection is made comes before the calls that wait.
func TestNoCallOvertakesALevel(t *testing.T) {
	inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
		shared := h.next("a")
		shared.ServeHandshake(logger)
		h.lists(shared)
		h.OpenSession("one", nil, false)
		h.SetLevel("one", "error", func() {})
		h.callFor("one", "a")
		p := h.next("a")
		p.ServeHandshake(logger)
		first := p.HandleRequest("logging/setLevel")
		h.SetLevel("one", "debug", func() {})
		h.callFor("one", "a")
		p.SendResult(first.ID(), "{}")
		if m := p.HandleRequest("logging/setLevel"); !strings.Contains(string(m.Raw()), `"debug"`) {
			t.Errorf("got %s", m.Raw())
		}
		p.HandleRequest("tools/call")
		p.HandleRequest("tools/call")
	})
}

// A session that subscribes once more and is refused keeps what it has.
func TestARefusedSubscriptionTakesNoneAway(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeHandshake(logger)
		h.lists(p)
		h.OpenSession("one", nil, false)
		h.subscribe("one", "a", "x:y", true)
		p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
		h.subscribe("one", "a", "x:y", true)
		p.SendError(p.HandleRequest("resources/subscribe").ID(), `{"code":-32603,"message":"twice"}`)
		p.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`)
		h.ear.want(t, "one told by a: notifications/resources/updated")
	})
}
