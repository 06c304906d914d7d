package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
)

// A request on the stream of a call of package backends (logging/setLevel) does not end with the
// client's call that happens to be in flight.
func TestServerRequest_StreamOfOwnCall_OutlivesUnrelatedCall(t *testing.T) {
	const handshake = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},` +
		`"serverInfo":{"name":"gh","version":"1"}}`
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", allClientCaps)
		gh := h.nextProcess("gh")
		gh.ServeHandshake(handshake)
		gh.SendResult(gh.WantRequest("tools/list").ID(), mcptest.ToolsResult("ask"))
		listTools(t, client)
		client.Send(`{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"debug"}}`)
		level := gh.WantRequest("logging/setLevel")
		client.Send(toolsCall("1", "ask"))
		call := gh.WantRequest("tools/call")
		gh.SendOnStream(level.ID(),
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"m"}}`)
		input := client.WantRequest("elicitation/create")
		gh.SendResult(call.ID(), `{"content":[]}`)
		if m := client.NextMessage(); m.ID() != "1" {
			t.Errorf("the client got %s", m.Raw())
		}
		client.WantNothing() // no cancellation
		client.SendResult(input.ID(), `{"action":"accept"}`)
		if m := gh.NextMessage(); m.ID() != `"e"` || !strings.Contains(string(m.Raw()), "accept") {
			t.Errorf("the backend got %s", m.Raw())
		}
	})
}

// A suspended call that is continued with other metadata in _meta, by another statelessClient, and
// then becomes a task, keeps its task at the connection of the call.
func TestStatelessTask_ContinuedWithOtherMetadata_KeepsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, _ := openTaskBackend(t, settings{sharing: map[string]string{"gh": "session"}})
		client.Send(modernRequest(`1`, "tools/call", `"name":"job",`, tasksCap))
		own := h.nextProcess("gh")
		own.ServeHandshake(tasksHandshake)
		call := own.NextMessage()
		for ; call.Method() != "tools/call"; call = own.NextMessage() {
			if call.Method() == "tools/list" {
				own.SendResult(call.ID(), jobTools)
			}
		}
		own.SendOnStream(call.ID(),
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"m"}}`)
		state := wantInputRequired(t, client, "q1")
		other := func(request string) string {
			return strings.Replace(request, `"_meta":{`,
				`"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1)
		}
		client.Send(other(modernRequest("2", "tools/call",
			`"name":"job","inputResponses":{"q1":{"action":"accept"}},"requestState":`+state+`,`,
			tasksCap)))
		own.NextMessage() // the response to the elicitation
		own.SendResult(call.ID(), `{"task":{"taskId":"t1","status":"working","ttl":60000}}`)
		task := nextTaskID(t, client)
		client.Send(other(taskRequest(`"get"`, "tasks/get", task, "")))
		if m := own.NextMessage(); m.Method() != "tasks/get" {
			t.Errorf("the backend got %s", m.Raw())
		}
		select {
		case <-h.queues["gh"]:
			t.Error("another process was started")
		default:
		}
	})
}
