package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// undeclaredInputs are input requests of a modern backend whose capabilities the client has not
// declared.
var undeclaredInputs = []struct{ can, inputs, text, required string }{
	{`{}`,
		`"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}`,
		`elicitation/create: the client has not declared the capability elicitation`,
		`{"elicitation":{"form":{}}}`},
	{`{"elicitation":{}}`,
		`"a":{"method":"elicitation/create","params":{"mode":"url","url":"x:y","message":"m"}}`,
		`elicitation/create: the client has not declared the capability elicitation.url`,
		`{"elicitation":{"url":{}}}`},
	{`{"elicitation":{"url":{}}}`,
		`"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}`,
		`elicitation/create: the client has not declared the capability elicitation.form`,
		`{"elicitation":{"form":{}}}`},
	{`{"elicitation":{}}`,
		`"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`,
		`sampling/createMessage: the client has not declared the capability sampling`,
		`{"sampling":{}}`},
	{`{"sampling":{}}`,
		`"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"tools":[]}}`,
		`sampling/createMessage: the client has not declared the capability sampling.tools`,
		`{"sampling":{"tools":{}}}`},
	{`{"elicitation":{}}`, `"a":{"method":"roots/list"}`,
		`roots/list: the client has not declared the capability roots`, `{"roots":{}}`},
	// Declared input requests are not sent either, and the error names all undeclared ones.
	{`{"elicitation":{}}`,
		`"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}},` +
			`"b":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}},"c":{"method":"roots/list"}`,
		`sampling/createMessage: the client has not declared the capability sampling; roots/list: the client has not declared the capability roots`,
		`{"roots":{},"sampling":{}}`},
}

// A call ends with an error when its backend sends undeclared input requests. The error names
// these requests. The client has a session, like the client in `gateway call`.
func TestUndeclaredInput_SessionClient(t *testing.T) {
	for _, tc := range undeclaredInputs {
		t.Run(tc.can+tc.inputs, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client, gh, m := openModern(t, "2025-11-25", tc.can)
				gh.SendResult(m.ID(),
					`{"resultType":"input_required","inputRequests":{`+tc.inputs+
						`},"requestState":"s"}`)
				client.WantJSON(
					`{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"The tool needs input that the client does not provide: ` + tc.text + `"}]}}`)
				client.WantNothing()
				gh.WantNothing()
			})
		})
	}
	// The mode or the method is not allowed in any revision, or the schema is not allowed in the
	// revision of the client.
	for _, inputs := range []string{
		`"a":{"method":"elicitation/create","params":{"mode":"dream","message":"m"}}`,
		`"a":{"method":"ping"}`,
		`"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"p":{"type":"array","items":{"enum":["x"]}}}}}}`,
	} {
		t.Run(inputs, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client, gh, m := openModern(t, "2025-06-18", `{"elicitation":{}}`)
				gh.SendResult(m.ID(),
					`{"resultType":"input_required","inputRequests":{`+inputs+`}}`)
				if m := client.NextMessage(); m.ID() != "1" || !m.IsToolError() {
					t.Errorf("the response is %s", m.Raw())
				}
				client.WantNothing()
				gh.WantNothing()
			})
		})
	}
}

// If the call is not a tool call, the model does not read the result, and the call ends with an
// error.
func TestUndeclaredInput_NotATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true,
			generation: map[string]string{"gh": "modern"}}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `"tools":{}`, `"prompts":{}`, 1))
		gh.ServeToolsList(mcptest.ToolsResult())
		gh.SendResult(gh.WantRequest("prompts/list").ID(), `{"prompts":[{"name":"p"}]}`)
		synctest.Wait()
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}`)
		gh.SendResult(gh.WantRequest("prompts/get").ID(),
			`{"resultType":"input_required","inputRequests":{`+undeclaredInputs[0].inputs+`}}`)
		client.WantJSON(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"backend gh needs input that the client does not provide: ` + undeclaredInputs[0].text + `"}}`)
		gh.WantNothing()
	})
}

// A call that has become a task ends with an error if the task has undeclared input requests. The
// task is cancelled.
func TestUndeclaredInput_Task(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, m := openModern(t, "2025-11-25", `{}`)
		gh.SendResult(m.ID(),
			`{"resultType":"task","taskId":"t","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":60000}`)
		gh.SendResult(gh.WantRequest("tasks/get").ID(),
			`{"resultType":"complete","taskId":"t","status":"input_required","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":60000,"inputRequests":{`+undeclaredInputs[0].inputs+`}}`)
		m = client.NextMessage()
		for m.Method() == "notifications/progress" { // progress of the task
			m = client.NextMessage()
		}
		if m.ID() != "1" || !m.IsToolError() ||
			!strings.Contains(string(m.Raw()), undeclaredInputs[0].text) {
			t.Errorf("the response is %s", m.Raw())
		}
		gh.WantRequest("tasks/cancel")
		client.WantNothing()
		gh.WantNothing()
	})
}

// The error for a stateless client contains the capabilities to declare, and the call ends.
func TestUndeclaredInput_StatelessClient(t *testing.T) {
	for _, tc := range undeclaredInputs {
		t.Run(tc.can+tc.inputs, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, settings{generation: map[string]string{"gh": "modern"}}, "gh")
				client, _ := h.connectClient()
				client.Send(modernRequest("0", "tools/list", "", tc.can))
				gh := h.nextProcess("gh")
				gh.ServeDiscover("")
				gh.ServeToolsList(mcptest.ToolsResult("ask"))
				client.NextMessage()
				client.Send(modernRequest("1", "tools/call", `"name":"ask",`, tc.can))
				gh.SendResult(gh.WantRequest("tools/call").ID(),
					`{"resultType":"input_required","inputRequests":{`+tc.inputs+`},"requestState":"s"}`)
				failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
				if failure.Code != -32021 || failure.Message !=
					"Missing client capability: backend gh requests "+tc.text {
					t.Errorf("answered with %d %s", failure.Code, failure.Message)
				}
				if want := `{"requiredCapabilities":` + tc.required + `}`; string(failure.Data) !=
					want {
					t.Errorf("the data is %s, want %s", failure.Data, want)
				}
				client.WantNothing()
				gh.WantNothing()
				if records := h.auditRecords(); len(records) != 1 ||
					!strings.Contains(records[0], "outcome=rpc_error") ||
					!strings.Contains(records[0], "code=-32021") {
					t.Errorf("the audit log has %q", records)
				}
			})
		})
	}
}

// If it is not certain which of a stateless client's calls a request of the backend belongs to, a
// capability that the client has not declared ends none of them.
func TestUndeclaredInput_UncertainCallContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", "{}"))
		gh := h.nextProcess("gh")
		gh.ServeHandshake(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"gh","version":"1"}}`)
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		client.NextMessage()
		client.Send(modernRequest("1", "tools/call", `"name":"ask",`, "{}"))
		first := gh.WantRequest("tools/call")
		client.Send(modernRequest("2", "tools/call", `"name":"ask",`, "{}"))
		second := gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		if m := gh.NextMessage(); m.ID() != `"r"` || m.Part(wire.PartError) == nil {
			t.Errorf("the backend got %s", m.Raw())
		}
		for _, call := range []wire.Message{first, second} {
			gh.SendResult(call.ID(), `{"content":[]}`)
			if m := client.NextMessage(); m.Part(wire.PartResult) == nil {
				t.Errorf("the client got %s", m.Raw())
			}
		}
	})
}

// A client continues a call with fewer capabilities than it declared at first. If the backend then
// requests input that needs one of the other capabilities, or such input is still missing, the call
// ends with an error that contains the capability.
func TestUndeclaredInput_ContinuedWithFewerCapabilities(t *testing.T) {
	for _, responses := range []string{`{"q1":{"roots":[]},"q2":{"role":"user","content":{}}}`,
		`{"q1":{"roots":[]}}`} {
		t.Run(responses, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, client, gh := openLegacy(t, clientCaps)
				const sampling = `{"jsonrpc":"2.0","id":%q,"method":"sampling/createMessage",` +
					`"params":{"messages":[],"maxTokens":1}}`
				client.Send(firstRequest("1"))
				call := gh.WantRequest("tools/call")
				gh.SendOnStream(call.ID(), `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
				gh.SendOnStream(call.ID(), fmt.Sprintf(sampling, "s"))
				ticket := wantInputRequired(t, client, "q1", "q2")
				client.Send(strings.Replace(retryRequest("2", responses, ticket), clientCaps,
					`{"roots":{}}`, 1))
				if m := gh.NextMessage(); m.ID() != `"r"` || m.Part(wire.PartResult) == nil {
					t.Errorf("the backend got %s", m.Raw())
				}
				if m := gh.NextMessage(); m.ID() != `"s"` {
					t.Errorf("the backend got %s", m.Raw())
				} else if m.Part(wire.PartResult) != nil {
					gh.SendOnStream(call.ID(), fmt.Sprintf(sampling, "t"))
					gh.NextMessage() // the refusal
				}
				gh.WantNotification("notifications/cancelled")
				m := client.NextMessage()
				if failure := wire.ReadError(m.Part(wire.PartError)); m.ID() != "2" ||
					failure.Code != -32021 ||
					string(failure.Data) != `{"requiredCapabilities":{"sampling":{}}}` {
					t.Errorf("the client got %s", m.Raw())
				}
				client.WantNothing()
				if n := h.gateway.SuspendedCalls(); n != 0 {
					t.Errorf("%d calls are suspended", n)
				}
			})
		})
	}
}
