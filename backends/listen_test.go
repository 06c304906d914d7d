package backends_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

const tells = `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`

// A listener is a backend of the stateless era that tells what has changed.
type listener struct {
	*mcptest.Peer
	h *house
	t *testing.T
}

// listens plays the start of one, up to the first list.
func (h *house) listens(t *testing.T) *listener {
	t.Helper()
	b := &listener{h.next("a"), h, t}
	b.ServeDiscover(discovered(tells))
	return b
}

// heard takes the listen that must come next, of the tools and these URIs, and agrees
// to all of them but those of without.
func (b *listener) heard(uris []string, without ...string) wire.ID {
	b.t.Helper()
	id := b.listened(uris)
	var agreed []string
	for _, uri := range uris {
		if !strings.Contains(strings.Join(without, " "), uri) {
			agreed = append(agreed, uri)
		}
	}
	b.acknowledge(id, agreed)
	return id
}

func (b *listener) listened(uris []string) wire.ID {
	b.t.Helper()
	m := b.HandleRequest("subscriptions/listen")
	want := map[string]any{"toolsListChanged": true}
	if uris != nil {
		want["resourceSubscriptions"] = uris
	}
	filter, _ := wire.Lookup(m.Part(wire.PartParams), "notifications")
	if string(filter) != string(wire.Encode(want)) || meta(m, "clientCapabilities") != "{}" || meta(m, "protocolVersion") != `"2026-07-28"` {
		b.t.Errorf("listened to %s, want %s", m.Raw(), wire.Encode(want))
	}
	return m.ID()
}

func (b *listener) acknowledge(id wire.ID, uris []string) {
	b.Sendf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":%s,"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`,
		wire.Encode(map[string]any{"toolsListChanged": true, "resourceSubscriptions": uris}), id)
}

func (b *listener) says(id wire.ID, method, params string) {
	b.Sendf(`{"jsonrpc":"2.0","method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, method, params, id)
}

// lists answers the requests for all lists.
func (b *listener) lists(tools ...string) {
	b.t.Helper()
	b.ServeToolsList(mcptest.ToolsResult(tools...))
	b.SendResult(b.HandleRequest("resources/list").ID(), `{"resources":[]}`)
	b.SendResult(b.HandleRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
}

const changedTools = "notifications/tools/list_changed"

// There is one listen; what is said on it counts as ever.
func TestABackendOfTheStatelessEraIsListenedTo(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(plain("a")...)}, func(t *testing.T, h *house) {
		b := h.listens(t)
		id := b.heard(nil)
		b.lists("t")
		h.wantNames("t")
		b.says(id, changedTools, "")
		b.ServeToolsList(mcptest.ToolsResult("u"))
		h.wantNames("u")
		time.Sleep(24 * time.Hour) // it has no time limit
		b.WantNothing()

		// It ends, in an orderly way: it is made anew, and something may have been missed.
		b.SendResult(id, `{"resultType":"complete"}`)
		began := time.Now()
		b.heard(nil)
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		b.lists("v")
		h.wantNames("v")

		// So it is with the next process.
		b.Exit("exit 1", "")
		b = h.listens(t)
		b.heard(nil)
		b.lists("w")
		h.wantNames("w")
		if loud := h.log.Warnings(); len(loud) != 1 {
			t.Errorf("logged %q", loud)
		}
	})
}

// A server that ends each listen, or refuses it, is asked with growing pauses; one that
// does not know it is not asked again.
func TestAListenThatFails(t *testing.T) {
	count := func(t *testing.T, end func(b *listener, id wire.ID)) (n int) {
		inHouse(t, backends.Options{Backends: modern(plain("a")...)}, func(t *testing.T, h *house) {
			b := h.listens(t)
			end(b, b.listened(nil))
			b.lists("t")
			for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(10 * time.Millisecond) {
				for _, line := range b.TakeAll() {
					m, _ := wire.Parse([]byte(line))
					switch m.Method() {
					case "subscriptions/listen":
						n++
						end(b, m.ID())
					case "tools/list":
						b.SendResult(m.ID(), mcptest.ToolsResult("t"))
					default:
						b.SendResult(m.ID(), `{"resources":[],"resourceTemplates":[]}`)
					}
				}
			}
			if loud := h.log.Warnings(); len(loud) > 1 {
				t.Errorf("logged %q", loud)
			}
			h.wantNames("t")
		})
		return n
	}
	for name, end := range map[string]func(b *listener, id wire.ID){
		"ended":    func(b *listener, id wire.ID) { b.acknowledge(id, nil); b.SendResult(id, `{"resultType":"complete"}`) },
		"refused":  func(b *listener, id wire.ID) { b.SendError(id, `{"code":-32603,"message":"no"}`) },
		"answered": func(b *listener, id wire.ID) { b.SendResult(id, `{}`) },
		"lost":     func(b *listener, id wire.ID) { b.FailRead(&transport.CallLostError{ID: id, Err: fmt.Errorf("503")}) },
	} {
		t.Run(name, func(t *testing.T) {
			if n := count(t, end); n < 20 || n > 40 {
				t.Errorf("listened %d times in ten minutes", n)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		if n := count(t, func(b *listener, id wire.ID) { b.SendError(id, `{"code":-32601,"message":"no"}`) }); n != 0 {
			t.Errorf("listened %d times more", n)
		}
	})
}

// A server that does not acknowledge has agreed, after a while; the lists do not wait so
// long, and are read again.
func TestAListenThatIsNotAcknowledged(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(plain("a")...)}, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		b := h.listens(t)
		id := b.listened(nil)
		began := time.Now()
		b.lists("t")
		if took := time.Since(began); took != time.Second {
			t.Errorf("the lists waited for %v", took)
		}
		b.lists("t")
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("agreed after %v", took)
		}
		b.WantNothing() // each list is read once
		b.says(id, changedTools, "")
		b.ServeToolsList(mcptest.ToolsResult("u"))
		h.wantNames("u")
	})
}

// trimming is how long it takes, at most, until nothing is listened to any more that nobody
// wants to hear.
const trimming = 2 * time.Minute

// Over HTTP the new listen is there before the old one ends, so nothing is missed.
func TestSubscriptionsAreListenedToOverHTTP(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(remote("a"))}, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		b := h.listens(t)
		first := b.heard(nil)
		b.lists("t")

		one := h.subscribe("one", "a", "x:y", true)
		id := b.listened([]string{"x:y"})
		one.want(t, "")
		b.WantNothing()
		b.acknowledge(id, []string{"x:y"})
		one.want(t, result("0", "{}"))
		if m := b.HandleNotification("notifications/cancelled"); string(m.RequestID()) != string(first) {
			t.Errorf("ended %s", m.Raw())
		}
		h.subscribe("two", "a", "x:y", true).want(t, result("0", "{}")) // it is listened to
		b.WantNothing()
		b.says(id, "notifications/resources/updated", `"uri":"x:y/z",`)
		h.ear.want(t, "one told by a: notifications/resources/updated", "two told by a: notifications/resources/updated")

		h.subscribe("one", "a", "x:y", false).want(t, result("0", "{}"))
		b.WantNothing()
		b.says(id, "notifications/resources/updated", `"uri":"x:y",`)
		h.ear.want(t, "two told by a: notifications/resources/updated")
		h.CloseSession("two")
		b.WantNothing() // there is no hurry
		time.Sleep(trimming)
		b.heard(nil)
		b.HandleNotification("notifications/cancelled")
		b.WantNothing()
	})
}

// A server at a pipe may have one listen only: the old one ends first, and what may have
// been missed counts as changed. Many changes are one.
func TestSubscriptionsAreListenedToOverAPipe(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(plain("a")...)}, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		b := h.listens(t)
		first := b.heard(nil)
		b.lists("t")
		var all []*caller
		for _, uri := range []string{"x:1", "x:2", "x:3"} {
			all = append(all, h.subscribe("one", "a", uri, true))
		}
		if m := b.HandleNotification("notifications/cancelled"); string(m.RequestID()) != string(first) {
			t.Errorf("ended %s", m.Raw())
		}
		b.WantNothing()
		b.SendResult(first, `{"resultType":"complete"}`)
		// Those that came while the old one ended may need another.
		uris := []string{"x:1", "x:2", "x:3"}
		m := b.HandleRequest("subscriptions/listen")
		b.acknowledge(m.ID(), uris)
		synctest.Wait()
		for len(all) > 0 {
			for _, line := range b.TakeAll() {
				m, _ := wire.Parse([]byte(line))
				switch m.Method() {
				case "subscriptions/listen":
					b.acknowledge(m.ID(), uris)
				case "notifications/cancelled":
					b.SendResult(m.RequestID(), `{"resultType":"complete"}`)
				case "tools/list":
					b.SendResult(m.ID(), mcptest.ToolsResult("u"))
				case "resources/list":
					b.SendResult(m.ID(), `{"resources":[]}`)
				default:
					b.SendResult(m.ID(), `{"resourceTemplates":[]}`)
				}
			}
			synctest.Wait()
			if len(all[0].ends) > 0 {
				all[0].want(t, result("0", "{}"))
				all = all[1:]
			}
		}
		h.wantNames("u")
		h.ear.mu.Lock()
		heard := len(h.ear.heard)
		h.ear.mu.Unlock()
		if heard < 3 {
			t.Errorf("%d updates, though three may have been missed", heard)
		}
	})
}

// A server that does not end its listen when it is told to does not keep anybody waiting.
func TestAListenThatDoesNotEnd(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(plain("a")...)}, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		b := h.listens(t)
		b.heard(nil)
		b.lists("t")
		one := h.subscribe("one", "a", "x:y", true)
		b.HandleNotification("notifications/cancelled")
		began := time.Now()
		b.HandleNotification("notifications/cancelled")
		b.heard([]string{"x:y"})
		one.want(t, result("0", "{}"))
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		b.lists("t")
	})
}

// A URI that the server does not agree to, or refuses, is refused to who asks for it, and
// to nobody else.
func TestAURIThatIsRefused(t *testing.T) {
	start := func(t *testing.T, test func(h *house, b *listener)) {
		inHouse(t, backends.Options{Backends: modern(remote("a"))}, func(t *testing.T, h *house) {
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			b := h.listens(t)
			b.heard(nil)
			b.lists("t")
			good := h.subscribe("one", "a", "x:good", true)
			b.heard([]string{"x:good"})
			b.HandleNotification("notifications/cancelled")
			good.want(t, result("0", "{}"))
			test(h, b)
		})
	}
	t.Run("by the acknowledgement", func(t *testing.T) {
		start(t, func(h *house, b *listener) {
			bad := h.subscribe("two", "a", "x:bad", true)
			id := b.heard([]string{"x:bad", "x:good"}, "x:bad")
			b.HandleNotification("notifications/cancelled")
			bad.want(t, `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Invalid params: the backend sends no updates of this resource"}}`)
			b.says(id, "notifications/resources/updated", `"uri":"x:bad",`)
			h.ear.want(t)
			b.says(id, "notifications/resources/updated", `"uri":"x:good",`)
			h.ear.want(t, "one told by a: notifications/resources/updated")
		})
	})
	t.Run("by an error", func(t *testing.T) {
		start(t, func(h *house, b *listener) {
			bad := h.subscribe("two", "a", "x:bad", true)
			b.SendError(b.listened([]string{"x:bad", "x:good"}), `{"code":-32602,"message":"no such resource"}`)
			bad.want(t, `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Invalid params: the backend refuses the subscription: no such resource"}}`)
			b.WantNothing() // the listen that there was goes on
			b.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:good"}}`)
			h.ear.want(t, "one told by a: notifications/resources/updated")
		})
	})
	t.Run("because there are none", func(t *testing.T) {
		inHouse(t, backends.Options{Backends: modern(remote("a"))}, func(t *testing.T, h *house) {
			h.OpenSession("one", nil, false)
			b := &listener{h.next("a"), h, t}
			b.ServeDiscover(discovered(`{"resources":{}}`))
			b.lists()
			h.subscribe("one", "a", "x:y", true).want(t, `{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"Method not found: the backend has no subscriptions"}}`)
			b.WantNothing()
		})
	})
}

// A subscription that waits can be taken back, and outlives the process.
func TestASubscriptionThatWaits(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(remote("a"))}, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		early := h.subscribe("one", "a", "x:early", true) // the backend is not up
		b := h.listens(t)
		b.heard([]string{"x:early"})
		b.lists("t")
		early.want(t, result("0", "{}"))

		back := &caller{}
		pending := &peer.Call{Handler: back, SessionID: "one"}
		h.Subscribe("a", "x:back", true, wire.NewRequest("7", "resources/subscribe", []byte(`{"uri":"x:back"}`)), pending)
		b.listened([]string{"x:back", "x:early"})
		h.Cancel("a", pending, nil)
		back.want(t, "cancelled")
		b.Exit("exit 1", "")

		synctest.Wait()
		late := h.subscribe("one", "a", "x:late", true)
		b = h.listens(t)
		b.heard([]string{"x:early", "x:late"})
		b.lists("t")
		b.lists("t") // an update may have been missed, and what not else
		late.want(t, result("0", "{}"))
		h.ear.want(t, "one told by a: notifications/resources/updated", "one told by a: notifications/resources/updated")
	})
}

// A backend of which there is nothing to listen to is not listened to.
func TestNothingToListenTo(t *testing.T) {
	for _, capabilities := range []string{`{}`, `{"tools":{}}`, `{"resources":{"subscribe":true}}`} {
		inHouse(t, backends.Options{Backends: modern(plain("a")...)}, func(t *testing.T, h *house) {
			p := h.next("a")
			p.ServeDiscover(discovered(capabilities))
			p.ServeToolsList(mcptest.ToolsResult("t"))
			synctest.Wait()
			for _, line := range p.TakeAll() {
				if strings.Contains(line, "subscriptions/listen") {
					t.Errorf("%s: got %s", capabilities, line)
				}
			}
		})
	}
}

// With one client that has several sessions an update goes to those that want it.
func TestUpdatesForTheOnlyClient(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(plain("a")...), SingleClient: true}, func(t *testing.T, h *house) {
		h.OpenSession("real", nil, false)
		b := h.listens(t)
		first := b.heard(nil)
		b.lists("t")
		b.says(first, "notifications/resources/updated", `"uri":"x:y",`)
		h.ear.want(t, "real told by a: notifications/resources/updated")
		h.OpenSession("listens", nil, false)
		on := h.subscribe("listens", "a", "x:y", true)
		b.HandleNotification("notifications/cancelled")
		b.SendResult(first, `{"resultType":"complete"}`)
		id := b.heard([]string{"x:y"})
		b.lists("t")
		on.want(t, result("0", "{}"))
		h.ear.want(t, "listens told by a: notifications/resources/updated") // one may have been missed
		b.says(id, "notifications/resources/updated", `"uri":"x:y",`)
		h.ear.want(t, "listens told by a: notifications/resources/updated")
	})
}

// What is beyond the bound is refused, and leaves the rest as it is. One session leaves room for others.
func TestTooManySubscriptions(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(remote("a"))}, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		h.OpenSession("three", nil, false)
		const most = 10_000
		var uris []string
		var all, more []*caller
		for i := range most {
			uri, session := fmt.Sprintf("x:%05d", i), "one"
			if i >= most/2 {
				session = "two"
			}
			if i == most/2 {
				more = append(more, h.subscribe("one", "a", "x:more", true))
			}
			uris = append(uris, uri)
			all = append(all, h.subscribe(session, "a", uri, true))
		}
		more = append(more, h.subscribe("two", "a", "x:more", true), h.subscribe("three", "a", "x:more", true))
		b := h.listens(t)
		b.heard(uris)
		b.lists("t")
		for _, c := range more {
			c.want(t, `{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"Too many subscriptions: at most 10000, half of them for one client"}}`)
		}
		for _, c := range all[most-10:] {
			c.want(t, result("0", "{}"))
		}
		b.WantNothing()
	})
}

// The end of a session ends what waits to subscribe it, for the backend to start or to be
// listened to; and nobody is subscribed who is gone.
func TestTheEndOfASessionEndsItsWaitingSubscriptions(t *testing.T) {
	c := modern(short("a"))
	inHouse(t, backends.Options{Backends: c}, func(t *testing.T, h *house) {
		const over = "the session is over"
		for _, session := range []string{"one", "two"} {
			h.OpenSession(session, nil, true)
		}
		early := h.subscribe("one", "a", "x:one", true)
		early.want(t, "")
		h.CloseSession("one")
		early.want(t, over)
		h.subscribe("one", "a", "x:one", true).want(t, over)
		p := h.next("a")
		p.ServeDiscover(discovered(tells))
		listen := p.HandleRequest("subscriptions/listen")
		if strings.Contains(string(listen.Raw()), "x:one") {
			t.Errorf("it is listened to for who is gone: %s", listen.Raw())
		}
		late := h.subscribe("two", "a", "x:two", true)
		late.want(t, "")
		h.CloseSession("two")
		late.want(t, over)
		p.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		h.lists(p)
		time.Sleep(5 * time.Minute)
		h.wantState("a", backends.Stopped)
	})
}
