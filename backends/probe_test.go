package backends_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport/httpclient"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// unasked returns backends of which nobody has said of which era they are.
func unasked(all ...config.Backend) []config.Backend {
	for i := range all {
		all[i].Generation = "auto"
	}
	return all
}

// refusal is an error object that names supported revisions.
func refusal(dates string) string {
	return `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":[` + dates + `],"requested":"x"}}`
}

// speaksModern plays the rest of a start in the stateless era, and checks that a call is
// stamped.
func (h *house) speaksModern(p *mcptest.Peer) {
	h.t.Helper()
	p.ServeToolsList(mcptest.ToolsResult("t"))
	call, _ := h.call("a")
	m := p.HandleRequest("tools/call")
	if named, _ := wire.Lookup(m.Part(wire.PartMeta), "io.modelcontextprotocol/protocolVersion"); string(named) != `"2026-07-28"` {
		h.t.Errorf("the call is not stamped: %s", m.Raw())
	}
	p.SendResult(m.ID(), `{"resultType":"complete","content":[]}`)
	call.ok(h.t)
	p.WantNothing()
	if s := h.status("a"); s.State != backends.Ready || s.Revision != "2026-07-28" || s.Server != "scripted/1" {
		h.t.Errorf("status %+v", s)
	}
}

// speaksClassic is the same in the session era.
func (h *house) speaksClassic(p *mcptest.Peer) {
	h.t.Helper()
	p.ServeStartup("t")
	call, _ := h.call("a")
	m := p.HandleRequest("tools/call")
	if m.Part(wire.PartMeta) != nil {
		h.t.Errorf("the call is stamped: %s", m.Raw())
	}
	p.SendResult(m.ID(), `{"content":[]}`)
	call.ok(h.t)
	p.WantNothing()
	if s := h.status("a"); s.State != backends.Ready || s.Revision != "2025-11-25" {
		h.t.Errorf("status %+v", s)
	}
}

// What old servers and new ones answer server/discover with (docs/decisions/012-generation-probe.md).
func TestTheQuestionOfTheEraIsAnswered(t *testing.T) {
	asked := func(p *mcptest.Peer) wire.ID { return p.HandleRequest("server/discover").ID() }
	fails := func(objects ...string) func(p *mcptest.Peer) {
		return func(p *mcptest.Peer) {
			for _, o := range objects {
				p.SendError(asked(p), o)
			}
		}
	}
	answers := func(result string) func(p *mcptest.Peer) {
		return func(p *mcptest.Peer) { p.SendResult(asked(p), result) }
	}
	then := func(some ...func(p *mcptest.Peer)) func(p *mcptest.Peer) {
		return func(p *mcptest.Peer) {
			for _, f := range some {
				f(p)
			}
		}
	}
	code := func(n int) string { return fmt.Sprintf(`{"code":%d,"message":"no"}`, n) }
	valid := answers(mcptest.DiscoverResult)
	type row struct {
		name   string
		play   func(p *mcptest.Peer)
		modern bool
	}
	rows := []row{
		{"valid DiscoverResult with a common revision", valid, true},
		{"valid one that does not say its type", answers(`{"supportedVersions":["2099-01-01","2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}`), true},
		{"DiscoverResult without a common revision", answers(`{"resultType":"complete","supportedVersions":["2025-11-25","2099-01-01"],"capabilities":{}}`), false},
		{"empty result", answers(`{}`), false},
		{"shapeless result", answers(`{"supportedVersions":"2026-07-28","capabilities":{}}`), false},
		{"result that is none", answers(`[]`), false},
		{"result of an unknown type", answers(`{"resultType":"task","supportedVersions":["2026-07-28"],"capabilities":{}}`), false},
		{"-32022 that lists the same revision", then(fails(refusal(`"2026-07-28"`)), valid), true},
		{"-32022 again and again", fails(refusal(`"2026-07-28"`), refusal(`"2026-07-28"`)), false},
		{"-32022 that lists only revisions with sessions", fails(refusal(`"2025-11-25","2025-06-18"`)), false},
		{"-32022 without a list", fails(code(-32022)), false},
		{"-32020, and then not", then(fails(code(-32020)), valid), true},
		{"-32021, and then not", then(fails(code(-32021)), valid), true},
		{"-32020 again and again", fails(code(-32020), code(-32020)), false},
	}
	for _, n := range []int{-32601, -32602, -32600, -32603, -32000, -32001, 0} {
		rows = append(rows, row{fmt.Sprint(n), fails(code(n)), false})
	}
	for _, r := range rows {
		t.Run("pipe: "+r.name, func(t *testing.T) {
			inHouse(t, backends.Options{Backends: unasked(plain("a")...)}, func(t *testing.T, h *house) {
				p := h.next("a")
				r.play(p)
				if r.modern {
					h.speaksModern(p)
				} else {
					h.speaksClassic(p)
				}
				if n := len(h.dials("a")); n != 1 {
					t.Errorf("dialled %d times", n)
				}
			})
		})
		t.Run("HTTP: "+r.name, func(t *testing.T) {
			inHouse(t, backends.Options{Backends: unasked(remote("a"))}, func(t *testing.T, h *house) {
				p := h.next("a")
				r.play(p)
				if r.modern {
					h.speaksModern(p)
					return
				}
				p = h.next("a")
				h.speaksClassic(p)
				if n := h.dials("a"); len(n) != 2 || n[1] != n[0] {
					t.Errorf("dialled at %v", n)
				}
			})
		})
	}
}

// What says nothing of the era over HTTP: no authorization, no connection.
func TestTheQuestionOfTheEraIsNotAnsweredOverHTTP(t *testing.T) {
	inHouse(t, backends.Options{Backends: unasked(remote("a"))}, func(t *testing.T, h *house) {
		lose := func(err error) {
			p := h.next("a")
			p.FailRead(&transport.CallLostError{ID: p.HandleRequest("server/discover").ID(), Err: err})
			synctest.Wait()
			p.WantNothing()
		}
		for _, code := range []int{401, 403} {
			lose(&httpclient.StatusError{Code: code})
		}
		lose(errors.New("connection refused"))
		at := h.dials("a")
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] < 200*time.Millisecond {
				t.Errorf("dialled at %v", at)
			}
		}
		// 400, 404, 405 without an answer of the era: session era, at once.
		lose(fmt.Errorf("%w: 404", httpclient.ErrNotStateless))
		h.speaksClassic(h.next("a"))
	})
}

// refusals are ways in which servers of the session era fail server/discover over HTTP, by the
// reason that is shown.
var refusals = map[string]func(p *mcptest.Peer, id wire.ID){
	"HTTP 500 Internal Server Error": func(p *mcptest.Peer, id wire.ID) {
		p.FailRead(&transport.CallLostError{ID: id, Err: &httpclient.StatusError{Code: 500}, MayHaveRun: true})
	},
	"HTTP 415 Unsupported Media Type": func(p *mcptest.Peer, id wire.ID) {
		p.FailRead(&transport.CallLostError{ID: id, Err: &httpclient.StatusError{Code: 415}})
	},
	"HTTP 202 Accepted": func(p *mcptest.Peer, id wire.ID) {
		p.FailRead(&transport.CallLostError{ID: id, Err: &httpclient.StatusError{Code: 202}, MayHaveRun: true})
	},
	"unexpected EOF": func(p *mcptest.Peer, id wire.ID) {
		p.FailRead(&transport.CallLostError{ID: id, Err: io.ErrUnexpectedEOF, MayHaveRun: true})
	},
	"no answer within 5s": func(*mcptest.Peer, wire.ID) { time.Sleep(5 * time.Second) },
}

// A server behind a URL that fails server/discover is sent initialize at once, and calls wait
// for that. Only one that was silent is remembered for the next start.
func TestDiscoverFailsOverHTTP_F_HTTP_3(t *testing.T) {
	for reason, refuse := range refusals {
		t.Run(reason, func(t *testing.T) {
			o := backends.Options{Backends: unasked(remote("a")), StateDir: t.TempDir()}
			o.Backends[0].Sharing = "shared"
			inHouse(t, o, func(t *testing.T, h *house) {
				waits, _ := h.call("a")
				p := h.next("a")
				refuse(p, p.HandleRequest("server/discover").ID())
				p = h.next("a")
				p.ServeHandshake("")
				p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
				waits.ok(t)
				p.ServeToolsList(mcptest.ToolsResult("t"))
				if said := h.log.Lines("level=INFO", "era: legacy"); len(said) != 1 {
					t.Errorf("logged %q", said)
				}
				p.Exit("gone", "")
				h.speaksClassic(h.next("a")) // it is not asked again
			})
			inHouse(t, o, func(t *testing.T, h *house) {
				p := h.next("a")
				if reason != "no answer within 5s" {
					p.SendError(p.HandleRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
					p = h.next("a")
				}
				h.speaksClassic(p)
			})
		})
		t.Run(reason+", and initialize fails", func(t *testing.T) {
			inHouse(t, backends.Options{Backends: unasked(remote("a"))}, func(t *testing.T, h *house) {
				for range 2 {
					waits, _ := h.call("a")
					p := h.next("a")
					refuse(p, p.HandleRequest("server/discover").ID())
					p = h.next("a")
					p.FailRead(&transport.CallLostError{ID: p.HandleRequest("initialize").ID(), Err: errors.New("boom"), MayHaveRun: true})
					why := "boom (server/discover failed before that: " + reason + "; if the server does not know it, set `era: legacy`)"
					waits.want(t, "it did not start: "+why)
					h.wantProblem("a", why)
					time.Sleep(time.Second)
				}
				p := h.next("a") // it is asked for its era again
				p.ServeDiscover("")
				h.speaksModern(p)
			})
		})
	}
}

// A backend that spoke 2026-07-28 and fails once when it restarts is asked once more.
func TestARestartOfAModernServer_F_HTTP_3(t *testing.T) {
	inHouse(t, backends.Options{Backends: unasked(remote("a"))}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeDiscover("")
		h.speaksModern(p)
		p.Exit("gone", "")
		p = h.next("a")
		refusals["HTTP 500 Internal Server Error"](p, p.HandleRequest("server/discover").ID())
		p = h.next("a")
		p.ServeDiscover("")
		h.speaksModern(p)
		p.Exit("gone", "")
		p = h.next("a")
		refusals["HTTP 500 Internal Server Error"](p, p.HandleRequest("server/discover").ID())
		p = h.next("a")
		refusals["HTTP 500 Internal Server Error"](p, p.HandleRequest("server/discover").ID())
		h.speaksClassic(h.next("a"))
	})
}

// A server that refuses initialize and names the revisions that it speaks is offered one of them.
func TestARevisionIsRefused_F_HTTP_12(t *testing.T) {
	for name, tt := range map[string]struct{ refusal, want string }{
		"-32602 with a list":     {`{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2024-11-05","2025-03-26"],"requested":"2025-11-25"}}`, "2025-03-26"},
		"-32022 with a list":     {`{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}`, "2025-06-18"},
		"-32000 and text":        {`{"code":-32000,"message":"Bad Request: Unsupported protocol version: 2025-11-25 (supported versions: 2024-11-05, 2025-06-18)"}`, "2025-06-18"},
		"both eras":              {`{"code":-32602,"message":"no","data":{"supportedVersions":["2026-07-28","2025-06-18"]}}`, "2025-06-18"},
		"only what was offered":  {`{"code":-32602,"message":"no","data":{"supported":["2025-11-25"]}}`, ""},
		"only unknown revisions": {`{"code":-32602,"message":"no","data":{"supported":["2023-01-01", 7]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
				p := h.next("a")
				p.SendError(p.HandleRequest("initialize").ID(), tt.refusal)
				if tt.want == "" {
					p.WantNothing()
					h.speaksClassic(h.next("a"))
					return
				}
				m := p.HandleRequest("initialize")
				if date, _ := wire.Lookup(m.Part(wire.PartParams), "protocolVersion"); wire.Unquote(date) != tt.want {
					t.Errorf("offered %s", m.Raw())
				}
				p.SendResult(m.ID(), `{"protocolVersion":"`+tt.want+`","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)
				p.HandleNotification("notifications/initialized")
				p.ServeToolsList(mcptest.ToolsResult("t"))
				if s := h.status("a"); s.State != backends.Ready || s.Revision != tt.want {
					t.Errorf("status %+v", s)
				}
				p.Exit("exit 1", "")
				p = h.next("a")
				p.SendError(p.HandleRequest("initialize").ID(), tt.refusal)
				p.SendError(p.HandleRequest("initialize").ID(), tt.refusal) // one more try, not two
				p.WantNothing()
			})
		})
	}
}

// VERSION-02: a server that exits when it is asked anything before initialize is started
// again at once, without the question; so it is from then on, also by the next gateway.
func TestVERSION02_AServerThatEndsAtTheQuestion(t *testing.T) {
	o := backends.Options{Backends: unasked(plain("a")...), StateDir: t.TempDir()}
	inHouse(t, o, func(t *testing.T, h *house) {
		waits, _ := h.call("a")
		p := h.next("a")
		p.HandleRequest("server/discover")
		p.Exit("exit 1", "")
		p = h.next("a")
		p.ServeHandshake("")
		p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
		waits.ok(t)
		p.ServeToolsList(mcptest.ToolsResult("t"))
		if at := h.dials("a"); len(at) != 2 || at[1] != at[0] {
			t.Errorf("dialled at %v", at)
		}
		if loud := h.log.Warnings(); len(loud) > 0 {
			t.Errorf("logged %q", loud)
		}
		if said := h.log.Lines("level=INFO", "era: legacy", "exit 1"); len(said) != 1 {
			t.Errorf("said of its era: %q", said)
		}
		p.Exit("exit 2", "")
		h.speaksClassic(h.next("a"))
	})
	inHouse(t, o, func(t *testing.T, h *house) {
		p := h.next("a")
		h.speaksClassic(p)
		// It is another one now, and says so.
		p.Exit("exit 3", "")
		p = h.next("a")
		p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}`)
		p = h.next("a")
		p.ServeDiscover("")
		h.speaksModern(p)
	})
	if text, _ := os.ReadFile(kept(t, o.StateDir)); strings.Contains(string(text), "era") {
		t.Errorf("kept %s", text)
	}
}

// A program that does not start does not start, whatever it is asked: its end is no
// reason to believe anything.
func TestAProgramThatCannotStart(t *testing.T) {
	inHouse(t, backends.Options{Backends: unasked(plain("a")...), StateDir: t.TempDir()}, func(t *testing.T, h *house) {
		waits, _ := h.call("a")
		h.next("a").Exit("exit 127", "sh: npx: not found")
		h.next("a").Exit("exit 127", "sh: npx: not found")
		waits.want(t, "it did not start: exit 127; its last words: sh: npx: not found")
		defer func() {
			if said := h.log.Lines("level=INFO", "server/discover"); len(said) > 0 {
				t.Errorf("the question is blamed: %q", said)
			}
		}()
		p := h.next("a") // it is there now, and modern
		p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32601,"message":"Method not found"}`)
		p = h.next("a")
		p.ServeDiscover("")
		h.speaksModern(p)
	})
}

// VERSION-03: a server that is silent when it is asked is greeted after 5 s, in the same
// process, for it may only be slow; and it is not asked again.
func TestVERSION03_AServerThatIsSilent(t *testing.T) {
	o := backends.Options{Backends: unasked(plain("a")...), StateDir: t.TempDir()}
	inHouse(t, o, func(t *testing.T, h *house) {
		p := h.next("a")
		p.HandleRequest("server/discover")
		began := time.Now()
		h.speaksClassic(p)
		if took := time.Since(began); took < 5*time.Second || took > 5100*time.Millisecond {
			t.Errorf("ready after %v", took)
		}
		if n := len(h.dials("a")); n != 1 {
			t.Errorf("dialled %d times", n)
		}
	})
	inHouse(t, o, func(t *testing.T, h *house) { h.speaksClassic(h.next("a")) })
}

func TestAServerThatIsSlow(t *testing.T) {
	slow := func(t *testing.T, test func(h *house, p *mcptest.Peer, discover wire.ID)) {
		t.Helper()
		o := backends.Options{Backends: unasked(plain("a")...), StateDir: t.TempDir()}
		o.Backends[0].StartTimeout = 12 * time.Second
		inHouse(t, o, func(t *testing.T, h *house) {
			p := h.next("a")
			id := p.HandleRequest("server/discover").ID()
			time.Sleep(4 * time.Second) // a third of start_timeout
			test(h, p, id)
		})
	}
	t.Run("and of the session era", func(t *testing.T) {
		slow(t, func(h *house, p *mcptest.Peer, discover wire.ID) {
			p.SendError(discover, `{"code":-32601,"message":"no"}`)
			h.speaksClassic(p)
			p.Exit("exit 1", "")
			h.speaksClassic(h.next("a"))
		})
	})
	t.Run("and of both", func(t *testing.T) {
		slow(t, func(h *house, p *mcptest.Peer, discover wire.ID) {
			p.SendResult(discover, mcptest.DiscoverResult)
			h.speaksClassic(p)
			p.Exit("exit 1", "")
			p = h.next("a") // it is worth asking
			p.ServeDiscover("")
			h.speaksModern(p)
		})
	})
	t.Run("and of the stateless era", func(t *testing.T) {
		slow(t, func(h *house, p *mcptest.Peer, discover wire.ID) {
			p.SendResult(discover, mcptest.DiscoverResult)
			p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
			h.speaksModern(p)
		})
	})
	t.Run("and answers in the other order", func(t *testing.T) {
		slow(t, func(h *house, p *mcptest.Peer, discover wire.ID) {
			p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
			p.SendResult(discover, mcptest.DiscoverResult)
			h.speaksModern(p)
		})
	})
	t.Run("too slow", func(t *testing.T) {
		slow(t, func(h *house, p *mcptest.Peer, _ wire.ID) {
			p.HandleRequest("initialize")
			time.Sleep(8 * time.Second)
			if err := h.status("a").Err; err == nil || !strings.HasPrefix(err.Error(), "it was not ready within 12s (start_timeout)") || !strings.HasSuffix(err.Error(), "set `era: legacy`)") {
				t.Errorf("it failed for %v", err)
			}
			h.speaksClassic(h.next("a"))
		})
	})
	t.Run("and ends", func(t *testing.T) {
		slow(t, func(h *house, p *mcptest.Peer, _ wire.ID) {
			p.HandleRequest("initialize")
			p.Exit("exit 1", "")
			began := time.Now()
			h.speaksClassic(h.next("a"))
			if took := time.Since(began); took != 0 {
				t.Errorf("it took %v", took)
			}
		})
	})
}

// The era is what the process at hand is of, be it another than the one before.
func TestTheEraChangesWithTheProcess(t *testing.T) {
	for name, one := range map[string]config.Backend{"pipe": plain("a")[0], "HTTP": remote("a")} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, backends.Options{Backends: unasked(one)}, func(t *testing.T, h *house) {
				h.OpenSession("one", []byte(`{"sampling":{}}`), false)
				p := h.next("a")
				p.ServeDiscover("")
				h.speaksModern(p)
				p.Exit("exit 1", "")
				synctest.Wait()
				waits := h.callFor("one", "a") // over the line that all share

				p = h.next("a")
				p.SendError(p.HandleRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
				if one.URL == "" {
					p.ServeHandshake("")
					p.SendResult(p.HandleRequest("tools/call").ID(), `{}`)
					p.ServeToolsList(mcptest.ToolsResult("t"))
				} else {
					shared := h.next("a")
					shared.ServeStartup("t")
					own := h.next("a") // which a session needs now
					if m := own.HandleRequest("initialize"); capabilitiesIn(m) != `{"sampling":{}}` {
						t.Errorf("told %s", m.Raw())
					} else {
						own.SendResult(m.ID(), mcptest.InitializeResult)
					}
					own.HandleNotification("notifications/initialized")
					own.SendResult(own.HandleRequest("tools/call").ID(), `{}`)
					p = shared
				}
				waits.ok(t)

				p.Exit("exit 1", "")
				p = h.next("a") // it is taken for what it was
				p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
				p = h.next("a")
				p.ServeDiscover("")
				h.speaksModern(p)
			})
		})
	}
}

// A server behind a URL that wants neither is not asked the same again at once.
func TestAServerOfNoEra(t *testing.T) {
	inHouse(t, backends.Options{Backends: unasked(remote("a"))}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.SendError(p.HandleRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
		p = h.next("a")
		p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
		if at := h.dials("a"); len(at) != 2 {
			t.Errorf("dialled at %v", at)
		}
		if err := h.status("a").Err; err == nil || err.Error() != "initialize: no" {
			t.Errorf("it failed for %v", err)
		}
		p = h.next("a")
		p.ServeDiscover("") // it is asked again, for it is another one perhaps
		h.speaksModern(p)
	})
}

func TestThePinnedEra(t *testing.T) {
	for name, one := range map[string]config.Backend{"pipe": plain("a")[0], "HTTP": remote("a")} {
		t.Run("legacy, "+name, func(t *testing.T) {
			inHouse(t, backends.Options{Backends: []config.Backend{one}}, func(t *testing.T, h *house) {
				p := h.next("a")
				p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
				h.speaksClassic(h.next("a")) // what it says does not change it
			})
		})
		t.Run("modern, "+name, func(t *testing.T) {
			one.Generation = "modern"
			inHouse(t, backends.Options{Backends: []config.Backend{one}}, func(t *testing.T, h *house) {
				p := h.next("a")
				p.SendError(p.HandleRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
				h.wantProblem("a", "it does not speak 2026-07-28: remove `era: modern` (no)")
				p = h.next("a")
				p.ServeDiscover("")
				h.speaksModern(p)
			})
		})
	}
	t.Run("modern, and it ends", func(t *testing.T) {
		one := plain("a")
		one[0].Generation = "modern"
		inHouse(t, backends.Options{Backends: one}, func(t *testing.T, h *house) {
			p := h.next("a")
			p.HandleRequest("server/discover")
			p.Exit("exit 3", "boom")
			h.wantProblem("a", "exit 3; its last words: boom (it was sent server/discover because of `era: modern`)")
		})
	})
	t.Run("legacy, and it is not", func(t *testing.T) {
		inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
			p := h.next("a")
			p.SendError(p.HandleRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
			h.wantProblem("a", "it may speak 2026-07-28 alone: remove `era: legacy` (initialize: no)")
			h.speaksClassic(h.next("a"))
		})
	})
	t.Run("sse is legacy", func(t *testing.T) {
		old := remote("a")
		old.Generation, old.Transport = "auto", "sse"
		inHouse(t, backends.Options{Backends: []config.Backend{old}}, func(t *testing.T, h *house) {
			h.speaksClassic(h.next("a"))
		})
	})
}
