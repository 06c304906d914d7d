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

// Over HTTP, where a listen is made anew without a gap, an update may have been missed in the
// change.
func TestApply_SubscriptionsAreListenedToAtTheNewOne(t *testing.T) {
	all := modern(remote("a"))
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		a := h.listens(t)
		a.heard(nil)
		a.lists("t")
		sub := h.subscribe("one", "a", "x:y", true)
		a.heard([]string{"x:y"})
		a.HandleNotification("notifications/cancelled")
		sub.ok(t)
		h.ear.want(t)
		done := h.apply(change(edited(all[0], "new")))
		next := h.listens(t)
		next.heard(nil)
		next.lists("new")
		<-done
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}
		id := next.listened([]string{"x:y"})
		h.ear.want(t) // for what is read at an update must not be older than what is listened to
		next.acknowledge(id, []string{"x:y"})
		h.ear.want(t, "one told by a: notifications/resources/updated")
	})
}

// await takes the next request of a method, and answers those for lists that come before.
func (b *listener) await(method string) wire.Message {
	b.t.Helper()
	for {
		m := b.NextMessage()
		if m.Method() == method {
			return m
		}
		b.SendResult(m.ID(), `{"tools":[],"resources":[],"resourceTemplates":[]}`)
	}
}

// quits takes the end of the listen at hand, which at a pipe comes before another.
func (b *listener) quits() {
	b.t.Helper()
	m := b.HandleNotification("notifications/cancelled")
	id, _ := wire.Lookup(m.Part(wire.PartParams), "requestId")
	b.SendResult(wire.ID(id), `{"resultType":"complete"}`)
}

// Subscriptions go with their sessions to the new backend, which is told of them; the sessions
// that there may be an update.
func TestApply_SubscriptionsGoToTheNewOne(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeHandshake(logger)
		h.lists(a)
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		for _, session := range []string{"one", "two"} {
			sub := h.subscribe(session, "a", "x:y", true)
			a.SendResult(a.HandleRequest("resources/subscribe").ID(), "{}")
			sub.ok(t)
		}
		late := h.subscribe("two", "a", "x:late", true)
		asked := a.HandleRequest("resources/subscribe")
		done := h.apply(change(edited(all[0], "new")))
		next := h.next("a")
		next.ServeHandshake(logger)
		h.lists(next)
		<-done
		for range 2 { // one for each session that comes: it does no harm
			m := next.HandleRequest("resources/subscribe")
			if subjectOf(m) != "x:y" {
				t.Errorf("told %s", m.Raw())
			}
			next.SendResult(m.ID(), "{}")
		}
		synctest.Wait()
		h.ear.wantAll(t, "one told by a: notifications/resources/updated", "two told by a: notifications/resources/updated")

		a.SendResult(asked.ID(), "{}") // it counts although it was agreed to by the old one
		late.ok(t)
		m := next.HandleRequest("resources/subscribe")
		if subjectOf(m) != "x:late" {
			t.Errorf("told %s", m.Raw())
		}
		next.SendResult(m.ID(), "{}")
		h.ear.want(t, "two told by a: notifications/resources/updated")
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}

		next.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`)
		h.ear.want(t, "one told by a: notifications/resources/updated", "two told by a: notifications/resources/updated")
		h.subscribe("one", "a", "x:y", false).ok(t)
		off := h.subscribe("two", "a", "x:y", false)
		next.SendResult(next.HandleRequest("resources/unsubscribe").ID(), "{}")
		off.ok(t)
	})
}

func subjectOf(m wire.Message) string {
	uri, _ := wire.Lookup(m.Part(wire.PartParams), "uri")
	return wire.Unquote(uri)
}

// wantAll wants each of these to have been heard, how often ever, and nothing else.
func (e *ear) wantAll(t *testing.T, lines ...string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := slices.Compact(slices.Sorted(slices.Values(e.heard)))
	if !slices.Equal(heard, lines) {
		t.Errorf("heard %q, want %q", e.heard, lines)
	}
	e.heard = nil
}

func TestApply_SubscriptionsOverOwnConnections(t *testing.T) {
	all := []config.Backend{remote("a")}
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		shared := h.next("a")
		shared.ServeHandshake(logger)
		h.lists(shared)
		h.OpenSession("one", nil, false)
		sub := h.subscribe("one", "a", "x:y", true)
		p := h.next("a")
		p.ServeHandshake(logger)
		p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
		sub.ok(t)
		done := h.apply(change(edited(all[0], "new")))
		next := h.next("a")
		next.ServeHandshake(logger)
		h.lists(next)
		<-done
		q := h.next("a") // it is opened for the subscription's sake
		q.ServeHandshake(logger)
		q.SendResult(q.HandleRequest("resources/subscribe").ID(), "{}")
		h.ear.want(t, "one told by a: notifications/resources/updated")
		if !p.Disconnected() || !shared.Disconnected() {
			t.Error("the old ones go on")
		}
	})
}

// A subscription that comes while the new server is still starting is restored like those of
// any other start.
func TestApply_SubscriptionsWaitForANewOneThatIsSlow(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeHandshake(logger)
		h.lists(a)
		h.OpenSession("one", nil, false)
		sub := h.subscribe("one", "a", "x:y", true)
		a.SendResult(a.HandleRequest("resources/subscribe").ID(), "{}")
		sub.ok(t)
		done := h.apply(change(broken(all[0])))
		next := h.next("a")
		<-done
		next.ServeHandshake(logger)
		next.SendResult(next.HandleRequest("resources/subscribe").ID(), "{}")
		h.lists(next)
		h.ear.want(t, "one told by a: notifications/resources/updated")
		next.WantNothing()
	})
}

// One that comes while the new server is being told of what it is to know already is told when
// that is over.
func TestApply_SubscriptionsComeInTheMiddleOfAStart(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeHandshake(logger)
		h.lists(a)
		h.OpenSession("one", nil, false)
		h.SetLevel("one", "error", func() {})
		a.SendResult(a.HandleRequest("logging/setLevel").ID(), "{}")
		sub := h.subscribe("one", "a", "x:y", true)
		a.SendResult(a.HandleRequest("resources/subscribe").ID(), "{}")
		sub.ok(t)
		done := h.apply(change(edited(all[0], "new")))
		next := h.next("a")
		time.Sleep(28 * time.Second)
		next.ServeHandshake(logger)
		level := next.HandleRequest("logging/setLevel")
		<-done
		next.WantNothing()
		next.SendResult(level.ID(), "{}")
		m := next.NextMessage()
		for m.Method() != "resources/subscribe" {
			m = next.NextMessage()
		}
		h.ear.want(t)
		next.SendResult(m.ID(), "{}")
		h.ear.want(t, "one told by a: notifications/resources/updated")
	})
}

func TestApply_LevelsAreToldToTheNewOne(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeHandshake(logger)
		h.lists(a)
		h.OpenSession("one", nil, false)
		h.SetLevel("one", "error", func() {})
		a.SendResult(a.HandleRequest("logging/setLevel").ID(), "{}")
		done := h.apply(change(edited(all[0], "new")))
		next := h.next("a")
		next.ServeHandshake(logger)
		told := next.HandleRequest("logging/setLevel")
		next.SendResult(told.ID(), "{}")
		next.HandleRequest("tools/list") // and while the change waits for that
		h.SetLevel("one", "info", func() {})
		a.HandleRequest("logging/setLevel")
		<-done
		m := next.NextMessage()
		for m.Method() != "logging/setLevel" {
			m = next.NextMessage()
		}
		if level, _ := wire.Lookup(m.Part(wire.PartParams), "level"); wire.Unquote(level) != "info" {
			t.Errorf("told %s", m.Raw())
		}
	})
}
