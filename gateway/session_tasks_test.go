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

// makeTask makes a client create a task at a backend, and returns the message that the client gets.
func makeTask(t *testing.T, client, backend *mcptest.Peer, tool, id string) string {
	t.Helper()
	client.Sendf(
		`{"jsonrpc":"2.0","id":"make","method":"tools/call","params":{"name":%q,"task":{"ttl":1.0}}}`, tool)
	m := backend.WantRequest("tools/call")
	backend.SendResult(m.ID(), `{"task":{"taskId":"`+id+`","status":"working","n":1.0}}`)
	return client.Next()
}

func sendTaskRequest(client *mcptest.Peer, method, task string) {
	client.Sendf(`{"jsonrpc":"2.0","id":"ask","method":%q,"params":{"taskId":%q}}`, method, task)
}

// Tasks of two backends with the same id are distinct. Every message contains the id that its
// receiver knows.
func TestSessionTasks_SameIDAtTwoBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b, backends := openTwoClients(t,
			settings{callTimeout: map[string]time.Duration{"docs": time.Minute}}, "gh", "docs")
		gh, docs := backends["gh"], backends["docs"]
		if got, want := makeTask(t, a, gh, "gh", "t"),
			`{"jsonrpc":"2.0","id":"make","result":{"task":{"taskId":"t","status":"working","n":1.0}}}`; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if got, want := makeTask(t, a, docs, "docs", "t"),
			`{"jsonrpc":"2.0","id":"make","result":{"task":{"taskId":"docs:t","status":"working","n":1.0}}}`; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		sendTaskRequest(a, "tasks/get", "t")
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"taskId":"t"}`)
		a.Want(`{"jsonrpc":"2.0","id":"ask","result":{"taskId":"t"}}`)
		sendTaskRequest(a, "tasks/get", "docs:t")
		m := docs.WantRequest("tasks/get")
		if got := string(m.Part(wire.PartParams)); got != `{"taskId":"t"}` {
			t.Errorf("the request is for %s", got)
		}
		docs.SendResult(m.ID(), `{"taskId":"t","x":1.0}`)
		a.Want(`{"jsonrpc":"2.0","id":"ask","result":{"taskId":"docs:t","x":1.0}}`)

		// tasks/result has no timeout and blocks no other request.
		a.Send(
			`{"jsonrpc":"2.0","id":"wait","method":"tasks/result","params":{"taskId":"docs:t","_meta":{"progressToken":"p","io.modelcontextprotocol/related-task":{"taskId":"docs:t"}}}}`)
		wait := docs.WantRequest("tasks/result")
		if got := string(wire.ID(wait.Part(wire.PartParams))); !strings.HasPrefix(got,
			`{"taskId":"t","_meta"`) || !strings.HasSuffix(got, `related-task":{"taskId":"t"}}}`) {
			t.Errorf("the request is %s", got)
		}
		time.Sleep(time.Hour)
		const related = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"%s"}}`
		of := func(id string) string { return fmt.Sprintf(related, id) }
		docs.Send(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{` +
			of("t") + `}}`)
		q := a.WantRequest("sampling/createMessage")
		if got := string(q.Part(wire.PartParams)); got != `{`+of("docs:t")+`}` {
			t.Errorf("the request is %s", got)
		}
		a.SendResult(q.ID(), `{`+of("docs:t")+`}`)
		docs.Want(`{"jsonrpc":"2.0","id":"q","result":{` + of("t") + `}}`)
		docs.Sendf(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,%s}}`,
			wait.Token(), of("t"))
		a.Want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p",` +
			of("docs:t") + `}}`)
		docs.Send(
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"x",` + of("t") + `}}`)
		a.Want(
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"docs/x",` + of("docs:t") + `}}`)
		docs.Send(
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"completed"}}`)
		a.Want(
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"docs:t","status":"completed"}}`)
		docs.SendResult(wait.ID(), `{"content":[],`+of("t")+`}`)
		a.Want(`{"jsonrpc":"2.0","id":"wait","result":{"content":[],` + of("docs:t") + `}}`)
		docs.Send(
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"nobody's","status":"completed"}}`)
		a.WantNothing()
		b.WantNothing()
	})
}

// Until a task has ended, its progress has the token of the call that has created the task.
func TestNOTIF_04_TaskProgressAfterCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b, backends := openTwoClients(t, settings{}, "gh")
		gh := backends["gh"]
		a.Send(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"gh","task":{},"_meta":{"progressToken":"p"}}}`)
		m := gh.WantRequest("tools/call")
		progress := func() {
			gh.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1.0}}`, m.Token())
		}
		const got = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1.0}}`
		progress()
		a.Want(got)
		gh.SendResult(m.ID(), `{"task":{"taskId":"t","status":"working"}}`)
		a.Next()
		progress()
		progress()
		a.Want(got)
		a.Want(got)
		sendTaskRequest(a, "tasks/get", "t")
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"taskId":"t","status":"completed"}`)
		a.Next()
		progress()
		a.WantNothing()
		b.WantNothing()
		a.Send(toolsCall("2", "gh")) // a call without a task has no progress after its response
		m = gh.WantRequest("tools/call")
		gh.SendResult(m.ID(), "{}")
		a.Next()
		gh.Sendf(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`,
			m.ID())
		a.WantNothing()
	})
}

// An error in response to tasks/result does not mean that the task has ended. A result does.
func TestSessionTasks_RefusedResultKeepsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _, backends := openTwoClients(t, settings{}, "gh")
		gh := backends["gh"]
		a.Send(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"gh","task":{},"_meta":{"progressToken":"p"}}}`)
		m := gh.WantRequest("tools/call")
		gh.SendResult(m.ID(), `{"task":{"taskId":"t","status":"working"}}`)
		a.Next()
		sendTaskRequest(a, "tasks/result", "t")
		gh.SendError(gh.WantRequest("tasks/result").ID(), `{"code":-32603,"message":"busy"}`)
		a.Want(`{"jsonrpc":"2.0","id":"ask","error":{"code":-32603,"message":"busy"}}`)
		const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1.0}}`
		gh.Sendf(progress, m.Token())
		a.Want(fmt.Sprintf(progress, `"p"`))
		sendTaskRequest(a, "tasks/result", "t")
		gh.SendResult(gh.WantRequest("tasks/result").ID(), `{"content":[]}`)
		a.Want(`{"jsonrpc":"2.0","id":"ask","result":{"content":[]}}`)
		gh.Sendf(progress, m.Token())
		a.WantNothing()
	})
}

// A task is accessible only to the session that has created it, even if sessions have equal task
// ids.
func TestSessionTasks_OtherSessionsTasksAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b, backends := openTwoClients(t, settings{}, "gh")
		gh := backends["gh"]
		makeTask(t, a, gh, "gh", "secret")
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			sendTaskRequest(b, method, "secret")
			b.Want(
				`{"jsonrpc":"2.0","id":"ask","error":{"code":-32602,"message":"Unknown task: secret"}}`)
		}
		b.Send(`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`)
		b.Want(`{"jsonrpc":"2.0","id":1,"result":{"tasks":[]}}`)
		b.Send(`{"jsonrpc":"2.0","id":1,"method":"tasks/get"}`)
		b.Want(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params: tasks/get needs a taskId"}}`)
		gh.WantNothing()
		sendTaskRequest(a, "tasks/cancel", "secret")
		gh.SendResult(gh.WantRequest("tasks/cancel").ID(),
			`{"taskId":"secret","status":"cancelled"}`)
		a.Want(`{"jsonrpc":"2.0","id":"ask","result":{"taskId":"secret","status":"cancelled"}}`)
	})
}

// tasks/list returns the tasks of all backends, in the order of the backends. It omits unknown
// tasks, and the tasks of backends that fail or do not respond.
func TestListTasks_MergesBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a, b, backends := openTwoClients(t, settings{}, "gh", "docs", "bad", "mute", "idle")
		gh, docs, bad, silent := backends["gh"], backends["docs"], backends["bad"], backends["mute"]
		for name, p := range backends {
			if name != "idle" {
				makeTask(t, a, p, name, name)
			}
		}
		makeTask(t, a, docs, "docs", "gh") // docs:gh for the client
		makeTask(t, b, gh, "gh", "of b")
		a.Send(`{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{}}`)
		m := gh.WantRequest("tasks/list")
		gh.SendResult(m.ID(),
			`{"tasks":[{"taskId":"of b"},{"taskId":"nobody's"}],"nextCursor":"\u0063"}`)
		m = gh.WantRequest("tasks/list")
		if got := string(m.Part(wire.PartCursor)); got != `"\u0063"` {
			t.Errorf("the next page was requested with %s", got)
		}
		gh.SendResult(m.ID(), `{"tasks":[{"n":1.0,"taskId":"gh","status":"working"}]}`)
		docs.SendResult(docs.WantRequest("tasks/list").ID(),
			`{"tasks":[{"taskId":"docs"},{"n":1.0,"taskId":"gh","status":"completed"}]}`)
		bad.SendError(bad.WantRequest("tasks/list").ID(), `{"code":-1,"message":"no"}`)
		silent.WantRequest("tasks/list")
		a.WantNothing()
		time.Sleep(10 * time.Second)
		a.Want(
			`{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"n":1.0,"taskId":"gh","status":"working"},{"taskId":"docs"},{"n":1.0,"taskId":"docs:gh","status":"completed"}]}}`)
		silent.WantNotification("notifications/cancelled")
		backends["idle"].WantNothing()
		if loud := h.log.Lines("listing tasks failed"); len(loud) != 2 {
			t.Errorf("logged %q", loud)
		}
		a.Send(`{"jsonrpc":"2.0","id":2,"method":"tasks/list","params":{"cursor":"x"}}`)
		a.Want(
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: unknown cursor"}}`)
		a.Send(`{"jsonrpc":"2.0","id":3,"method":"tasks/list"}`)
		gh.WantRequest("tasks/list")
		a.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
		gh.WantNotification("notifications/cancelled")
		a.WantNothing()
	})
}

// The number of tasks per session that have not ended is bounded.
func TestSessionTasks_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _, backends := openTwoClients(t, settings{}, "gh")
		gh := backends["gh"]
		const bound = 4096
		for i := range bound {
			makeTask(t, a, gh, "gh", fmt.Sprint("t", i))
		}
		const more = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"gh","task":{}}}`
		a.Send(more)
		if got := a.Next(); !strings.Contains(got,
			`"error":{"code":-32603,"message":"Too many tasks`) {
			t.Errorf("got %s", got)
		}
		a.Send(toolsCall("2", "gh")) // no task
		gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		a.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		sendTaskRequest(a, "tasks/get", "t7")
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"taskId":"t7","status":"completed"}`)
		a.Next()
		a.Send(more)
		ofCall := gh.WantRequest("tools/call")
		a.Send(strings.Replace(more, `"id":1`, `"id":3`, 1)) // one slot was free
		if got := a.Next(); !strings.Contains(got, "Too many tasks") {
			t.Errorf("got %s", got)
		}
		gh.SendResult(ofCall.ID(), `{"content":[]}`) // no task was created: the slot is free
		a.Next()
		makeTask(t, a, gh, "gh", "new")
		sendTaskRequest(a, "tasks/get", "t7")
		a.Want(`{"jsonrpc":"2.0","id":"ask","error":{"code":-32602,"message":"Unknown task: t7"}}`)
		sendTaskRequest(a, "tasks/get", "t0")
		gh.WantRequest("tasks/get")
	})
}

// The client cancels a call while the response with the created task is being handled. The client
// does not get the id of the task, so the task is cancelled at the backend.
func TestSessionTasks_CallCancelledBeforeTaskIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := &responseHook{}
		h := newHarness(t, settings{singleClient: true, wrap: hook.with}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeHandshake(tasksHandshake)
		gh.ServeToolsList(jobTools)
		listTools(t, client)
		client.Send(callTool("1", "job", "{}", `,"task":{}`))
		call := gh.WantRequest("tools/call")
		hook.during = func() {
			client.Send(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			time.Sleep(time.Second)
		}
		gh.SendResult(call.ID(), `{"task":{"taskId":"t1","status":"working"}}`)
		m := gh.WantRequest("tasks/cancel")
		if got := string(m.Part(wire.PartParams)); got != `{"taskId":"t1"}` {
			t.Errorf("params %s", got)
		}
		client.WantNothing()
		gh.WantNothing()
	})
}

// A client that only requests results is not locked out after 4096 failed tasks.
func TestSessionTasks_FailedTasksAreEvicted(t *testing.T) {
	for _, code := range []string{"-32603", "-32602"} {
		synctest.Test(t, func(t *testing.T) {
			_, a, _, backends := openTwoClients(t, settings{}, "gh")
			gh := backends["gh"]
			for i := range 4097 {
				a.Send(`{"jsonrpc":"2.0","id":"make","method":"tools/call",` +
					`"params":{"name":"gh","task":{}}}`)
				lines := gh.TakeAll()
				if len(lines) != 1 {
					t.Fatalf("%s: call %d: %s", code, i, a.Next())
				}
				m, _ := wire.Parse([]byte(lines[0]))
				gh.SendResult(m.ID(), fmt.Sprintf(`{"task":{"taskId":"t%d","status":"working"}}`, i))
				a.Next()
				sendTaskRequest(a, "tasks/result", fmt.Sprintf("t%d", i))
				gh.SendError(gh.WantRequest("tasks/result").ID(),
					`{"code":`+code+`,"message":"the job is broken"}`)
				a.Next()
			}
		})
	}
}

// A backend no longer knows the 4096 tasks of a session, for example after a restart. Once a client
// has learned this about a task, by whichever request, the task makes room for a new one.
func TestSessionTasks_UnknownTasksAreEvicted(t *testing.T) {
	t.Run("legacy", func(t *testing.T) { // its list has no errors about single tasks
		testUnknownTasks(t, "legacy", "tasks/get", "tasks/cancel", "tasks/result")
	})
	t.Run("modern", func(t *testing.T) {
		testUnknownTasks(t, "modern", "tasks/get", "tasks/cancel", "tasks/result", "tasks/list")
	})
}

func testUnknownTasks(t *testing.T, generation string, methods ...string) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true,
			generation: map[string]string{"gh": generation}}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		created := `{"task":{"taskId":"t%d","status":"working"}}`
		if generation == "legacy" {
			gh.ServeHandshake(tasksHandshake)
			gh.ServeToolsList(jobTools)
		} else {
			created = `{"resultType":"task","taskId":"t%d","status":"working","ttlMs":null,` +
				`"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"}`
			gh.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `"tools":{}`,
				`"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1))
			gh.ServeToolsList(mcptest.ToolsResult("job"))
		}
		listTools(t, client)
		client.TakeAll()
		tasks := 0
		call := func() string {
			client.Send(callTool("1", "job", "{}", `,"task":{}`))
			for _, line := range gh.TakeAll() {
				m, _ := wire.Parse([]byte(line))
				gh.SendResult(m.ID(), fmt.Sprintf(created, tasks))
				tasks++
			}
			return client.Next()
		}
		for range 4096 {
			call()
		}
		for i, method := range methods {
			if got := call(); !strings.Contains(got, "Too many tasks") {
				t.Fatalf("before %s: the client got %s", method, got)
			}
			sendTaskRequest(client, method, fmt.Sprint("t", i))
			for lines := gh.TakeAll(); len(lines) > 0; lines = gh.TakeAll() {
				for _, line := range lines {
					m, _ := wire.Parse([]byte(line))
					gh.SendError(m.ID(), `{"code":-32602,"message":"Task not found"}`)
				}
			}
			client.Next()
			if got := call(); !strings.Contains(got, `"working"`) {
				t.Errorf("after %s: the client got %s", method, got)
			}
		}
	})
}

// A backend that has refused a request about a task then reports that the task is running: the task
// is not evicted.
func TestSessionTasks_RunningTaskIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _, backends := openTwoClients(t, settings{}, "gh")
		gh := backends["gh"]
		for i := range 4096 {
			makeTask(t, a, gh, "gh", fmt.Sprint("t", i))
		}
		sendTaskRequest(a, "tasks/result", "t7")
		gh.SendError(gh.WantRequest("tasks/result").ID(), `{"code":-32603,"message":"it is running"}`)
		a.Next()
		sendTaskRequest(a, "tasks/get", "t7")
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"taskId":"t7","status":"working"}`)
		a.Next()
		a.Send(callTool("1", "gh", "{}", `,"task":{}`))
		if got := a.Next(); !strings.Contains(got, "Too many tasks") {
			t.Errorf("the client got %s", got)
		}
	})
}
