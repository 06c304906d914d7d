package backends_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport/httpclient"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An ear is the clients' side: it notes what backends say, and to whom.
type ear struct {
	mu    sync.Mutex
	heard []string // session method
	asked []*peer.Request
}

func (e *ear) HandleRequest(session, backend string, r *peer.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, session+" asked by "+backend+": "+r.Method())
	e.asked = append(e.asked, r)
}

func (e *ear) HandleNotification(session, backend string, m wire.Message, _ peer.Origin) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, session+" told by "+backend+": "+m.Method())
}

// want wants these to have been heard since the last want, in this order.
func (e *ear) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if strings.Join(e.heard, "\n") != strings.Join(lines, "\n") {
		t.Errorf("heard %q\nwant  %q", e.heard, lines)
	}
	e.heard = nil
}

// remote returns the configuration of a backend of which each session has a
// connection of its own.
func remote(name string) config.Backend {
	return config.Backend{Name: name, URL: "http://" + name, Enabled: true, StartTimeout: time.Minute, Generation: "legacy"}
}

// callFor sends a tools/call of a session.
func (h *house) callFor(session, backend string) *caller {
	a := &caller{}
	h.Send(backend, wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), &peer.Call{Handler: a, SessionID: session})
	return a
}

// ok checks that the call has been answered.
func (c *caller) ok(t *testing.T) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ends) != 1 || !strings.HasPrefix(c.ends[0], `{"jsonrpc":"2.0","id":`) {
		t.Errorf("the call ended with %q, want an answer", c.ends)
	}
}

const logger = `{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}`

func (h *house) lists(p *mcptest.Peer) {
	h.t.Helper()
	p.SendResult(p.HandleRequest("tools/list").ID(), `{"tools":[]}`)
	p.SendResult(p.HandleRequest("resources/list").ID(), `{"resources":[]}`)
	p.SendResult(p.HandleRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
}

func capabilitiesIn(m wire.Message) string {
	value, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities")
	return string(value)
}

// S2C-02: a backend is told exactly what the client can do with which it speaks
// alone, and nothing where nobody knows whom it would be asking.
func TestS2C02_BackendsAreToldWhatTheClientCanDo(t *testing.T) {
	const mine = `{"roots":{"listChanged":true},"x-unknown":1.10,"sampling":{}}`
	t.Run("solo", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, backends.Options{SingleClient: true, Backends: []config.Backend{remote("a"), plain("b")[0]}})
			h.OpenSession("one", []byte(mine), false)
			h.Start()
			for _, name := range []string{"a", "b"} {
				if m := h.next(name).HandleRequest("initialize"); capabilitiesIn(m) != mine {
					t.Errorf("%s was told %s", name, m.Raw())
				}
			}
		})
	})
	t.Run("many", func(t *testing.T) {
		shared := remote("shared")
		shared.Sharing = "shared"
		each := plain("each")[0]
		each.Sharing = "session"
		inHouse(t, backends.Options{Backends: []config.Backend{remote("a"), plain("b")[0], shared, each}}, func(t *testing.T, h *house) {
			h.OpenSession("one", []byte(mine), false)
			h.OpenSession("two", nil, false)
			for _, name := range []string{"a", "b", "shared", "each"} {
				if m := h.next(name).HandleRequest("initialize"); capabilitiesIn(m) != "{}" {
					t.Errorf("%s, shared: %s", name, m.Raw())
				}
			}
			for session, want := range map[string]string{"one": mine, "two": "{}"} {
				for _, name := range []string{"a", "b", "shared", "each"} {
					h.callFor(session, name)
				}
				for _, name := range []string{"a", "each"} {
					if m := h.next(name).HandleRequest("initialize"); capabilitiesIn(m) != want {
						t.Errorf("%s, of session %s: %s", name, session, m.Raw())
					}
				}
			}
			for _, name := range []string{"b", "shared"} {
				if n := len(h.dials(name)); n != 1 {
					t.Errorf("%s was dialled %d times", name, n)
				}
			}
		})
	})
}

// CONC-09: what one session does to a backend's state is its own.
func TestCONC09_ASessionHasAConnectionOfItsOwn(t *testing.T) {
	inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		one, again := h.callFor("one", "a"), h.callFor("one", "a")
		p := h.next("a")
		two := h.callFor("two", "a")
		q := h.next("a")
		p.ServeHandshake("")
		q.ServeHandshake("")
		p.SendResult(p.HandleRequest("tools/call").ID(), `{"content":[]}`)
		p.SendResult(p.HandleRequest("tools/call").ID(), `{"content":[]}`)
		one.ok(t)
		again.ok(t)
		h.CloseSession("one")
		synctest.Wait()
		if !p.Disconnected() || q.Disconnected() {
			t.Error("the wrong connection ended")
		}
		q.SendResult(q.HandleRequest("tools/call").ID(), `{"content":[]}`)
		two.ok(t)
		h.callFor("one", "a").want(t, "it is not running: the session is over")
		h.CloseSession("one") // does nothing
		h.CloseSession("two")
		synctest.Wait()
		if n := len(h.dials("a")); n != 3 {
			t.Errorf("dialled %d times", n)
		}
	})
}

func TestAnOwnConnectionIsMadeAnewWhenItIsNeeded(t *testing.T) {
	inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.OpenSession("one", nil, false)
		call := h.callFor("one", "a")
		p := h.next("a")
		p.ServeHandshake("")
		p.HandleRequest("tools/call")
		p.Close()
		call.want(t, "it closed the connection")
		time.Sleep(time.Hour)
		if n := len(h.dials("a")); n != 2 {
			t.Errorf("dialled %d times, though nobody wanted anything", n)
		}
		call = h.callFor("one", "a")
		p = h.next("a")
		p.ServeHandshake("")
		p.SendResult(p.HandleRequest("tools/call").ID(), `{"content":[]}`)
		call.ok(t)
	})
}

// A backend that cannot be reached is not tried for every call.
func TestAnOwnConnectionThatFailsIsLeftAloneForAWhile(t *testing.T) {
	inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.OpenSession("one", nil, false)
		for range 5 {
			call := h.callFor("one", "a")
			p := h.next("a")
			p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32603,"message":"no"}`)
			call.want(t, "it did not start: initialize: no")
			n := len(h.dials("a"))
			h.callFor("one", "a").wantReason(t, "it is not running: initialize: no; next try in ")
			if len(h.dials("a")) != n {
				t.Error("tried again at once")
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestWhoseItIsWhatABackendSays(t *testing.T) {
	say := func(p *mcptest.Peer) {
		p.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		p.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
	}
	t.Run("of an own connection", func(t *testing.T) {
		inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
			shared := h.next("a")
			shared.ServeStartup("t")
			h.OpenSession("one", nil, false)
			h.callFor("one", "a")
			p := h.next("a")
			p.ServeHandshake("")
			p.HandleRequest("tools/call")
			say(p)
			h.ear.want(t, "one asked by a: roots/list", "one told by a: notifications/message")
			say(shared)
			h.ear.want(t, " asked by a: roots/list", " told by a: notifications/message")
		})
	})
	t.Run("of a shared one", func(t *testing.T) {
		inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
			p := h.next("a")
			p.ServeStartup("t")
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			h.callFor("one", "a")
			h.callFor("one", "a")
			first, second := p.HandleRequest("tools/call"), p.HandleRequest("tools/call")
			p.SendResult(first.ID(), `{}`)
			p.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			h.ear.want(t, "one told by a: notifications/message")
			two := h.callFor("two", "a")
			third := p.HandleRequest("tools/call")
			say(p)
			h.ear.want(t, " asked by a: roots/list", " told by a: notifications/message")
			p.SendResult(second.ID(), `{}`)
			p.SendResult(third.ID(), `{}`)
			two.ok(t)
			p.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			h.ear.want(t, " told by a: notifications/message")
		})
	})
	// Over streamable HTTP what comes on no call's stream can be older than an answer
	// that has come already, on another connection.
	t.Run("of a shared one with streams", func(t *testing.T) {
		o := backends.Options{Backends: []config.Backend{remote("a")}}
		o.Backends[0].Sharing = "shared"
		inHouse(t, o, func(t *testing.T, h *house) {
			p := h.next("a")
			p.ServeStartup("t")
			h.OpenSession("one", nil, false)
			h.callFor("one", "a")
			p.HandleRequest("tools/call")
			say(p)
			h.ear.want(t, " asked by a: roots/list", " told by a: notifications/message")
		})
	})
	// What was taken back may still be running: nobody can tell whom the backend
	// means until it has answered all the same, or a while has passed.
	t.Run("after a cancel", func(t *testing.T) {
		inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
			p := h.next("a")
			p.ServeStartup("t")
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			cancelled := &peer.Call{Handler: &caller{}, SessionID: "one"}
			h.Send("a", wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), cancelled)
			taken := p.HandleRequest("tools/call")
			h.Cancel("a", cancelled, nil)
			p.HandleNotification("notifications/cancelled")
			h.callFor("two", "a")
			p.HandleRequest("tools/call")
			note := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
			p.Send(note)
			h.ear.want(t, " told by a: notifications/message")
			p.SendResult(taken.ID(), `{}`)
			p.Send(note)
			h.ear.want(t, " told by a: notifications/message") // it may still be about that
			time.Sleep(3 * time.Second)
			p.Send(note)
			h.ear.want(t, "two told by a: notifications/message")

			cancelled = &peer.Call{Handler: &caller{}, SessionID: "one"}
			h.Send("a", wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), cancelled)
			p.HandleRequest("tools/call")
			h.Cancel("a", cancelled, nil)
			p.HandleNotification("notifications/cancelled")
			p.Send(note)
			h.ear.want(t, " told by a: notifications/message")
			time.Sleep(31 * time.Second)
			p.Send(note)
			h.ear.want(t, "two told by a: notifications/message")
		})
	})
}

func TestNotificationsOfAClientGoWhereItIsAlone(t *testing.T) {
	inHouse(t, backends.Options{Backends: append(plain("a"), remote("own"), remote("unused"))}, func(t *testing.T, h *house) {
		a, lists := h.next("a"), h.next("own")
		a.ServeStartup("t")
		lists.ServeStartup("t")
		h.next("unused").ServeStartup("t")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		h.callFor("one", "own")
		p := h.next("own")
		h.callFor("two", "own")
		q := h.next("own")
		p.ServeHandshake("")
		q.ServeHandshake("")
		p.HandleRequest("tools/call")
		q.HandleRequest("tools/call")
		h.Notify("one", "", wire.NewNotification("notifications/roots/list_changed", nil))
		p.HandleNotification("notifications/roots/list_changed")
		h.Notify("one", "a", wire.NewNotification("notifications/tasks/status", nil))
		h.Notify("one", "own", wire.NewNotification("notifications/tasks/status", nil))
		p.HandleNotification("notifications/tasks/status")
		p.WantNothing()
		for _, other := range []*mcptest.Peer{a, lists, q} {
			other.WantNothing()
		}
	})
}

// RES-06: a backend that advertises prompts and does not know prompts/list has
// none.
func TestRES06_AListThatIsUnknownIsEmpty(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeHandshake(`{"protocolVersion":"2025-11-25","capabilities":{"prompts":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}`)
		tools, prompts := a.HandleRequest("tools/list"), a.HandleRequest("prompts/list")
		resources, templates := a.HandleRequest("resources/list"), a.HandleRequest("resources/templates/list")
		a.SendError(prompts.ID(), `{"code":-32601,"message":"Method not found"}`)
		a.SendResult(resources.ID(), `{"resources":[{"uri":"x:y","name":"y"}]}`)
		a.SendError(templates.ID(), `{"code":-32603,"message":"oh"}`)
		a.SendResult(tools.ID(), mcptest.ToolsResult("t"))
		h.wantNames("t")
		s := h.status("a")
		if s.Counts != [4]int{1, 0, 1, 0} || s.Err == nil || s.Err.Error() != "resources/templates/list: oh" {
			t.Errorf("status: %+v", s)
		}
		// It is asked again for all of them, for one was not to be had.
		for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
			a.HandleRequest(method)
		}
	})
}

// Only what has changed is read again.
func TestAListIsReadAgainWhenItHasChanged(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeHandshake(`{"protocolVersion":"2025-11-25","capabilities":{"prompts":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}`)
		a.SendResult(a.HandleRequest("tools/list").ID(), mcptest.ToolsResult("t"))
		a.SendResult(a.HandleRequest("prompts/list").ID(), `{"prompts":[]}`)
		a.SendResult(a.HandleRequest("resources/list").ID(), `{"resources":[]}`)
		a.SendResult(a.HandleRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
		synctest.Wait()
		a.Send(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
		a.SendResult(a.HandleRequest("prompts/list").ID(), `{"prompts":[{"name":"p"}]}`)
		synctest.Wait()
		if s := h.status("a"); s.Counts != [4]int{1, 1, 0, 0} {
			t.Errorf("status: %+v", s)
		}
		a.Send(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
		a.HandleRequest("resources/list")
		a.HandleRequest("resources/templates/list")
		a.WantNothing()
	})
}

// Two lines of a server that speaks HTTP+SSE alone find that out each for itself.
func TestLinesFallBackSideBySide(t *testing.T) {
	inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
		shared := h.next("a")
		h.OpenSession("one", nil, false)
		call := h.callFor("one", "a")
		own := h.next("a")
		of, and := shared.HandleRequest("initialize"), own.HandleRequest("initialize")
		shared.FailRead(&transport.CallLostError{ID: of.ID(), Err: httpclient.ErrNotStreamable})
		h.next("a").ServeStartup("t")
		own.FailRead(&transport.CallLostError{ID: and.ID(), Err: httpclient.ErrNotStreamable})
		again := h.next("a")
		again.ServeHandshake("")
		again.SendResult(again.HandleRequest("tools/call").ID(), "{}")
		call.ok(t)
	})
}

// A client whose own server says that a list has changed is told when that has been read
// over the shared line, though it may have turned out to be the same: not before, or it
// would read what was there before; and nobody else is told.
func TestAClientHearsOfItsOwnServersListsWhenTheyHaveBeenRead(t *testing.T) {
	inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
		shared := h.next("a")
		shared.ServeStartup("t")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		var own [2]*mcptest.Peer
		for i, session := range []string{"one", "two"} {
			call := h.callFor(session, "a")
			own[i] = h.next("a")
			own[i].ServeHandshake(logger)
			own[i].SendResult(own[i].HandleRequest("tools/call").ID(), "{}")
			call.ok(t)
		}
		e := h.ear
		time.Sleep(time.Second)
		own[0].Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		list := shared.HandleRequest("tools/list")
		e.want(t)
		own[0].Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) // while it is read
		synctest.Wait()
		shared.SendResult(list.ID(), mcptest.ToolsResult("t"))
		e.want(t, "one told by a: notifications/tools/list_changed")
		shared.SendResult(shared.HandleRequest("tools/list").ID(), mcptest.ToolsResult("t"))
		e.want(t, "one told by a: notifications/tools/list_changed")
		time.Sleep(time.Minute)
		e.want(t)
	})
}
