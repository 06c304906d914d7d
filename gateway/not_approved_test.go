package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// approveTools puts a lock file into force in which these tools of the backend gh, as
// mcptest.ToolsResult lists them, are approved.
func approveTools(set *backends.Set, names ...string) {
	l, tools := new(pins.Lock), make(pins.Tools)
	for _, name := range names {
		tools[name] = pins.New([]byte(`{"inputSchema":{"type":"object"}}`))
	}
	l.Approve("gh", tools, names)
	set.SetLock(l)
}

// The client of a tool that is not approved gets an error that says what to do, under each spelling
// of the name, whether it has listed the tool before or not. No backend gets the call. When the
// tool is approved, the client is notified, and the call is sent.
func TestNotApprovedToolIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{backendSet: &set,
			tools: map[string]config.ToolSettings{"gh": {Pin: config.PinBlock}}}, "gh")
		approveTools(set, "open", "later")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeHandshake("")
		gh.SendResult(gh.WantRequest("tools/list").ID(),
			mcptest.ToolsResult("open", "secret", "later"))
		if got := listTools(t, client); strings.Contains(got, "secret") ||
			!strings.Contains(got, "later") {
			t.Errorf("listed %s", got)
		}
		approveTools(set, "open") // the client still knows the tool later
		client.Want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		const reason = "the tool %s is new and not approved: run gateway approve gh"
		for i, tool := range []string{"secret", "gh__secret", "later", "gh__later"} {
			id, why := fmt.Sprint(i+10), fmt.Sprintf(reason, strings.TrimPrefix(tool, "gh__"))
			client.Send(toolsCall(id, tool))
			client.Want(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"backend gh: ` +
				why + `; the call did not run","data":{"backend":"gh","reason":"` + why + `"}}}`)
		}
		gh.WantNothing()
		approveTools(set, "open", "secret")
		client.Want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		client.Send(toolsCall("20", "secret"))
		gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":20,"result":{}}`)
		records := h.auditRecords()
		if len(records) != 5 || !strings.Contains(records[0], "outcome=rejected") ||
			!strings.Contains(records[0], "backend=gh") ||
			!strings.Contains(records[0], "not approved") ||
			!strings.Contains(records[2], "outcome=rejected") {
			t.Errorf("audit records: %q", records)
		}
	})
}

// While a stateless client's call is suspended, the approval of its tool is withdrawn. When the
// client continues the call, the call ends, also at the backend. A new call does not run either.
func TestSuspendedCallOfToolThatIsNotApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{singleClient: true, backendSet: &set,
			tools: map[string]config.ToolSettings{"gh": {Pin: config.PinBlock}}}, "gh")
		approveTools(set, "ask")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", clientCaps))
		gh := h.nextProcess("gh")
		gh.ServeStartup("ask")
		client.NextMessage()
		client.Send(firstRequest("1"))
		gh.WantRequest("tools/call")
		gh.Send(
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object"}}}`)
		ticket := wantInputRequired(t, client, "q1")
		approveTools(set)
		client.Send(retryRequest("2", `{"q1":{"action":"accept","content":{}}}`, ticket))
		wantNotRun := func(id string) {
			t.Helper()
			m := client.NextMessage()
			e := wire.ReadError(m.Part(wire.PartError))
			if string(m.ID()) != id || !strings.HasSuffix(e.Message,
				"run gateway approve gh; the call did not run") {
				t.Errorf("got %s", m.Raw())
			}
		}
		wantNotRun("2")
		sent := strings.Join(gh.TakeAll(), "\n")
		if !strings.Contains(sent, "notifications/cancelled") || strings.Contains(sent, "accept") {
			t.Errorf("the backend got %s", sent)
		}
		if n := h.gateway.SuspendedCalls(); n != 0 {
			t.Errorf("%d calls are suspended", n)
		}
		client.Send(firstRequest("3"))
		wantNotRun("3")
		gh.WantNothing()
	})
}

// A session client's call requires input at a modern backend, and the approval of its tool is
// withdrawn meanwhile. The call is not sent again; it has run in part, and the error says so.
func TestContinuationOfToolThatIsNotApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{singleClient: true, backendSet: &set,
			generation: map[string]string{"gh": "modern"},
			tools:      map[string]config.ToolSettings{"gh": {Pin: config.PinBlock}}}, "gh")
		approveTools(set, "ask")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", `{"elicitation":{}}`)
		gh := h.nextProcess("gh")
		gh.ServeDiscover("")
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		listTools(t, client)
		client.Send(toolsCall("1", "ask"))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"S"}`)
		request := client.WantRequest("elicitation/create")
		approveTools(set)
		client.WantNotification("notifications/tools/list_changed")
		client.SendResult(request.ID(), `{"action":"accept","content":{}}`)
		m := client.NextMessage()
		if e := wire.ReadError(m.Part(wire.PartError)); !strings.Contains(e.Message,
			"run gateway approve gh; outcome unknown: the call may have run") {
			t.Errorf("got %s", m.Raw())
		}
		gh.WantNothing()
	})
}
