package backends_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// Over HTTP, where a listen is replaced without a gap, an update may have been missed during the
// change of the backend. The session gets an update.
func TestApply_SubscriptionsOfModernSuccessor(t *testing.T) {
	all := modernBackends(perSessionBackend("a"))
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.OpenSession("one", nil, false)
		a := h.startModernServer(t)
		a.acceptListen(nil)
		a.serveLists("t")
		sub := h.subscribe("one", "a", "x:y", true)
		a.acceptListen([]string{"x:y"})
		a.WantNotification("notifications/cancelled")
		sub.wantResult(t)
		h.clients.want(t)
		done := h.startApply(change(withEnv(all[0], "new")))
		next := h.startModernServer(t)
		next.acceptListen(nil)
		next.serveLists("new")
		<-done
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}
		id := next.takeListen([]string{"x:y"})
		h.clients.want(t) // the update must come after the listen
		next.acknowledge(id, []string{"x:y"})
		h.clients.want(t, "one notified by a: notifications/resources/updated")
	})
}

// takeRequest takes the next request of a method, and responds to requests for lists that arrive
// before.
func (b *modernServer) takeRequest(method string) wire.Message {
	b.t.Helper()
	for {
		m := b.NextMessage()
		if m.Method() == method {
			return m
		}
		b.SendResult(m.ID(), `{"tools":[],"resources":[],"resourceTemplates":[]}`)
	}
}

// takeCancel takes the cancellation of the current listen, and responds with the result of that
// listen. On stdio the cancellation arrives before the next listen.
func (b *modernServer) takeCancel() {
	b.t.Helper()
	m := b.WantNotification("notifications/cancelled")
	id, _ := wire.Lookup(m.Part(wire.PartParams), "requestId")
	b.SendResult(wire.ID(id), `{"resultType":"complete"}`)
}

// Subscriptions move with their sessions to the new backend, which is subscribed; the sessions
// get an update.
func TestApply_SubscriptionsMoveToSuccessor(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeHandshake(loggingServer)
		h.serveLists(a)
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		for _, session := range []string{"one", "two"} {
			sub := h.subscribe(session, "a", "x:y", true)
			a.SendResult(a.WantRequest("resources/subscribe").ID(), "{}")
			sub.wantResult(t)
		}
		late := h.subscribe("two", "a", "x:late", true)
		asked := a.WantRequest("resources/subscribe")
		done := h.startApply(change(withEnv(all[0], "new")))
		next := h.nextProcess("a")
		next.ServeHandshake(loggingServer)
		h.serveLists(next)
		<-done
		for range 2 { // one request for each session; the second one is harmless
			m := next.WantRequest("resources/subscribe")
			if uriOf(m) != "x:y" {
				t.Errorf("got %s", m.Raw())
			}
			next.SendResult(m.ID(), "{}")
		}
		synctest.Wait()
		h.clients.wantOnly(t, "one notified by a: notifications/resources/updated",
			"two notified by a: notifications/resources/updated")

		// the subscription counts, although the old server accepted it
		a.SendResult(asked.ID(), "{}")
		late.wantResult(t)
		m := next.WantRequest("resources/subscribe")
		if uriOf(m) != "x:late" {
			t.Errorf("got %s", m.Raw())
		}
		next.SendResult(m.ID(), "{}")
		h.clients.want(t, "two notified by a: notifications/resources/updated")
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}

		next.Send(
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`)
		h.clients.want(t, "one notified by a: notifications/resources/updated",
			"two notified by a: notifications/resources/updated")
		h.subscribe("one", "a", "x:y", false).wantResult(t)
		off := h.subscribe("two", "a", "x:y", false)
		next.SendResult(next.WantRequest("resources/unsubscribe").ID(), "{}")
		off.wantResult(t)
	})
}

func uriOf(m wire.Message) string {
	uri, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	return wire.Unquote(uri)
}

// wantOnly checks that each of these messages has arrived, any number of times, and no other
// message.
func (cr *clientRecorder) wantOnly(t *testing.T, lines ...string) {
	t.Helper()
	cr.mu.Lock()
	defer cr.mu.Unlock()
	got := slices.Compact(slices.Sorted(slices.Values(cr.messages)))
	if !slices.Equal(got, lines) {
		t.Errorf("received %q, want %q", cr.messages, lines)
	}
	cr.messages = nil
}

func TestApply_SubscriptionsOverSessionConnections(t *testing.T) {
	all := []config.Backend{perSessionBackend("a")}
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		shared := h.nextProcess("a")
		shared.ServeHandshake(loggingServer)
		h.serveLists(shared)
		h.OpenSession("one", nil, false)
		sub := h.subscribe("one", "a", "x:y", true)
		p := h.nextProcess("a")
		p.ServeHandshake(loggingServer)
		p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
		sub.wantResult(t)
		done := h.startApply(change(withEnv(all[0], "new")))
		next := h.nextProcess("a")
		next.ServeHandshake(loggingServer)
		h.serveLists(next)
		<-done
		q := h.nextProcess("a") // this connection is opened because of the subscription
		q.ServeHandshake(loggingServer)
		q.SendResult(q.WantRequest("resources/subscribe").ID(), "{}")
		h.clients.want(t, "one notified by a: notifications/resources/updated")
		if !p.Disconnected() || !shared.Disconnected() {
			t.Error("the old backends are still running")
		}
	})
}

// A subscription that arrives while the new server is starting is restored as at any other start.
func TestApply_SubscriptionsWaitForSlowSuccessor(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeHandshake(loggingServer)
		h.serveLists(a)
		h.OpenSession("one", nil, false)
		sub := h.subscribe("one", "a", "x:y", true)
		a.SendResult(a.WantRequest("resources/subscribe").ID(), "{}")
		sub.wantResult(t)
		done := h.startApply(change(withBrokenCommand(all[0])))
		next := h.nextProcess("a")
		<-done
		next.ServeHandshake(loggingServer)
		next.SendResult(next.WantRequest("resources/subscribe").ID(), "{}")
		h.serveLists(next)
		h.clients.want(t, "one notified by a: notifications/resources/updated")
		next.WantNothing()
	})
}

// A subscription that arrives while the state of the new server is restored is sent afterwards.
func TestApply_SubscriptionsDuringReplay(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeHandshake(loggingServer)
		h.serveLists(a)
		h.OpenSession("one", nil, false)
		h.SetLevel("one", "error", func() {})
		a.SendResult(a.WantRequest("logging/setLevel").ID(), "{}")
		sub := h.subscribe("one", "a", "x:y", true)
		a.SendResult(a.WantRequest("resources/subscribe").ID(), "{}")
		sub.wantResult(t)
		done := h.startApply(change(withEnv(all[0], "new")))
		next := h.nextProcess("a")
		time.Sleep(28 * time.Second)
		next.ServeHandshake(loggingServer)
		level := next.WantRequest("logging/setLevel")
		<-done
		next.WantNothing()
		next.SendResult(level.ID(), "{}")
		m := next.NextMessage()
		for m.Method() != "resources/subscribe" {
			m = next.NextMessage()
		}
		h.clients.want(t)
		next.SendResult(m.ID(), "{}")
		h.clients.want(t, "one notified by a: notifications/resources/updated")
	})
}

func TestApply_LogLevelsOfSuccessor(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeHandshake(loggingServer)
		h.serveLists(a)
		h.OpenSession("one", nil, false)
		h.SetLevel("one", "error", func() {})
		a.SendResult(a.WantRequest("logging/setLevel").ID(), "{}")
		done := h.startApply(change(withEnv(all[0], "new")))
		next := h.nextProcess("a")
		next.ServeHandshake(loggingServer)
		request := next.WantRequest("logging/setLevel")
		next.SendResult(request.ID(), "{}")
		next.WantRequest("tools/list") // the level is set while the change waits for this request
		h.SetLevel("one", "info", func() {})
		a.WantRequest("logging/setLevel")
		<-done
		m := next.NextMessage()
		for m.Method() != "logging/setLevel" {
			m = next.NextMessage()
		}
		if level, _ := wire.Lookup(m.Part(wire.PartParams),
			"level"); wire.Unquote(level) != "info" {
			t.Errorf("got %s", m.Raw())
		}
	})
}
