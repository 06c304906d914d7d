package backends_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// Responses of old and new servers to server/discover (docs/decisions/012-generation-probe.md).
func TestProbe_Responses(t *testing.T) {
	asked := func(p *mcptest.Peer) wire.ID { return p.WantRequest("server/discover").ID() }
	fails := func(objects ...string) func(p *mcptest.Peer) {
		return func(p *mcptest.Peer) {
			for _, o := range objects {
				p.SendError(asked(p), o)
			}
		}
	}
	respondWith := func(result string) func(p *mcptest.Peer) {
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
	valid := respondWith(mcptest.DiscoverResult)
	type row struct {
		name   string
		play   func(p *mcptest.Peer)
		modern bool
	}
	rows := []row{
		{"valid DiscoverResult with a common revision", valid, true},
		{"valid DiscoverResult without resultType",
			respondWith(
				`{"supportedVersions":["2099-01-01","2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}`), true},
		{"DiscoverResult without a common revision",
			respondWith(
				`{"resultType":"complete","supportedVersions":["2025-11-25","2099-01-01"],"capabilities":{}}`), false},
		{"empty result", respondWith(`{}`), false},
		{"shapeless result", respondWith(`{"supportedVersions":"2026-07-28","capabilities":{}}`),
			false},
		{"result that is not an object", respondWith(`[]`), false},
		{"result of an unknown type",
			respondWith(
				`{"resultType":"task","supportedVersions":["2026-07-28"],"capabilities":{}}`),
			false},
		{"-32022 that lists the same revision", then(fails(refusal(`"2026-07-28"`)), valid), true},
		{"repeated -32022", fails(refusal(`"2026-07-28"`), refusal(`"2026-07-28"`)), false},
		{"-32022 that lists only legacy revisions",
			fails(refusal(`"2025-11-25","2025-06-18"`)), false},
		{"-32022 without a list", fails(code(-32022)), false},
		{"-32020 once", then(fails(code(-32020)), valid), true},
		{"-32021 once", then(fails(code(-32021)), valid), true},
		{"repeated -32020", fails(code(-32020), code(-32020)), false},
	}
	for _, n := range []int{-32601, -32602, -32600, -32603, -32000, -32001, 0} {
		rows = append(rows, row{fmt.Sprint(n), fails(code(n)), false})
	}
	for _, r := range rows {
		t.Run("pipe: "+r.name, func(t *testing.T) {
			withHarness(t,
				backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...)},
				func(t *testing.T, h *harness) {
					p := h.nextProcess("a")
					r.play(p)
					if r.modern {
						h.finishModernStart(p)
					} else {
						h.finishLegacyStart(p)
					}
					if n := len(h.dialTimes("a")); n != 1 {
						t.Errorf("dialled %d times", n)
					}
				})
		})
		t.Run("HTTP: "+r.name, func(t *testing.T) {
			withHarness(t,
				backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
				func(t *testing.T, h *harness) {
					p := h.nextProcess("a")
					r.play(p)
					if r.modern {
						h.finishModernStart(p)
						return
					}
					p = h.nextProcess("a")
					h.finishLegacyStart(p)
					if n := h.dialTimes("a"); len(n) != 2 || n[1] != n[0] {
						t.Errorf("dialled at %v", n)
					}
				})
		})
	}
}

// If a server refuses initialize and names its revisions, the gateway offers one of these
// revisions.
func TestRevisionIsRefused_F_HTTP_12(t *testing.T) {
	for name, tt := range map[string]struct{ refusal, want string }{
		"-32602 with a list":     {`{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2024-11-05","2025-03-26"],"requested":"2025-11-25"}}`, "2025-03-26"},
		"-32022 with a list":     {`{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}`, "2025-06-18"},
		"-32000 and text":        {`{"code":-32000,"message":"Bad Request: Unsupported protocol version: 2025-11-25 (supported versions: 2024-11-05, 2025-06-18)"}`, "2025-06-18"},
		"both generations":       {`{"code":-32602,"message":"no","data":{"supportedVersions":["2026-07-28","2025-06-18"]}}`, "2025-06-18"},
		"only what was offered":  {`{"code":-32602,"message":"no","data":{"supported":["2025-11-25"]}}`, ""},
		"only unknown revisions": {`{"code":-32602,"message":"no","data":{"supported":["2023-01-01", 7]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: legacyBackends("a")},
				func(t *testing.T, h *harness) {
					p := h.nextProcess("a")
					p.SendError(p.WantRequest("initialize").ID(), tt.refusal)
					if tt.want == "" {
						p.WantNothing()
						h.finishLegacyStart(h.nextProcess("a"))
						return
					}
					m := p.WantRequest("initialize")
					if date, _ := wire.Lookup(m.Part(wire.PartParams),
						"protocolVersion"); wire.Unquote(date) != tt.want {
						t.Errorf("offered %s", m.Raw())
					}
					p.SendResult(m.ID(),
						`{"protocolVersion":"`+tt.want+
							`","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)
					p.WantNotification("notifications/initialized")
					p.ServeToolsList(mcptest.ToolsResult("t"))
					if s := h.status("a"); s.State != backends.Ready || s.Revision != tt.want {
						t.Errorf("status %+v", s)
					}
					p.Exit("exit 1", "")
					p = h.nextProcess("a")
					p.SendError(p.WantRequest("initialize").ID(), tt.refusal)
					// one more try, not two
					p.SendError(p.WantRequest("initialize").ID(), tt.refusal)
					p.WantNothing()
				})
		})
	}
}

// VERSION-02: a server that exits on any request before initialize is started again at once,
// without the probe. From then on it is not probed, not even by the next gateway.
func TestVERSION02_ServerThatEndsOnProbe(t *testing.T) {
	o := backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...),
		StateDir: t.TempDir()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		waits, _ := h.call("a")
		p := h.nextProcess("a")
		p.WantRequest("server/discover")
		p.Exit("exit 1", "")
		p = h.nextProcess("a")
		p.ServeHandshake("")
		p.SendResult(p.WantRequest("tools/call").ID(), "{}")
		waits.wantResult(t)
		p.ServeToolsList(mcptest.ToolsResult("t"))
		if at := h.dialTimes("a"); len(at) != 2 || at[1] != at[0] {
			t.Errorf("dialled at %v", at)
		}
		if warnings := h.log.Warnings(); len(warnings) > 0 {
			t.Errorf("logged %q", warnings)
		}
		if records := h.log.Lines("level=INFO", "era: legacy", "exit 1"); len(records) != 1 {
			t.Errorf("logged %q", records)
		}
		p.Exit("exit 2", "")
		h.finishLegacyStart(h.nextProcess("a"))
	})
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		h.finishLegacyStart(p)
		// The server has been replaced by a modern one.
		p.Exit("exit 3", "")
		p = h.nextProcess("a")
		p.SendError(p.WantRequest("initialize").ID(),
			`{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}`)
		p = h.nextProcess("a")
		p.ServeDiscover("")
		h.finishModernStart(p)
	})
	if text, _ := os.ReadFile(cacheFile(t, o.StateDir)); strings.Contains(string(text), "era") {
		t.Errorf("kept %s", text)
	}
}

// A program that cannot start ends after any request, so its end proves nothing about the
// generation.
func TestProbe_ProgramThatCannotStart(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...),
		StateDir: t.TempDir()}, func(t *testing.T, h *harness) {
		waits, _ := h.call("a")
		h.nextProcess("a").Exit("exit 127", "sh: npx: not found")
		h.nextProcess("a").Exit("exit 127", "sh: npx: not found")
		waits.want(t, "it did not start: exit 127; its last words: sh: npx: not found")
		defer func() {
			if records := h.log.Lines("level=INFO", "server/discover"); len(records) > 0 {
				t.Errorf("the probe is named as the reason: %q", records)
			}
		}()
		p := h.nextProcess("a") // a can start now, and is modern
		p.SendError(p.WantRequest("initialize").ID(),
			`{"code":-32601,"message":"Method not found"}`)
		p = h.nextProcess("a")
		p.ServeDiscover("")
		h.finishModernStart(p)
	})
}

// VERSION-03: if a server is silent when it is probed, initialize is sent after 5 s to the same
// process, because the server may only be slow. The server is not probed again.
func TestVERSION03_SilentServer(t *testing.T) {
	o := backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...),
		StateDir: t.TempDir()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.WantRequest("server/discover")
		began := time.Now()
		h.finishLegacyStart(p)
		if took := time.Since(began); took < 5*time.Second || took > 5100*time.Millisecond {
			t.Errorf("ready after %v", took)
		}
		if n := len(h.dialTimes("a")); n != 1 {
			t.Errorf("dialled %d times", n)
		}
	})
	withHarness(t, o, func(t *testing.T, h *harness) { h.finishLegacyStart(h.nextProcess("a")) })
}

func TestProbe_SlowServer(t *testing.T) {
	slow := func(t *testing.T, test func(h *harness, p *mcptest.Peer, discover wire.ID)) {
		t.Helper()
		o := backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...),
			StateDir: t.TempDir()}
		o.Backends[0].StartTimeout = 12 * time.Second
		withHarness(t, o, func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			id := p.WantRequest("server/discover").ID()
			time.Sleep(4 * time.Second) // a third of start_timeout
			test(h, p, id)
		})
	}
	t.Run("then legacy", func(t *testing.T) {
		slow(t, func(h *harness, p *mcptest.Peer, discover wire.ID) {
			p.SendError(discover, `{"code":-32601,"message":"no"}`)
			h.finishLegacyStart(p)
			p.Exit("exit 1", "")
			h.finishLegacyStart(h.nextProcess("a"))
		})
	})
	t.Run("then supports both generations", func(t *testing.T) {
		slow(t, func(h *harness, p *mcptest.Peer, discover wire.ID) {
			p.SendResult(discover, mcptest.DiscoverResult)
			h.finishLegacyStart(p)
			p.Exit("exit 1", "")
			p = h.nextProcess("a") // this process is probed
			p.ServeDiscover("")
			h.finishModernStart(p)
		})
	})
	t.Run("then modern", func(t *testing.T) {
		slow(t, func(h *harness, p *mcptest.Peer, discover wire.ID) {
			p.SendResult(discover, mcptest.DiscoverResult)
			p.SendError(p.WantRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
			h.finishModernStart(p)
		})
	})
	t.Run("and responds in the other order", func(t *testing.T) {
		slow(t, func(h *harness, p *mcptest.Peer, discover wire.ID) {
			p.SendError(p.WantRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
			p.SendResult(discover, mcptest.DiscoverResult)
			h.finishModernStart(p)
		})
	})
	t.Run("too slow", func(t *testing.T) {
		slow(t, func(h *harness, p *mcptest.Peer, _ wire.ID) {
			p.WantRequest("initialize")
			time.Sleep(8 * time.Second)
			if err := h.status("a").Err; err == nil ||
				!strings.HasPrefix(err.Error(), "it was not ready within 12s (start_timeout)") ||
				!strings.HasSuffix(err.Error(), "set `era: legacy`)") {
				t.Errorf("the backend failed with %v", err)
			}
			h.finishLegacyStart(h.nextProcess("a"))
		})
	})
	t.Run("and ends", func(t *testing.T) {
		slow(t, func(h *harness, p *mcptest.Peer, _ wire.ID) {
			p.WantRequest("initialize")
			p.Exit("exit 1", "")
			began := time.Now()
			h.finishLegacyStart(h.nextProcess("a"))
			if took := time.Since(began); took != 0 {
				t.Errorf("the start took %v", took)
			}
		})
	})
}

// The generation of a backend is the generation of its current process, even if the preceding
// process had another one.
func TestProbe_GenerationChangesWithProcess(t *testing.T) {
	for name, one := range map[string]config.Backend{"pipe": legacyBackends("a")[0],
		"HTTP": perSessionBackend("a")} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: withUnknownGeneration(one)},
				func(t *testing.T, h *harness) {
					h.OpenSession("one", []byte(`{"sampling":{}}`), false)
					p := h.nextProcess("a")
					p.ServeDiscover("")
					h.finishModernStart(p)
					p.Exit("exit 1", "")
					synctest.Wait()
					waits := h.callFor("one", "a") // the call waits for the shared connection

					p = h.nextProcess("a")
					p.SendError(p.WantRequest("server/discover").ID(),
						`{"code":-32601,"message":"no"}`)
					if one.URL == "" {
						p.ServeHandshake("")
						p.SendResult(p.WantRequest("tools/call").ID(), `{}`)
						p.ServeToolsList(mcptest.ToolsResult("t"))
					} else {
						shared := h.nextProcess("a")
						shared.ServeStartup("t")
						own := h.nextProcess("a") // the session needs its own connection
						if m := own.WantRequest("initialize"); declaredIn(m) != `{"sampling":{}}` {
							t.Errorf("declared in %s", m.Raw())
						} else {
							own.SendResult(m.ID(), mcptest.InitializeResult)
						}
						own.WantNotification("notifications/initialized")
						own.SendResult(own.WantRequest("tools/call").ID(), `{}`)
						p = shared
					}
					waits.wantResult(t)

					p.Exit("exit 1", "")
					p = h.nextProcess("a") // the known generation is used
					p.SendError(p.WantRequest("initialize").ID(),
						`{"code":-32601,"message":"no"}`)
					p = h.nextProcess("a")
					p.ServeDiscover("")
					h.finishModernStart(p)
				})
		})
	}
}

func TestPinnedGeneration(t *testing.T) {
	for name, one := range map[string]config.Backend{"pipe": legacyBackends("a")[0],
		"HTTP": perSessionBackend("a")} {
		t.Run("legacy, "+name, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: []config.Backend{one}},
				func(t *testing.T, h *harness) {
					p := h.nextProcess("a")
					p.SendError(p.WantRequest("initialize").ID(),
						`{"code":-32601,"message":"no"}`)
					// The response to initialize does not change the generation.
					h.finishLegacyStart(h.nextProcess("a"))
				})
		})
		t.Run("modern, "+name, func(t *testing.T) {
			one.Generation = "modern"
			withHarness(t, backends.Options{Backends: []config.Backend{one}},
				func(t *testing.T, h *harness) {
					p := h.nextProcess("a")
					p.SendError(p.WantRequest("server/discover").ID(),
						`{"code":-32601,"message":"no"}`)
					h.wantError("a", "it does not speak 2026-07-28: remove `era: modern` (no)")
					p = h.nextProcess("a")
					p.ServeDiscover("")
					h.finishModernStart(p)
				})
		})
	}
	t.Run("modern, but the server ends", func(t *testing.T) {
		one := legacyBackends("a")
		one[0].Generation = "modern"
		withHarness(t, backends.Options{Backends: one}, func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.WantRequest("server/discover")
			p.Exit("exit 3", "boom")
			h.wantError("a",
				"exit 3; its last words: boom (it was sent server/discover because of `era: modern`)")
		})
	})
	t.Run("legacy, but the server is modern", func(t *testing.T) {
		withHarness(t, backends.Options{Backends: legacyBackends("a")},
			func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.SendError(p.WantRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
				h.wantError("a",
					"it may speak only 2026-07-28: remove `era: legacy` (initialize: no)")
				h.finishLegacyStart(h.nextProcess("a"))
			})
	})
	t.Run("sse is legacy", func(t *testing.T) {
		old := perSessionBackend("a")
		old.Generation, old.Transport = "auto", "sse"
		withHarness(t, backends.Options{Backends: []config.Backend{old}},
			func(t *testing.T, h *harness) {
				h.finishLegacyStart(h.nextProcess("a"))
			})
	})
}
