package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// modernMeta returns the _meta of a modern request. More contains further members.
func modernMeta(caps, more string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + caps +
		`,"io.modelcontextprotocol/clientInfo":{"name":"client","version":"9"}` + more + `}`
}

// modernRequest returns a modern request. Params contains members of the params, each followed by
// a comma.
func modernRequest(id, method, params, caps string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, params,
		modernMeta(caps, ""))
}

const serverInfo = `{"name":"mcp-gateway","version":"test"}`

// completeResult returns the modern response into which a legacy backend's result is converted.
func completeResult(id, result string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":%s},%s}`, id, serverInfo, result)
}

// openLegacy starts a gateway whose only backend is legacy and has the tool ask, and connects a
// stateless client with these capabilities.
func openLegacy(t *testing.T, caps string) (h *harness, client, gh *mcptest.Peer) {
	t.Helper()
	h = newHarness(t, settings{singleClient: true}, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", caps))
	gh = h.nextProcess("gh")
	gh.ServeStartup("ask")
	client.Want(
		`{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":` + serverInfo +
			`},"ttlMs":0,"cacheScope":"private","tools":[{"name":"ask","inputSchema":{"type":"object"}}]}}`)
	return h, client, gh
}

// wantInputRequired expects an input_required response and returns its requestState, unparsed.
func wantInputRequired(t *testing.T, client *mcptest.Peer, keys ...string) string {
	t.Helper()
	m := client.NextMessage()
	result := m.Part(wire.PartResult)
	if kind, _ := wire.Lookup(result, "resultType"); string(kind) != `"input_required"` {
		t.Fatalf("no input_required: %s", m.Raw())
	}
	for _, key := range keys {
		if one, _ := wire.Lookup(result, "inputRequests", key); one == nil {
			t.Fatalf("no input request %s in %s", key, m.Raw())
		}
	}
	text, _ := wire.Lookup(result, "requestState")
	if len(text) < 3 {
		t.Fatalf("no requestState in %s", m.Raw())
	}
	return string(text)
}

const clientCaps = `{"elicitation":{},"sampling":{},"roots":{}}`

func retryRequest(id, responses, state string) string {
	return modernRequest(id, "tools/call",
		`"name":"ask","arguments":{"n":9007199254740993},"inputResponses":`+responses+
			`,"requestState":`+state+`,`, clientCaps)
}

func firstRequest(id string) string {
	return modernRequest(id, "tools/call", `"name":"ask","arguments":{"n":9007199254740993},`,
		clientCaps)
}

// A stateless client gets a legacy backend's requests during a call as the response to the call.
// The client's next request contains the responses. The call runs once.
func TestSuspended_ResumesWithResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		if want := `{"name":"ask","arguments":{"n":9007199254740993},"_meta":{}}`; string(
			asked.Part(wire.PartParams)) != want {
			t.Errorf("the backend was asked with %s", asked.Part(wire.PartParams))
		}
		gh.Send(
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object"},"elicitationId":"x","_meta":{"progressToken":1,"vendor/a":1.0}}}`)
		gh.Send(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		m := client.NextMessage()
		wantPrefix := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required",`
		if !strings.HasPrefix(string(m.Raw()), wantPrefix) &&
			!strings.Contains(string(m.Raw()), `"resultType":"input_required"`) {
			t.Fatalf("the response is %s", m.Raw())
		}
		requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
		if want := `{"q1":{"method":"elicitation/create","params":{"_meta":{"vendor/a":1.0},"message":"[gh] Who?","requestedSchema":{"type":"object"}}},"q2":{"method":"roots/list","params":{}}}`; string(requests) != want {
			t.Errorf("the request is %s", requests)
		}
		ticket, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		gh.WantNothing()

		// The client sends only one response: the other response is requested again.
		client.Send(retryRequest("2",
			`{"q1":{"action":"accept","content":{"name":"<é>","n":1.0}},"other":{}}`,
			string(ticket)))
		gh.Want(
			`{"jsonrpc":"2.0","id":"e","result":{"action":"accept","content":{"name":"<é>","n":1.0}}}`)
		again := wantInputRequired(t, client, "q2")
		client.Send(retryRequest("3", `{"q2":{"roots":[]}}`, again))
		gh.Want(`{"jsonrpc":"2.0","id":"r","result":{"roots":[]}}`)
		gh.SendResult(asked.ID(), `{"content":[],"x":9007199254740993}`)
		client.Want(completeResult("3", `"content":[],"x":9007199254740993}`))
		gh.WantNothing()

		// The call has ended: the ticket is no longer valid, and nothing runs again.
		client.Send(retryRequest("4", `{"q2":{"roots":[]}}`, again))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
			-32602 {
			t.Errorf("an ended call continues: %+v", failure)
		}
		gh.WantNothing()
		if n := h.gateway.SuspendedCalls(); n != 0 {
			t.Errorf("%d calls are suspended", n)
		}
		records := h.auditRecords()
		if len(records) != 4 || !strings.Contains(records[0], "outcome=input_required") ||
			!strings.Contains(records[1], "outcome=input_required") ||
			!strings.Contains(records[2], "outcome=ok") ||
			!strings.Contains(records[3], "outcome=rejected") {
			t.Errorf("the audit log has\n%s", strings.Join(records, "\n"))
		}
	})
}

// If the client does not continue the call, the call is cancelled at the backend, once. A later
// retry does not run it.
func TestSuspended_ExpiresAndIsNotRerun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		gh.Send(
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := wantInputRequired(t, client, "q1")
		// while the call is suspended
		gh.Send(`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"cancel"}}`)
		if failure := gh.NextMessage(); failure.ID() != `"s"` ||
			failure.Part(wire.PartError) == nil {
			t.Errorf("sampling was answered with %s", failure.Raw())
		}
		if note := gh.WantNotification("notifications/cancelled"); note.RequestID() !=
			asked.ID() {
			t.Errorf("cancelled %s", note.Raw())
		}
		client.Send(retryRequest("2", `{"q1":{"action":"accept"}}`, ticket))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
			-32602 || !strings.Contains(failure.Message, "expired") {
			t.Errorf("%+v", failure)
		}
		gh.WantNothing()
		if n := h.gateway.SuspendedCalls(); n != 0 {
			t.Errorf("%d calls are suspended", n)
		}
	})
}

// The backend may respond while the call is suspended. The client's next request gets this
// response.
func TestSuspended_BackendRespondsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := wantInputRequired(t, client, "q1")
		gh.SendResult(asked.ID(), `{"content":[]}`)
		gh.NextMessage() // the input request is answered nevertheless
		client.Send(retryRequest("2", `{"q1":{"action":"accept"}}`, ticket))
		client.Want(completeResult("2", `"content":[]}`))
	})
}

// A ticket is valid only unmodified, and only for the call for which it was issued.
func TestSuspended_TicketIsBoundToCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := wantInputRequired(t, client, "q1")
		inner := strings.Trim(ticket, `"`)
		const answers = `"inputResponses":{"q1":{"action":"accept"}},"requestState":`
		for what, text := range map[string]string{
			"other arguments": modernRequest("2", "tools/call",
				`"name":"ask","arguments":{"n":1},`+answers+ticket+`,`, clientCaps),
			"another tool": modernRequest("2", "tools/call",
				`"name":"gh__ask","arguments":{"n":9007199254740993},`+answers+ticket+`,`,
				clientCaps),
			"another method": modernRequest("2", "resources/read",
				`"uri":"ask","arguments":{"n":9007199254740993},`+answers+ticket+`,`, clientCaps),
			"a longer one": retryRequest("2", `{"q1":{"action":"accept"}}`,
				`"`+inner+`-TAMPERED"`),
			"a changed one": retryRequest("2", `{"q1":{"action":"accept"}}`,
				`"`+inner[:20]+flipped(inner[20])+inner[21:]+`"`),
			"an empty one": retryRequest("2", `{"q1":{"action":"accept"}}`, `""`),
			"not a string": retryRequest("2", `{"q1":{"action":"accept"}}`, `17`),
		} {
			client.Send(text)
			if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
				-32602 {
				t.Errorf("%s: %+v", what, failure)
			}
		}
		gh.WantNothing()
		// the ticket is still valid
		client.Send(retryRequest("3", `{"q1":{"action":"decline"}}`, ticket))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"decline"}}`)
	})
}

func flipped(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}

// If two requests continue the same call, one of them succeeds.
func TestSuspended_OneContinuationWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := wantInputRequired(t, client, "q1")
		client.Send(retryRequest("2", `{"q1":{"action":"accept"}}`, ticket))
		client.Send(retryRequest("3", `{"q1":{"action":"accept"}}`, ticket))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
		if m := client.NextMessage(); m.ID() != "3" ||
			wire.ReadError(m.Part(wire.PartError)).Code != -32602 {
			t.Errorf("the second request got %s", m.Raw())
		}
		gh.SendResult(asked.ID(), `{"content":[]}`)
		client.Want(completeResult("2", `"content":[]}`))
	})
}

// If the client cancels the request that continues a call, or disconnects, the call is cancelled
// at the backend.
func TestSuspended_Cancelled(t *testing.T) {
	for what, take := range map[string]func(*mcptest.Peer){
		"cancelled": func(client *mcptest.Peer) {
			client.Send(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		},
		"disconnected": func(client *mcptest.Peer) { client.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, client, gh := openLegacy(t, clientCaps)
				client.Send(firstRequest("1"))
				asked := gh.WantRequest("tools/call")
				gh.Send(
					`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
				ticket := wantInputRequired(t, client, "q1")
				client.Send(retryRequest("2", `{"q1":{"action":"accept"}}`, ticket))
				gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
				take(client)
				if note := gh.WantNotification("notifications/cancelled"); note.RequestID() !=
					asked.ID() {
					t.Errorf("got %s", note.Raw())
				}
				synctest.Wait() // the backend gets its message first
				if n := h.gateway.SuspendedCalls(); n != 0 {
					t.Errorf("%d calls are suspended", n)
				}
			})
		})
	}
}

// A client without the required capability gets an error that names the capability, and the call
// is cancelled.
func TestStateless_MissingCapability(t *testing.T) {
	for request, required := range map[string]string{
		`"sampling/createMessage","params":{}`:                                   `{"sampling":{}}`,
		`"sampling/createMessage","params":{"tools":[]}`:                         `{"sampling":{"tools":{}}}`,
		`"sampling/createMessage","params":{"toolChoice":{}}`:                    `{"sampling":{"tools":{}}}`,
		`"elicitation/create","params":{"message":"m","mode":"url","url":"x:y"}`: `{"elicitation":{"url":{}}}`,
		`"elicitation/create","params":{"message":"m"}`:                          `{"elicitation":{"form":{}}}`,
		`"roots/list"`: `{"roots":{}}`,
	} {
		t.Run(request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client, gh := openLegacy(t, `{}`)
				client.Send(modernRequest("1", "tools/call", `"name":"ask",`, `{}`))
				gh.WantRequest("tools/call")
				gh.Send(`{"jsonrpc":"2.0","id":"q","method":` + request + `}`)
				failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
				if failure.Code != -32021 {
					t.Errorf("%+v", failure)
				}
				if got, _ := wire.Lookup(failure.Data, "requiredCapabilities"); string(got) !=
					required {
					t.Errorf("missing %s, want %s", got, required)
				}
				gh.NextMessage() // the request is answered
				gh.WantNotification("notifications/cancelled")
			})
		})
	}
}

// -32042 of 2025-11-25: the user visits the URLs, and the call is sent again.
func TestStateless_URLElicitation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const can = `{"elicitation":{"url":{}}}`
		_, client, gh := openLegacy(t, can)
		first := modernRequest("1", "tools/call", `"name":"ask",`, can)
		client.Send(first)
		gh.SendError(gh.WantRequest("tools/call").ID(),
			`{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a.example/x","message":"Sign in"}]}}`)
		m := client.NextMessage()
		requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
		if want := `{"q1":{"method":"elicitation/create","params":{"mode":"url","message":"[gh] Sign in","url":"https://a.example/x"}}}`; string(requests) != want {
			t.Errorf("the request is %s", requests)
		}
		ticket, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		client.Send(modernRequest("2", "tools/call",
			`"name":"ask","inputResponses":{"q1":{"action":"accept"}},"requestState":`+
				string(ticket)+`,`, can))
		again := gh.WantRequest("tools/call")
		if want := `{"name":"ask","_meta":{}}`; string(again.Part(wire.PartParams)) != want {
			t.Errorf("the call was sent again with %s", again.Part(wire.PartParams))
		}
		gh.SendResult(again.ID(), `{"content":[]}`)
		client.Want(completeResult("2", `"content":[]}`))
		client.Send(modernRequest("3", "tools/call",
			`"name":"ask","inputResponses":{"q1":{"action":"decline"}},"requestState":`+
				string(ticket)+`,`, can))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
			-32602 {
			t.Errorf("a used ticket: %+v", failure)
		}
		gh.WantNothing()
	})
}

// A legacy backend gets the client's capabilities, for any first request of the client. A client
// with other capabilities, or a client that declares them later, gets a separate connection.
func TestStateless_CapabilitiesReachBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", clientCaps))
		gh := h.nextProcess("gh")
		m := gh.WantRequest("initialize")
		if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) !=
			clientCaps {
			t.Errorf("the backend got %s", got)
		}
		gh.SendResult(m.ID(), mcptest.InitializeResult)
		gh.WantNotification("notifications/initialized")
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		client.NextMessage()
		client.Send(modernRequest("1", "tools/call", `"name":"ask",`, clientCaps))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{}`)
		client.NextMessage()
		client.Send(modernRequest("2", "tools/call", `"name":"ask",`, `{"roots":{}}`))
		process := h.nextProcess("gh")
		m = process.WantRequest("initialize")
		if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) !=
			`{"roots":{}}` {
			t.Errorf("the other client got %s", got)
		}
		process.SendResult(m.ID(), mcptest.InitializeResult)
		process.WantNotification("notifications/initialized")
		process.SendResult(process.WantRequest("tools/call").ID(), `{}`)
		client.NextMessage()
		gh.WantNothing()
	})
}

// A key of _meta is recognized with any JSON escapes.
func TestStateless_EscapedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		text := strings.ReplaceAll(firstRequest("1"), "io.modelcontextprotocol/",
			`io.modelcontextprotocol\/`)
		client.Send(strings.Replace(text, "clientInfo", `\u0063lientInfo`, 1))
		m := gh.WantRequest("tools/call")
		if got := string(m.Part(wire.PartMeta)); got != `{}` {
			t.Errorf("the backend got the _meta %s", got)
		}
		gh.SendResult(m.ID(), `{}`)
		client.NextMessage()
	})
}

// An unattributed request is not assigned to a call that has ended at the backend.
func TestSuspended_LateInputRequestAfterResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		gh.WantRequest("tools/call")
		gh.Send(
			`{"jsonrpc":"2.0","id":"a","method":"elicitation/create","params":{"message":"A?"}}`)
		ticket := wantInputRequired(t, client, "q1")
		client.Send(firstRequest("2"))
		two := gh.WantRequest("tools/call")
		gh.Send(
			`{"jsonrpc":"2.0","id":"b","method":"elicitation/create","params":{"message":"B?"}}`)
		wantInputRequired(t, client, "q1")
		// call 2 is suspended; b is now assigned to call 1
		gh.SendResult(two.ID(), `{"content":[]}`)
		gh.WantNothing()
		gh.Send(
			`{"jsonrpc":"2.0","id":"c","method":"elicitation/create","params":{"message":"C?"}}`)
		gh.WantNothing()
		client.Send(retryRequest("3", `{"q1":{"action":"accept"}}`, ticket))
		gh.Want(`{"jsonrpc":"2.0","id":"a","result":{"action":"accept"}}`)
		wantInputRequired(t, client, "q2", "q3")
	})
}

// On a connection with a single stream, a backend's request is assigned to the oldest call without
// open requests, because its call is uncertain. When that call is cancelled, the request is
// assigned to another call.
func TestSuspended_UnattributedInputRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		one := gh.WantRequest("tools/call")
		client.Send(firstRequest("2"))
		two := gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"a","method":"roots/list"}`)
		synctest.Wait() // now it belongs to the first call
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if note := gh.WantNotification("notifications/cancelled"); note.RequestID() != one.ID() {
			t.Errorf("got %s", note.Raw())
		}
		m := client.NextMessage() // the request is now assigned to the second call
		if m.ID() != "2" {
			t.Fatalf("the request is %s", m.Raw())
		}
		ticket, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		client.Send(retryRequest("3", `{"q1":{"roots":[]}}`, string(ticket)))
		gh.Want(`{"jsonrpc":"2.0","id":"a","result":{"roots":[]}}`)
		gh.SendResult(two.ID(), `{"content":[]}`)
		client.Want(completeResult("3", `"content":[]}`))
		gh.WantNothing()
	})
}

// A client that has not declared URL elicitation gets an error of its own generation.
func TestStateless_URLElicitationUndeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, `{"elicitation":{}}`)
		client.Send(modernRequest("1", "tools/call", `"name":"ask",`, `{"elicitation":{}}`))
		gh.SendError(gh.WantRequest("tools/call").ID(),
			`{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","url":"https://a.example/x","message":"m"}]}}`)
		failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
		if failure.Code != -32021 || string(failure.Data) !=
			`{"requiredCapabilities":{"elicitation":{"url":{}}}}` {
			t.Errorf("%+v", failure)
		}
	})
}

// An unattributed request is reassigned only once. Otherwise each call that ends would reassign
// the request, and it would stay open as long as there are calls.
func TestSuspended_ReassignedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		for i := range 3 {
			client.Send(firstRequest(fmt.Sprint(i + 1)))
			gh.WantRequest("tools/call")
			gh.Sendf(
				`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"Who?"}}`, i)
			wantInputRequired(t, client, "q1")
			time.Sleep(time.Minute)
		}
		time.Sleep(7*time.Minute + time.Second)
		gh.WantNotification("notifications/cancelled")
		gh.WantNothing() // now the request belongs to the second call
		time.Sleep(time.Minute)
		gh.Want(`{"jsonrpc":"2.0","id":0,"result":{"action":"cancel"}}`)
		gh.WantNotification("notifications/cancelled")
		gh.WantNothing()
		time.Sleep(time.Minute)
		for range 2 {
			gh.NextMessage()
		}
		gh.WantNotification("notifications/cancelled")
		gh.WantNothing()
	})
}

// The client metadata of a cancellation is not forwarded.
func TestStateless_CancellationWithoutMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"<é>",` + modernMeta(clientCaps, "") + `}}`)
		gh.Want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` +
			string(asked.ID()) + `,"reason":"<é>"}}`)
	})
}

// Stored responses of suspended calls are bounded. At the limit the client gets an error, which
// says that the backend has responded and that the call may have run.
func TestSuspended_StoredResponseLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		large := `{"content":[],"x":"` + strings.Repeat("x", 40<<20) + `"}`
		var tickets []string
		for _, id := range []string{"1", "2"} {
			client.Send(firstRequest(id))
			asked := gh.WantRequest("tools/call")
			gh.Sendf(`{"jsonrpc":"2.0","id":"q%s","method":"roots/list"}`, id)
			tickets = append(tickets, wantInputRequired(t, client, "q1"))
			gh.SendResult(asked.ID(), large)
			gh.NextMessage() // the input request is answered nevertheless
		}
		client.Send(retryRequest("4", `{"q1":{"roots":[]}}`, tickets[1]))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
			-32603 || !strings.Contains(failure.Message, "may have run") {
			t.Errorf("the second call: %+v", failure)
		}
		client.Send(retryRequest("3", `{"q1":{"roots":[]}}`, tickets[0]))
		if m := client.NextMessage(); len(m.Part(wire.PartResult)) < 40<<20 {
			t.Errorf("the first call: %.100s", m.Raw())
		}
	})
}

// withClientVersion returns the request with version n in its client info.
func withClientVersion(n int, request string) string {
	return strings.Replace(request, `"version":"9"`, fmt.Sprintf(`"version":"%d"`, n), 1)
}

// The clients of one principal leave room for other principals, even if the principal uses many
// client infos.
func TestStateless_PerPrincipalLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{inFlight: 20_000}, "gh")
		conn, many := mcptest.NewPeer(t, "crowd")
		go func() { _ = h.gateway.Serve(t.Context(), "", "crowd", conn) }()
		send := func(p *mcptest.Peer, n int) { // a call waiting for its backend to start
			p.Send(withClientVersion(n, modernRequest(fmt.Sprint(n), "tools/call", `"name":"ask",`,
				`{}`)))
		}
		for n := range 5000 {
			send(many, n)
		}
		many.WantNothing()
		send(many, 5000)
		if m := many.NextMessage(); m.ID() != "5000" ||
			!strings.Contains(string(m.Raw()), "too many different clients") {
			t.Errorf("the next client got %s", m.Raw())
		}
		other, alone := mcptest.NewPeer(t, "alone")
		go func() { _ = h.gateway.Serve(t.Context(), "", "alone", other) }()
		send(alone, 1)
		alone.WantNothing()
		many.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		send(many, 5001) // an idle client is evicted although its connection is open
		many.WantNothing()
	})
}

// Null members of a client's capabilities count as undeclared and are not sent to backends, for
// session and stateless clients.
func TestNullCapabilities_F_DOOR_9(t *testing.T) {
	const declared = `{"roots":{"listChanged":null},"sampling":null,"elicitation":{"form":{},"url":null},"x":[null,{"y":null}],"experimental":{"a":{"b":null,"c":1.0}}}`
	const sent = `{"roots":{},"elicitation":{"form":{}},"x":[null,{"y":null}],"experimental":{"a":{"c":1.0}}}`
	for name, first := range map[string]string{
		"session":   `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + declared + `,"clientInfo":{"name":"c","version":"1"}}}`,
		"stateless": modernRequest("0", "tools/list", "", declared),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, settings{singleClient: true}, "gh")
				client, _ := h.connectClient()
				client.Send(first)
				gh := h.nextProcess("gh")
				m := gh.WantRequest("initialize")
				if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) !=
					sent {
					t.Errorf("the backend got %s", got)
				}
			})
		})
	}
}
