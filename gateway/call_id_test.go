package gateway_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/mcptest"
)

// callNumbers collects the numbers of calls that begin and end, by the client's id.
type callNumbers struct {
	mu           sync.Mutex
	began, ended map[string]uint64
}

func (n *callNumbers) Begin(c *gateway.CallInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.began[string(c.ID)] = c.Seq
}

func (*callNumbers) Routed(*gateway.CallInfo) {}

func (n *callNumbers) End(c *gateway.CallInfo, _ gateway.Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended[string(c.ID)] = c.Seq
}

// Each call and each rejected request has a number of its own, the same at its beginning and its
// end.
func TestCallNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &callNumbers{began: make(map[string]uint64), ended: make(map[string]uint64)}
		h := newHarness(t, settings{observer: n}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("search")
		listTools(t, client)
		client.Send(`{"jsonrpc":"2.0","id":71,"method":"tools/call","params":{"name":"search"}}`)
		client.Send(`{"jsonrpc":"2.0","id":72,"method":"tools/call","params":{"name":"search"}}`)
		client.Send(`{"jsonrpc":"2.0","id":73,"method":"tools/call","params":{"name":"none"}}`)
		gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		time.Sleep(mcptest.JournalDelay)
		n.mu.Lock()
		defer n.mu.Unlock()
		seen := make(map[uint64]bool)
		for _, id := range []string{"71", "72", "73"} {
			began, ended := n.began[id], n.ended[id]
			if began == 0 || seen[began] || began != ended {
				t.Errorf("call %s: %d at its beginning, %d at its end", id, began, ended)
			}
			seen[began] = true
		}
	})
}
