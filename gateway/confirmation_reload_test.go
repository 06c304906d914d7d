package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// denied are settings that deny all tools.
var denied = config.ToolSettings{Deny: []string{"*"}}

// applyTools applies a configuration with these settings for the tools of the backend gh.
func applyTools(t *testing.T, set *backends.Set, generation string, tools config.ToolSettings) {
	t.Helper()
	applyConfig(t, set, config.Backend{Name: "gh", Command: "gh", Enabled: true,
		StartTimeout: time.Minute, MaxInFlight: 20_000, Tools: tools,
		Generation: config.GenerationSetting(generation)})
}

// A call that was queued before a reload is asked about if it now needs a confirmation, and runs
// without if it does not need one any more.
func TestConfirm_ReloadAppliesToQueuedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		o := confirmSettings("legacy")
		o.tools, o.stateDir, o.backendSet = nil, t.TempDir(), &set
		h, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		gh.Exit("exit 1", "")
		again := h.nextProcess("gh")
		client.Send(callDel("1"))
		synctest.Wait()
		client.WantNothing() // it is queued
		applyTools(t, set, "legacy", config.ToolSettings{Confirm: []string{"del_*"}})
		serveTools(again, "legacy")
		id := wantQuestion(t, client).ID()
		again.WantNothing()
		client.SendResult(id, confirmed)
		again.SendResult(again.WantRequest("tools/call").ID(), `{}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)

		applyTools(t, set, "legacy", config.ToolSettings{})
		client.Send(callDel("2"))
		again.SendResult(again.WantRequest("tools/call").ID(), `{}`)
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
}

// A reload denies the tool while the client is asked: the confirmed call is refused like an unknown
// tool.
func TestConfirm_ReloadDeniesWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		o := confirmSettings("legacy")
		o.backendSet = &set
		h, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		client.Send(callDel("1"))
		id := wantQuestion(t, client).ID()
		applyTools(t, set, "legacy", denied)
		client.SendResult(id, confirmed)
		m := client.NextMessage()
		for m.Kind() != wire.Response {
			m = client.NextMessage()
		}
		if wire.ReadError(m.Part(wire.PartError)).Message != "Unknown tool: del_a" {
			t.Errorf("got %s", m.Raw())
		}
		gh.WantNothing()
		wantRecord(t, h, "outcome=rejected", "the filters of backend gh deny it",
			"confirmation=accepted")
	})
}

// A reload requires a confirmation in the middle of the rounds of a modern backend: the call ends,
// because it has begun without.
func TestConfirm_ReloadDuringRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		o := confirmSettings("modern")
		o.tools, o.backendSet = nil, &set
		_, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		client.Send(callDel("1"))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"input_required","inputRequests":{"x":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"S"}`)
		m := client.WantRequest("elicitation/create")
		applyTools(t, set, "modern", config.ToolSettings{Confirm: []string{"del_*"}})
		client.SendResult(m.ID(), `{"action":"accept"}`)
		m = client.NextMessage()
		if got := wire.ReadError(m.Part(wire.PartError)).Message; !strings.Contains(got,
			"tools.confirm") || !strings.Contains(got, "the call may have run") {
			t.Errorf("got %s", m.Raw())
		}
		gh.WantNothing()
	})
}

// A reload denies the tool, or removes the backend's confirmation, while the client is asked.
func TestConfirm_ReloadWhileStatelessIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		o := confirmSettings("legacy")
		o.backendSet = &set
		h, client, gh := openStatelessConfirm(t, o)
		client.Send(modernDel("1", ""))
		state := wantInputRequired(t, client, "q1")
		applyTools(t, set, "legacy", denied)
		client.Send(retryDel("2", confirmedQ1, state))
		if m := client.NextMessage(); wire.ReadError(m.Part(wire.PartError)).Message !=
			"Unknown tool: del_a" {
			t.Errorf("got %s", m.Raw())
		}
		gh.WantNothing()
		wantRecord(t, h, "outcome=rejected", "the filters of backend gh deny it")

		applyTools(t, set, "legacy", config.ToolSettings{})
		client.Send(modernDel("3", ""))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		wantComplete(t, client, "3")
	})
}

// A reload requires a confirmation between the rounds of a modern backend: the client has to start
// the call again.
func TestConfirm_ReloadBetweenRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		o := confirmSettings("modern")
		o.tools, o.backendSet = nil, &set
		_, client, gh := openStatelessConfirm(t, o)
		client.Send(modernDel("1", ""))
		gh.SendResult(gh.WantRequest("tools/call").ID(), fmt.Sprintf(oneInput, `,"requestState":"S"`))
		state := wantInputRequired(t, client, "x")
		applyTools(t, set, "modern", config.ToolSettings{Confirm: []string{"del_*"}})
		client.Send(retryDel("2", `{"x":{"action":"accept"}}`, state))
		m := client.NextMessage()
		if got := wire.ReadError(m.Part(wire.PartError)).Message; !strings.HasSuffix(got,
			"(tools.confirm); start the call again") {
			t.Errorf("got %s", m.Raw())
		}
		gh.WantNothing()
		client.Send(modernDel("3", ""))
		client.Send(retryDel("4", confirmedQ1, wantInputRequired(t, client, "q1")))
		gh.SendResult(gh.WantRequest("tools/call").ID(), completed("modern"))
		wantComplete(t, client, "4")
	})
}

// A stateless call that is queued before a reload is asked about if it now needs a confirmation.
func TestConfirm_ReloadAppliesToQueuedStatelessCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		o := confirmSettings("legacy")
		o.tools, o.stateDir, o.backendSet = nil, t.TempDir(), &set
		h, client, gh := openStatelessConfirm(t, o)
		gh.Exit("exit 1", "")
		again := h.nextProcess("gh")
		client.Send(modernDel("1", ""))
		synctest.Wait()
		client.WantNothing()
		applyTools(t, set, "legacy", config.ToolSettings{Confirm: []string{"del_*"}})
		serveTools(again, "legacy")
		state := wantInputRequired(t, client, "q1")
		again.WantNothing()
		client.Send(retryDel("2", confirmedQ1, state))
		again.SendResult(again.WantRequest("tools/call").ID(), `{"content":[]}`)
		wantComplete(t, client, "2")
	})
}
