package backends_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

const changeCapabilities = `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`

// A modernServer is a modern backend that announces changes.
type modernServer struct {
	*mcptest.Peer
	h *harness
	t *testing.T
}

// startModernServer plays the start of a modernServer up to the response to server/discover.
func (h *harness) startModernServer(t *testing.T) *modernServer {
	t.Helper()
	b := &modernServer{h.nextProcess("a"), h, t}
	b.ServeDiscover(discoverWith(changeCapabilities))
	return b
}

// acceptListen takes the next subscriptions/listen, checks that it requests changes of the tools
// and updates of these URIs, and acknowledges all URIs except those in without.
func (b *modernServer) acceptListen(uris []string, without ...string) wire.ID {
	b.t.Helper()
	id := b.takeListen(uris)
	var agreed []string
	for _, uri := range uris {
		if !strings.Contains(strings.Join(without, " "), uri) {
			agreed = append(agreed, uri)
		}
	}
	b.acknowledge(id, agreed)
	return id
}

func (b *modernServer) takeListen(uris []string) wire.ID {
	b.t.Helper()
	m := b.WantRequest("subscriptions/listen")
	want := map[string]any{"toolsListChanged": true}
	if uris != nil {
		want["resourceSubscriptions"] = uris
	}
	filter, _ := wire.Lookup(m.Part(wire.PartParams), "notifications")
	if string(filter) != string(wire.Encode(want)) || meta(m, "clientCapabilities") != "{}" ||
		meta(m, "protocolVersion") != `"2026-07-28"` {
		b.t.Errorf("the listen contains %s, want %s", m.Raw(), wire.Encode(want))
	}
	return m.ID()
}

func (b *modernServer) acknowledge(id wire.ID, uris []string) {
	b.Sendf(
		`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":%s,"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`,
		wire.Encode(map[string]any{"toolsListChanged": true, "resourceSubscriptions": uris}), id)
}

func (b *modernServer) notifyOn(id wire.ID, method, params string) {
	b.Sendf(
		`{"jsonrpc":"2.0","method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, method, params, id)
}

// serveLists responds to the requests for all lists.
func (b *modernServer) serveLists(tools ...string) {
	b.t.Helper()
	b.ServeToolsList(mcptest.ToolsResult(tools...))
	b.SendResult(b.WantRequest("resources/list").ID(), `{"resources":[]}`)
	b.SendResult(b.WantRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
}

const changedTools = "notifications/tools/list_changed"

// There is one listen; its notifications are handled like any other notification.
func TestListen_ChangesOfModernBackend(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			b := h.startModernServer(t)
			id := b.acceptListen(nil)
			b.serveLists("t")
			h.wantNames("t")
			b.notifyOn(id, changedTools, "")
			b.ServeToolsList(mcptest.ToolsResult("u"))
			h.wantNames("u")
			time.Sleep(24 * time.Hour) // the listen has no timeout
			b.WantNothing()

			// After an orderly end, the listen is replaced, and changes may have been missed.
			b.SendResult(id, `{"resultType":"complete"}`)
			began := time.Now()
			b.acceptListen(nil)
			if took := time.Since(began); took > 250*time.Millisecond {
				t.Errorf("the new listen took %v", took)
			}
			b.serveLists("v")
			h.wantNames("v")

			// The next process also gets a listen.
			b.Exit("exit 1", "")
			b = h.startModernServer(t)
			b.acceptListen(nil)
			b.serveLists("w")
			h.wantNames("w")
			if warnings := h.log.Warnings(); len(warnings) != 1 {
				t.Errorf("logged %q", warnings)
			}
		})
}

// After a server has ended or refused a listen, the listen is retried with growing pauses. If the
// server does not know the method, there is no further listen.
func TestListen_FailureBacksOff(t *testing.T) {
	count := func(t *testing.T, end func(b *modernServer, id wire.ID)) (n int) {
		withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
			func(t *testing.T, h *harness) {
				b := h.startModernServer(t)
				end(b, b.takeListen(nil))
				b.serveLists("t")
				for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(
					10 * time.Millisecond) {
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
				if warnings := h.log.Warnings(); len(warnings) > 1 {
					t.Errorf("logged %q", warnings)
				}
				h.wantNames("t")
			})
		return n
	}
	for name, end := range map[string]func(b *modernServer, id wire.ID){
		"ended": func(b *modernServer, id wire.ID) {
			b.acknowledge(id, nil)
			b.SendResult(id, `{"resultType":"complete"}`)
		},
		"refused": func(b *modernServer,
			id wire.ID) {
			b.SendError(id, `{"code":-32603,"message":"no"}`)
		},
		"result": func(b *modernServer, id wire.ID) { b.SendResult(id, `{}`) },
		"lost": func(b *modernServer, id wire.ID) {
			b.FailRead(&transport.CallLostError{ID: id, Err: fmt.Errorf("503")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if n := count(t, end); n < 20 || n > 40 {
				t.Errorf("%d listens in ten minutes", n)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		if n := count(t,
			func(b *modernServer,
				id wire.ID) {
				b.SendError(id, `{"code":-32601,"message":"no"}`)
			}); n != 0 {
			t.Errorf("%d further listens", n)
		}
	})
}

// Without an acknowledgement, the listen counts as accepted after ackTimeout. The lists are read
// before that, and once more afterwards.
func TestListen_MissingAcknowledgement(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			b := h.startModernServer(t)
			id := b.takeListen(nil)
			began := time.Now()
			b.serveLists("t")
			if took := time.Since(began); took != time.Second {
				t.Errorf("the lists waited for %v", took)
			}
			b.serveLists("t")
			if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
				t.Errorf("accepted after %v", took)
			}
			b.WantNothing() // the lists are not read a third time
			b.notifyOn(id, changedTools, "")
			b.ServeToolsList(mcptest.ToolsResult("u"))
			h.wantNames("u")
		})
}

// pruneTime is longer than the time for which unused URIs stay in the listen.
const pruneTime = 2 * time.Minute

// Over HTTP the new listen is open before the old one ends, so nothing is missed.
func TestListen_SubscriptionsOverHTTP(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			b := h.startModernServer(t)
			first := b.acceptListen(nil)
			b.serveLists("t")

			one := h.subscribe("one", "a", "x:y", true)
			id := b.takeListen([]string{"x:y"})
			one.want(t, "")
			b.WantNothing()
			b.acknowledge(id, []string{"x:y"})
			one.want(t, result("0", "{}"))
			if m := b.WantNotification("notifications/cancelled"); string(m.RequestID()) != string(
				first) {
				t.Errorf("ended %s", m.Raw())
			}
			// the listen contains it
			h.subscribe("two", "a", "x:y", true).want(t, result("0", "{}"))
			b.WantNothing()
			b.notifyOn(id, "notifications/resources/updated", `"uri":"x:y/z",`)
			h.clients.want(t, "one notified by a: notifications/resources/updated",
				"two notified by a: notifications/resources/updated")

			h.subscribe("one", "a", "x:y", false).want(t, result("0", "{}"))
			b.WantNothing()
			b.notifyOn(id, "notifications/resources/updated", `"uri":"x:y",`)
			h.clients.want(t, "two notified by a: notifications/resources/updated")
			h.CloseSession("two")
			b.WantNothing() // the listen is replaced by a smaller one only after pruneTime
			time.Sleep(pruneTime)
			b.acceptListen(nil)
			b.WantNotification("notifications/cancelled")
			b.WantNothing()
		})
}

// A server on stdio may support only one listen: the old listen ends first, and all changes that
// may have been missed are assumed. Many changes of the URIs cause one replacement.
func TestListen_SubscriptionsOverPipe(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			b := h.startModernServer(t)
			first := b.acceptListen(nil)
			b.serveLists("t")
			var all []*callRecorder
			for _, uri := range []string{"x:1", "x:2", "x:3"} {
				all = append(all, h.subscribe("one", "a", uri, true))
			}
			cancelled := b.WantNotification("notifications/cancelled")
			if string(cancelled.RequestID()) != string(first) {
				t.Errorf("ended %s", cancelled.Raw())
			}
			b.WantNothing()
			b.SendResult(first, `{"resultType":"complete"}`)
			// Subscribe requests during the end of the old listen may need another listen.
			uris := []string{"x:1", "x:2", "x:3"}
			m := b.WantRequest("subscriptions/listen")
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
				if len(all[0].results) > 0 {
					all[0].want(t, result("0", "{}"))
					all = all[1:]
				}
			}
			h.wantNames("u")
			h.clients.mu.Lock()
			updates := len(h.clients.messages)
			h.clients.mu.Unlock()
			if updates < 3 {
				t.Errorf("%d updates, although three may have been missed", updates)
			}
		})
}

// A server on stdio ends a listen by notifications/cancelled. Over HTTP, where it closes the stream
// instead, the notification ends nothing.
func TestListen_CancelledByTheServer(t *testing.T) {
	for _, c := range []struct {
		name    string
		backend config.Backend
		ends    bool
	}{{"stdio", legacyBackends("a")[0], true}, {"HTTP", perSessionBackend("a"), false}} {
		t.Run(c.name, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: modernBackends(c.backend)},
				func(t *testing.T, h *harness) {
					b := h.startModernServer(t)
					id := b.acceptListen(nil)
					b.serveLists("t")
					h.wantNames("t")
					b.Sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled",`+
						`"params":{"requestId":%s}}`, id)
					if c.ends {
						b.acceptListen(nil)
						b.serveLists("t")
						return
					}
					time.Sleep(10 * time.Minute)
					b.WantNothing()
					b.notifyOn(id, "notifications/tools/list_changed", "")
					b.ServeToolsList(mcptest.ToolsResult("u"))
					h.wantNames("u")
				})
		})
	}
}

// A server that does not end its listen after the cancellation delays the new listen by one second.
func TestListen_EndTimeout(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			b := h.startModernServer(t)
			b.acceptListen(nil)
			b.serveLists("t")
			one := h.subscribe("one", "a", "x:y", true)
			b.WantNotification("notifications/cancelled")
			began := time.Now()
			b.WantNotification("notifications/cancelled")
			b.acceptListen([]string{"x:y"})
			one.want(t, result("0", "{}"))
			if took := time.Since(began); took != time.Second {
				t.Errorf("the new listen took %v", took)
			}
			b.serveLists("t")
		})
}

// A URI that the server refuses, or does not acknowledge, is refused only to the session that
// has subscribed to it.
func TestListen_RefusedURI(t *testing.T) {
	start := func(t *testing.T, test func(h *harness, b *modernServer)) {
		withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
			func(t *testing.T, h *harness) {
				h.OpenSession("one", nil, false)
				h.OpenSession("two", nil, false)
				b := h.startModernServer(t)
				b.acceptListen(nil)
				b.serveLists("t")
				good := h.subscribe("one", "a", "x:good", true)
				b.acceptListen([]string{"x:good"})
				b.WantNotification("notifications/cancelled")
				good.want(t, result("0", "{}"))
				test(h, b)
			})
	}
	t.Run("by the acknowledgement", func(t *testing.T) {
		start(t, func(h *harness, b *modernServer) {
			bad := h.subscribe("two", "a", "x:bad", true)
			id := b.acceptListen([]string{"x:bad", "x:good"}, "x:bad")
			b.WantNotification("notifications/cancelled")
			bad.want(t,
				`{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Invalid params: the backend sends no updates of this resource"}}`)
			b.notifyOn(id, "notifications/resources/updated", `"uri":"x:bad",`)
			h.clients.want(t)
			b.notifyOn(id, "notifications/resources/updated", `"uri":"x:good",`)
			h.clients.want(t, "one notified by a: notifications/resources/updated")
		})
	})
	t.Run("by an error", func(t *testing.T) {
		start(t, func(h *harness, b *modernServer) {
			bad := h.subscribe("two", "a", "x:bad", true)
			b.SendError(b.takeListen([]string{"x:bad", "x:good"}),
				`{"code":-32602,"message":"no such resource"}`)
			bad.want(t,
				`{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Invalid params: the backend refuses the subscription: no such resource"}}`)
			b.WantNothing() // the existing listen stays open
			b.Send(
				`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:good"}}`)
			h.clients.want(t, "one notified by a: notifications/resources/updated")
		})
	})
	t.Run("server without subscriptions", func(t *testing.T) {
		withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
			func(t *testing.T, h *harness) {
				h.OpenSession("one", nil, false)
				b := &modernServer{h.nextProcess("a"), h, t}
				b.ServeDiscover(discoverWith(`{"resources":{}}`))
				b.serveLists()
				h.subscribe("one", "a", "x:y", true).want(t,
					`{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"Method not found: the backend has no subscriptions"}}`)
				b.WantNothing()
			})
	})
}

// A pending subscribe call can be cancelled, and survives the end of the process.
func TestListen_PendingSubscribe(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			early := h.subscribe("one", "a", "x:early", true) // the backend is not ready
			b := h.startModernServer(t)
			b.acceptListen([]string{"x:early"})
			b.serveLists("t")
			early.want(t, result("0", "{}"))

			back := &callRecorder{}
			pending := h.SendCall("a", "one", wire.NewRequest("7", "resources/subscribe",
				[]byte(`{"uri":"x:back"}`)), back)
			b.takeListen([]string{"x:back", "x:early"})
			pending.Cancel(nil)
			back.want(t, "cancelled")
			b.Exit("exit 1", "")

			synctest.Wait()
			late := h.subscribe("one", "a", "x:late", true)
			b = h.startModernServer(t)
			b.acceptListen([]string{"x:early", "x:late"})
			b.serveLists("t")
			b.serveLists("t") // updates and list changes may have been missed
			late.want(t, result("0", "{}"))
			h.clients.want(t, "one notified by a: notifications/resources/updated",
				"one notified by a: notifications/resources/updated")
		})
}

// A backend that announces no changes gets no listen while there are no subscriptions.
func TestListen_NothingToListenTo(t *testing.T) {
	for _, capabilities := range []string{`{}`, `{"tools":{}}`,
		`{"resources":{"subscribe":true}}`} {
		withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
			func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.ServeDiscover(discoverWith(capabilities))
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

// If one client has several sessions, an update goes to the subscribed sessions.
func TestUpdatesForSingleClient(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...),
		SingleClient: true}, func(t *testing.T, h *harness) {
		h.OpenSession("real", nil, false)
		b := h.startModernServer(t)
		first := b.acceptListen(nil)
		b.serveLists("t")
		b.notifyOn(first, "notifications/resources/updated", `"uri":"x:y",`)
		h.clients.want(t, "real notified by a: notifications/resources/updated")
		h.OpenSession("listens", nil, false)
		on := h.subscribe("listens", "a", "x:y", true)
		b.WantNotification("notifications/cancelled")
		b.SendResult(first, `{"resultType":"complete"}`)
		id := b.acceptListen([]string{"x:y"})
		b.serveLists("t")
		on.want(t, result("0", "{}"))
		// an update may have been missed
		h.clients.want(t, "listens notified by a: notifications/resources/updated")
		b.notifyOn(id, "notifications/resources/updated", `"uri":"x:y",`)
		h.clients.want(t, "listens notified by a: notifications/resources/updated")
	})
}

// A subscription beyond the limit is refused, and the others stay. One session cannot use the whole
// limit.
func TestTooManySubscriptions(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			h.OpenSession("three", nil, false)
			const most = 10_000
			var uris []string
			var all, more []*callRecorder
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
			more = append(more, h.subscribe("two", "a", "x:more", true),
				h.subscribe("three", "a", "x:more", true))
			b := h.startModernServer(t)
			b.acceptListen(uris)
			b.serveLists("t")
			for _, c := range more {
				c.want(t,
					`{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"Too many subscriptions: at most 10000, half of them for one client"}}`)
			}
			for _, c := range all[most-10:] {
				c.want(t, result("0", "{}"))
			}
			b.WantNothing()
		})
}

// The end of a session ends its queued and pending subscribe calls, and a closed session cannot
// subscribe.
func TestSessionEndEndsPendingSubscribes(t *testing.T) {
	c := modernBackends(withIdleStop("a"))
	withHarness(t, backends.Options{Backends: c}, func(t *testing.T, h *harness) {
		const over = "the session is over"
		for _, session := range []string{"one", "two"} {
			h.OpenSession(session, nil, true)
		}
		early := h.subscribe("one", "a", "x:one", true)
		early.want(t, "")
		h.CloseSession("one")
		early.want(t, over)
		h.subscribe("one", "a", "x:one", true).want(t, over)
		p := h.nextProcess("a")
		p.ServeDiscover(discoverWith(changeCapabilities))
		listen := p.WantRequest("subscriptions/listen")
		if strings.Contains(string(listen.Raw()), "x:one") {
			t.Errorf("the listen contains a URI of a closed session: %s", listen.Raw())
		}
		late := h.subscribe("two", "a", "x:two", true)
		late.want(t, "")
		h.CloseSession("two")
		late.want(t, over)
		p.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		h.serveLists(p)
		time.Sleep(5 * time.Minute)
		h.wantState("a", backends.Stopped)
	})
}

// A subscribe request that waits for a listen ends when its session unsubscribes, and the listen
// does not get the URI.
func TestListen_UnsubscribedBeforeAcknowledgement(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			b := h.startModernServer(t)
			first := b.acceptListen(nil)
			b.serveLists("t")
			h.OpenSession("one", nil, false)
			pending := h.subscribe("one", "a", "x:y", true)
			h.subscribe("one", "a", "x:y", false).wantResult(t)
			pending.wantResult(t)
			time.Sleep(time.Minute)
			b.WantNothing()
			// later, while a listen with the URI is being opened
			pending = h.subscribe("one", "a", "x:z", true)
			b.WantNotification("notifications/cancelled")
			b.SendResult(first, `{"resultType":"complete"}`)
			b.takeListen([]string{"x:z"})
			h.subscribe("one", "a", "x:z", false).wantResult(t)
			pending.wantResult(t)
		})
}
