package gateway_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// openTaskServer starts a gateway in front of a TaskServer, which is a modern server. It must be
// called in a synctest bubble.
func openTaskServer(t *testing.T, o settings) (*harness, *mcptest.TaskServer) {
	t.Helper()
	server := mcptest.NewTaskServer()
	var conns sync.WaitGroup
	t.Cleanup(func() {
		server.Close()
		conns.Wait()
	})
	dial := func(string) (transport.Conn, error) {
		near, far := transport.Pipe()
		conns.Go(func() { server.Serve(far) })
		return near, nil
	}
	h := &harness{t: t}
	var log, journal *slog.Logger
	h.log, log = mcptest.NewLog()
	h.journal, journal = mcptest.NewLog()
	o.generation = map[string]string{"jobs": "modern"}
	h.gateway = newGateway(t, o, []string{"jobs"}, dial, log, journal)
	return h, server
}

// openTaskServerClient starts a gateway in front of a TaskServer, with a stateless client.
func openTaskServerClient(t *testing.T) (*harness, *mcptest.TaskServer, *mcptest.Peer) {
	t.Helper()
	h, server := openTaskServer(t, settings{})
	client, _ := h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", tasksCap))
	client.NextMessage()
	return h, server, client
}

func startTask(t *testing.T, client *mcptest.Peer, tool, arguments string) string {
	t.Helper()
	client.Send(modernRequest(`"make"`, "tools/call",
		`"name":"`+tool+`","arguments":`+arguments+`,`, tasksCap))
	return nextTaskID(t, client)
}

// taskMember returns a member of a task.
func taskMember(client *mcptest.Peer, task string, path ...string) string {
	client.Send(taskRequest(`"get"`, "tasks/get", task, ""))
	value, _ := wire.Lookup(client.NextMessage().Part(wire.PartResult), path...)
	return string(value)
}

// A stateless client gets a modern backend's task with another id. The task is available at once
// and ends as the backend reports, and no call runs twice.
func TestRelayedTasks_Requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, server, client := openTaskServerClient(t)
		client.Send(modernRequest("1", "server/discover", "", `{}`))
		if m := client.NextMessage(); !strings.Contains(string(m.Raw()),
			`"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
			t.Errorf("discovered %s", m.Raw())
		}
		broken, wrong, slow := startTask(t, client, "protocol_error_job", `{}`),
			startTask(t, client, "failing_job", `{}`),
			startTask(t, client, "slow_compute", `{"seconds":60}`)
		for _, task := range []string{broken, wrong, slow} {
			wantText(t, "status", taskMember(client, task, "status"), `"working"`)
			wantText(t, "id", taskMember(client, task, "taskId"), task)
			wantText(t, "type", taskMember(client, task, "resultType"), `"complete"`)
		}
		time.Sleep(time.Second)
		wantText(t, "an error", taskMember(client, broken, "error"),
			`{"code":-32603,"message":"the job is broken"}`)
		wantText(t, "an error of the tool", taskMember(client, wrong, "status"), `"completed"`)
		wantText(t, "an error of the tool", taskMember(client, wrong, "result", "isError"), `true`)
		client.Send(taskRequest("1", "tasks/cancel", slow, ""))
		wantText(t, "cancel", nextWithoutServerInfo(client), `{"resultType":"complete"}`)
		wantText(t, "cancelled", taskMember(client, slow, "status"), `"cancelled"`)
		client.Send(modernRequest("1", "tools/call",
			`"name":"slow_compute","arguments":{"seconds":0},`, tasksCap))
		if got := nextWithoutServerInfo(client); !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("no task, answered with %s", got)
		}
		client.Send(modernRequest("1", "tools/call", `"name":"failing_job",`, clientCaps))
		if e := wire.ReadError(client.NextMessage().Part(wire.PartError)); e.Code != -32021 {
			t.Errorf("undeclared: %+v", e)
		}
		if n := server.ToolCalls(); n != 5 {
			t.Errorf("%d calls", n)
		}
		time.Sleep(mcptest.TaskTTL + time.Hour)
		if n := h.gateway.StatelessTasks(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

// Input requests are forwarded with the backend's keys and label, and responses with the same
// keys, even if the call requires input before it becomes a task.
func TestRelayedTasks_Inputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, client := openTaskServerClient(t)
		task := startTask(t, client, "multi_input", `{}`)
		time.Sleep(time.Second)
		wantText(t, "asked", taskMember(client, task, "inputRequests", "first", "params",
			"message"), `"[jobs] First?"`)
		wantText(t, "asked", taskMember(client, task, "inputRequests", "second", "params",
			"message"), `"[jobs] Second?"`)
		const answer = `{"action":"accept","content":{"name":"n"}}`
		client.Send(taskRequest("1", "tasks/update", task,
			`"inputResponses":{"second":`+answer+`,"third":`+answer+`},`))
		wantText(t, "update", nextWithoutServerInfo(client), `{"resultType":"complete"}`)
		wantText(t, "answered", taskMember(client, task, "inputRequests", "second"), ``)
		client.Send(taskRequest("1", "tasks/update", task,
			`"inputResponses":{"first":`+answer+`},`))
		nextWithoutServerInfo(client)
		time.Sleep(time.Second)
		wantText(t, "result", taskMember(client, task, "result", "content"),
			`[{"text":"n and n","type":"text"}]`)

		client.Send(modernRequest("1", "tools/call", `"name":"test_tool_with_task",`, tasksCap))
		ticket := wantInputRequired(t, client, "user_name")
		client.Send(modernRequest("2", "tools/call",
			`"name":"test_tool_with_task","inputResponses":{"user_name":`+answer+
				`},"requestState":`+ticket+`,`, tasksCap))
		task = nextTaskID(t, client)
		time.Sleep(time.Second)
		wantText(t, "result", taskMember(client, task, "result", "content"),
			`[{"text":"accept: Hello, n!","type":"text"}]`)
	})
}

// A listen stream reports changes of its tasks until it is cancelled.
func TestRelayedTasks_Listen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, client := openTaskServerClient(t)
		task, other := startTask(t, client, "confirm_delete", `{"filename":"f"}`),
			startTask(t, client, "slow_compute", `{"seconds":60}`)
		client.Send(modernRequest(`"l"`, "subscriptions/listen",
			`"notifications":{"taskIds":[`+task+`,`+other+`]},`, tasksCap))
		client.WantNotification("notifications/subscriptions/acknowledged")
		field := func(m wire.Message, path ...string) string {
			value, _ := wire.Lookup(m.Part(wire.PartParams), path...)
			return string(value)
		}
		m := client.WantNotification("notifications/tasks")
		wantText(t, "id", field(m, "taskId"), task)
		wantText(t, "status", field(m, "status"), `"input_required"`)
		wantText(t, "question", field(m, "inputRequests", "confirm", "params", "message"),
			`"[jobs] Delete f?"`)
		wantText(t, "meta", field(m, "_meta"), `{"io.modelcontextprotocol/subscriptionId":"l"}`)
		wantText(t, "type", field(m, "resultType"), ``)
		client.Send(taskRequest("1", "tasks/update", task,
			`"inputResponses":{"confirm":{"action":"accept","content":{"confirm":"yes"}}},`))
		nextWithoutServerInfo(client)
		for status := ""; status != `"completed"`; {
			status = field(client.WantNotification("notifications/tasks"), "status")
		}
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
		time.Sleep(2 * time.Minute)
		client.WantNothing()
	})
}
