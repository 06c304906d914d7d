package backends_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

func (h *harness) subscribe(session, backend, uri string, subscribe bool) *callRecorder {
	method := "resources/unsubscribe"
	if subscribe {
		method = "resources/subscribe"
	}
	a := &callRecorder{}
	m := wire.NewRequest("7", method, wire.Encode(map[string]string{"uri": uri}))
	h.SendCall(backend, session, m, a)
	return a
}

func TestSubscriptions_SharedConnection(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake(loggingServer)
		h.serveLists(p)
		for _, session := range []string{"one", "two", "three"} {
			h.OpenSession(session, nil, false)
		}
		for _, session := range []string{"one", "two"} {
			a := h.subscribe(session, "a", "file:///dir", true)
			p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
			a.wantResult(t)
		}
		refused := h.subscribe("three", "a", "file:///dir", true)
		p.SendError(p.WantRequest("resources/subscribe").ID(), `{"code":-32603,"message":"no"}`)
		refused.wantResult(t)
		note := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///dir/part"}}`
		p.Send(note)
		h.clients.want(t, "one notified by a: notifications/resources/updated",
			"two notified by a: notifications/resources/updated")

		h.subscribe("one", "a", "file:///dir", false).wantResult(t) // two is still subscribed
		p.WantNothing()
		p.Send(note)
		h.clients.want(t, "two notified by a: notifications/resources/updated")

		// The next process is subscribed, and an update may have been missed.
		p.Close()
		p = h.nextProcess("a")
		p.ServeHandshake(loggingServer)
		p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
		h.serveLists(p)
		h.clients.want(t, "two notified by a: notifications/resources/updated")

		h.CloseSession("two")
		if m := p.WantRequest("resources/unsubscribe"); !strings.Contains(string(m.Raw()),
			"file:///dir") {
			t.Errorf("got %s", m.Raw())
		}
		p.Send(note)
		h.clients.want(t)
	})
}

func TestSubscriptions_KeepSessionConnectionUp(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			shared := h.nextProcess("a")
			shared.ServeHandshake(loggingServer)
			h.serveLists(shared)
			h.OpenSession("one", nil, false)
			a := h.subscribe("one", "a", "x:y", true)
			p := h.nextProcess("a")
			p.ServeHandshake(loggingServer)
			p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
			a.wantResult(t)
			p.Close()
			p = h.nextProcess("a")
			p.ServeHandshake(loggingServer)
			p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
			h.clients.want(t, "one notified by a: notifications/resources/updated")
			p.Send(
				`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:other"}}`)
			h.clients.want(t, "one notified by a: notifications/resources/updated")
			off := h.subscribe("one", "a", "x:y", false)
			p.SendResult(p.WantRequest("resources/unsubscribe").ID(), "{}")
			off.wantResult(t)
			p.Close()
			time.Sleep(time.Hour)
			if n := len(h.dialTimes("a")); n != 3 {
				t.Errorf("dialled %d times", n)
			}
		})
}

// NOTIF-11: the level is sent to the backends with logging, also to backends that start later.
func TestNOTIF11_LogLevels(t *testing.T) {
	level := func(t *testing.T, p *mcptest.Peer, want string) {
		t.Helper()
		m := p.WantRequest("logging/setLevel")
		if value, _ := wire.Lookup(m.Part(wire.PartParams), "level"); wire.Unquote(value) != want {
			t.Errorf("level %s, want %s", value, want)
		}
		p.SendResult(m.ID(), "{}")
	}
	withHarness(t, backends.Options{Backends: append(legacyBackends("a", "mute"),
		perSessionBackend("own"))}, func(t *testing.T, h *harness) {
		a, mute, lists := h.nextProcess("a"), h.nextProcess("mute"), h.nextProcess("own")
		a.ServeHandshake(loggingServer)
		h.serveLists(a)
		mute.ServeStartup("t")
		lists.ServeHandshake(loggingServer)
		h.serveLists(lists)
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
			t.Error("done before the response of the backend")
		default:
		}
		level(t, a, "error")
		<-done
		done = set("two", "debug")
		level(t, a, "debug")
		<-done
		<-set("one", "warning") // session two has a lower level
		a.WantNothing()
		mute.WantNothing()
		lists.WantNothing()

		h.callFor("one", "own")
		own := h.nextProcess("own")
		own.ServeHandshake(loggingServer)
		level(t, own, "warning")
		own.WantRequest("tools/call")

		a.Close()
		a = h.nextProcess("a")
		a.ServeHandshake(loggingServer)
		level(t, a, "debug")
		h.serveLists(a)
		h.CloseSession("two")
		level(t, a, "warning")

		began := time.Now()
		<-set("one", "alert") // the backend sends no response
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("waited %v", d)
		}
	})
}

// The end of a session does not unsubscribe a URI that another session has just subscribed to.
func TestSubscriptions_InFlightSubscribeCounts(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake(loggingServer)
		h.serveLists(p)
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		h.subscribe("one", "a", "x:y", true)
		p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
		two := h.subscribe("two", "a", "x:y", true)
		under := p.WantRequest("resources/subscribe")
		h.CloseSession("one")
		p.SendResult(under.ID(), "{}")
		two.wantResult(t)
		p.WantNothing()

		// In the other order, the unsubscribe request is in flight when another session subscribes.
		off := h.subscribe("two", "a", "x:y", false)
		stop := p.WantRequest("resources/unsubscribe")
		h.OpenSession("three", nil, false)
		three := h.subscribe("three", "a", "x:y", true)
		p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
		p.SendResult(stop.ID(), "{}")
		off.wantResult(t)
		three.wantResult(t)
		// once more, because the first request may have arrived first
		p.WantRequest("resources/subscribe")
	})
}

// A level that is set during a handshake is sent before the queued calls.
func TestNoCallOvertakesLogLevel(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			shared := h.nextProcess("a")
			shared.ServeHandshake(loggingServer)
			h.serveLists(shared)
			h.OpenSession("one", nil, false)
			h.SetLevel("one", "error", func() {})
			h.callFor("one", "a")
			p := h.nextProcess("a")
			p.ServeHandshake(loggingServer)
			first := p.WantRequest("logging/setLevel")
			h.SetLevel("one", "debug", func() {})
			h.callFor("one", "a")
			p.SendResult(first.ID(), "{}")
			if m := p.WantRequest("logging/setLevel"); !strings.Contains(string(m.Raw()),
				`"debug"`) {
				t.Errorf("got %s", m.Raw())
			}
			p.WantRequest("tools/call")
			p.WantRequest("tools/call")
		})
}

// A session that subscribes once more and is refused keeps its subscription.
func TestSubscriptions_RefusalKeepsEarlierOne(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake(loggingServer)
		h.serveLists(p)
		h.OpenSession("one", nil, false)
		h.subscribe("one", "a", "x:y", true)
		p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
		h.subscribe("one", "a", "x:y", true)
		p.SendError(p.WantRequest("resources/subscribe").ID(),
			`{"code":-32603,"message":"twice"}`)
		p.Send(
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`)
		h.clients.want(t, "one notified by a: notifications/resources/updated")
	})
}
