package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// A call at a legacy backend stays open until the client responds, and continues with the ticket.
// Responses without the ticket are rejected, because they would run the tool a second time.
func TestContinuation_WithoutRequestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		gh.Send(
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := wantInputRequired(t, client, "q1")
		for _, more := range []string{
			`"inputResponses":{"q1":{"action":"accept"}},`,
			`"inputResponses":{"q1":{"action":"accept"}},"requestState":null,`,
			`"inputResponses":{"other":{},"q1":{}},`,
			`"inputResponses":{"q2":{"action":"accept"}},`,
		} {
			client.Send(modernRequest("2", "tools/call",
				`"name":"ask","arguments":{"n":9007199254740993},`+more, clientCaps))
			failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
			if failure.Code != -32602 || !strings.Contains(failure.Message,
				"inputResponses without requestState") {
				t.Errorf("%s: %+v", more, failure)
			}
			gh.WantNothing()
		}
		client.Send(retryRequest("3", `{"q1":{"action":"accept"}}`, ticket))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
		gh.SendResult(asked.ID(), `{"content":[]}`)
		client.Want(completeResult("3", `"content":[]}`))

		// Some clients write null for absent members. Unrequested responses are forwarded to the
		// backend.
		for _, more := range []string{`"inputResponses":null,"requestState":null,`,
			`"inputResponses":{},`, `"inputResponses":{"user_name":{"action":"accept"}},`} {
			client.Send(modernRequest("4", "tools/call", `"name":"ask",`+more, clientCaps))
			gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
			client.Want(completeResult("4", `"content":[]}`))
		}
	})
}

// A call begun at a modern backend is not run again after the backend has become legacy: neither
// by a retry of a stateless client, with the backend running or starting, nor by the gateway's
// retry for a session client.
func TestContinuation_GenerationChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{generation: map[string]string{"gh": "auto"}}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", clientCaps)
		stateless, _ := h.connectClient()
		stateless.Send(modernRequest("0", "tools/list", "", clientCaps))
		gh := h.nextProcess("gh")
		gh.ServeDiscover("")
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		stateless.NextMessage()
		listTools(t, client)
		const asks = `{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"message":"Who?"}}},"requestState":"S"}`
		stateless.Send(firstRequest("1"))
		for m := gh.NextMessage(); ; m = gh.NextMessage() {
			if m.Method() == "tools/call" {
				gh.SendResult(m.ID(), asks)
				break
			}
		}
		ticket := wantInputRequired(t, stateless, "u")
		client.Send(toolsCall("1", "ask"))
		gh.SendResult(gh.WantRequest("tools/call").ID(), asks)
		request := client.WantRequest("elicitation/create")
		gh.Exit("exit 1", "")
		again := h.nextProcess("gh")
		gone := func() {
			t.Helper()
			failure := wire.ReadError(stateless.NextMessage().Part(wire.PartError))
			if failure.Code != -32602 || !strings.Contains(failure.Message, "start the call again") {
				t.Errorf("%+v", failure)
			}
		}
		stateless.Send(retryRequest("2", `{"u":{"action":"accept"}}`, ticket))
		again.SendError(again.WantRequest("server/discover").ID(),
			`{"code":-32601,"message":"?"}`)
		again.ServeStartup("ask")
		gone()
		stateless.Send(retryRequest("3", `{"u":{"action":"accept"}}`, ticket))
		gone()
		client.SendResult(request.ID(), `{"action":"accept"}`)
		if m := client.NextMessage(); m.ID() != "1" || m.Part(wire.PartError) == nil {
			t.Errorf("got %s", m.Raw())
		}
		again.WantNothing()
	})
}

// A call that the backend was asked to run as a task cannot be continued by a request that does not
// declare the extension for tasks. The call stays suspended.
func TestContinuation_WithoutTasksExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		client.Send(modernRequest("1", "tools/call", `"name":"job",`, tasksCap))
		call := gh.WantRequest("tools/call")
		gh.SendOnStream(call.ID(),
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"m"}}`)
		ticket := wantInputRequired(t, client, "q1")
		retry := func(id, caps string) {
			client.Send(modernRequest(id, "tools/call",
				`"name":"job","inputResponses":{"q1":{"action":"accept"}},"requestState":`+ticket+`,`,
				caps))
		}
		retry("2", `{"elicitation":{}}`)
		wantErrorCode(t, client, -32021)
		gh.WantNothing()
		retry("3", tasksCap)
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
		gh.SendResult(call.ID(), `{"task":{"taskId":"t1","status":"working","ttl":60000}}`)
		nextTaskID(t, client)
	})
}

// The request that continues a call gets log messages only of the level in its own metadata.
func TestContinuation_LogLevelOfRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		client, _ := h.connectClient()
		client.Send(withLogLevel(modernRequest("0", "tools/list", "", clientCaps)))
		gh := startWithLogs(h, "gh", "")
		client.NextMessage()
		client.Send(withLogLevel(firstRequest("1")))
		call := nextCall(gh)
		for n, level := range []string{"", "emergency", "error"} {
			gh.SendOnStream(call.ID(), `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
			retry := retryRequest(fmt.Sprint(n+2), `{"q`+fmt.Sprint(n+1)+`":{"roots":[]}}`,
				wantInputRequired(t, client))
			if level != "" {
				retry = strings.Replace(withLogLevel(retry), `"debug"`, `"`+level+`"`, 1)
			}
			client.Send(retry)
			gh.Want(`{"jsonrpc":"2.0","id":"r","result":{"roots":[]}}`)
			gh.SendOnStream(call.ID(), logNote)
			if level == "error" {
				client.WantNotification("notifications/message")
			}
			client.WantNothing()
		}
	})
}
