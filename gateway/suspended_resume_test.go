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
		if len(records) != 4 || !strings.Contains(records[0], "outcome=input_required rounds=1 ") ||
			!strings.Contains(records[1], "outcome=input_required rounds=2 ") ||
			!strings.Contains(records[2], "outcome=ok rounds=2 ") ||
			!strings.Contains(records[3], "outcome=rejected reason") {
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
