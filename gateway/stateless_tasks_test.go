package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

const (
	tasksCap       = `{"elicitation":{},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	tasksHandshake = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"scripted","version":"1"}}`
	jobTools       = `{"tools":[{"name":"plain","inputSchema":{"type":"object"}},` +
		`{"name":"job","execution":{"taskSupport":"optional"},"inputSchema":{"type":"object"}},` +
		`{"name":"must","execution":{"taskSupport":"required"},"inputSchema":{"type":"object"}}]}`
)

// openTaskBackend starts a gateway whose only backend is legacy and has tasks.
func openTaskBackend(t *testing.T, o settings) (h *harness, client, gh *mcptest.Peer) {
	t.Helper()
	h = newHarness(t, o, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", tasksCap))
	gh = h.nextProcess("gh")
	gh.ServeHandshake(tasksHandshake)
	gh.ServeToolsList(jobTools)
	if got := client.Next(); strings.Contains(got, "execution") {
		t.Errorf("the client got execution: %s", got)
	}
	return h, client, gh
}

// createTask makes the client call the tool job, which becomes a task, and returns its id as
// JSON.
func createTask(t *testing.T, client, gh *mcptest.Peer, more string) string {
	t.Helper()
	client.Send(modernRequest(`"make"`, "tools/call", `"name":"job","task":{"ttl":7},`, tasksCap))
	m := gh.WantRequest("tools/call")
	if task, _ := wire.Lookup(m.Part(wire.PartParams), "task"); string(task) != "{}" {
		t.Errorf("the call was sent with task %s", task)
	}
	gh.SendResult(m.ID(), `{"task":{"taskId":"t1","status":"working","ttl":60000`+more+`}}`)
	return nextTaskID(t, client)
}

func nextTaskID(t *testing.T, client *mcptest.Peer) string {
	t.Helper()
	return taskIDIn(t, client.NextMessage())
}

// taskIDIn returns the id of the created task in a response.
func taskIDIn(t *testing.T, m wire.Message) string {
	t.Helper()
	id, _ := wire.Lookup(m.Part(wire.PartResult), "taskId")
	kind, _ := wire.Lookup(m.Part(wire.PartResult), "resultType")
	if string(kind) != `"task"` || len(id) < 30 {
		t.Fatalf("no task was created: %s", m.Raw())
	}
	return string(id)
}

func taskRequest(id, method, task, more string) string {
	return modernRequest(id, method, `"taskId":`+task+`,`+more, tasksCap)
}

// getTask sends tasks/get. The backend responds with the task in legacy.
func getTask(client, gh *mcptest.Peer, task, legacy string) {
	client.Send(taskRequest(`"get"`, "tasks/get", task, ""))
	m := gh.WantRequest("tasks/get")
	gh.SendResult(m.ID(), legacy)
}

func nextWithoutServerInfo(client *mcptest.Peer) string {
	m := client.NextMessage()
	result := wire.EditObject(m.Part(wire.PartResult),
		func(key string) bool { return key == "_meta" })
	if failure := m.Part(wire.PartError); failure != nil {
		return string(failure)
	}
	return string(result)
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// The result of a legacy backend's task is requested once, and returned with the status.
func TestStatelessTasks_LegacyBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, `,"pollInterval":1.5`)
		getTask(client, gh, task, `{"taskId":"t1","status":"working","ttl":60000}`)
		wantText(t, "working", nextWithoutServerInfo(client),
			`{"resultType":"complete","status":"working","ttlMs":60000,"taskId":`+task+`}`)

		getTask(client, gh, task, `{"taskId":"t1","status":"failed","ttl":60000}`)
		m := gh.WantRequest("tasks/result")
		if want := `{"taskId":"t1"}`; string(m.Part(wire.PartParams)) != want {
			t.Errorf("tasks/result was sent with %s", m.Part(wire.PartParams))
		}
		gh.SendResult(m.ID(),
			`{"isError":true,"content":[ ],"n":1.0,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`)
		ended := `{"resultType":"complete","result":{"isError":true,"content":[ ],"n":1.0},"status":"completed","ttlMs":60000,"taskId":` + task + `}`
		wantText(t, "ended", nextWithoutServerInfo(client), ended)
		for range 3 { // the result is stored
			client.Send(taskRequest("1", "tasks/get", task, ""))
			wantText(t, "ended", nextWithoutServerInfo(client), ended)
		}
		client.Send(taskRequest("1", "tasks/cancel", task, ""))
		wantText(t, "cancelled when it had ended", nextWithoutServerInfo(client),
			`{"resultType":"complete"}`)
		gh.WantNothing()

		time.Sleep(3 * time.Minute)
		client.Send(taskRequest("1", "tasks/get", task, ""))
		if e := wire.ReadError(client.NextMessage().Part(wire.PartError)); e.Code != -32602 {
			t.Errorf("after its ttl: %+v", e)
		}
		if n := h.gateway.StatelessTasks(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
		gh.WantNothing()
	})
}

// A task's input requests arrive while tasks/result is open. The client gets each of them from
// tasks/get and responds once, with tasks/update.
func TestStatelessTasks_Inputs(t *testing.T) {
	// with a second client, the backend's requests may belong to either client
	for _, solo := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { testTaskInputs(t, solo) })
	}
}

func testTaskInputs(t *testing.T, solo bool) {
	_, client, gh := openTaskBackend(t, settings{singleClient: solo})
	task := createTask(t, client, gh, "")
	waits := `{"taskId":"t1","status":"input_required","ttl":60000}`
	getTask(client, gh, task, waits)
	result := gh.WantRequest("tasks/result")
	const related = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}`
	gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?",` +
		related + `}}`)
	gh.Send(`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"x":1.0,` +
		related + `}}`)
	wantText(t, "asked", nextWithoutServerInfo(client),
		`{"resultType":"complete","inputRequests":{"q1":{"method":"elicitation/create","params":{"message":"[gh] Who?"}},`+
			`"q2":{"method":"sampling/createMessage","params":{"x":1.0}}},"status":"input_required","ttlMs":60000,"taskId":`+task+`}`)

	client.Send(taskRequest("1", "tasks/update", task,
		`"inputResponses":{"q1":{"action":"accept","content":{"n":1.0}},"q2":{"no":"sampling"},"other":{}},`))
	wantText(t, "update", nextWithoutServerInfo(client), `{"resultType":"complete"}`)
	gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept","content":{"n":1.0}}}`)
	client.Send(taskRequest("1", "tasks/update", task,
		`"inputResponses":{"q1":{"action":"decline"}},`))
	wantText(t, "again", nextWithoutServerInfo(client), `{"resultType":"complete"}`)
	gh.WantNothing()

	getTask(client, gh, task, waits) // the gateway sends no second tasks/result
	wantText(t, "asked", nextWithoutServerInfo(client),
		`{"resultType":"complete","inputRequests":{"q2":{"method":"sampling/createMessage","params":{"x":1.0}}},"status":"input_required","ttlMs":60000,"taskId":`+task+`}`)
	client.Send(taskRequest("1", "tasks/update", task,
		`"inputResponses":{"q2":{"role":"assistant","content":{"type":"text","text":"?"}}},`))
	nextWithoutServerInfo(client)
	gh.Want(
		`{"jsonrpc":"2.0","id":"s","result":{"role":"assistant","content":{"type":"text","text":"?"}}}`)
	gh.SendResult(result.ID(), `{"content":[]}`)
	getTask(client, gh, task, `{"taskId":"t1","status":"completed","ttl":60000}`)
	wantText(t, "ended", nextWithoutServerInfo(client),
		`{"resultType":"complete","result":{"content":[]},"status":"completed","ttlMs":60000,"taskId":`+task+`}`)
	gh.WantNothing()
}

// If a task has the status input_required but there are no input requests, the client gets the
// status working, because it could not respond. A task may also end with an error.
func TestStatelessTasks_NoInputAndError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, "")
		getTask(client, gh, task, `{"taskId":"t1","status":"input_required","ttl":null}`)
		result := gh.WantRequest("tasks/result")
		wantText(t, "no inputs", nextWithoutServerInfo(client),
			`{"resultType":"complete","status":"working","ttlMs":null,"taskId":`+task+`}`)
		const failure = `{"code":-32000,"message":"no","data":1.0}`
		gh.SendError(result.ID(), failure) // may be a refusal: the gateway requests it again
		getTask(client, gh, task, `{"taskId":"t1","status":"failed","ttl":null}`)
		gh.SendError(gh.WantRequest("tasks/result").ID(), failure)
		wantText(t, "failed", nextWithoutServerInfo(client),
			`{"resultType":"complete","error":{"code":-32000,"message":"no","data":1.0},"status":"failed","ttlMs":null,"taskId":`+task+`}`)
	})
}

// A task that the client cancels is cancelled at the backend, and its input requests get
// responses.
func TestStatelessTasks_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, "")
		client.Send(taskRequest("1", "tasks/cancel", task, ""))
		gh.SendResult(gh.WantRequest("tasks/cancel").ID(),
			`{"taskId":"t1","status":"cancelled","ttl":60000}`)
		wantText(t, "cancel", nextWithoutServerInfo(client), `{"resultType":"complete"}`)
		client.Send(taskRequest("1", "tasks/get", task, ""))
		wantText(t, "get", nextWithoutServerInfo(client),
			`{"resultType":"complete","status":"cancelled","ttlMs":60000,"taskId":`+task+`}`)
		gh.WantNothing()

		task = createTask(t, client, gh, "")
		client.Send(taskRequest("1", "tasks/cancel", task, ""))
		gh.SendError(gh.WantRequest("tasks/cancel").ID(),
			`{"code":-32602,"message":"it has ended"}`)
		wantText(t, "cancel", nextWithoutServerInfo(client), `{"resultType":"complete"}`)
	})
}

// Only clients that declare tasks may create tasks and access them.
func TestStatelessTasks_Undeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{})
		code := func(line string) int {
			client.Send(line)
			return wire.ReadError(client.NextMessage().Part(wire.PartError)).Code
		}
		client.Send(modernRequest("1", "tools/call", `"name":"must",`, clientCaps))
		failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
		if failure.Code != -32021 || string(failure.Data) !=
			`{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}` {
			t.Errorf("a tool that requires a task: %+v", failure)
		}
		for _, tool := range []string{"job", "plain"} {
			caps := clientCaps
			if tool == "plain" {
				caps = tasksCap
			}
			client.Send(modernRequest("1", "tools/call", `"name":"`+tool+`",`, caps))
			m := gh.WantRequest("tools/call")
			if want := `{"name":"` + tool + `","_meta":{}}`; string(m.Part(wire.PartParams)) !=
				want {
				t.Errorf("%s was called with %s", tool, m.Part(wire.PartParams))
			}
			gh.SendResult(m.ID(), `{"content":[]}`)
			client.Want(completeResult("1", `"content":[]}`))
		}
		task := createTask(t, client, gh, "")
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			if got := code(modernRequest("1", method, `"taskId":`+task+`,"inputResponses":{},`,
				clientCaps)); got != -32021 {
				t.Errorf("%s undeclared: %d", method, got)
			}
			for _, unknown := range []string{`"t1"`, `"gh:t1"`} {
				if got := code(modernRequest("1", method,
					`"taskId":`+unknown+`,"inputResponses":{},`, tasksCap)); got != -32602 {
					t.Errorf("%s of %s: %d", method, unknown, got)
				}
			}
			if got := code(modernRequest("1", method, `"inputResponses":{},`, tasksCap)); got !=
				-32602 {
				t.Errorf("%s of none: %d", method, got)
			}
		}
		if got := code(modernRequest("1", "tasks/update", `"taskId":`+task+`,`, tasksCap)); got !=
			-32602 {
			t.Errorf("tasks/update without responses: %d", got)
		}
		for _, method := range []string{"tasks/list", "tasks/result"} {
			if got := code(taskRequest("1", method, task, "")); got != -32601 {
				t.Errorf("%s: %d", method, got)
			}
		}
		if got := code(modernRequest("1", "subscriptions/listen",
			`"notifications":{"taskIds":[`+task+`]},`, clientCaps)); got != -32021 {
			t.Errorf("taskIds undeclared: %d", got)
		}
		gh.WantNothing()
	})
}

// The task of another principal is unknown, like a task that does not exist.
func TestStatelessTasks_BoundToPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openTaskBackend(t, settings{})
		task := createTask(t, client, gh, "")
		conn, other := mcptest.NewPeer(t, "other")
		go h.gateway.Serve(context.Background(), "", named("2"), conn)
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			other.Send(taskRequest("1", method, task, `"inputResponses":{},`))
			kept := other.NextMessage()
			other.Send(taskRequest("1", method, `"`+strings.Repeat("0", len(task)-2)+`"`,
				`"inputResponses":{},`))
			none := other.NextMessage()
			if e := wire.ReadError(kept.Part(wire.PartError)); e.Code != -32602 {
				t.Errorf("%s: %s", method, kept.Raw())
			}
			wantText(t, method, strings.ReplaceAll(string(kept.Raw()), strings.Trim(task, `"`),
				strings.Repeat("0", len(task)-2)), string(none.Raw()))
		}
		gh.WantNothing()
		// The same principal uses another connection and additional capabilities.
		conn, again := mcptest.NewPeer(t, "again")
		go h.gateway.Serve(context.Background(), "", nil, conn)
		again.Send(modernRequest("1", "tasks/get", `"taskId":`+task+`,`,
			`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`))
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"taskId":"t1","status":"working"}`)
		wantText(t, "again", nextWithoutServerInfo(again),
			`{"resultType":"complete","status":"working","ttlMs":null,"taskId":`+task+`}`)
	})
}

// A per-session connection stays open while a task runs at its backend. Requests on the connection
// belong to the task even if they do not name it.
func TestStatelessTasks_KeepConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{sharing: map[string]string{"gh": "session"}}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", tasksCap))
		shared := h.nextProcess("gh")
		shared.ServeHandshake(tasksHandshake)
		shared.ServeToolsList(jobTools)
		client.Next()
		client.Send(modernRequest(`"make"`, "tools/call", `"name":"job",`, tasksCap))
		gh := h.nextProcess("gh")
		gh.ServeHandshake(tasksHandshake)
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"task":{"taskId":"t1","status":"working","ttl":3600000}}`)
		task := nextTaskID(t, client)
		client.Close()
		time.Sleep(30 * time.Minute)
		if gh.Disconnected() {
			t.Fatal("the connection is closed")
		}
		client, _ = h.connectClient()
		getTask(client, gh, task, `{"taskId":"t1","status":"input_required","ttl":3600000}`)
		gh.WantRequest("tasks/result")
		gh.Send(
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		if got := nextWithoutServerInfo(client); !strings.Contains(got, `[gh] Who?`) {
			t.Errorf("got %s", got)
		}
		client.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if !gh.Disconnected() {
			t.Error("the connection is open after the task's ttl")
		}
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"cancel"}}`)
		gh.WantNotification("notifications/cancelled")
		if n := h.gateway.StatelessTasks(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

// At the limit a call cannot become a task, unless another task has ended, which is then evicted.
func TestStatelessTasks_LimitPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openTaskBackend(t, settings{singleClient: true})
		const most = 4096
		first := ""
		for i := range most {
			client.Send(modernRequest("1", "tools/call", `"name":"job",`, tasksCap))
			gh.SendResult(gh.WantRequest("tools/call").ID(),
				fmt.Sprintf(`{"task":{"taskId":"t%d","status":"working"}}`, i))
			if task := nextTaskID(t, client); i == 0 {
				first = task
			}
		}
		client.Send(modernRequest("1", "tools/call", `"name":"job",`, tasksCap))
		if e := wire.ReadError(client.NextMessage().Part(wire.PartError)); e.Code != -32603 ||
			!strings.Contains(e.Message, "Too many tasks") {
			t.Errorf("%+v", e)
		}
		gh.WantNothing()
		client.Send(taskRequest("1", "tasks/cancel", first, ""))
		gh.SendResult(gh.WantRequest("tasks/cancel").ID(), `{"taskId":"t0","status":"cancelled"}`)
		nextWithoutServerInfo(client)
		client.Send(modernRequest("1", "tools/call", `"name":"job",`, tasksCap))
		// the backend creates no task
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.Want(completeResult("1", `"content":[]}`))
		createTask(t, client, gh, "")
		if n := h.gateway.StatelessTasks(); n != most {
			t.Errorf("%d tasks", n)
		}
	})
}

// A listen stream reports each change of its tasks once, and does not report other tasks.
func TestStatelessTasks_ListenLegacyBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, `,"pollInterval":60000`)
		client.Send(modernRequest(`"l"`, "subscriptions/listen",
			`"notifications":{"taskIds":[`+task+`,"other",`+task+`]},`, tasksCap))
		state := `"taskId":"t1","pollInterval":60000}`
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"status":"working",`+state)
		ack := client.WantNotification("notifications/subscriptions/acknowledged")
		if got, _ := wire.Lookup(ack.Part(wire.PartParams), "notifications"); string(got) !=
			`{"taskIds":[`+task+`]}` {
			t.Errorf("acknowledged %s", got)
		}
		client.WantNothing()
		gh.Send(
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"status":"completed","taskId":"t1"}}`)
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"status":"completed",`+state)
		gh.SendResult(gh.WantRequest("tasks/result").ID(), `{"content":[]}`)
		client.Want(
			`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"result":{"content":[]},"status":"completed","ttlMs":null,"pollIntervalMs":60000,"taskId":` + task + `}}`)
		time.Sleep(time.Hour)
		gh.WantNothing()
		client.WantNothing()
	})
}

// A legacy backend refuses a tasks/result that was sent before the end of the task. The refusal is
// not the outcome of the task, and does not decline the task's input requests.
func TestStatelessTasks_RefusedEarlyResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, "")
		gh.Send(
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"m","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`)
		refuse := func() {
			getTask(client, gh, task, `{"taskId":"t1","status":"input_required","ttl":60000}`)
			gh.SendError(gh.WantRequest("tasks/result").ID(),
				`{"code":-32603,"message":"try again later"}`)
			got := nextWithoutServerInfo(client)
			if !strings.Contains(got, `"status":"input_required"`) {
				t.Errorf("the client got %s", got)
			}
		}
		refuse()
		refuse()
		time.Sleep(time.Second)
		gh.WantNothing() // the user was not asked
		client.Send(taskRequest(`"a"`, "tasks/update", task,
			`"inputResponses":{"q1":{"action":"decline"}},`))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"decline"}}`)
		client.Next()
		getTask(client, gh, task, `{"taskId":"t1","status":"completed","ttl":60000}`)
		gh.SendResult(gh.WantRequest("tasks/result").ID(), `{"content":[]}`)
		got := nextWithoutServerInfo(client)
		if !strings.Contains(got, `"status":"completed"`) {
			t.Errorf("the client got %s", got)
		}
	})
}

// A tasks/result that was sent before the end of the task, and is refused after the end, is sent
// again.
func TestStatelessTasks_EarlyResultRefusedAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, "")
		getTask(client, gh, task, `{"taskId":"t1","status":"input_required","ttl":60000}`)
		early := gh.WantRequest("tasks/result")
		nextWithoutServerInfo(client)
		getTask(client, gh, task, `{"taskId":"t1","status":"failed","ttl":60000}`)
		synctest.Wait()
		gh.SendError(early.ID(), `{"code":-32603,"message":"it has not ended"}`)
		gh.SendError(gh.WantRequest("tasks/result").ID(), `{"code":-32603,"message":"outcome"}`)
		got := nextWithoutServerInfo(client)
		if !strings.Contains(got, `"message":"outcome"`) {
			t.Errorf("the client got %s", got)
		}
	})
}

// A responseHook calls functions before a response to a call with a task is handled, and while it
// is handled.
type responseHook struct {
	gateway.Backends
	before, during func() // nil = none
}

// with is the function wrap of settings.
func (b *responseHook) with(all gateway.Backends) gateway.Backends {
	b.Backends = all
	return b
}

func (b *responseHook) NewCall(backend string, r contract.BackendRequest,
	h contract.CallHandler) contract.BackendCall {
	if b.before != nil {
		h = hookedHandler{h, b}
	}
	return hookedCall{b.Backends.NewCall(backend, r, h), b}
}

type hookedHandler struct {
	contract.CallHandler
	b *responseHook
}

func (h hookedHandler) OnResponse(resp contract.BackendResponse) {
	h.b.before()
	h.CallHandler.OnResponse(resp)
}

type hookedCall struct {
	contract.BackendCall
	b *responseHook
}

func (c hookedCall) RelayProgress(forward func(wire.Message)) (stop func()) {
	if c.b.during != nil {
		c.b.during()
	}
	return c.BackendCall.RelayProgress(forward)
}

// The client disconnects when the response with the created task has arrived. The task is not
// stored, because no client knows its id, and is cancelled at the backend.
func TestStatelessTasks_ClientGoneBeforeTaskIsReported(t *testing.T) {
	for _, during := range []bool{false, true} {
		t.Run(fmt.Sprint("the response is being handled: ", during), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook := &responseHook{}
				h := newHarness(t, settings{drain: time.Second, wrap: hook.with}, "gh")
				e, _ := h.serveRequest(modernRequest("0", "tools/list", "", tasksCap))
				gh := h.nextProcess("gh")
				gh.ServeHandshake(tasksHandshake)
				gh.ServeToolsList(jobTools)
				e.next()
				disconnect := func() {}
				if during {
					hook.during = func() { disconnect() }
				} else {
					hook.before = func() { disconnect() }
				}
				_, disconnect = h.serveRequest(
					modernRequest("1", "tools/call", `"name":"job",`, tasksCap))
				call := gh.WantRequest("tools/call")
				gh.SendResult(call.ID(), `{"task":{"taskId":"t1","status":"working"}}`)
				synctest.Wait()
				disconnect = func() {}
				m := gh.WantRequest("tasks/cancel")
				wantText(t, "params", string(m.Part(wire.PartParams)), `{"taskId":"t1"}`)
				if n := h.gateway.StatelessTasks(); n != 0 {
					t.Errorf("%d tasks are stored", n)
				}
				gh.WantNothing()
			})
		})
	}
}

// The response with the created task is stored while the call is suspended. If the client does not
// continue the call, the task is cancelled.
func TestStatelessTasks_SuspendedCallExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		client.Send(modernRequest("1", "tools/call", `"name":"job",`, tasksCap))
		call := gh.WantRequest("tools/call")
		gh.SendOnStream(call.ID(),
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"m"}}`)
		wantInputRequired(t, client, "q1")
		gh.SendResult(call.ID(), `{"task":{"taskId":"t1","status":"working"}}`)
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"cancel"}}`)
		time.Sleep(9 * time.Minute)
		gh.WantNothing()
		time.Sleep(time.Minute)
		m := gh.WantRequest("tasks/cancel")
		wantText(t, "params", string(m.Part(wire.PartParams)), `{"taskId":"t1"}`)
		gh.WantNothing()
	})
}
