package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/wire"
)

// Ambiguous messages are forwarded in neither direction. An ambiguous request gets an error.
func TestAmbiguousMembers_F_SEC_4(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", `{"elicitation":{},"tasks":{"list":{},"cancel":{}}}`)
		gh := h.nextProcess("gh")
		gh.ServeStartup("a", "b")
		listTools(t, client)
		for id, request := range []string{
			`"method":"tools/call","params":{"name":"a","NAME":"b"}`,
			`"method":"tools/call","params":{"name":"a","name":"b"}`,
			`"method":"tools/call","params":{"name":"a","task":{},"Task":null}`,
			`"method":"tools/call","params":{"name":"a"},"Params":{"name":"b"}`,
			`"method":"tools/call","METHOD":"tools/list","params":{"name":"a"}`,
			`"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"},"io.modelcontextprotocol/related-task":{"taskId":"y"}}}`,
			`"method":"resources/read","params":{"uri":"x:1","Uri":"x:2"}`,
			`"method":"tasks/get","params":{"taskId":"x","TASKID":"y"}`,
			`"method":"tasks/result","params":{"taskId":"x","ta\u0073kId":"y"}`,
			`"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a","Name":"b"},"argument":{"name":"x","value":""}}`,
			`"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a"},"Ref":{},"argument":{"name":"x","value":""}}`,
			`"method":"logging/setLevel","params":{"level":"debug","Level":"error"}`,
			`"method":"tools/list","params":{"cursor":"x","CURSOR":"y"}`,
		} {
			client.Sendf(`{"jsonrpc":"2.0","id":%d,%s}`, id+10, request)
			m := client.NextMessage()
			if e := wire.ReadError(m.Part(wire.PartError)); e.Code != -32600 ||
				!strings.Contains(e.Message, "twice") &&
					!strings.Contains(e.Message, "only in case") {
				t.Errorf("%s: answered with %s", request, m.Raw())
			}
		}
		client.Send(toolsCall("1", "a"))
		asked := gh.WantRequest("tools/call")
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"RequestId":2}}`)
		if e := wire.ReadError(client.NextMessage().Part(wire.PartError)); e.Code != -32600 {
			t.Errorf("the notification was accepted: %+v", e)
		}
		gh.WantNothing()

		// From the backend:
		gh.Send(
			`{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"message":"x","_meta":{},"_Meta":{}}}`)
		if m := gh.NextMessage(); m.ID() != "5" ||
			wire.ReadError(m.Part(wire.PartError)).Code != -32600 {
			t.Errorf("the backend was answered with %s", m.Raw())
		}
		for _, params := range []string{
			`"notifications/progress","params":{"progressToken":` + string(asked.ID()) +
				`,"ProgressToken":7,"progress":1}`,
			`"notifications/resources/updated","params":{"uri":"x:1","URI":"x:2"}`,
			`"notifications/tasks/status","params":{"taskId":"x","taskId":"y","status":"working"}`,
			`"notifications/elicitation/complete","params":{"elicitationId":"x","ElicitationId":"y"}`,
			`"notifications/cancelled","params":{"requestId":1,"requestId":2}`,
		} {
			gh.Send(`{"jsonrpc":"2.0","method":` + params + `}`)
		}
		gh.WantNothing()
		client.WantNothing()
		if lines := h.log.Lines("level=WARN", "backend=gh", "not a message"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		gh.SendResult(asked.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}
