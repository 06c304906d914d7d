package backends_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// A clientRecorder is a ClientSide that records the messages of backends, and their sessions.
type clientRecorder struct {
	mu       sync.Mutex
	messages []string // such as "one notified by a: METHOD"
	requests []*peer.Request
}

func (cr *clientRecorder) HandleRequest(backend string, from contract.Attribution,
	r *peer.Request) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.messages = append(cr.messages, from.Session+" requested by "+backend+": "+r.Method())
	cr.requests = append(cr.requests, r)
}

func (cr *clientRecorder) HandleNotification(backend string, from contract.Attribution,
	m wire.Message) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.messages = append(cr.messages, from.Session+" notified by "+backend+": "+m.Method())
}

// want checks that exactly these messages have arrived since the last want, in this order.
func (cr *clientRecorder) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if strings.Join(cr.messages, "\n") != strings.Join(lines, "\n") {
		t.Errorf("received %q\nwant     %q", cr.messages, lines)
	}
	cr.messages = nil
}

// perSessionBackend returns the configuration of a backend with per-session connections.
func perSessionBackend(name string) config.Backend {
	return config.Backend{Name: name, URL: "http://" + name, Enabled: true,
		StartTimeout: time.Minute, Generation: "legacy"}
}

// callFor sends a tools/call of a session.
func (h *harness) callFor(session, backend string) *callRecorder {
	a := &callRecorder{}
	h.SendCall(backend, session, wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)),
		a)
	return a
}

// wantResult checks that the call has a response.
func (c *callRecorder) wantResult(t *testing.T) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.results) != 1 || !strings.HasPrefix(c.results[0], `{"jsonrpc":"2.0","id":`) {
		t.Errorf("the call ended with %q, want a response", c.results)
	}
}

const loggingServer = `{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}`

func (h *harness) serveLists(p *mcptest.Peer) {
	h.t.Helper()
	p.SendResult(p.WantRequest("tools/list").ID(), `{"tools":[]}`)
	p.SendResult(p.WantRequest("resources/list").ID(), `{"resources":[]}`)
	p.SendResult(p.WantRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
}

func declaredIn(m wire.Message) string {
	value, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities")
	return string(value)
}

// S2C-02: the capabilities declared to a backend are exactly those of the only client of the
// connection. None are declared if requests of the backend could not be attributed to a client.
func TestS2C02_DeclaredCapabilities(t *testing.T) {
	const mine = `{"roots":{"listChanged":true},"x-unknown":1.10,"sampling":{}}`
	t.Run("solo", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, backends.Options{SingleClient: true,
				Backends: []config.Backend{perSessionBackend("a"), legacyBackends("b")[0]}})
			h.OpenSession("one", []byte(mine), false)
			h.Start()
			for _, name := range []string{"a", "b"} {
				if m := h.nextProcess(name).WantRequest("initialize"); declaredIn(m) != mine {
					t.Errorf("%s was sent %s", name, m.Raw())
				}
			}
		})
	})
	t.Run("many", func(t *testing.T) {
		shared := perSessionBackend("shared")
		shared.Sharing = "shared"
		each := legacyBackends("each")[0]
		each.Sharing = "session"
		withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a"),
			legacyBackends("b")[0], shared, each}}, func(t *testing.T, h *harness) {
			h.OpenSession("one", []byte(mine), false)
			h.OpenSession("two", nil, false)
			for _, name := range []string{"a", "b", "shared", "each"} {
				if m := h.nextProcess(name).WantRequest("initialize"); declaredIn(m) != "{}" {
					t.Errorf("%s, shared: %s", name, m.Raw())
				}
			}
			for session, want := range map[string]string{"one": mine, "two": "{}"} {
				for _, name := range []string{"a", "b", "shared", "each"} {
					h.callFor(session, name)
				}
				for _, name := range []string{"a", "each"} {
					if m := h.nextProcess(name).WantRequest("initialize"); declaredIn(m) != want {
						t.Errorf("%s, of session %s: %s", name, session, m.Raw())
					}
				}
			}
			for _, name := range []string{"b", "shared"} {
				if n := len(h.dialTimes(name)); n != 1 {
					t.Errorf("%s was dialled %d times", name, n)
				}
			}
		})
	})
}

// CONC-09: the effects of a session on a backend's state do not reach other sessions.
func TestCONC09_PerSessionConnections(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			one, again := h.callFor("one", "a"), h.callFor("one", "a")
			p := h.nextProcess("a")
			two := h.callFor("two", "a")
			q := h.nextProcess("a")
			p.ServeHandshake("")
			q.ServeHandshake("")
			p.SendResult(p.WantRequest("tools/call").ID(), `{"content":[]}`)
			p.SendResult(p.WantRequest("tools/call").ID(), `{"content":[]}`)
			one.wantResult(t)
			again.wantResult(t)
			h.CloseSession("one")
			synctest.Wait()
			if !p.Disconnected() || q.Disconnected() {
				t.Error("the wrong connection ended")
			}
			q.SendResult(q.WantRequest("tools/call").ID(), `{"content":[]}`)
			two.wantResult(t)
			h.callFor("one", "a").want(t, "it is not running: the session is over")
			h.CloseSession("one") // closing the ended session has no effect
			h.CloseSession("two")
			synctest.Wait()
			if n := len(h.dialTimes("a")); n != 3 {
				t.Errorf("dialled %d times", n)
			}
		})
}

func TestSessionConnectionReconnectsOnDemand(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			h.OpenSession("one", nil, false)
			call := h.callFor("one", "a")
			p := h.nextProcess("a")
			p.ServeHandshake("")
			p.WantRequest("tools/call")
			p.Close()
			call.want(t, "it closed the connection")
			time.Sleep(time.Hour)
			if n := len(h.dialTimes("a")); n != 2 {
				t.Errorf("dialled %d times without demand", n)
			}
			call = h.callFor("one", "a")
			p = h.nextProcess("a")
			p.ServeHandshake("")
			p.SendResult(p.WantRequest("tools/call").ID(), `{"content":[]}`)
			call.wantResult(t)
		})
}

// The gateway does not try to reach an unreachable backend for every call.
func TestFailedSessionConnectionBacksOff(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			h.OpenSession("one", nil, false)
			for range 5 {
				call := h.callFor("one", "a")
				p := h.nextProcess("a")
				p.SendError(p.WantRequest("initialize").ID(), `{"code":-32603,"message":"no"}`)
				call.want(t, "it did not start: initialize: no")
				n := len(h.dialTimes("a"))
				h.callFor("one", "a").wantErrorPrefix(t,
					"it is not running: initialize: no; next try in ")
				if len(h.dialTimes("a")) != n {
					t.Error("tried again at once")
				}
				time.Sleep(time.Minute)
			}
		})
}

func TestOriginOfMessages(t *testing.T) {
	say := func(p *mcptest.Peer) {
		p.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		p.Send(
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
	}
	t.Run("per-session connection", func(t *testing.T) {
		withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
			func(t *testing.T, h *harness) {
				shared := h.nextProcess("a")
				shared.ServeStartup("t")
				h.OpenSession("one", nil, false)
				h.callFor("one", "a")
				p := h.nextProcess("a")
				p.ServeHandshake("")
				p.WantRequest("tools/call")
				say(p)
				h.clients.want(t, "one requested by a: roots/list",
					"one notified by a: notifications/message")
				say(shared)
				h.clients.want(t, " requested by a: roots/list",
					" notified by a: notifications/message")
			})
	})
	t.Run("shared connection", func(t *testing.T) {
		withHarness(t, backends.Options{Backends: legacyBackends("a")},
			func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.ServeStartup("t")
				h.OpenSession("one", nil, false)
				h.OpenSession("two", nil, false)
				h.callFor("one", "a")
				h.callFor("one", "a")
				first, second := p.WantRequest("tools/call"), p.WantRequest("tools/call")
				p.SendResult(first.ID(), `{}`)
				p.Send(
					`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
				h.clients.want(t, "one notified by a: notifications/message")
				two := h.callFor("two", "a")
				third := p.WantRequest("tools/call")
				say(p)
				h.clients.want(t, " requested by a: roots/list",
					" notified by a: notifications/message")
				p.SendResult(second.ID(), `{}`)
				p.SendResult(third.ID(), `{}`)
				two.wantResult(t)
				p.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
				h.clients.want(t, " notified by a: notifications/message")
			})
	})
	// Over streamable HTTP a message outside of any call's stream can be older than a response
	// that was received already, on another connection.
	t.Run("shared connection with streams", func(t *testing.T) {
		o := backends.Options{Backends: []config.Backend{perSessionBackend("a")}}
		o.Backends[0].Sharing = "shared"
		withHarness(t, o, func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeStartup("t")
			h.OpenSession("one", nil, false)
			h.callFor("one", "a")
			p.WantRequest("tools/call")
			say(p)
			h.clients.want(t, " requested by a: roots/list",
				" notified by a: notifications/message")
		})
	})
	// A cancelled call may still be running: the session of a message is unknown until the response
	// of that call arrives, or some time has passed.
	t.Run("after a cancel", func(t *testing.T) {
		withHarness(t, backends.Options{Backends: legacyBackends("a")},
			func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.ServeStartup("t")
				h.OpenSession("one", nil, false)
				h.OpenSession("two", nil, false)
				cancelled := h.SendCall("a", "one", wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), &callRecorder{})
				taken := p.WantRequest("tools/call")
				cancelled.Cancel(nil)
				p.WantNotification("notifications/cancelled")
				h.callFor("two", "a")
				p.WantRequest("tools/call")
				note := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
				p.Send(note)
				h.clients.want(t, " notified by a: notifications/message")
				p.SendResult(taken.ID(), `{}`)
				p.Send(note)
				// the message may still concern that call
				h.clients.want(t, " notified by a: notifications/message")
				time.Sleep(3 * time.Second)
				p.Send(note)
				h.clients.want(t, "two notified by a: notifications/message")

				cancelled = h.SendCall("a", "one", wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), &callRecorder{})
				p.WantRequest("tools/call")
				cancelled.Cancel(nil)
				p.WantNotification("notifications/cancelled")
				p.Send(note)
				h.clients.want(t, " notified by a: notifications/message")
				time.Sleep(31 * time.Second)
				p.Send(note)
				h.clients.want(t, "two notified by a: notifications/message")
			})
	})
}

func TestClientNotificationsNeedOwnConnection(t *testing.T) {
	withHarness(t, backends.Options{Backends: append(legacyBackends("a"), perSessionBackend("own"),
		perSessionBackend("unused"))}, func(t *testing.T, h *harness) {
		a, lists := h.nextProcess("a"), h.nextProcess("own")
		a.ServeStartup("t")
		lists.ServeStartup("t")
		h.nextProcess("unused").ServeStartup("t")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		h.callFor("one", "own")
		p := h.nextProcess("own")
		h.callFor("two", "own")
		q := h.nextProcess("own")
		p.ServeHandshake("")
		q.ServeHandshake("")
		p.WantRequest("tools/call")
		q.WantRequest("tools/call")
		h.Notify("one", "", wire.NewNotification("notifications/roots/list_changed", nil))
		p.WantNotification("notifications/roots/list_changed")
		h.Notify("one", "a", wire.NewNotification("notifications/tasks/status", nil))
		h.Notify("one", "own", wire.NewNotification("notifications/tasks/status", nil))
		p.WantNotification("notifications/tasks/status")
		p.WantNothing()
		for _, other := range []*mcptest.Peer{a, lists, q} {
			other.WantNothing()
		}
	})
}

// RES-06: a backend that advertises prompts and does not know prompts/list has none.
func TestRES06_UnknownListIsEmpty(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeHandshake(
			`{"protocolVersion":"2025-11-25","capabilities":{"prompts":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}`)
		tools, prompts := a.WantRequest("tools/list"), a.WantRequest("prompts/list")
		resources, templates := a.WantRequest("resources/list"),
			a.WantRequest("resources/templates/list")
		a.SendError(prompts.ID(), `{"code":-32601,"message":"Method not found"}`)
		a.SendResult(resources.ID(), `{"resources":[{"uri":"x:y","name":"y"}]}`)
		a.SendError(templates.ID(), `{"code":-32603,"message":"oh"}`)
		a.SendResult(tools.ID(), mcptest.ToolsResult("t"))
		h.wantNames("t")
		s := h.status("a")
		if s.Counts != [4]int{1, 0, 1, 0} || s.Err == nil ||
			s.Err.Error() != "resources/templates/list: oh" {
			t.Errorf("status: %+v", s)
		}
		// All lists are read again, because one has failed.
		for _, method := range []string{"tools/list", "prompts/list", "resources/list",
			"resources/templates/list"} {
			a.WantRequest(method)
		}
	})
}

// Only lists that have changed are read again.
func TestChangedListIsReadAgain(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeHandshake(`{"protocolVersion":"2025-11-25","capabilities":{"prompts":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}`)
		a.SendResult(a.WantRequest("tools/list").ID(), mcptest.ToolsResult("t"))
		a.SendResult(a.WantRequest("prompts/list").ID(), `{"prompts":[]}`)
		a.SendResult(a.WantRequest("resources/list").ID(), `{"resources":[]}`)
		a.SendResult(a.WantRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
		synctest.Wait()
		a.Send(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
		a.SendResult(a.WantRequest("prompts/list").ID(), `{"prompts":[{"name":"p"}]}`)
		synctest.Wait()
		if s := h.status("a"); s.Counts != [4]int{1, 1, 0, 0} {
			t.Errorf("status: %+v", s)
		}
		a.Send(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
		a.WantRequest("resources/list")
		a.WantRequest("resources/templates/list")
		a.WantNothing()
	})
}

// Each of two connections to a server that supports only HTTP+SSE falls back to HTTP+SSE.
func TestConnectionsFallBackInParallel(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			shared := h.nextProcess("a")
			h.OpenSession("one", nil, false)
			call := h.callFor("one", "a")
			own := h.nextProcess("a")
			of, and := shared.WantRequest("initialize"), own.WantRequest("initialize")
			shared.FailRead(&transport.CallLostError{ID: of.ID(), Err: httpclient.ErrNotStreamable})
			h.nextProcess("a").ServeStartup("t")
			own.FailRead(&transport.CallLostError{ID: and.ID(), Err: httpclient.ErrNotStreamable})
			again := h.nextProcess("a")
			again.ServeHandshake("")
			again.SendResult(again.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
		})
}

// If the server of a per-session connection announces a changed list, the client is notified when
// the list has been read over the shared connection, even if the list is the same. An earlier
// notification would let the client read the old list. No other client is notified.
func TestClientIsNotifiedAfterRefresh(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			shared := h.nextProcess("a")
			shared.ServeStartup("t")
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			var own [2]*mcptest.Peer
			for i, session := range []string{"one", "two"} {
				call := h.callFor(session, "a")
				own[i] = h.nextProcess("a")
				own[i].ServeHandshake(loggingServer)
				own[i].SendResult(own[i].WantRequest("tools/call").ID(), "{}")
				call.wantResult(t)
			}
			cr := h.clients
			time.Sleep(time.Second)
			own[0].Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			list := shared.WantRequest("tools/list")
			cr.want(t)
			// during the refresh
			own[0].Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			synctest.Wait()
			shared.SendResult(list.ID(), mcptest.ToolsResult("t"))
			cr.want(t, "one notified by a: notifications/tools/list_changed")
			shared.SendResult(shared.WantRequest("tools/list").ID(), mcptest.ToolsResult("t"))
			cr.want(t, "one notified by a: notifications/tools/list_changed")
			time.Sleep(time.Minute)
			cr.want(t)
		})
}
