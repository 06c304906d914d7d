package backends_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

// VERSION-02, VERSION-03: some servers exit, or become silent, after any request before initialize.
// With era: legacy, initialize is the first message. For a backend without era, see
// TestVERSION02_ServerThatEndsOnProbe and TestVERSION03_SilentServer.
func TestVERSION02_VERSION03_InitializeComesFirst(t *testing.T) {
	for _, sharing := range []string{"shared", "session"} {
		t.Run(sharing, func(t *testing.T) {
			o := backends.Options{Backends: legacyBackends("a")}
			o.Backends[0].Sharing = config.Sharing(sharing)
			withHarness(t, o, func(t *testing.T, h *harness) {
				h.OpenSession("one", nil, false)
				p := h.nextProcess("a")
				time.Sleep(time.Second)
				p.ServeStartup("t") // the first line must be initialize, the second initialized
				call := h.callFor("one", "a")
				if sharing == "session" {
					p = h.nextProcess("a")
					time.Sleep(time.Second)
					p.ServeHandshake("")
				}
				p.SendResult(p.WantRequest("tools/call").ID(), "{}")
				call.wantResult(t)
			})
		})
	}
}

// NOTIF-20: a server that handles one request at a time gets no requests whose response is late by
// design. An idle backend only gets the handshake, the requests for its lists, and pings if it
// responds to them, even if it runs for a long time.
func TestNOTIF20_NothingBlocksSequentialServer(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake(
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`)
		p.SendResult(p.WantRequest("tools/list").ID(), mcptest.ToolsResult("t"))
		p.SendResult(p.WantRequest("prompts/list").ID(), `{"prompts":[]}`)
		p.SendResult(p.WantRequest("resources/list").ID(), `{"resources":[]}`)
		p.SendResult(p.WantRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
		synctest.Wait()
		p.ReceivePings()
		time.Sleep(24 * time.Hour)
		p.WantRequest("ping") // the test sends no response
		p.WantNothing()
	})
}

// The log contains that a line of plain text on stdout is not JSON; for a malformed message it
// contains the position.
func TestMalformedOutput(t *testing.T) {
	for line, want := range map[string]string{
		"this is not json":                 `err="the line is not JSON"`,
		"true story":                       `err="the line is not JSON"`,
		"✓ ready":                          `err="the line is not JSON"`,
		"12:00:01 INFO started":            `err="the line is not JSON"`,
		`{"jsonrpc":"2.0","id":7,"result"`: `err="the line is not JSON: byte 32: `,
		"[INFO] started":                   `err="the line is not JSON: byte 1: `,
		`"a string"`:                       `err="Invalid request: a message is an object"`,
	} {
		t.Run(line, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: legacyBackends("a")},
				func(t *testing.T, h *harness) {
					a := h.nextProcess("a")
					a.Send(line)
					a.ServeStartup("t")
					synctest.Wait()
					if got := h.log.Lines("skipped output that is not a message"); len(got) != 1 ||
						!strings.Contains(got[0], want) {
						t.Errorf("logged %q, want %s", got, want)
					}
				})
		})
	}
}
