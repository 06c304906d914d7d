package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// A call of a backend of the session era is open while its client answers, and goes on with its
// ticket. Answers without one would run the tool beside it.
func TestRetry_WithoutItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(first("1"))
		asked := gh.HandleRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := state(t, client, "q1")
		for _, more := range []string{
			`"inputResponses":{"q1":{"action":"accept"}},`,
			`"inputResponses":{"q1":{"action":"accept"}},"requestState":null,`,
			`"inputResponses":{"other":{},"q1":{}},`,
			`"inputResponses":{"q2":{"action":"accept"}},`,
		} {
			client.Send(request("2", "tools/call", `"name":"ask","arguments":{"n":9007199254740993},`+more, able))
			failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
			if failure.Code != -32602 || !strings.Contains(failure.Message, "inputResponses without requestState") {
				t.Errorf("%s: %+v", more, failure)
			}
			gh.WantNothing()
		}
		client.Send(retry("3", `{"q1":{"action":"accept"}}`, ticket))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
		gh.SendResult(asked.ID(), `{"content":[]}`)
		client.Want(complete("3", `"content":[]}`))

		// That there is nothing some clients write out; and what nobody has asked is the backend's to
		// read, or not to.
		for _, more := range []string{`"inputResponses":null,"requestState":null,`, `"inputResponses":{},`, `"inputResponses":{"user_name":{"action":"accept"}},`} {
			client.Send(request("4", "tools/call", `"name":"ask",`+more, able))
			gh.SendResult(gh.HandleRequest("tools/call").ID(), `{"content":[]}`)
			client.Want(complete("4", `"content":[]}`))
		}
	})
}

// A call that a backend of the stateless era has begun is not begun anew by one of the session
// era that it has become: neither by a client's retry, be the backend running or on its way up, nor
// by one of ours for a client that has a session.
func TestRetry_OfWhatIsOfTheOtherEraNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{era: map[string]string{"gh": "auto"}}, "gh")
		client, _ := h.client()
		client.Initialize("2025-11-25", able)
		guest, _ := h.client()
		guest.Send(request("0", "tools/list", "", able))
		gh := h.backend("gh")
		gh.ServeDiscover("")
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		guest.NextMessage()
		list(t, client)
		const asks = `{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"message":"Who?"}}},"requestState":"S"}`
		guest.Send(first("1"))
		for m := gh.NextMessage(); ; m = gh.NextMessage() {
			if m.Method() == "tools/call" {
				gh.SendResult(m.ID(), asks)
				break
			}
		}
		ticket := state(t, guest, "u")
		client.Send(call("1", "ask"))
		gh.SendResult(gh.HandleRequest("tools/call").ID(), asks)
		question := client.HandleRequest("elicitation/create")
		gh.Exit("exit 1", "")
		again := h.backend("gh")
		gone := func() {
			t.Helper()
			failure := wire.ReadError(guest.NextMessage().Part(wire.PartError))
			if failure.Code != -32602 || !strings.Contains(failure.Message, "begin the call anew") {
				t.Errorf("%+v", failure)
			}
		}
		guest.Send(retry("2", `{"u":{"action":"accept"}}`, ticket))
		again.SendError(again.HandleRequest("server/discover").ID(), `{"code":-32601,"message":"?"}`)
		again.ServeStartup("ask")
		gone()
		guest.Send(retry("3", `{"u":{"action":"accept"}}`, ticket))
		gone()
		client.SendResult(question.ID(), `{"action":"accept"}`)
		if m := client.NextMessage(); m.ID() != "1" || m.Part(wire.PartError) == nil {
			t.Errorf("got %s", m.Raw())
		}
		again.WantNothing()
	})
}
