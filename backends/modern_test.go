package backends_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// modernBackends returns backends that are configured as modern.
func modernBackends(all ...config.Backend) []config.Backend {
	for i := range all {
		all[i].Generation = "modern"
	}
	return all
}

// meta returns a reserved member of a request's _meta.
func meta(m wire.Message, key string) string {
	value, _ := wire.Lookup(m.Part(wire.PartMeta), "io.modelcontextprotocol/"+key)
	return string(value)
}

// discoverWith returns a result of server/discover with these capabilities.
func discoverWith(capabilities string) string {
	return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` +
		capabilities + `}`
}

// Each request to a modern backend contains the client metadata, and all requests are sent over one
// connection.
func TestModern_RequestsContainClientMeta(t *testing.T) {
	each := legacyBackends("each")[0]
	each.Sharing = "session"
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"),
		legacyBackends("b")[0], each)}, func(t *testing.T, h *harness) {
		h.OpenSession("one", []byte(`{"roots":{"listChanged":true},"elicitation":{},"x":1.10}`),
			false)
		h.OpenSession("two", []byte(`{"sampling":{}}`), false)
		h.SetLevel("one", "debug", func() {})
		for _, name := range []string{"a", "b", "each"} {
			p := h.nextProcess(name)
			if m := p.WantRequest("server/discover"); meta(m, "clientCapabilities") != "{}" ||
				meta(m, "clientInfo") != `{"name":"mcp-gateway","version":"test"}` {
				t.Errorf("requested with %s", m.Raw())
			} else {
				p.SendResult(m.ID(), discoverWith(`{"tools":{},"logging":{}}`))
			}
			if m := p.WantRequest("tools/list"); meta(m, "protocolVersion") != `"2026-07-28"` ||
				meta(m, "clientCapabilities") != "{}" || meta(m, "logLevel") != "" {
				t.Errorf("listed with %s", m.Raw())
			} else {
				p.SendResult(m.ID(), mcptest.ToolsResult("t"))
			}
			synctest.Wait()
			for session, want := range map[string][2]string{
				"one": {`{"roots":{},"elicitation":{},"x":1.10}`, `"debug"`},
				"two": {`{"sampling":{}}`, ""}, "": {"{}", ""},
			} {
				c := make(backends.ResponseChan, 1)
				h.NewCall(name, contract.BackendRequest{
					Message: wire.NewRequest("7", "tools/call",
						[]byte(`{"name":"t","_meta":{"progressToken":"mine","trace":1.0}}`)),
					Session: session, ProgressToken: `"mine"`}, c).Send()
				m := p.WantRequest("tools/call")
				if meta(m, "clientCapabilities") != want[0] || meta(m, "logLevel") != want[1] ||
					meta(m, "clientInfo") != `{"name":"mcp-gateway","version":"test"}` ||
					meta(m, "protocolVersion") != `"2026-07-28"` {
					t.Errorf("%s, session %q: called with %s", name, session, m.Raw())
				}
				if string(m.Token()) != string(m.ID()) ||
					!strings.Contains(string(m.Raw()), `"trace":1.0`) {
					t.Errorf("%s: called with %s", name, m.Raw())
				}
				p.SendResult(m.ID(), `{"resultType":"complete"}`)
				if r := <-c; r.Err != nil || !r.Modern || r.Message.Part(wire.PartResult) == nil {
					t.Errorf("%s: ended with %+v", name, r)
				}
			}
			h.SetLevel("two", "info", func() {})
			h.Notify("one", "", wire.NewNotification("notifications/roots/list_changed", nil))
			p.WantNothing()
			if n := len(h.dialTimes(name)); n != 1 {
				t.Errorf("dialled %d times", n)
			}
			h.SetLevel("two", "", func() {})
		}
	})
}

// On stdio, a log message of a modern server belongs to the only session that has a log level and a
// call in flight. A request of a modern server is refused.
func TestModern_OriginOfMessages(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeDiscover("")
			p.ServeToolsList(mcptest.ToolsResult("t"))
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			h.SetLevel("one", "info", func() {})
			h.callFor("two", "a")
			// this call has ended
			p.SendResult(p.WantRequest("tools/call").ID(), `{"resultType":"complete"}`)
			h.callFor("two", "a")
			p.WantRequest("tools/call") // the session of this call has no log level
			h.callFor("one", "a")
			p.WantRequest("tools/call")
			p.Send(
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			h.clients.want(t, "one notified by a: notifications/message")
			p.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
			if m := p.NextMessage(); m.ID() != `"q"` || m.Part(wire.PartError) == nil {
				t.Errorf("responded %s", m.Raw())
			}
			h.clients.want(t)
		})
}

// With a single client that has sessions and sends modern requests, a message belongs to the
// session of the call in flight, or else to the session that was opened last.
func TestModern_SingleClientWithSeveralSessions(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a"), SingleClient: true},
		func(t *testing.T, h *harness) {
			h.OpenSession("real", nil, false)
			p := h.nextProcess("a")
			p.ServeStartup("t")
			h.OpenSession("guest", nil, false)
			notify := func() {
				p.Send(
					`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			}
			h.callFor("real", "a")
			notify()
			h.clients.want(t, "real notified by a: notifications/message")
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			time.Sleep(5 * time.Second)
			notify()
			h.clients.want(t, "guest notified by a: notifications/message")
			h.CloseSession("guest")
			notify()
			h.clients.want(t, "real notified by a: notifications/message")
			h.CloseSession("real")
			notify()
			h.clients.want(t, " notified by a: notifications/message")
		})
}

// A call of a session may arrive before the gateway knows that all sessions share one connection.
// The call is sent over the shared connection, and can be cancelled wherever it is queued or in
// flight.
func TestModern_CallQueuedDuringProbe(t *testing.T) {
	wait := func(t *testing.T, test func(h *harness, shared, own *mcptest.Peer, call *callRecorder,
		pending contract.BackendCall)) {
		withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
			func(t *testing.T, h *harness) {
				h.OpenSession("one", []byte(`{"sampling":{}}`), false)
				shared := h.nextProcess("a")
				call := &callRecorder{}
				pending := h.SendCall("a", "one",
					wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), call)
				test(h, shared, h.nextProcess("a"), call, pending)
			})
	}
	t.Run("the session's connection detects it first", func(t *testing.T) {
		wait(t, func(h *harness, shared, own *mcptest.Peer, call *callRecorder,
			_ contract.BackendCall) {
			own.ServeDiscover("")
			synctest.Wait()
			shared.ServeDiscover("")
			m := shared.WantRequest("tools/call")
			if meta(m, "clientCapabilities") != `{"sampling":{}}` {
				t.Errorf("called with %s", m.Raw())
			}
			shared.SendResult(m.ID(), "{}")
			call.wantResult(t)
			own.WantNothing()
			if !own.Disconnected() {
				t.Error("the session's connection is still open")
			}
			h.callFor("one", "a")
			shared.ServeToolsList(mcptest.ToolsResult("t"))
			shared.WantRequest("tools/call")
			time.Sleep(time.Hour)
			if n := len(h.dialTimes("a")); n != 2 {
				t.Errorf("dialled %d times", n)
			}
		})
	})
	t.Run("the session's connection detects it last", func(t *testing.T) {
		wait(t, func(h *harness, shared, own *mcptest.Peer, call *callRecorder,
			_ contract.BackendCall) {
			shared.ServeDiscover("")
			shared.ServeToolsList(mcptest.ToolsResult("t"))
			own.ServeDiscover("")
			shared.SendResult(shared.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
		})
	})
	t.Run("cancelled at the session's connection", func(t *testing.T) {
		wait(t, func(h *harness, shared, own *mcptest.Peer, call *callRecorder,
			pending contract.BackendCall) {
			pending.Cancel(nil)
			call.want(t, "cancelled")
			own.ServeDiscover("")
			synctest.Wait()
			shared.ServeDiscover("")
			shared.ServeToolsList(mcptest.ToolsResult("t"))
			shared.WantNothing()
		})
	})
	t.Run("cancelled at the shared connection", func(t *testing.T) {
		wait(t, func(h *harness, shared, own *mcptest.Peer, call *callRecorder,
			pending contract.BackendCall) {
			own.ServeDiscover("")
			synctest.Wait()
			pending.Cancel(nil)
			call.want(t, "cancelled")
			shared.ServeDiscover("")
			shared.ServeToolsList(mcptest.ToolsResult("t"))
			shared.WantNothing()
		})
	})
	t.Run("cancelled in flight", func(t *testing.T) {
		wait(t, func(h *harness, shared, own *mcptest.Peer, call *callRecorder,
			pending contract.BackendCall) {
			own.ServeDiscover("")
			synctest.Wait()
			shared.ServeDiscover("")
			shared.WantRequest("tools/call")
			shared.ServeToolsList(mcptest.ToolsResult("t"))
			pending.Cancel(nil)
			call.want(t, "cancelled")
			shared.WantNotification("notifications/cancelled")
		})
	})
}

// The errors -32020 and -32022 concern the form of the gateway's requests. The gateway refreshes
// the catalog, retries once, and never returns these errors.
func TestModern_RetriesAfterRefresh(t *testing.T) {
	start := func(t *testing.T, test func(h *harness, p *mcptest.Peer, call *callRecorder,
		pending contract.BackendCall, id wire.ID)) {
		withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
			func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.ServeDiscover("")
				p.ServeToolsList(mcptest.ToolsResult("t"))
				call, pending := h.call("a")
				test(h, p, call, pending, p.WantRequest("tools/call").ID())
			})
	}
	mismatch := `{"code":-32020,"message":"Mcp-Param-X is missing"}`
	t.Run("headers", func(t *testing.T) {
		start(t, func(h *harness, p *mcptest.Peer, call *callRecorder, _ contract.BackendCall,
			id wire.ID) {
			p.SendError(id, mismatch)
			p.ServeToolsList(mcptest.ToolsResult("t"))
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
			p.WantNothing()
		})
	})
	t.Run("headers refused twice", func(t *testing.T) {
		start(t, func(h *harness, p *mcptest.Peer, call *callRecorder, _ contract.BackendCall,
			id wire.ID) {
			p.SendError(id, mismatch)
			p.ServeToolsList(mcptest.ToolsResult("t"))
			m := p.WantRequest("tools/call")
			p.SendError(m.ID(), mismatch)
			call.want(t,
				`{"jsonrpc":"2.0","id":`+string(m.ID())+
					`,"error":{"code":-32603,"message":"backend a refuses the form of the request: Mcp-Param-X is missing"}}`)
			p.WantNothing()
		})
	})
	t.Run("revision", func(t *testing.T) {
		start(t, func(h *harness, p *mcptest.Peer, call *callRecorder, _ contract.BackendCall,
			id wire.ID) {
			p.SendError(id, refusal(`"2026-07-28"`))
			p.ServeDiscover("")
			p.ServeToolsList(mcptest.ToolsResult("t"))
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
		})
	})
	t.Run("cancelled meanwhile", func(t *testing.T) {
		start(t, func(h *harness, p *mcptest.Peer, call *callRecorder, pending contract.BackendCall,
			id wire.ID) {
			p.SendError(id, mismatch)
			m := p.WantRequest("tools/list")
			pending.Cancel(nil)
			call.want(t, "cancelled")
			p.SendResult(m.ID(), mcptest.ToolsResult("t"))
			p.WantNothing()
		})
	})
	t.Run("the backend ends meanwhile", func(t *testing.T) {
		start(t, func(h *harness, p *mcptest.Peer, call *callRecorder, _ contract.BackendCall,
			id wire.ID) {
			p.SendError(id, mismatch)
			p.WantRequest("tools/list")
			p.Exit("exit 1", "")
			p = h.nextProcess("a")
			p.ServeDiscover("")
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
			call.wantResult(t)
		})
	})
	t.Run("missing client capability", func(t *testing.T) {
		start(t, func(h *harness, p *mcptest.Peer, call *callRecorder, _ contract.BackendCall,
			id wire.ID) {
			const lacks = `{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{}}}}`
			p.SendError(id, lacks)
			call.want(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, id, lacks))
			p.WantNothing()
		})
	})
	t.Run("generation", func(t *testing.T) {
		withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
			func(t *testing.T, h *harness) {
				h.OpenSession("one", nil, false)
				p := h.nextProcess("a")
				p.ServeDiscover("")
				p.ServeToolsList(mcptest.ToolsResult("t"))
				call := h.callFor("one", "a")
				// The server behind the URL has been replaced.
				p.FailRead(&transport.CallLostError{ID: p.WantRequest("tools/call").ID(),
					Err: &httpclient.StatusError{Code: 400}})
				p.FailRead(&transport.CallLostError{ID: p.WantRequest("server/discover").ID(),
					Err: httpclient.ErrNotStateless})
				p = h.nextProcess("a")
				p.SendError(p.WantRequest("server/discover").ID(),
					`{"code":-32601,"message":"no"}`)
				h.nextProcess("a").ServeStartup("t")
				own := h.nextProcess("a")
				own.ServeHandshake("")
				own.SendResult(own.WantRequest("tools/call").ID(), "{}")
				call.wantResult(t)
			})
	})
}

// A call that waits for a hanging refresh times out after its call_timeout, or after two minutes,
// even without start_timeout.
func TestModern_RetryTimeout(t *testing.T) {
	for timeout, ends := range map[time.Duration]time.Duration{0: 2 * time.Minute,
		5 * time.Second: 5 * time.Second} {
		for refusal, asks := range map[string]string{
			`{"code":-32020,"message":"Mcp-Param-X is missing"}`: "tools/list",
			refusal(`"2026-07-28"`):                              "server/discover",
		} {
			t.Run(fmt.Sprint(timeout, " ", asks), func(t *testing.T) {
				o := backends.Options{Backends: modernBackends(perSessionBackend("a"))}
				o.Backends[0].StartTimeout, o.Backends[0].CallTimeout = 0, timeout
				withHarness(t, o, func(t *testing.T, h *harness) {
					p := h.nextProcess("a")
					p.ServeDiscover("")
					p.ServeToolsList(mcptest.ToolsResult("t"))
					call, _ := h.call("a")
					p.SendError(p.WantRequest("tools/call").ID(), refusal)
					hangs := p.WantRequest(asks)
					time.Sleep(ends - time.Millisecond)
					call.want(t, "")
					time.Sleep(time.Millisecond)
					call.want(t,
						"it refuses the form of the request, and did not list its tools again within "+ends.String())

					// The call has ended, and a late response is ignored; the next call works.
					if asks == "server/discover" {
						p.SendResult(hangs.ID(), mcptest.DiscoverResult)
						hangs = p.WantRequest("tools/list")
					}
					p.SendResult(hangs.ID(), mcptest.ToolsResult("t"))
					p.WantNothing()
					next, _ := h.call("a")
					p.SendResult(p.WantRequest("tools/call").ID(), "{}")
					next.wantResult(t)
				})
			})
		}
	}
}

// The time for which a call has waited for a refresh does not count for the timeout of its second
// try.
func TestModern_RetryHasItsOwnTimeout(t *testing.T) {
	o := backends.Options{Backends: modernBackends(perSessionBackend("a"))}
	o.Backends[0].CallTimeout = 10 * time.Second
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeDiscover("")
		p.ServeToolsList(mcptest.ToolsResult("t"))
		call, _ := h.call("a")
		p.SendError(p.WantRequest("tools/call").ID(),
			`{"code":-32020,"message":"Mcp-Param-X is missing"}`)
		list := p.WantRequest("tools/list")
		time.Sleep(9 * time.Second)
		p.SendResult(list.ID(), mcptest.ToolsResult("t"))
		again := p.WantRequest("tools/call")
		time.Sleep(9 * time.Second)
		p.SendResult(again.ID(), "{}")
		call.wantResult(t)
	})
}

// A tool with invalid header annotations is left out where headers matter, and repaired
// elsewhere.
func TestHeaderAnnotations(t *testing.T) {
	const list = `{"tools":[` +
		`{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}},` +
		`{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"array","x-mcp-header":"A"}, "b":{}}}}]}`
	for name, configs := range map[string][]config.Backend{
		"stateless HTTP": modernBackends(perSessionBackend("a")),
		"stateless pipe": modernBackends(legacyBackends("a")...),
		"sessions":       {perSessionBackend("a")},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: configs}, func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				if configs[0].Generation == "modern" {
					p.ServeDiscover("")
				} else {
					p.ServeHandshake("")
				}
				p.ServeToolsList(list)
				want := []string{"good", "bad"}
				synctest.Wait()
				if name == "stateless HTTP" {
					want = want[:1]
					if lines := h.log.Lines("level=WARN", "entry left out", "tool=",
						"tool=bad"); len(lines) != 1 {
						t.Errorf("logged %q", h.log.Lines())
					}
				}
				h.wantNames(want...)
				if schema := string(h.View().Schema("good")); !strings.Contains(schema,
					`"x-mcp-header":"A"`) {
					t.Errorf("the schema is %s", schema)
				}
				if schema := string(h.View().Schema("bad")); len(want) == 2 &&
					(strings.Contains(schema, "x-mcp-header") ||
						!strings.Contains(schema, `{"type":"array"}, "b":{}`)) {
					t.Errorf("the schema is %s", schema)
				}
			})
		})
	}
}

// A list is read again when it expires.
func TestExpiredListsAreReadAgain(t *testing.T) {
	o := backends.Options{Backends: modernBackends(legacyBackends("a", "b")...)}
	o.Backends[1].Tools.Deny = []string{"u"}
	withHarness(t, o, func(t *testing.T, h *harness) {
		list := func(p *mcptest.Peer, ttl int, scope, tool string) {
			p.ServeToolsList(fmt.Sprintf(
				`{"resultType":"complete","ttlMs":%d,"cacheScope":%q,"tools":[{"name":%q,"inputSchema":{"type":"object"}}]}`, ttl, scope, tool))
		}
		fresh := func(want time.Duration, private bool) {
			t.Helper()
			synctest.Wait()
			if ttl, is := h.View().Freshness(catalog.Tools); ttl != want || is != private {
				t.Errorf("valid for %v, private: %v", ttl, is)
			}
		}
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeDiscover("")
		b.ServeDiscover("")
		fresh(0, true)
		list(a, 60_000, "public", "t")
		list(b, 90_000, "public", "u")
		fresh(60*time.Second, true) // the filters hide entries of b
		if ttl, private := h.View().Freshness(catalog.Prompts); ttl != 0 || private {
			t.Errorf("the missing prompts are valid for %v, private: %v", ttl, private)
		}
		time.Sleep(60 * time.Second)
		list(a, 1, "public", "v")
		h.wantNames("v")
		time.Sleep(9 * time.Second)
		a.WantNothing() // a TTL of 1 ms counts as 10 s
		time.Sleep(time.Second)
		list(a, 0, "public", "v")
		fresh(0, true)
		time.Sleep(20 * time.Second)
		list(b, 0, "private", "u")
		time.Sleep(time.Hour)
		a.WantNothing()
		b.WantNothing()
	})
}

// A list whose result is not complete counts as failed.
func TestIncompleteListResult(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeDiscover("")
			p.ServeToolsList(`{"resultType":"input_required","requestState":"x","tools":[]}`)
			if err := h.status("a").Err; err == nil ||
				err.Error() != "tools/list: its result is input_required" {
				t.Errorf("status: %v", err)
			}
			p.ServeToolsList(mcptest.ToolsResult("t"))
			h.wantNames("t")
		})
}
