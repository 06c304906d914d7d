package gateway_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A legacyTaskServer is a server of 2025-11-25. A call of its tool job becomes a task, which may
// send an elicitation that names the task.
type legacyTaskServer struct {
	mu      sync.Mutex
	conn    transport.Conn
	tasks   map[string]*legacyTask
	asking  map[wire.ID]*legacyTask // open elicitations
	calls   int
	strange []string // unexpected messages
}

type legacyTask struct {
	id, status string
	asked      bool
	waiting    []wire.ID // tasks/result requests
}

func (s *legacyTaskServer) serve(conn transport.Conn) {
	s.conn = conn
	for {
		m, _, err := conn.Read()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.handle(m)
		s.mu.Unlock()
	}
}

func (s *legacyTaskServer) handle(m wire.Message) {
	reply := func(result string) { _ = s.conn.Write(wire.NewResult(m.ID(), []byte(result)), "") }
	if m.Kind() == wire.Response {
		task := s.asking[m.ID()]
		if task == nil {
			s.strange = append(s.strange, "an answer to nothing: "+string(m.Raw()))
			return
		}
		delete(s.asking, m.ID())
		s.endTask(task, "completed")
		return
	}
	value, _ := wire.Lookup(m.Part(wire.PartParams), "taskId")
	task := s.tasks[wire.Unquote(value)]
	switch method := m.Method(); {
	case method == "initialize":
		reply(tasksHandshake)
	case method == "tools/list":
		reply(jobTools)
	case method == "tools/call":
		s.calls++
		task = &legacyTask{id: fmt.Sprint("t", s.calls), status: "working"}
		s.tasks[task.id] = task
		reply(`{"task":` + task.text() + `}`)
		after := time.Duration(rand.IntN(20)) * time.Second
		time.AfterFunc(after, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case task.status != "working":
			case s.calls%3 == 0:
				s.endTask(task, "completed")
			default:
				task.status = "input_required"
				s.sendElicitation(task)
			}
		})
	case strings.HasPrefix(method, "tasks/") && task == nil:
		_ = s.conn.Write(wire.NewErrorResponse(m.ID(), wire.Errorf(-32602, "unknown")), "")
	case method == "tasks/get":
		reply(task.text())
	case method == "tasks/cancel":
		s.endTask(task, "cancelled")
		reply(task.text())
	case method == "tasks/result":
		task.waiting = append(task.waiting, m.ID())
		if len(task.waiting) > 1 && task.status != "completed" {
			s.strange = append(s.strange, "a second tasks/result")
		}
		s.sendElicitation(task)
		if task.status == "completed" || task.status == "cancelled" {
			s.endTask(task, task.status)
		}
	}
}

func (t *legacyTask) text() string {
	return `{"taskId":"` + t.id + `","status":"` + t.status + `","ttl":600000,"pollInterval":500}`
}

// sendElicitation sends the task's elicitation once, while a tasks/result is open.
func (s *legacyTaskServer) sendElicitation(t *legacyTask) {
	if t.status != "input_required" || t.asked || len(t.waiting) == 0 {
		return
	}
	t.asked = true
	id := wire.ID(wire.Quote("q" + t.id))
	s.asking[id] = t
	m := wire.NewRequest(id, "elicitation/create",
		[]byte(`{"message":"`+t.id+`","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+
			t.id+`"}}}`))
	_ = s.conn.Write(m, "")
}

func (s *legacyTaskServer) endTask(t *legacyTask, status string) {
	if t.status != "completed" && t.status != "cancelled" {
		t.status = status
	}
	for _, id := range t.waiting {
		_ = s.conn.Write(wire.NewResult(id,
			[]byte(`{"content":[{"type":"text","text":"`+t.id+`"}]}`)), "")
	}
	t.waiting = nil
}

// Clients of many tasks at backends of both generations randomly poll, respond, cancel, disconnect
// and abandon tasks. Each call runs once, each elicitation is sent and answered once, and no data
// is left after the tasks' ttl.
func TestStatelessTasks_Storm(t *testing.T) {
	const clients, each = 20, 50
	synctest.Test(t, func(t *testing.T) {
		server := &legacyTaskServer{tasks: make(map[string]*legacyTask),
			asking: make(map[wire.ID]*legacyTask)}
		modern := mcptest.NewTaskServer()
		var conns, players sync.WaitGroup
		t.Cleanup(conns.Wait)
		dial := func(name string) (transport.Conn, error) {
			near, far := transport.Pipe()
			if name == "modern" {
				conns.Go(func() { modern.Serve(far) })
			} else {
				conns.Go(func() { server.serve(far) })
			}
			return near, nil
		}
		h := &harness{t: t}
		var log, journal *slog.Logger
		h.log, log = mcptest.NewLog()
		h.journal, journal = mcptest.NewLog()
		h.gateway = newGateway(t, settings{singleClient: true,
			generation: map[string]string{"modern": "modern"}}, []string{"classic", "modern"}, dial,
			log, journal)
		var mu sync.Mutex
		ends := make(map[string]int)
		for range clients {
			client, _ := h.connectClient()
			players.Go(func() {
				defer client.Close()
				for n := range each {
					what := "classic"
					tool := `"name":"job"`
					if n%2 == 0 {
						what, tool = "modern",
							`"name":"confirm_delete","arguments":{"filename":"f"}`
					}
					client.Send(modernRequest(`"make"`, "tools/call", tool+",", tasksCap))
					m := client.NextMessage()
					for m.ID() != `"make"` {
						m = client.NextMessage() // an unexpected response
					}
					end := runToEnd(client, taskIDIn(t, m))
					mu.Lock()
					ends[what+" "+end]++
					mu.Unlock()
				}
			})
		}
		players.Wait()
		t.Log(ends)
		for _, end := range []string{"completed", "cancelled", "left"} {
			for _, what := range []string{"classic", "modern"} {
				if ends[what+" "+end] == 0 {
					t.Errorf("no %s task was %s", what, end)
				}
			}
		}
		server.mu.Lock()
		if n := server.calls + modern.ToolCalls(); n != clients*each || len(server.strange) > 0 {
			t.Errorf("%d calls for %d; %q", n, clients*each, server.strange)
		}
		server.mu.Unlock()
		if n := len(h.auditRecords()); n != clients*each {
			t.Errorf("%d records", n)
		}
		time.Sleep(time.Hour)
		if n := h.gateway.StatelessTasks(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

// runToEnd makes a client poll a task until the task ends or the client abandons it, and returns
// the kind of the end.
func runToEnd(client *mcptest.Peer, task string) string {
	n := 0
	send := func(method, more string) {
		n++
		client.Send(taskRequest(fmt.Sprint(n), method, task, more))
	}
	answer := func() wire.Message {
		for {
			// otherwise the message is an unexpected response
			if m := client.NextMessage(); m.ID() == wire.ID(fmt.Sprint(n)) {
				return m
			}
		}
	}
	for {
		switch rand.IntN(20) {
		case 0:
			return "left"
		case 1:
			send("tasks/cancel", "")
			answer()
		}
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Millisecond)
		send("tasks/get", "")
		if rand.IntN(10) == 0 { // the client cancels tasks/get
			client.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, n)
			continue
		}
		m := answer()
		requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
		var answers []wire.Member
		wire.Members(requests, func(key string, _ []byte, _ int) {
			answers = append(answers, wire.Member{Key: key,
				Text: []byte(`{"action":"accept","content":{"confirm":"yes"}}`)})
		})
		status, _ := wire.Lookup(m.Part(wire.PartResult), "status")
		switch s := wire.Unquote(status); s {
		case "input_required":
			for range 2 { // the responses in the second tasks/update are ignored
				send("tasks/update", `"inputResponses":`+string(wire.EditObject(nil, nil,
					answers...))+`,`)
				answer()
			}
		case "working":
		case "":
			return string(m.Raw())
		default:
			return s
		}
	}
}

// A backend that reports input_required and responds to each tasks/result at once, with an error or
// with a result that cannot be stored, is polled at the interval of the task.
func TestStatelessTasks_EarlyResult_PolledAtItsInterval(t *testing.T) {
	for _, outcome := range []string{
		`"error":{"code":-32603,"message":"it has not ended"}`, `"result":{"content":[]}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			h, client, gh := openTaskBackend(t, settings{singleClient: true})
			defer h.gateway.UseResultBytes()()
			task := createTask(t, client, gh, `,"pollInterval":5000`)
			client.Send(modernRequest(`"l"`, "subscriptions/listen",
				`"notifications":{"taskIds":[`+task+`]},`, tasksCap))
			start := time.Now()
			counts := map[string]int{}
			status := "input_required"
			for n := 0; n < 2000 && status != "cancelled"; n++ {
				m := gh.NextMessage()
				counts[m.Method()]++
				if time.Since(start) > time.Minute {
					status = "cancelled" // so that the goroutines end
				}
				switch m.Method() {
				case "tasks/get":
					gh.SendResult(m.ID(),
						`{"taskId":"t1","status":"`+status+`","pollInterval":5000}`)
				case "tasks/result":
					status = "input_required"
					gh.Sendf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID(), outcome)
				}
			}
			if counts["tasks/get"] > 15 {
				t.Errorf("polled without a pause: %v in %v", counts, time.Since(start))
			}
		})
	}
}
