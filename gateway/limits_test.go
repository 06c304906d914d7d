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

// The number of subscriptions per stateless client is bounded.
func TestListen_LimitPerStatelessClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{inFlight: 20_000}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest(`"list"`, "prompts/list", "", `{}`))
		startWithResource(t, h, "gh")
		client.NextMessage()
		const filter = `{"toolsListChanged":true}`
		for n := range 1000 {
			client.Send(listenFor(fmt.Sprint(n), filter))
			wantAcknowledged(t, client, fmt.Sprint(n), filter)
		}
		client.Send(listenFor("1000", filter))
		client.Want(
			`{"jsonrpc":"2.0","id":1000,"error":{"code":-32603,"message":"Too many subscriptions are open; wait until some have ended"}}`)
		client.Send(withClientVersion(1, listenFor("1001", filter)))
		wantAcknowledged(t, client, "1001", filter)
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		synctest.Wait()
		client.Send(listenFor("1002", filter))
		wantAcknowledged(t, client, "1002", filter)
	})
}

// The number of tasks polled for listeners is bounded. Tasks beyond the bound are not acknowledged.
func TestStatelessTasks_ListenerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openTaskBackend(t, settings{singleClient: true})
		var tasks []string
		for i := range 3 {
			client.Send(modernRequest("1", "tools/call", `"name":"job",`, tasksCap))
			gh.SendResult(gh.WantRequest("tools/call").ID(),
				fmt.Sprintf(`{"task":{"taskId":"t%d","status":"working","pollInterval":600000}}`,
					i))
			tasks = append(tasks, nextTaskID(t, client))
		}
		h.gateway.FillTaskListeners(2)
		client.Send(modernRequest(`"l"`, "subscriptions/listen",
			`"notifications":{"taskIds":[`+strings.Join(tasks, ",")+`]},`, tasksCap))
		ack := client.WantNotification("notifications/subscriptions/acknowledged")
		if got, _ := wire.Lookup(ack.Part(wire.PartParams), "notifications"); string(got) !=
			`{"taskIds":[`+strings.Join(tasks[:2], ",")+`]}` {
			t.Errorf("acknowledged %s", got)
		}
		gh.WantRequest("tasks/get")
		gh.WantRequest("tasks/get")
		gh.WantNothing()
	})
}

// An endless list of tasks is read up to a limit.
func TestListTasks_PageLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _, backends := openTwoClients(t, settings{}, "gh")
		gh := backends["gh"]
		makeTask(t, a, gh, "gh", "t")
		a.Send(`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`)
		for i := range 1000 {
			gh.SendResult(gh.WantRequest("tasks/list").ID(),
				fmt.Sprintf(`{"tasks":[],"nextCursor":"%d"}`, i))
		}
		a.Want(`{"jsonrpc":"2.0","id":1,"result":{"tasks":[]}}`)
		gh.WantNothing()
	})
}

// The bytes of a list of tasks are bounded.
func TestListTasks_ByteLimit(t *testing.T) {
	const limit = 32 << 20
	long := `"` + strings.Repeat("x", 1<<20) + `"` // %q would be slow
	t.Run("legacy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, a, _, backends := openTwoClients(t, settings{maxMessage: 2 << 20}, "gh")
			gh := backends["gh"]
			makeTask(t, a, gh, "gh", "t")
			a.Send(`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`)
			next := `,"nextCursor":"x"`
			for i := range 40 {
				synctest.Wait()
				lines := gh.TakeAll()
				if len(lines) == 0 {
					break
				}
				if i == 39 {
					next = ""
				}
				m, _ := wire.Parse([]byte(lines[0]))
				gh.SendResult(m.ID(), fmt.Sprintf(`{"tasks":[{"taskId":"t","status":"working",`+
					`"statusMessage":%s}]%s}`, long, next))
			}
			if n := len(a.Next()); n < limit/2 || n > limit+1000 {
				t.Errorf("the list has %d bytes", n)
			}
			gh.WantNothing()
		})
	})
	t.Run("modern", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, settings{singleClient: true, maxMessage: 2 << 20,
				generation: map[string]string{"gh": "modern"}}, "gh")
			client, _ := h.connectClient()
			client.Initialize("2025-11-25")
			gh := h.nextProcess("gh")
			gh.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `"tools":{}`,
				`"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1))
			gh.ServeToolsList(mcptest.ToolsResult("job"))
			listTools(t, client)
			client.TakeAll()
			const state = `"taskId":"t%d","status":"working","ttlMs":null,` +
				`"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"`
			for i := range 40 {
				client.Send(callTool("1", "job", "{}", `,"task":{}`))
				gh.SendResult(gh.WantRequest("tools/call").ID(),
					fmt.Sprintf(`{"resultType":"task",`+state+`}`, i))
				client.Next()
			}
			client.Send(`{"jsonrpc":"2.0","id":2,"method":"tasks/list"}`)
			for range 40 {
				m := gh.WantRequest("tasks/get")
				var i int
				fmt.Sscanf(taskIDOf(m), "t%d", &i)
				gh.SendResult(m.ID(), fmt.Sprintf(`{"resultType":"complete",`+state+
					`,"statusMessage":%s}`, i, long))
			}
			got := client.Next()
			if n := len(got); n < limit/2 || n > limit+40*1000 {
				t.Errorf("the list has %d bytes", n)
			}
			if n := strings.Count(got, `"status":"working"`); n != 40 {
				t.Errorf("%d tasks are listed", n)
			}
		})
	})
}

// While a list of tasks is collected, the states of ended tasks do not keep the results of these
// tasks in memory, which the list does not contain.
func TestListTasks_StatesKeepNoResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true, maxMessage: 2 << 20,
			generation: map[string]string{"gh": "modern"}}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `"tools":{}`,
			`"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1))
		gh.ServeToolsList(mcptest.ToolsResult("job"))
		listTools(t, client)
		client.TakeAll()
		const state = `"taskId":"%s","status":"%s","ttlMs":null,` +
			`"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"`
		const tasks = 49 // 48 are polled, 16 at a time, before the last one
		for i := range tasks {
			client.Send(callTool("1", "job", "{}", `,"task":{}`))
			gh.SendResult(gh.WantRequest("tools/call").ID(),
				fmt.Sprintf(`{"resultType":"task",`+state+`}`, fmt.Sprint("t", i), "working"))
			client.Next()
		}
		before := mcptest.LiveHeap()
		client.Send(`{"jsonrpc":"2.0","id":2,"method":"tasks/list"}`)
		complete := func() {
			m := gh.WantRequest("tasks/get")
			gh.SendResult(m.ID(), fmt.Sprintf(`{"resultType":"complete",`+state+
				`,"result":{"content":[{"type":"text","text":"%s"}]}}`,
				taskIDOf(m), "completed", strings.Repeat("x", 1<<18)))
		}
		for range tasks - 1 {
			complete()
		}
		synctest.Wait()
		if kept := mcptest.LiveHeap() - before; kept > 6<<20 {
			t.Errorf("%d bytes are kept", kept)
		}
		complete()
		if n := strings.Count(client.Next(), `"status":"completed"`); n != tasks {
			t.Errorf("%d tasks are listed", n)
		}
	})
}

func taskIDOf(m wire.Message) string {
	id, _ := wire.Lookup(m.Part(wire.PartParams), "taskId")
	return wire.Unquote(id)
}

// A call that has become a task fails after several polls if the backend no longer responds.
func TestPolledTask_SilentBackendFailsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true,
			generation:  map[string]string{"gh": "modern"},
			callTimeout: map[string]time.Duration{"gh": time.Second}}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `"tools":{}`,
			`"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1))
		gh.ServeToolsList(mcptest.ToolsResult("job"))
		listTools(t, client)
		client.Send(toolsCall("1", "job"))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"task","taskId":"t","status":"working","ttlMs":null,"pollIntervalMs":1000}`)
		for range 6 {
			gh.WantRequest("tasks/get")
			gh.WantNotification("notifications/cancelled")
		}
		if m := client.NextMessage(); m.ID() != "1" || m.Part(wire.PartError) == nil {
			t.Errorf("got %s", m.Raw())
		}
		gh.WantRequest("tasks/cancel")
		gh.WantNothing()
	})
}

// The number of unanswered input requests per stateless call is bounded.
func TestSuspended_InputRequestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		gh.WantRequest("tools/call")
		const bound = 256
		for i := range bound + 1 {
			gh.Sendf(`{"jsonrpc":"2.0","id":"e%d","method":"roots/list"}`, i)
		}
		if got := gh.Next(); !strings.HasPrefix(got,
			`{"jsonrpc":"2.0","id":"e256","error":{"code":-32603,`) {
			t.Errorf("got %s", got)
		}
		wantInputRequired(t, client, "q1", "q256")
		gh.WantNothing()
	})
}

// The error for an unknown URI contains the URI unless the URI is too long.
func TestLongURIIsNotEchoed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		h.nextProcess("gh").ServeStartup("t")
		listTools(t, client)
		for _, length := range []int{8 << 10, 8<<10 + 1} {
			uri := strings.Repeat("x", length)
			client.Sendf(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":%q}}`,
				uri)
			if got := client.Next(); !strings.Contains(got, "Resource not found") ||
				strings.Contains(got, uri) != (length == 8<<10) {
				t.Errorf("%d: got %.300s", length, got)
			}
		}
	})
}

// The length of a subscribed URI is bounded, for session and stateless clients, because the URI is
// stored.
func TestLongURISubscriptionIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		serveResourcesStartup(t, gh, "t", "")
		listTools(t, client)
		long := strings.Repeat("x", 8<<10+1)
		client.Sendf(
			`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"u:%s"}}`,
			long[:8<<10-2])
		gh.SendResult(gh.WantRequest("resources/subscribe").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		client.Sendf(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":%q}}`,
			long)
		client.Want(
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: the URI of a subscription has at most 8192 bytes"}}`)
		stateless, _ := h.connectClient()
		stateless.Send(modernRequest("3", "subscriptions/listen",
			`"notifications":{"resourceSubscriptions":["`+long+`"]},`, clientCaps))
		if e := wire.ReadError(stateless.NextMessage().Part(wire.PartError)); e.Code != -32602 ||
			!strings.Contains(e.Message, "at most 8192 bytes") {
			t.Errorf("%+v", e)
		}
		gh.WantNothing()
	})
}

// The client metadata of a request is bounded.
func TestClientMetaLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{})
		client, _ := h.connectClient()
		client.Send(modernRequest("1", "tools/list", "", `{"x":"`+strings.Repeat("x", 64<<10)+`"}`))
		if e := wire.ReadError(client.NextMessage().Part(wire.PartError)); e.Code != -32602 ||
			!strings.Contains(e.Message, "longer than 65536 bytes") {
			t.Errorf("%+v", e)
		}
	})
}

// The number of unanswered input requests per stateless task is bounded.
func TestStatelessTasks_InputRequestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		createTask(t, client, gh, "")
		const bound = 256
		for i := range bound + 1 {
			gh.Sendf(
				`{"jsonrpc":"2.0","id":"e%d","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`, i)
		}
		if got := gh.Next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"e256",`) ||
			strings.Contains(got, "accept") {
			t.Errorf("got %s", got)
		}
		gh.WantNothing()
	})
}

// A request that the HTTP server has rejected is audited like a request that the gateway has
// rejected.
func TestRecordRejected_IsAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		h.nextProcess("gh").ServeStartup("one")
		m, _ := wire.Parse([]byte(toolsCall("7", "one")))
		h.gateway.RecordRejected("", named("p"), m, wire.Errorf(wire.CodeInvalidRequest, "no"))
		records := h.auditRecords()
		if len(records) != 1 || !strings.Contains(records[0], "outcome=rejected") ||
			!strings.Contains(records[0], "tool=one") || !strings.Contains(records[0], "id=7") ||
			!strings.Contains(records[0], "principal=p") {
			t.Errorf("the audit log has %q", records)
		}
	})
}

// A call that has become a task has run. If its backend could not be polled, its error said that
// the call did not run.
func TestPolledTask_BackendEnds_OutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh, call := openModern(t, "2025-11-25", "{}")
		gh.SendResult(call.ID(),
			`{"resultType":"task","taskId":"t","status":"working","ttlMs":null,"pollIntervalMs":1000}`)
		synctest.Wait()
		gh.Exit("exit 1", "")
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
			select {
			case next := <-h.queues["gh"]:
				next.Exit("exit 1", "")
			case <-time.After(time.Second):
			}
		}
		failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
		if !strings.Contains(failure.Message, "it is not running") ||
			!strings.HasSuffix(failure.Message, "outcome unknown: the call may have run") {
			t.Errorf("got %q", failure.Message)
		}
	})
}

// A request that is cancelled before notifications/initialized leaves the queue, in which
// MaxInFlight bounds the requests. A later request waits the whole time for the notification.
func TestInitialized_CancelledRequestsLeaveQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{inFlight: 4, singleClient: true}, "gh")
		conn, client := mcptest.NewPeer(t, "client")
		s, closed := h.openSession(conn)
		client.Send(
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"x","version":"1"}}}`)
		client.Next()
		gh := h.nextProcess("gh")
		gh.ServeHandshake("")
		gh.WantRequest("tools/list")
		const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"%s"}}`
		for n := range 100 {
			id := fmt.Sprint("r", n)
			client.Send(toolsCall(`"`+id+`"`, "x"))
			client.Sendf(cancelled, id)
			gh.Sendf(`{"jsonrpc":"2.0","id":%q,"method":"roots/list"}`, id)
			gh.Sendf(cancelled, id)
		}
		synctest.Wait()
		if n := s.QueuedRequests(); n != 0 {
			t.Errorf("%d cancelled requests are queued", n)
		}
		if records := h.auditRecords(); len(records) != 100 ||
			!strings.Contains(records[99], "outcome=cancelled") {
			t.Errorf("%d records, the last is %s", len(records), records[len(records)-1])
		}
		time.Sleep(time.Second)
		began := time.Now()
		client.Send(toolsCall("1", "x"))
		if m := client.NextMessage(); m.ID() != "1" || time.Since(began) != 2*time.Second {
			t.Errorf("got %s after %v", m.Raw(), time.Since(began))
		}
		client.WantNothing()
		gh.WantNothing()
		conn.Close()
		<-closed
		s.Closed(nil)
	})
}
