package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

const allClientCaps = `{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}}}}}`

// startCallThatAsks opens a session with these client capabilities, in front of a backend with the
// tool "ask", and calls this tool. It also returns the call that the backend has received.
func startCallThatAsks(t *testing.T, o settings,
	caps string) (h *harness, client, gh *mcptest.Peer, served chan error, ofCall wire.Message) {
	t.Helper()
	o.singleClient = true
	h = newHarness(t, o, "gh")
	client, served = h.connectClient()
	client.Initialize("2025-11-25", caps)
	gh = h.nextProcess("gh")
	gh.ServeStartup("ask")
	listTools(t, client)
	client.Send(toolsCall("1", "ask"))
	return h, client, gh, served, gh.WantRequest("tools/call")
}

// A backend gets the client's capabilities and may use only these. Other requests are rejected
// with the errors that the client itself would send.
func TestS2C_02_UndeclaredRequestsAreRefused(t *testing.T) {
	const sampling, roots, form, url, tools = `"sampling/createMessage"`, `"roots/list"`,
		`"elicitation/create","params":{"message":"m"}`,
		`"elicitation/create","params":{"message":"m","mode":"url","elicitationId":"e"}`,
		`"sampling/createMessage","params":{"tools":[]}`
	for _, c := range []struct {
		caps, request string
		code          int
	}{
		{`{}`, sampling, -32601},
		{`{}`, roots, -32601},
		{`{}`, form, -32601},
		{`{}`, url, -32601},
		{`{"sampling":null,"roots":false}`, sampling, -32601},
		{`{"sampling":null,"roots":false}`, roots, -32601},
		{`{"sampling":{}}`, sampling, 0},
		{`{"sampling":{}}`, tools, -32602},
		{`{"sampling":{}}`, `"sampling/createMessage","params":{"toolChoice":{}}`, -32602},
		{`{"sampling":{"tools":{}}}`, tools, 0},
		{`{"elicitation":{}}`, form, 0},
		{`{"elicitation":{}}`, url, -32602},
		{`{"elicitation":{"url":{}}}`, url, 0},
		{`{"elicitation":{"url":{}}}`, form, -32602},
		{`{"elicitation":{"form":{},"url":{}}}`, form, 0},
		{`{"elicitation":{"form":{}}}`,
			`"elicitation/create","params":{"message":"m","mode":"telepathy"}`, -32602},
		{`{"roots":{}}`, roots, 0},
		{`{"tasks":{}}`, `"tasks/list"`, -32601},
		{`{"tasks":{"list":{}}}`, `"tasks/list"`, 0},
		{`{"tasks":{}}`, `"tasks/cancel","params":{"taskId":"t"}`, -32601},
		{`{"tasks":{}}`, `"tasks/get","params":{"taskId":"never made"}`, -32602},
		{allClientCaps, `"tools/list"`, -32601},
		{allClientCaps, `"initialize"`, -32601},
	} {
		t.Run(c.request+" of "+c.caps, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client, gh, _, _ := startCallThatAsks(t, settings{}, c.caps)
				gh.Send(`{"jsonrpc":"2.0","id":"q","method":` + c.request + `}`)
				if c.code == 0 {
					client.SendResult(client.NextMessage().ID(), `{"ok":1.0}`)
					gh.Want(`{"jsonrpc":"2.0","id":"q","result":{"ok":1.0}}`)
					return
				}
				client.WantNothing()
				if failure := wire.ReadError(gh.NextMessage().Part(wire.PartError)); failure.Code !=
					c.code {
					t.Errorf("rejected with %+v, want %d", failure, c.code)
				}
			})
		})
	}
}

// While a request to the client is open, the call's timeout is paused. Then the full timeout
// starts again.
func TestServerRequest_PausesCallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{callTimeout: map[string]time.Duration{"gh": time.Minute}}
		h, client, gh, _, ofCall := startCallThatAsks(t, o, allClientCaps)
		for i, end := range []func(wire.ID){
			func(id wire.ID) { client.SendResult(id, `{"action":"accept"}`) },
			func(id wire.ID) { client.SendError(id, `{"code":-1,"message":"no"}`) },
			func(wire.ID) {
				gh.Send(
					`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
			},
		} {
			gh.Sendf(
				`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"m"}}`,
				i)
			id := client.WantRequest("elicitation/create").ID()
			time.Sleep(time.Hour)
			client.WantNothing()
			end(id)
			client.TakeAll()
			gh.TakeAll()
			time.Sleep(59 * time.Second)
			client.WantNothing()
		}
		gh.SendResult(ofCall.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		wantRecord(t, h, "outcome=ok rounds=3 bytes_in")
		client.Send(toolsCall("2", "ask"))
		gh.WantRequest("tools/call")
		time.Sleep(time.Minute)
		if got := client.Next(); !strings.Contains(got, "no answer within 1m0s") {
			t.Errorf("got %s", got)
		}
	})
}

// The number of open requests to a client is bounded. A response makes room for another request.
func TestServerRequest_LimitPerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, _, _ := startCallThatAsks(t, settings{}, allClientCaps)
		const bound = 256
		for i := range bound {
			gh.Sendf(`{"jsonrpc":"2.0","id":"q%d","method":"roots/list"}`, i)
		}
		requests := client.TakeAll()
		if len(requests) != bound {
			t.Fatalf("%d requests, want %d", len(requests), bound)
		}
		gh.Send(`{"jsonrpc":"2.0","id":"over","method":"roots/list"}`)
		client.WantNothing()
		if got := gh.Next(); !strings.Contains(got, `"id":"over","error":{"code":-32603`) {
			t.Errorf("got %s", got)
		}
		m, _ := wire.Parse([]byte(requests[7]))
		client.SendResult(m.ID(), `{"roots":[]}`)
		gh.Want(`{"jsonrpc":"2.0","id":"q7","result":{"roots":[]}}`)
		gh.Send(`{"jsonrpc":"2.0","id":"again","method":"roots/list"}`)
		client.WantRequest("roots/list")
	})
}

// When a session ends, each open request ends once.
func TestServerRequest_EndsWithSession(t *testing.T) {
	for name, end := range map[string]func(*mcptest.Peer){
		"end of input": (*mcptest.Peer).CloseSend,
		"closed":       (*mcptest.Peer).Close,
		"connection closed by the gateway": func(
			p *mcptest.Peer) {
			p.FailRead(transport.ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client, gh, served, ofCall := startCallThatAsks(t, settings{}, allClientCaps)
				const n = 5
				for i := range n {
					gh.Sendf(`{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage"}`, i)
				}
				client.TakeAll()
				end(client)
				synctest.Wait()
				ends := 0
				for _, line := range gh.TakeAll() {
					switch m, _ := wire.Parse([]byte(line)); {
					case m.Part(wire.PartError) != nil:
						ends++
					case m.Method() != "notifications/cancelled" || m.RequestID() != ofCall.ID():
						t.Errorf("got %s", line)
					}
				}
				if ends != n {
					t.Errorf("%d requests have ended, want %d", ends, n)
				}
				gh.SendResult(ofCall.ID(), "{}")
				if err := <-served; err != nil {
					t.Error(err)
				}
				gh.Send(`{"jsonrpc":"2.0","id":"late","method":"roots/list"}`)
				if got := gh.Next(); !strings.Contains(got, "it is not certain which client") {
					t.Errorf("got %s", got)
				}
				gh.WantNothing()
			})
		})
	}
}

// A backend's request may arrive before notifications/initialized. It waits for the notification,
// as long as the client's own requests do.
func TestServerRequest_WaitsForInitialized(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		t.Run(fmt.Sprint("initialized arrives: ", arrives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, settings{singleClient: true}, "gh")
				client, _ := h.connectClient()
				client.Send(
					`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"x","version":"1"}}}`)
				client.Next()
				synctest.Wait() // messages right after the response cannot be attributed yet
				gh := h.nextProcess("gh")
				gh.ServeHandshake("")
				gh.WantRequest("tools/list")
				gh.Send(`{"jsonrpc":"2.0","id":"a","method":"roots/list"}`)
				gh.Send(`{"jsonrpc":"2.0","id":"b","method":"roots/list"}`)
				gh.Send(
					`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b"}}`)
				gh.Send(
					`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
				// allowed before notifications/initialized
				client.WantNotification("notifications/message")
				client.WantNothing()
				if arrives {
					client.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
					client.SendResult(client.WantRequest("roots/list").ID(), "{}")
					gh.Want(`{"jsonrpc":"2.0","id":"a","result":{}}`)
				} else {
					time.Sleep(2 * time.Second)
					if got := gh.Next(); !strings.Contains(got, `"id":"a","error":{"code":-32603`) {
						t.Errorf("got %s", got)
					}
				}
				client.WantNothing()
				gh.WantNothing()
			})
		})
	}
}

// While two clients, or no client, have calls in flight at a shared backend, a request of the
// backend is sent to no client.
func TestServerRequest_AmbiguousSessionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		a, _ := h.connectClient()
		b, _ := h.connectClient()
		for _, client := range []*mcptest.Peer{a, b} {
			client.Initialize("2025-11-25", allClientCaps)
		}
		gh := h.nextProcess("gh")
		gh.ServeStartup("ask")
		refused := func() {
			t.Helper()
			gh.Send(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage"}`)
			if got := gh.Next(); !strings.Contains(got,
				`"id":"q","error":{"code":-32601,"message":"Method not found: sampling/createMessage: it is not certain which client`) {
				t.Errorf("got %s", got)
			}
			gh.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
			synctest.Wait() // until the gateway has handled it: later calls must not count
		}
		refused()
		listTools(t, a)
		listTools(t, b)
		a.Send(toolsCall("1", "ask"))
		callOfA := gh.WantRequest("tools/call")
		b.Send(toolsCall("1", "ask"))
		gh.WantRequest("tools/call")
		refused()
		b.WantNothing()
		gh.SendResult(callOfA.ID(), "{}")
		a.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		refused() // the request may belong to the call that has just ended
		b.WantNothing()
		time.Sleep(3 * time.Second)
		gh.Send(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage"}`)
		b.WantRequest("sampling/createMessage")
		a.WantNothing()
	})
}

// S2C: a backend can neither list nor access a client's tasks that were created for another
// backend.
func TestClientTasks_VisibleToTheirBackendOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh", "docs")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", allClientCaps)
		gh, docs := h.nextProcess("gh"), h.nextProcess("docs")
		gh.ServeStartup("a")
		docs.ServeStartup("b")
		create := func(p *mcptest.Peer, id string) {
			t.Helper()
			p.Send(
				`{"jsonrpc":"2.0","id":"make","method":"sampling/createMessage","params":{"task":{"ttl":1}}}`)
			m := client.WantRequest("sampling/createMessage")
			if got := string(m.Part(wire.PartParams)); got != `{"task":{"ttl":1}}` {
				t.Errorf("the request is %s", got)
			}
			client.SendResult(m.ID(), `{"task":{"taskId":"`+id+`","status":"working","n":1.0}}`)
			p.Want(`{"jsonrpc":"2.0","id":"make","result":{"task":{"taskId":"` + id +
				`","status":"working","n":1.0}}}`)
		}
		create(gh, "g")
		create(docs, "d")
		gh.Send(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"g"}}`)
		client.SendResult(client.WantRequest("tasks/get").ID(), `{"taskId":"g"}`)
		gh.Want(`{"jsonrpc":"2.0","id":1,"result":{"taskId":"g"}}`)
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			gh.Send(`{"jsonrpc":"2.0","id":2,"method":"` + method + `","params":{"taskId":"d"}}`)
			gh.Want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Unknown task: d"}}`)
		}
		docs.Send(`{"jsonrpc":"2.0","id":3,"method":"tasks/list"}`)
		client.SendResult(client.WantRequest("tasks/list").ID(),
			`{"tasks":[{"taskId":"g"},{"taskId":"d","n":1.0},{"taskId":"mine"}],"x":1}`)
		docs.Want(`{"jsonrpc":"2.0","id":3,"result":{"tasks":[{"taskId":"d","n":1.0}],"x":1}}`)
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"mine","status":"failed"}}`)
		client.Send(`{"jsonrpc":"2.0","method":"notifications/future","params":{}}`)
		gh.WantNothing()
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"g","status":"completed"}}`)
		gh.Want(
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"g","status":"completed"}}`)
	})
}

// Responses, cancellations by both sides, and the ends of the session and the backend are
// concurrent. Each request gets one response, or none if it was cancelled, and no ended request is
// still counted as open.
func TestServerRequest_EndsOnce(t *testing.T) {
	ends := make(map[string]int)
	for round := range 40 {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh, _, ofCall := startCallThatAsks(t,
				settings{callTimeout: map[string]time.Duration{"gh": time.Minute}}, allClientCaps)
			const n = 24
			for i := range n {
				gh.Sendf(
					`{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"n":%d}}`,
					i, i)
			}
			ids := make(map[int]wire.ID)
			for i, line := range client.TakeAll() {
				m, _ := wire.Parse([]byte(line))
				ids[i] = m.ID()
			}
			go func() {
				time.Sleep(time.Second)
				for i := range n {
					switch k := (i*5 + round) % n; {
					case k%3 == 0:
						client.SendResult(ids[k], `{"n":1}`)
					case k%3 == 1:
						client.SendError(ids[k], `{"code":-1,"message":"no"}`)
					case k == 2 && round%4 == 0:
						client.Send(
							`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
					case k == 2 && round%4 == 1:
						client.Close()
					}
				}
			}()
			cancelled := make(map[wire.ID]bool)
			go func() {
				time.Sleep(time.Second)
				for i := range n {
					if k := (i*7 + round) % n; k%4 != 0 {
						cancelled[wire.ID(fmt.Sprint(k))] = true
						gh.Sendf(
							`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, k)
					}
				}
				if round%4 == 2 {
					gh.SendResult(ofCall.ID(), "{}")
				}
			}()
			time.Sleep(1500 * time.Millisecond)
			answers := make(map[wire.ID]int)
			for _, line := range gh.TakeAll() {
				if m, _ := wire.Parse([]byte(line)); m.Kind() == wire.Response {
					answers[m.ID()]++
				}
			}
			disconnected := round%4 == 1
			for i := range n {
				id := wire.ID(fmt.Sprint(i))
				switch got := answers[id]; {
				case got > 1, got == 0 && !cancelled[id] && (disconnected || i%3 != 2):
					t.Errorf("round %d: request %s was answered %d times", round, id, got)
				case got == 1:
					ends["answered"]++
				case cancelled[id]:
					ends["cancelled"]++
				}
			}
			if disconnected {
				return
			}
			open := 0
			for i := range n {
				if id := wire.ID(fmt.Sprint(i)); answers[id] == 0 && !cancelled[id] {
					open++
				}
			}
			client.TakeAll()
			for i := range 256 {
				gh.Sendf(`{"jsonrpc":"2.0","id":"again%d","method":"roots/list"}`, i)
			}
			if got := len(client.TakeAll()); got != 256-open {
				t.Errorf("round %d: %d more requests were accepted, want %d", round, got, 256-open)
			}
		})
	}
	t.Log(ends)
}
