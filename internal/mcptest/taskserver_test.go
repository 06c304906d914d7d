package mcptest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/wire"
)

// taskClient is a client of a TaskServer over a Conn, in a bubble.
type taskClient struct {
	*Peer
	t *testing.T
}

func withTaskServer(t *testing.T, test func(s *TaskServer, c taskClient)) {
	synctest.Test(t, func(t *testing.T) {
		conn, p := NewPeer(t, "client")
		s := NewTaskServer()
		done := make(chan struct{})
		go func() { s.Serve(conn); close(done) }()
		test(s, taskClient{p, t})
		p.Close()
		<-done
		if len(s.listeners) > 0 {
			t.Errorf("%d listeners are left", len(s.listeners))
		}
	})
}

const (
	allCapabilities = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	noCapabilities  = `{}`
)

// send sends a request; params contains members of its params.
func (c taskClient) send(id, method, params, capabilities string) {
	if params != "" {
		params += ","
	}
	c.Sendf(
		`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s}}}`,
		id, method, params, capabilities)
}

// request sends a request and returns the value at path in the response, as JSON.
func (c taskClient) request(method, params, capabilities string, path ...string) string {
	c.t.Helper()
	c.send("1", method, params, capabilities)
	value, _ := wire.Lookup(c.NextMessage().Raw(), path...)
	return string(value)
}

// createTask calls a tool that creates a task, and returns the member taskId.
func (c taskClient) createTask(tool string) (taskID string) {
	c.t.Helper()
	return `"taskId":` + c.request("tools/call",
		`"name":"`+tool+
			`","arguments":{"seconds":60,"filename":"f"}`, allCapabilities, "result", "taskId")
}

func (c taskClient) want(what, got, want string) {
	c.t.Helper()
	if !strings.HasPrefix(got, want) || want == "" && got != "" {
		c.t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

// waitVirtual advances the virtual time by d, and waits for the work that is due by then.
func waitVirtual(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTaskServerVirtualTime(t *testing.T) {
	withTaskServer(t, func(s *TaskServer, c taskClient) {
		slow, lost, wrong, broken := c.createTask("slow_compute"), c.createTask("slow_compute"),
			c.createTask("failing_job"), c.createTask("protocol_error_job")
		get := func(id string, path ...string) string {
			return c.request("tasks/get", id, allCapabilities,
				append([]string{"result"}, path...)...)
		}
		c.want("working", get(slow, "status"), `"working"`)
		c.want("ack", c.request("tasks/cancel", lost, allCapabilities, "result"),
			`{"resultType":"complete"}`)
		waitVirtual(time.Minute)
		c.want("done", get(slow, "result", "content"), `[{"text":"computed for 60 s"`)
		c.want("cancelled", get(lost, "status"), `"cancelled"`)
		c.want("isError", get(wrong, "result", "isError"), `true`)
		c.want("completed", get(wrong, "status"), `"completed"`)
		c.want("failed", get(broken, "error", "code"), `-32603`)
		c.want("failed", get(broken, "status"), `"failed"`)
		waitVirtual(TaskTTL)
		c.want("forgotten", c.request("tasks/get", slow, allCapabilities, "error", "code"),
			`-32602`)
		if s.ToolCalls() != 4 {
			t.Errorf("%d calls", s.ToolCalls())
		}
	})
}

func TestTaskServerInput(t *testing.T) {
	withTaskServer(t, func(s *TaskServer, c taskClient) {
		id := c.createTask("multi_input")
		waitVirtual(TaskDelay)
		c.want("asks", c.request("tasks/get", id, allCapabilities, "result", "inputRequests",
			"first", "method"), `"elicitation/create"`)
		c.want("ack", c.request("tasks/update",
			id+
				`,"inputResponses":{"first":{"action":"accept","content":{"name":"A"}},"no":{}}`,
			allCapabilities, "result"), `{"resultType":"complete"}`)
		c.want("answered", c.request("tasks/get", id, allCapabilities, "result", "inputRequests",
			"first"), ``)
		c.want("open", c.request("tasks/get", id, allCapabilities, "result", "status"),
			`"input_required"`)
		c.request("tasks/update",
			id+
				`,"inputResponses":{"second":{"action":"accept","content":{"name":"B"}}}`,
			allCapabilities)
		c.want("working", c.request("tasks/get", id, allCapabilities, "result", "status"),
			`"working"`)
		waitVirtual(TaskDelay)
		c.want("done", c.request("tasks/get", id, allCapabilities, "result", "result", "content"),
			`[{"text":"A and B"`)

		const call = `"name":"test_tool_with_task"`
		c.want("first", c.request("tools/call", call, allCapabilities, "result", "requestState"),
			`"asked for user_name"`)
		c.want("not ours", c.request("tools/call", call+`,"requestState":"no"`, allCapabilities,
			"error", "code"), `-32602`)
		c.want("then", c.request("tools/call",
			call+
				`,"requestState":"asked for user_name","inputResponses":{"user_name":{"action":"decline"}}`, allCapabilities, "result", "resultType"), `"task"`)
	})
}

// A client without the required capabilities gets an error; slow_compute needs none.
func TestTaskServerNeedsCapabilities(t *testing.T) {
	withTaskServer(t, func(s *TaskServer, c taskClient) {
		id := c.createTask("slow_compute")
		for method, params := range map[string]string{
			"tasks/get": id, "tasks/cancel": id, "tasks/update": id,
			"tools/call":           `"name":"failing_job"`,
			"subscriptions/listen": `"notifications":{"taskIds":["t"]}`,
		} {
			c.want(method, c.request(method, params, noCapabilities, "error", "code"), `-32021`)
		}
		c.want("elicitation", c.request("tools/call", `"name":"confirm_delete"`,
			`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, "error", "data"),
			`{"requiredCapabilities":{"elicitation":{}}}`)
		start := time.Now()
		c.want("at once", c.request("tools/call",
			`"name":"slow_compute","arguments":{"seconds":5}`, noCapabilities, "result",
			"resultType"), `"complete"`)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		c.Send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
		c.Want(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params: _meta needs protocolVersion and clientCapabilities"}}`)
	})
}

func TestTaskServerListen(t *testing.T) {
	withTaskServer(t, func(s *TaskServer, c taskClient) {
		id := c.createTask("confirm_delete")
		ids := strings.Replace(id, `"taskId":`, `"taskIds":["unknown",`, 1) + `]`
		c.send(`"l"`, "subscriptions/listen", `"notifications":{`+ids+`}`, allCapabilities)
		const meta = `"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}`
		c.Want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` +
			meta + `,"notifications":{` + strings.Replace(ids, `"unknown",`, "", 1) + `}}}`)
		notified := func() string {
			params := c.WantNotification("notifications/tasks").Part(wire.PartParams)
			got := c.request("tasks/get", id, allCapabilities, "result")
			if !sameJSON(string(wire.EditObject(params, nil,
				wire.Member{Key: "resultType",
					Text: []byte(`"complete"`)}, wire.Member{Key: "_meta", Text: []byte("1")})),
				string(wire.EditObject([]byte(got), nil,
					wire.Member{Key: "_meta", Text: []byte("1")}))) {
				t.Errorf("notification %s\nbut tasks/get %s", params, got)
			}
			status, _ := wire.Lookup(params, "status")
			return string(status)
		}
		c.want("notification", notified(), `"input_required"`)
		c.send("2", "tasks/update", id+`,"inputResponses":{"confirm":{"action":"accept"}}`,
			allCapabilities)
		c.want("notification", c.Next(), `{"jsonrpc":"2.0","method":"notifications/tasks"`)
		c.want("ack", c.Next(), `{"jsonrpc":"2.0","id":2`)
		c.want("notification", notified(), `"completed"`)

		// A listen request that the client cancels gets no response; a listen request that the
		// server ends gets a result.
		c.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
		c.send("3", "subscriptions/listen", `"notifications":{}`, noCapabilities)
		c.Want(
			`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":3},"notifications":{}}}`)
		s.Close()
		c.Want(
			`{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":3}}}`)
		c.WantNothing()
	})
}

// The listener of a client that does not read is removed.
func TestTaskServerDropsSlowListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewTaskServer()
		defer s.Close()
		body := func(method, params string) wire.Message {
			return wire.NewRequest("1", method,
				[]byte(`{`+params+
					`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+allCapabilities+`}}`))
		}
		var id string
		s.handle(body("tools/call", `"name":"failing_job"`), nil, func(m wire.Message) bool {
			literal, _ := wire.Lookup(m.Part(wire.PartResult), "taskId")
			id = string(literal)
			return true
		})
		sent := 0
		s.handle(body("subscriptions/listen", `"notifications":{"taskIds":[`+id+`]}`), nil,
			func(wire.Message) bool {
				sent++
				return sent == 1
			})
		waitVirtual(time.Second)
		if s.mu.Lock(); sent != 2 || len(s.listeners) != 0 {
			t.Errorf("%d notifications, %d listeners", sent, len(s.listeners))
		}
		s.mu.Unlock()
	})
}

func TestTaskServerOverHTTP(t *testing.T) {
	server := NewTaskServer()
	defer server.Close()
	for _, c := range []struct {
		method, header, body string
		status               int
		want                 string
	}{
		{"GET", "", ``, 405, ``},
		{"POST", "", `[]`, 400, `-32600`},
		{"POST", "", `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, 202, ``},
		{"POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize"}`, 400, `-32602`},
		{"POST", "",
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, 400, `-32022`},
		{"POST", "tasks/list", `{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":META}`, 404,
			`-32601`},
		{"POST", "tools/call", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":META}`, 400,
			`-32020`},
		{"POST", "tasks/get", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":META}`, 400,
			`-32021`},
		{"POST", "tools/list", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":META}`, 200,
			`"tools"`},
	} {
		body := strings.Replace(c.body, "META",
			`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`, 1)
		r := httptest.NewRequest(c.method, "/mcp", strings.NewReader(body))
		r.Header = http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {c.header}}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, body, w.Code, w.Body, c.status, c.want)
		}
	}
}
