package gateway_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A backloggedConn is a Conn that reports a backlog while slow is set.
type backloggedConn struct {
	transport.Conn
	slow atomic.Bool
}

func (c *backloggedConn) Backlogged() bool { return c.slow.Load() }

// A backend sends more notifications than the client reads. Log messages and progress are dropped.
// Resource updates are merged, and sent when the client has read the queued messages. Responses
// are delivered.
func TestBacklog_FloodingBackendKeepsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		conn, client := mcptest.NewPeer(t, "client")
		slow := &backloggedConn{Conn: conn}
		s, closed := h.openSession(slow)
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeHandshake(
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"x","version":"1"}}`)
		for range 3 {
			switch m := gh.NextMessage(); m.Method() {
			case "tools/list":
				gh.SendResult(m.ID(), mcptest.ToolsResult("t"))
			case "resources/list":
				gh.SendResult(m.ID(),
					`{"resources":[{"uri":"x:1","name":"n"},{"uri":"x:2","name":"n"}]}`)
			case "resources/templates/list":
				gh.SendResult(m.ID(), `{"resourceTemplates":[]}`)
			}
		}
		listTools(t, client)
		for _, uri := range []string{"x:1", "x:2"} {
			client.Send(
				`{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"` + uri +
					`"}}`)
			gh.SendResult(gh.WantRequest("resources/subscribe").ID(), "{}")
			client.Want(`{"jsonrpc":"2.0","id":"s","result":{}}`)
		}
		client.Send(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`)
		asked := gh.WantRequest("tools/call")
		token := paramAt(t, asked, "_meta", "progressToken")

		slow.slow.Store(true)
		for range 100 {
			gh.Send(
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
			gh.Send(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` +
					token + `,"progress":1}}`)
			gh.Send(
				`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:1"}}`)
			gh.Send(
				`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:2"}}`)
		}
		time.Sleep(time.Second)
		client.WantNothing()
		gh.SendResult(asked.ID(), `{"content":[]}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		slow.slow.Store(false)
		time.Sleep(time.Second)
		updated := map[string]int{}
		for _, line := range client.TakeAll() {
			m, _ := wire.Parse([]byte(line))
			updated[paramAt(t, m, "uri")]++
		}
		if len(updated) != 2 || updated[`"x:1"`] != 1 || updated[`"x:2"`] != 1 {
			t.Errorf("notified of updates %v", updated)
		}
		if lines := h.log.Lines("notifications delayed or dropped", "backend=gh"); len(lines) != 1 {
			t.Errorf("logged %q", strings.Join(lines, "\n"))
		}
		conn.Close()
		<-closed
		s.Closed(nil)
	})
}

// Progress and statuses of a task are dropped while the client is backlogged. Completions of an
// elicitation are merged, and sent when the client has read the queued messages.
func TestBacklog_FloodAboutTaskKeepsSession(t *testing.T) {
	const (
		progress  = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`
		status    = `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"working"}}`
		completed = `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}`
	)
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		conn, client := mcptest.NewPeer(t, "client")
		slow := &backloggedConn{Conn: conn}
		s, closed := h.openSession(slow)
		client.Initialize("2025-11-25", `{"elicitation":{"url":{}}}`)
		gh := h.nextProcess("gh")
		gh.ServeHandshake(tasksHandshake)
		gh.ServeToolsList(jobTools)
		listTools(t, client)
		client.Send(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"job","task":{},"_meta":{"progressToken":"p"}}}`)
		job := gh.WantRequest("tools/call")
		gh.SendResult(job.ID(), `{"task":{"taskId":"t","status":"working"}}`)
		client.Next()
		client.Send(toolsCall("2", "plain"))
		plain := gh.WantRequest("tools/call")
		gh.Send(
			`{"jsonrpc":"2.0","id":"r","method":"elicitation/create","params":{"mode":"url","url":"https://a.example","message":"m","elicitationId":"e"}}`)
		client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"accept"}`)
		gh.Next()

		slow.slow.Store(true)
		for range 100 {
			gh.Sendf(progress, job.Token())
			gh.Send(status)
			gh.Send(completed)
		}
		time.Sleep(time.Second)
		client.WantNothing()
		slow.slow.Store(false)
		time.Sleep(time.Second)
		client.Want(completed)
		client.WantNothing()
		gh.Send(status)
		client.Want(status)
		gh.SendResult(plain.ID(), `{}`)
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		conn.Close()
		<-closed
		s.Closed(nil)
	})
}

// The changes of a task are merged while the subscriber is backlogged.
func TestBacklog_TaskChangesAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		conn, client := mcptest.NewPeer(t, "client")
		slow := &backloggedConn{Conn: conn}
		s, closed := h.openSession(slow)
		client.Send(modernRequest("0", "tools/list", "", tasksCap))
		gh := h.nextProcess("gh")
		gh.ServeHandshake(tasksHandshake)
		gh.ServeToolsList(jobTools)
		client.Next()
		task := createTask(t, client, gh, "")
		client.Send(modernRequest(`"l"`, "subscriptions/listen",
			`"notifications":{"taskIds":[`+task+`]},`, tasksCap))
		poll := func(status string) {
			gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"taskId":"t1",`+status+`}`)
		}
		poll(`"status":"working"`)
		client.WantNotification("notifications/subscriptions/acknowledged")

		slow.slow.Store(true)
		poll(`"status":"working","statusMessage":"a"`)
		poll(`"status":"working","statusMessage":"b"`)
		poll(`"status":"cancelled"`)
		time.Sleep(time.Minute)
		client.WantNothing()
		slow.slow.Store(false)
		time.Sleep(time.Second)
		m := client.WantNotification("notifications/tasks")
		wantText(t, "status", paramAt(t, m, "status"), `"cancelled"`)
		time.Sleep(time.Minute)
		client.WantNothing()
		conn.Close()
		<-closed
		s.Closed(nil)
	})
}
