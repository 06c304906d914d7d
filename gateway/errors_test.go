package gateway_test

import (
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
)

// A call for a full queue of a backend is rejected. The outcome is not backend_lost.
func TestQueueFullIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{maxInFlight: 1}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("search")
		listTools(t, client)
		client.Send(toolsCall("1", "search"))
		id := gh.WantRequest("tools/call").ID()
		client.Send(toolsCall("2", "search"))
		const busy = "busy: it takes 1 call at a time (max_in_flight), and none may wait (queue_wait: 0s)"
		client.Want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"backend gh: ` +
			busy + `; the call did not run",` +
			`"data":{"backend":"gh","reason":"` + busy + `"}}}`)
		gh.SendResult(id, "{}")
		client.Next()
		time.Sleep(mcptest.JournalDelay)
		if len(h.journal.Lines("id=2", "backend=gh", "outcome=rejected")) != 1 ||
			len(h.journal.Lines("id=1", "outcome=ok")) != 1 {
			t.Errorf("recorded %q", h.journal.Lines())
		}
	})
}
