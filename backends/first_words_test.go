package backends_test

import (
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
				h.Open("one", nil, false)
				p := h.next("a")
				time.Sleep(time.Second)
				p.Ready("t") // its first line must be initialize, and the next initialized
				call := h.callFor("one", "a")
				if sharing == "session" {
					p = h.next("a")
					time.Sleep(time.Second)
					p.Greet("")
				}
				p.Reply(p.Asked("tools/call").ID(), "{}")
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
		p.Greet(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`)
		p.Reply(p.Asked("tools/list").ID(), mcptest.Tools("t"))
		p.Reply(p.Asked("prompts/list").ID(), `{"prompts":[]}`)
		p.Reply(p.Asked("resources/list").ID(), `{"resources":[]}`)
		p.Reply(p.Asked("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
		synctest.Wait()
		p.HearPings()
		time.Sleep(24 * time.Hour)
		p.Asked("ping") // which it leaves unanswered
		p.WantNothing()
	})
}
