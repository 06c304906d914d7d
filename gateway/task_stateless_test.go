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

// serving opens a gateway in front of a TaskServer, which is of the stateless era, in a
// bubble.
func serving(t *testing.T, o settings) (*house, *mcptest.TaskServer) {
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
	h := &house{t: t}
	var log, journal *slog.Logger
	h.log, log = mcptest.NewLog()
	h.journal, journal = mcptest.NewLog()
	o.era = map[string]string{"jobs": "modern"}
	h.gateway = open(t, o, []string{"jobs"}, dial, log, journal)
	return h, server
}

// visitor opens a gateway in front of a TaskServer for a client without a session.
func visitor(t *testing.T) (*house, *mcptest.TaskServer, *mcptest.Peer) {
	t.Helper()
	h, server := serving(t, settings{})
	client, _ := h.client()
	client.Send(request("0", "tools/list", "", tasky))
	client.NextMessage()
	return h, server, client
}

func start(t *testing.T, client *mcptest.Peer, tool, arguments string) string {
	t.Helper()
	client.Send(request(`"make"`, "tools/call", `"name":"`+tool+`","arguments":`+arguments+`,`, tasky))
	return made(t, client)
}

// status returns some member of a task.
func member(client *mcptest.Peer, task string, path ...string) string {
	client.Send(about(`"get"`, "tasks/get", task, ""))
	value, _ := wire.Lookup(client.NextMessage().Part(wire.PartResult), path...)
	return string(value)
}

// A task of a stateless backend is a stateless client's by another id: it is there at
// once, ends as the backend says, and nothing runs twice.
func TestStatelessTasks_AreRelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, server, client := visitor(t)
		client.Send(request("1", "server/discover", "", `{}`))
		if m := client.NextMessage(); !strings.Contains(string(m.Raw()), `"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
			t.Errorf("discovered %s", m.Raw())
		}
		broken, wrong, slow := start(t, client, "protocol_error_job", `{}`), start(t, client, "failing_job", `{}`), start(t, client, "slow_compute", `{"seconds":60}`)
		for _, task := range []string{broken, wrong, slow} {
			want(t, "status", member(client, task, "status"), `"working"`)
			want(t, "id", member(client, task, "taskId"), task)
			want(t, "type", member(client, task, "resultType"), `"complete"`)
		}
		time.Sleep(time.Second)
		want(t, "an error", member(client, broken, "error"), `{"code":-32603,"message":"the job is broken"}`)
		want(t, "an error of the tool", member(client, wrong, "status"), `"completed"`)
		want(t, "an error of the tool", member(client, wrong, "result", "isError"), `true`)
		client.Send(about("1", "tasks/cancel", slow, ""))
		want(t, "cancel", told(client), `{"resultType":"complete"}`)
		want(t, "cancelled", member(client, slow, "status"), `"cancelled"`)
		client.Send(request("1", "tools/call", `"name":"slow_compute","arguments":{"seconds":0},`, tasky))
		if got := told(client); !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("no task, answered with %s", got)
		}
		client.Send(request("1", "tools/call", `"name":"failing_job",`, able))
		if e := wire.ReadError(client.NextMessage().Part(wire.PartError)); e.Code != -32021 {
			t.Errorf("undeclared: %+v", e)
		}
		if n := server.ToolCalls(); n != 5 {
			t.Errorf("%d calls", n)
		}
		time.Sleep(mcptest.TaskTTL + time.Hour)
		if n := h.gateway.Jobs(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

// What it asks is relayed with the backend's keys and its name, and so is what answers it;
// a call that asks first and is a task then, too.
func TestStatelessTasks_Questions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, client := visitor(t)
		task := start(t, client, "multi_input", `{}`)
		time.Sleep(time.Second)
		want(t, "asked", member(client, task, "inputRequests", "first", "params", "message"), `"[jobs] First?"`)
		want(t, "asked", member(client, task, "inputRequests", "second", "params", "message"), `"[jobs] Second?"`)
		const answer = `{"action":"accept","content":{"name":"n"}}`
		client.Send(about("1", "tasks/update", task, `"inputResponses":{"second":`+answer+`,"third":`+answer+`},`))
		want(t, "update", told(client), `{"resultType":"complete"}`)
		want(t, "answered", member(client, task, "inputRequests", "second"), ``)
		client.Send(about("1", "tasks/update", task, `"inputResponses":{"first":`+answer+`},`))
		told(client)
		time.Sleep(time.Second)
		want(t, "result", member(client, task, "result", "content"), `[{"text":"n and n","type":"text"}]`)

		client.Send(request("1", "tools/call", `"name":"test_tool_with_task",`, tasky))
		ticket := state(t, client, "user_name")
		client.Send(request("2", "tools/call", `"name":"test_tool_with_task","inputResponses":{"user_name":`+answer+`},"requestState":`+ticket+`,`, tasky))
		task = made(t, client)
		time.Sleep(time.Second)
		want(t, "result", member(client, task, "result", "content"), `[{"text":"accept: Hello, n!","type":"text"}]`)
	})
}

// A listen tells of the changes of the tasks that it names, until it is taken back.
func TestStatelessTasks_Listen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, client := visitor(t)
		task, other := start(t, client, "confirm_delete", `{"filename":"f"}`), start(t, client, "slow_compute", `{"seconds":60}`)
		client.Send(request(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":[`+task+`,`+other+`]},`, tasky))
		client.HandleNotification("notifications/subscriptions/acknowledged")
		field := func(m wire.Message, path ...string) string {
			value, _ := wire.Lookup(m.Part(wire.PartParams), path...)
			return string(value)
		}
		m := client.HandleNotification("notifications/tasks")
		want(t, "id", field(m, "taskId"), task)
		want(t, "status", field(m, "status"), `"input_required"`)
		want(t, "question", field(m, "inputRequests", "confirm", "params", "message"), `"[jobs] Delete f?"`)
		want(t, "meta", field(m, "_meta"), `{"io.modelcontextprotocol/subscriptionId":"l"}`)
		want(t, "type", field(m, "resultType"), ``)
		client.Send(about("1", "tasks/update", task, `"inputResponses":{"confirm":{"action":"accept","content":{"confirm":"yes"}}},`))
		told(client)
		for status := ""; status != `"completed"`; {
			status = field(client.HandleNotification("notifications/tasks"), "status")
		}
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
		time.Sleep(2 * time.Minute)
		client.WantNothing()
	})
}
