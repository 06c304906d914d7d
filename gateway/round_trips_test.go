package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// openModern opens a session with these client capabilities, in front of a modern backend with the
// tool "ask", and calls this tool. It also returns the call that the backend has received.
func openModern(t *testing.T, date,
	caps string) (h *harness, client, gh *mcptest.Peer, ofCall wire.Message) {
	t.Helper()
	h = newHarness(t, settings{singleClient: true, generation: map[string]string{"gh": "modern"}},
		"gh")
	client, _ = h.connectClient()
	client.Initialize(date, caps)
	gh = h.nextProcess("gh")
	gh.ServeDiscover("")
	gh.ServeToolsList(mcptest.ToolsResult("ask"))
	listTools(t, client)
	client.Send(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"n":9007199254740993},"_meta":{"progressToken":"p"}}}`)
	return h, client, gh, gh.WantRequest("tools/call")
}

func paramAt(t *testing.T, m wire.Message, path ...string) string {
	t.Helper()
	value, _ := wire.Lookup(m.Part(wire.PartParams), path...)
	return string(value)
}

// A modern backend's input requests are sent to the session client as requests. Then the call is
// sent again with the responses and the backend's unchanged state.
func TestRoundTrips_ClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh, first := openModern(t, "2025-11-25", `{"elicitation":{},"sampling":{}}`)
		gh.SendResult(first.ID(),
			`{"resultType":"input_required","inputRequests":{"user":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}},`+
				`"model":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}},"requestState":"S\u0031<é>"}`)
		for range 2 {
			m := client.NextMessage()
			switch m.Method() {
			case "elicitation/create":
				if got := paramAt(t, m, "message"); got != `"[gh] Who?"` {
					t.Errorf("the request is %s", got)
				}
				client.SendResult(m.ID(), `{"action":"accept","content":{"name":"x","n":1.0}}`)
			case "sampling/createMessage":
				client.SendResult(m.ID(),
					`{"role":"assistant","model":"m","content":{"type":"text","text":"<hi>"}}`)
			default:
				t.Fatalf("the request is %s", m.Raw())
			}
		}
		again := gh.WantRequest("tools/call")
		if again.ID() == first.ID() {
			t.Error("the call was sent again under the same id")
		}
		if got := paramAt(t, again, "inputResponses"); got !=
			`{"user":{"action":"accept","content":{"name":"x","n":1.0}},"model":{"role":"assistant","model":"m","content":{"type":"text","text":"<hi>"}}}` {
			t.Errorf("the responses are %s", got)
		}
		if got := paramAt(t, again, "requestState"); got != `"S\u0031<é>"` {
			t.Errorf("the state is %s", got)
		}
		if got := paramAt(t, again, "arguments"); got != `{"n":9007199254740993}` {
			t.Errorf("the arguments are %s", got)
		}
		gh.Sendf(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, again.ID())
		client.Want(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)

		// A state without input requests: the call is sent again later.
		gh.SendResult(again.ID(), `{"resultType":"input_required","requestState":"T"}`)
		third := gh.WantRequest("tools/call")
		if paramAt(t, third, "inputResponses") != "" || paramAt(t, third, "requestState") != `"T"` {
			t.Errorf("the call was sent again as %s", third.Raw())
		}
		// If the backend has sent no state, the call contains no state.
		gh.SendResult(third.ID(),
			`{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`)
		client.SendResult(client.NextMessage().ID(), `{"action":"decline"}`)
		fourth := gh.WantRequest("tools/call")
		if paramAt(t, fourth, "requestState") != "" ||
			paramAt(t, fourth, "inputResponses") != `{"u":{"action":"decline"}}` {
			t.Errorf("the call was sent again as %s", fourth.Raw())
		}
		gh.SendResult(fourth.ID(),
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}},"content":[],"x":1.0}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":1.0}}`)
		client.WantNothing()
		gh.WantNothing()
		if records := h.auditRecords(); len(records) != 1 ||
			!strings.Contains(records[0], "outcome=ok rounds=2 progress=1 bytes_in") {
			t.Errorf("the audit log has\n%s", strings.Join(records, "\n"))
		}
	})
}

// If the client does not provide input, an elicitation is cancelled. Any other input request ends
// the call with a text for the model.
func TestRoundTrips_ClientDeclines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, first := openModern(t, "2025-11-25",
			`{"elicitation":{"form":{},"url":{}},"sampling":{}}`)
		gh.SendResult(first.ID(),
			`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}},`+
				`"b":{"method":"elicitation/create","params":{"mode":"url","url":"x:y","message":"m"}}}}`)
		for range 2 {
			client.SendError(client.WantRequest("elicitation/create").ID(),
				`{"code":-1,"message":"no"}`)
		}
		again := gh.WantRequest("tools/call")
		if got := paramAt(t, again, "inputResponses"); got !=
			`{"a":{"action":"cancel"},"b":{"action":"cancel"}}` {
			t.Errorf("the responses are %s", got)
		}
		gh.SendResult(again.ID(),
			`{"resultType":"input_required","inputRequests":{"c":{"method":"sampling/createMessage","params":{"messages":[]}}}}`)
		client.SendError(client.WantRequest("sampling/createMessage").ID(),
			`{"code":-1,"message":"no"}`)
		if m := client.NextMessage(); m.ID() != "1" || !m.IsToolError() {
			t.Errorf("the response is %s", m.Raw())
		}
		client.WantNothing()
		gh.WantNothing()
	})
}

// A call fails if its backend sends input requests in more than ten rounds, or requests too many
// consecutive retries.
func TestRoundTrips_Limit(t *testing.T) {
	for what, answer := range map[string]string{
		"input requests": `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`,
		"retry later":    `{"resultType":"input_required","requestState":"later"}`,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client, gh, m := openModern(t, "2025-11-25", `{"elicitation":{}}`)
				sent := 0
				for {
					sent++
					gh.SendResult(m.ID(), answer)
					if what == "input requests" {
						request := client.NextMessage()
						if request.Kind() == wire.Response {
							break
						}
						client.SendResult(request.ID(), `{"action":"accept"}`)
					} else {
						time.Sleep(5 * time.Second)
						synctest.Wait()
						if lines := gh.TakeAll(); len(lines) == 0 {
							client.NextMessage()
							break
						} else if m, _ = wire.Parse([]byte(lines[0])); true {
							continue
						}
					}
					m = gh.WantRequest("tools/call")
				}
				if sent < 5 || sent > 12 {
					t.Errorf("the call was sent %d times", sent)
				}
				gh.WantNothing()
			})
		})
	}
}

// The client cancels the call while an input request is open, or between retries.
func TestRoundTrips_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, first := openModern(t, "2025-11-25", `{"elicitation":{}}`)
		gh.SendResult(first.ID(),
			`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`)
		request := client.NextMessage()
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if note := client.WantNotification("notifications/cancelled"); note.RequestID() !=
			request.ID() {
			t.Errorf("got %s", note.Raw())
		}
		client.SendResult(request.ID(), `{"action":"accept"}`)
		client.WantNothing()
		gh.WantNothing()

		client.Send(toolsCall("2", "ask"))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"input_required","requestState":"later"}`)
		again := gh.WantRequest("tools/call")
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		if note := gh.WantNotification("notifications/cancelled"); note.RequestID() !=
			again.ID() {
			t.Errorf("got %s", note.Raw())
		}
		client.WantNothing()
	})
}

// Errors of the modern generation are translated for session clients.
func TestRoundTrips_Errors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, first := openModern(t, "2025-11-25", `{}`)
		gh.SendError(first.ID(),
			`{"code":-32021,"message":"needs sampling","data":{"requiredCapabilities":{"sampling":{}}}}`)
		if m := client.NextMessage(); m.ID() != "1" || !m.IsToolError() {
			t.Errorf("the response is %s", m.Raw())
		}
		client.Send(toolsCall("2", "ask"))
		gh.SendError(gh.WantRequest("tools/call").ID(), `{"code":-32050,"message":"m"}`)
		client.Want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32050,"message":"m"}}`)
		client.Send(toolsCall("3", "ask"))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"resultType":"input_required"}`)
		if m := client.NextMessage(); m.Part(wire.PartError) == nil {
			t.Errorf("the response is %s", m.Raw())
		}
	})
}

// A call that has asked for input has run in part. If it could not be sent again, its error said
// that the call did not run, and a client would have started it a second time.
func TestRoundTrips_BackendEndsBeforeRetry_OutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh, first := openModern(t, "2025-11-25", `{"elicitation":{}}`)
		gh.SendResult(first.ID(),
			`{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`)
		request := client.WantRequest("elicitation/create")
		gh.Exit("exit 1", "")
		h.nextProcess("gh").Exit("exit 1", "") // the next start is delayed
		synctest.Wait()
		client.SendResult(request.ID(), `{"action":"decline"}`)
		failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
		if !strings.Contains(failure.Message, "next try in") ||
			!strings.HasSuffix(failure.Message, "outcome unknown: the call may have run") {
			t.Errorf("got %q", failure.Message)
		}
		if records := h.auditRecords(); len(records) != 1 ||
			!strings.Contains(records[0], "outcome=backend_lost") {
			t.Errorf("the audit log has\n%s", strings.Join(records, "\n"))
		}
	})
}

// If the client and the backend are modern, input requests keep their keys. The state is sealed in
// a ticket, and the backend gets the unchanged state again.
func TestS2C_04_SealedState_BothModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{generation: map[string]string{"gh": "modern"}}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", clientCaps))
		gh := h.nextProcess("gh")
		gh.ServeDiscover("")
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		client.NextMessage()

		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		if got := paramAt(t, asked, "_meta", "io.modelcontextprotocol/clientCapabilities"); got !=
			clientCaps {
			t.Errorf("the backend got %s", got)
		}
		if got := paramAt(t, asked, "_meta", "io.modelcontextprotocol/clientInfo"); got !=
			serverInfo {
			t.Errorf("the backend got a request from %s", got)
		}
		gh.SendResult(asked.ID(),
			`{"resultType":"input_required","inputRequests":{"user_name":{"method":"elicitation/create","params":{"message":"Who?"}}},"requestState":"S\u0031","x":1.0}`)
		m := client.NextMessage()
		if requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests"); string(requests) !=
			`{"user_name":{"method":"elicitation/create","params":{"message":"[gh] Who?"}}}` {
			t.Errorf("the request is %s", requests)
		}
		ticket, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		client.Send(retryRequest("2", `{"user_name":{"action":"accept"}}`, string(ticket)))
		again := gh.WantRequest("tools/call")
		if paramAt(t, again, "requestState") != `"S\u0031"` ||
			paramAt(t, again, "inputResponses") != `{"user_name":{"action":"accept"}}` {
			t.Errorf("the call was sent again as %s", again.Raw())
		}
		gh.SendResult(again.ID(), `{"resultType":"complete","content":[],"ttlMs":5}`)
		m = client.NextMessage()
		if got := string(m.Part(wire.PartResult)); got !=
			`{"_meta":{"io.modelcontextprotocol/serverInfo":`+serverInfo+
				`},"resultType":"complete","content":[],"ttlMs":5}` {
			t.Errorf("the response is %s", got)
		}
		client.Send(retryRequest("3", `{}`, `"`+strings.Trim(string(ticket), `"`)+`x"`))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
			-32602 {
			t.Errorf("a forged ticket: %+v", failure)
		}
		// A forged state is not sent to the backend.
		client.Send(retryRequest("4", `{}`, `"S1"`))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
			-32602 {
			t.Errorf("a forged state: %+v", failure)
		}
		gh.WantNothing()
		// Responses without a state are forwarded to the backend.
		client.Send(modernRequest("5", "tools/call",
			`"name":"ask","inputResponses":{"user_name":{"action":"accept"}},`, clientCaps))
		if m := gh.WantRequest("tools/call"); paramAt(t, m, "inputResponses") !=
			`{"user_name":{"action":"accept"}}` || paramAt(t, m, "requestState") != "" {
			t.Errorf("the call was sent as %s", m.Raw())
		}
	})
}

// Only consecutive rounds without input requests are limited, because a backend may be busy
// between its input requests.
func TestRoundTrips_EmptyRoundsBetweenInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, m := openModern(t, "2025-11-25", `{"elicitation":{}}`)
		for range 3 {
			for range 5 {
				gh.SendResult(m.ID(), `{"resultType":"input_required","requestState":"later"}`)
				m = gh.WantRequest("tools/call")
			}
			gh.SendResult(m.ID(),
				`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`)
			client.SendResult(client.WantRequest("elicitation/create").ID(),
				`{"action":"accept"}`)
			m = gh.WantRequest("tools/call")
		}
		gh.SendResult(m.ID(), `{"content":[]}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
}

// A result of an unknown type, or with forbidden input requests, is not forwarded.
func TestInvalidResultsOfModernBackends(t *testing.T) {
	for what, result := range map[string]string{
		"unknown type":             `{"resultType":"weird","content":[]}`,
		"not a string":             `{"resultType":5,"content":[]}`,
		"a task":                   `{"resultType":"task","taskId":"t","status":"working"}`,
		"forbidden method":         `{"resultType":"input_required","inputRequests":{"a":{"method":"ping"}}}`,
		"neither inputs nor state": `{"resultType":"input_required"}`,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, settings{generation: map[string]string{"gh": "modern"}}, "gh")
				client, _ := h.connectClient()
				client.Send(modernRequest("0", "tools/list", "", `{}`))
				gh := h.nextProcess("gh")
				gh.ServeDiscover("")
				gh.ServeToolsList(mcptest.ToolsResult("ask"))
				client.NextMessage()
				client.Send(modernRequest("1", "tools/call", `"name":"ask",`, `{"elicitation":{}}`))
				gh.SendResult(gh.WantRequest("tools/call").ID(), result)
				if failure := wire.ReadError(
					client.NextMessage().Part(wire.PartError)); failure.Code != -32603 ||
					!strings.Contains(failure.Message, "backend gh") {
					t.Errorf("the response is %+v", failure)
				}
			})
		})
	}
}

// An error response of the client to sampling/createMessage ends the call and the other open
// requests at once.
func TestRoundTrips_OneRequestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, m := openModern(t, "2025-11-25", `{"elicitation":{},"sampling":{}}`)
		gh.SendResult(m.ID(),
			`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}},`+
				`"b":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}}`)
		rounds, cancelled := 1, 0
		request := client.NextMessage()
		if request.Method() == "elicitation/create" {
			rounds, request = 2, client.NextMessage()
		}
		client.SendError(request.ID(), `{"code":-1,"message":"not now"}`)
		synctest.Wait() // no time passes
		lines := client.TakeAll()
		last, _ := wire.Parse([]byte(lines[len(lines)-1]))
		if last.ID() != "1" || !last.IsToolError() ||
			!strings.Contains(lines[len(lines)-1], "not now") {
			t.Errorf("got %q", lines)
		}
		for _, line := range lines[:len(lines)-1] {
			if m, _ := wire.Parse([]byte(line)); m.Method() == "notifications/cancelled" {
				cancelled++
			} else {
				rounds++
			}
		}
		if rounds != cancelled+1 || rounds != 2 {
			t.Errorf("sent %d requests and cancelled %d: %q", rounds, cancelled, lines)
		}
		gh.WantNothing()
	})
}
