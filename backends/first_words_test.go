package backends_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/mcptest"
)

// VERSION-02, VERSION-03: some servers exit, or fall silent, when they are asked
// anything before initialize. With era: legacy that is the first word that a backend
// hears; without it see TestVERSION02_AServerThatEndsAtTheQuestion and
// TestVERSION03_AServerThatIsSilent.
func TestVERSION02_VERSION03_InitializeComesFirst(t *testing.T) {
	for _, sharing := range []string{"shared", "session"} {
		t.Run(sharing, func(t *testing.T) {
			o := backends.Options{Backends: plain("a")}
			o.Backends[0].Sharing = sharing
			inHouse(t, o, func(t *testing.T, h *house) {
				h.OpenSession("one", nil, false)
				p := h.next("a")
				time.Sleep(time.Second)
				p.ServeStartup("t") // its first line must be initialize, and the next initialized
				call := h.callFor("one", "a")
				if sharing == "session" {
					p = h.next("a")
					time.Sleep(time.Second)
					p.ServeHandshake("")
				}
				p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
				call.ok(t)
			})
		})
	}
}

// NOTIF-20: a server that handles one request at a time is never sent one that
// is answered late by design. What an idle backend hears is the handshake and the
// requests for its lists, however long it lasts, and now and then a ping, if it answers that.
func TestNOTIF20_NothingIsSentThatBlocksAServer(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeHandshake(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`)
		p.SendResult(p.HandleRequest("tools/list").ID(), mcptest.ToolsResult("t"))
		p.SendResult(p.HandleRequest("prompts/list").ID(), `{"prompts":[]}`)
		p.SendResult(p.HandleRequest("resources/list").ID(), `{"resources":[]}`)
		p.SendResult(p.HandleRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
		synctest.Wait()
		p.ReceivePings()
		time.Sleep(24 * time.Hour)
		p.HandleRequest("ping") // which it leaves unanswered
		p.WantNothing()
	})
}

// A line of plain text on stdout is said to be no JSON; of a message that is broken the place is named.
func TestOutputThatIsNotJSONIsNamedSo(t *testing.T) {
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
			inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
				a := h.next("a")
				a.Send(line)
				a.ServeStartup("t")
				synctest.Wait()
				if got := h.log.Lines("skipped output that is not a message"); len(got) != 1 || !strings.Contains(got[0], want) {
					t.Errorf("logged %q, want %s", got, want)
				}
			})
		})
	}
}
