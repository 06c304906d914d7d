package gateway_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// openTaskServerSession starts a gateway in front of a TaskServer, with a session client.
func openTaskServerSession(t *testing.T, o settings,
	caps string) (*harness, *mcptest.TaskServer, *mcptest.Peer) {
	t.Helper()
	h, server := openTaskServer(t, o)
	client, _ := h.connectClient()
	if got := client.Initialize("2025-11-25", caps); strings.Contains(got, "extensions") ||
		!strings.Contains(got, `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`) {
		t.Errorf("offered %s", got)
	}
	listTools(t, client)
	return h, server, client
}

func callTool(id, tool, arguments, more string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, id,
		tool, arguments, more)
}

// A session client that has not asked for a task gets the result, once. The gateway polls the task
// without a time limit.
func TestPolledTask_CallWaitsForResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, server, client := openTaskServerSession(t,
			settings{callTimeout: map[string]time.Duration{"jobs": time.Second}}, "{}")
		client.Send(callTool("1", "slow_compute", `{"seconds":300}`,
			`,"_meta":{"progressToken":"p"}`))
		last := ""
		m := client.NextMessage()
		for ; m.Kind() == wire.Notification; m = client.NextMessage() {
			value, _ := wire.Lookup(m.Part(wire.PartParams), "progress")
			if now := string(value); m.Method() != "notifications/progress" || m.Token() != `"p"` ||
				len(now) < len(last) {
				t.Errorf("got %s after %s", m.Raw(), last)
			} else {
				last = now
			}
		}
		wantText(t, "answer", string(m.Raw()),
			`{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"computed for 300 s","type":"text"}],"isError":false}}`)
		if last == "" {
			t.Error("no progress")
		}
		client.Send(callTool("2", "failing_job", `{}`, ""))
		client.Want(
			`{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"the job has failed","type":"text"}],"isError":true}}`)
		client.Send(callTool("3", "protocol_error_job", `{}`, ""))
		client.Want(
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the job is broken"}}`)
		client.Send(callTool("4", "greet", `{"name":"you"}`, ""))
		client.Want(
			`{"jsonrpc":"2.0","id":4,"result":{"content":[{"text":"Hello, you!","type":"text"}],"isError":false}}`)
		if n := server.ToolCalls(); n != 4 {
			t.Errorf("%d calls", n)
		}
		records := h.auditRecords() // the order of the last two may differ
		slices.SortFunc(records, func(a, b string) int {
			return cmp.Compare(a[strings.Index(a, " id="):], b[strings.Index(b, " id="):])
		})
		if len(records) != 4 || !strings.Contains(records[0], "outcome=ok") ||
			!strings.Contains(records[1], "outcome=tool_error") ||
			!strings.Contains(records[2], "outcome=rpc_error") {
			t.Errorf("the audit log has\n%s", strings.Join(records, "\n"))
		}
	})
}

// Each input request of a task is sent to the client once, even if the call has required input
// before it became a task.
func TestPolledTask_Inputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, server, client := openTaskServerSession(t, settings{}, `{"elicitation":{}}`)
		for id, tool := range map[string]string{"1": "multi_input", "2": "test_tool_with_task"} {
			client.Send(callTool(id, tool, `{}`, ""))
			rounds := 1
			if tool == "multi_input" {
				rounds = 2
			}
			for range rounds {
				m := client.WantRequest("elicitation/create")
				text, _ := wire.Lookup(m.Part(wire.PartParams), "message")
				if !strings.HasPrefix(string(text), `"[jobs] `) {
					t.Errorf("the request is %s", m.Raw())
				}
				if strings.Contains(string(m.Raw()), "related-task") {
					t.Errorf("the client got no task: %s", m.Raw())
				}
				time.Sleep(time.Minute) // the client is not asked again meanwhile
				client.SendResult(m.ID(), `{"action":"accept","content":{"name":"n"}}`)
			}
			if m := client.NextMessage(); m.ID() != wire.ID(id) || m.IsToolError() ||
				!strings.Contains(string(m.Raw()), "content") {
				t.Errorf("%s: %s", tool, m.Raw())
			}
		}
		// the call of test_tool_with_task is sent again with the response
		if n := server.ToolCalls(); n != 3 {
			t.Errorf("%d calls", n)
		}
	})
}

// The cancellation of a call, or the end of the session, cancels the call's task.
func TestPolledTask_Cancelled(t *testing.T) {
	for what, take := range map[string]func(*mcptest.Peer){
		"cancelled": func(client *mcptest.Peer) {
			client.Send(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			client.Send(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		},
		"disconnected": func(client *mcptest.Peer) { client.FailRead(transport.ErrClosed) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, server, client := openTaskServerSession(t, settings{}, `{"elicitation":{}}`)
				client.Send(callTool("1", "slow_compute", `{"seconds":3600}`, ""))
				client.Send(callTool("2", "confirm_delete", `{"filename":"f"}`, ""))
				client.WantRequest("elicitation/create")
				take(client)
				time.Sleep(time.Minute)
				if n := server.RunningTasks(); n != 0 {
					t.Errorf("%d tasks are still running", n)
				}
				if what == "cancelled" {
					// cancellation of the request to the client
					client.WantNotification("notifications/cancelled")
					client.WantNothing()
				}
				if records := h.auditRecords(); len(records) != 2 ||
					!strings.Contains(records[0], "outcome=cancelled") ||
					!strings.Contains(records[1], "outcome=cancelled") {
					t.Errorf("the audit log has %q", records)
				}
			})
		})
	}
}

// A client that asks for a task gets a task, even if the backend has responded without one.
func TestPolledTask_RequestedTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, server, client := openTaskServerSession(t, settings{}, `{"elicitation":{}}`)
		make := func(tool, arguments string) (id string) {
			client.Send(callTool(`"make"`, tool, arguments, `,"task":{}`))
			m := client.NextMessage()
			task, _ := wire.Lookup(m.Part(wire.PartResult), "task")
			value, _ := wire.Lookup(task, "taskId")
			if wire.Unquote(value) == "" {
				t.Fatalf("%s: no task: %s", tool, m.Raw())
			}
			return wire.Unquote(value)
		}
		result := func(method, id string, path ...string) string {
			sendTaskRequest(client, method, id)
			m := client.NextMessage()
			for m.Method() == "notifications/tasks/status" {
				m = client.NextMessage()
			}
			if failure := m.Part(wire.PartError); failure != nil {
				return string(failure)
			}
			value, _ := wire.Lookup(m.Part(wire.PartResult), path...)
			return string(value)
		}
		wrong := make("failing_job", `{}`)
		wantText(t, "status", result("tasks/get", wrong, "status"), `"working"`)
		wantText(t, "ttl", result("tasks/get", wrong, "ttl"), `600000`)
		wantText(t, "result", result("tasks/result", wrong, "isError"), `true`)
		wantText(t, "related", result("tasks/result", wrong, "_meta"),
			`{"io.modelcontextprotocol/related-task":{"taskId":"`+wrong+`"}}`)
		wantText(t, "status", result("tasks/get", wrong, "status"), `"failed"`)
		wantText(t, "cancel", result("tasks/cancel", wrong),
			`{"code":-32602,"message":"Invalid params: the task has ended"}`)

		slow := make("slow_compute", `{"seconds":60}`)
		wantText(t, "cancel", result("tasks/cancel", slow, "status"), `"cancelled"`)
		wantText(t, "status", result("tasks/get", slow, "status"), `"cancelled"`)
		if got := result("tasks/result", slow); !strings.Contains(got, "cancelled") {
			t.Errorf("the result of a cancelled task: %s", got)
		}
		quick := make("greet", `{"name":"you"}`) // the backend creates no task
		wantText(t, "status", result("tasks/get", quick, "status"), `"completed"`)
		for range 2 {
			wantText(t, "result", result("tasks/result", quick, "content"),
				`[{"text":"Hello, you!","type":"text"}]`)
		}

		asks := make("confirm_delete", `{"filename":"f"}`)
		time.Sleep(time.Second)
		wantText(t, "status", result("tasks/get", asks, "status"), `"input_required"`)
		client.WantNothing() // before tasks/result
		for _, id := range []string{"a", "b"} {
			client.Sendf(`{"jsonrpc":"2.0","id":%q,"method":"tasks/result","params":{"taskId":%q}}`,
				id, asks)
		}
		m := client.WantRequest("elicitation/create")
		if meta, _ := wire.Lookup(m.Part(wire.PartParams), "_meta"); string(meta) !=
			`{"io.modelcontextprotocol/related-task":{"taskId":"`+asks+`"}}` {
			t.Errorf("the request has the _meta %s", meta)
		}
		client.WantNothing() // two requests wait; only one has caused an input request
		client.SendResult(m.ID(), `{"action":"accept","content":{"confirm":"yes"}}`)
		ended := 0
		for ended < 2 {
			switch m := client.NextMessage(); {
			case m.Method() == "notifications/tasks/status":
			case m.Part(wire.PartResult) != nil &&
				strings.Contains(string(m.Raw()), `accept f: yes`):
				ended++
			default:
				t.Fatalf("got %s", m.Raw())
			}
		}
		client.Send(`{"jsonrpc":"2.0","id":"list","method":"tasks/list"}`)
		list, _ := wire.Lookup(client.NextMessage().Part(wire.PartResult), "tasks")
		var listed []string
		for _, one := range wire.Elements(list) {
			id, _ := wire.Lookup(one, "taskId")
			status, _ := wire.Lookup(one, "status")
			listed = append(listed, wire.Unquote(id)+" "+wire.Unquote(status))
		}
		wantText(t, "list", strings.Join(listed, ", "),
			wrong+" failed, "+slow+" cancelled, "+quick+" completed, "+asks+" completed")
		if n := server.ToolCalls(); n != 4 {
			t.Errorf("%d calls", n)
		}
		if got := result("tasks/get", "other"); !strings.Contains(got, "-32602") {
			t.Errorf("an unknown task: %s", got)
		}
	})
}

// If a tasks/result is cancelled, its input request is cancelled, and is sent again for the next
// tasks/result. The task continues.
func TestPolledTask_ResultRequestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, client := openTaskServerSession(t, settings{}, `{"elicitation":{}}`)
		client.Send(callTool("1", "confirm_delete", `{"filename":"f"}`, `,"task":{}`))
		value, _ := wire.Lookup(client.NextMessage().Part(wire.PartResult), "task", "taskId")
		wait := func(id string) {
			client.Sendf(`{"jsonrpc":"2.0","id":%s,"method":"tasks/result","params":{"taskId":%s}}`,
				id, value)
			client.WantNotification("notifications/tasks/status")
		}
		wait("2")
		client.WantRequest("elicitation/create")
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		client.WantNotification("notifications/cancelled")
		client.Sendf(`{"jsonrpc":"2.0","id":3,"method":"tasks/result","params":{"taskId":%s}}`,
			value)
		client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"decline"}`)
		for m := client.NextMessage(); ; m = client.NextMessage() {
			if m.Method() == "notifications/tasks/status" {
				continue
			}
			if m.ID() != "3" || !strings.Contains(string(m.Raw()), "decline f") {
				t.Errorf("ended with %s", m.Raw())
			}
			break
		}
	})
}

// Many session clients make concurrent calls and cancel some. Each call that is not cancelled gets
// one response, and no task is left.
func TestPolledTask_Storm(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		h, server, _ := openTaskServerSession(t, settings{}, "{}")
		const clients, each = 10, 48
		var players sync.WaitGroup
		for range clients {
			client, _ := h.connectClient()
			players.Go(func() {
				client.Initialize("2025-06-18", `{"elicitation":{}}`)
				answered := make(map[wire.ID]int)
				for i := range each {
					tool := []string{"confirm_delete", "slow_compute", "greet", "multi_input"}[i%4]
					client.Send(callTool(fmt.Sprint(i), tool, `{"seconds":9}`, ""))
					if i%8 == 1 {
						time.Sleep(time.Duration(i) * 20 * time.Millisecond)
						client.Sendf(
							`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
						answered[wire.ID(fmt.Sprint(i))]++
					}
				}
				for len(answered) < each {
					switch m := client.NextMessage(); m.Kind() {
					case wire.Request:
						client.SendResult(m.ID(), `{"action":"accept","content":{}}`)
					case wire.Response:
						if answered[m.ID()]++; m.Part(wire.PartError) != nil {
							t.Errorf("got %s", m.Raw())
						}
					}
				}
				for id, n := range answered {
					if n > 2 || n > 1 && id[len(id)-1]%2 == 0 {
						t.Errorf("%s was answered %d times", id, n)
					}
				}
			})
		}
		players.Wait()
		time.Sleep(time.Minute)
		if n := server.RunningTasks(); n != 0 {
			t.Errorf("%d tasks are still running", n)
		}
		if n := server.ToolCalls(); n != clients*each {
			t.Errorf("%d calls", n)
		}
		if n := len(h.auditRecords()); n != clients*each {
			t.Errorf("%d records", n)
		}
	})
}

const (
	asOfModern = `"taskId":"t","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":600000,"pollIntervalMs":100`
	asksInput  = `{"resultType":"complete","status":"input_required",` + asOfModern +
		`,"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`
)

// The backend refuses a tasks/update. The call ends with the error, and its task, which the client
// does not know, is cancelled.
func TestPolledTask_RefusedUpdateCancelsUnknownTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, m := openModern(t, "2025-11-25", `{"elicitation":{}}`)
		gh.SendResult(m.ID(), `{"resultType":"task","status":"working",`+asOfModern+`}`)
		gh.SendResult(gh.WantRequest("tasks/get").ID(), asksInput)
		client.SendResult(client.WantRequest("elicitation/create").ID(),
			`{"action":"accept","content":{}}`)
		gh.SendError(gh.WantRequest("tasks/update").ID(), `{"code":-32603,"message":"disk full"}`)
		if m := client.NextMessage(); m.ID() != "1" || m.Part(wire.PartError) == nil {
			t.Errorf("the client got %s", m.Raw())
		}
		gh.WantRequest("tasks/cancel")
		time.Sleep(time.Minute)
		gh.WantNothing()
		client.WantNothing()
	})
}

// The backend refuses a tasks/update, and the client knows the task. The next tasks/result requests
// the input again. The task is marked as ended only when it has ended.
func TestPolledTask_RefusedUpdateRequestsInputAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true,
			generation: map[string]string{"gh": "modern"}}, "gh")
		conn, client := mcptest.NewPeer(t, "client")
		s, closed := h.openSession(conn)
		client.Initialize("2025-11-25", `{"elicitation":{}}`)
		gh := h.nextProcess("gh")
		gh.ServeDiscover(
			`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":0,"cacheScope":"public"}`)
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		listTools(t, client)
		client.TakeAll()
		client.Send(callTool("1", "ask", "{}", `,"task":{}`))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"task","status":"working",`+asOfModern+`}`)
		client.Next()
		for n, code := range []string{"-32603", "-32602"} {
			sendTaskRequest(client, "tasks/result", "t")
			gh.SendResult(gh.WantRequest("tasks/get").ID(), asksInput)
			if n == 0 {
				client.WantNotification("notifications/tasks/status")
			}
			client.SendResult(client.WantRequest("elicitation/create").ID(),
				`{"action":"accept","content":{}}`)
			gh.SendError(gh.WantRequest("tasks/update").ID(),
				`{"code":`+code+`,"message":"busy"}`)
			if got := client.Next(); !strings.Contains(got, `"error":{"code":`+code) {
				t.Errorf("the client got %s", got)
			}
		}
		if n := s.EndedTasks(); n != 0 {
			t.Errorf("%d tasks are marked as ended", n)
		}
		sendTaskRequest(client, "tasks/result", "t")
		gh.SendResult(gh.WantRequest("tasks/get").ID(),
			`{"resultType":"complete","status":"completed",`+asOfModern+`,"result":{"content":[]}}`)
		client.WantNotification("notifications/tasks/status")
		if got := client.Next(); !strings.Contains(got, `"content":[]`) {
			t.Errorf("the client got %s", got)
		}
		if n := s.EndedTasks(); n != 1 {
			t.Errorf("%d tasks are marked as ended", n)
		}
		gh.WantNothing()
		conn.Close()
		<-closed
		s.Closed(nil)
	})
}

// tasks/list returns the state that the backend has just reported.
func TestTaskList_LongState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true,
			generation: map[string]string{"gh": "modern"}}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", `{"elicitation":{}}`)
		gh := h.nextProcess("gh")
		gh.ServeDiscover(
			`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},` +
				`"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":0,"cacheScope":"public"}`)
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		listTools(t, client)
		client.TakeAll()
		client.Send(callTool("1", "ask", "{}", `,"task":{}`))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"task","status":"working",`+asOfModern+`}`)
		client.Next()
		client.Send(`{"jsonrpc":"2.0","id":2,"method":"tasks/list"}`)
		gh.SendResult(gh.WantRequest("tasks/get").ID(),
			`{"resultType":"complete","status":"working","statusMessage":"`+
				strings.Repeat("x", 9000)+`",`+asOfModern+`}`)
		if got := client.Next(); !strings.Contains(got, "xxxx") {
			t.Errorf("the backend has responded, but the client got %s", got)
		}
	})
}
