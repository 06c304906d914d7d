package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
)

// Modern revisions have no batches: every modern request in a batch is rejected, and all other
// requests in the batch are served.
func TestBatch_RejectsModernRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-03-26")
		client.Send(`{"jsonrpc":"2.0","id":0,"method":"tools/list"}`)
		gh := h.nextProcess("gh")
		gh.ServeStartup("ask")
		client.NextMessage()

		const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`
		const no = `"error":{"code":-32600,"message":"Invalid request: its protocol revision has no batches; send it on its own"}}`
		client.Send(`[` + strings.Join([]string{
			firstRequest("1"), call, modernRequest("3", "ping", "", clientCaps),
			modernRequest("4", "server/discover", "", clientCaps),
			strings.Replace(firstRequest("5"), "2026-07-28", "v999", 1),
			strings.Replace(firstRequest("6"), "2026-07-28", "2025-03-26", 1),
			`{"jsonrpc":"2.0","id":7,"method":"ping"}`,
		}, `,`) + `]`)
		for range 2 { // requests 2 and 6 name a legacy revision
			gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		}
		gh.WantNothing()
		client.Want(`[{"jsonrpc":"2.0","id":1,` + no +
			`,{"jsonrpc":"2.0","id":2,"result":{"content":[]}},{"jsonrpc":"2.0","id":3,` + no +
			`,{"jsonrpc":"2.0","id":4,` + no + `,{"jsonrpc":"2.0","id":5,` + no +
			`,{"jsonrpc":"2.0","id":6,"result":{"content":[]}},{"jsonrpc":"2.0","id":7,"result":{}}]`)
		if got := strings.Join(h.auditRecords(), "\n"); strings.Count(got, "outcome=rejected") !=
			2 || strings.Count(got, "outcome=ok") != 2 {
			t.Errorf("the audit log has\n%s", got)
		}

		// the same request is served outside of a batch
		client.Send(modernRequest("8", "tools/call", `"name":"ask",`, `{}`))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.Want(completeResult("8", `"content":[]}`))
	})
}
