package mcptest

import (
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A TaskServer is a server of revision 2026-07-28 with the extension io.modelcontextprotocol/tasks,
// which no Go SDK implements. It is a server for the tasks-* scenarios of the conformance suite,
// and passes them. It does not use package protocol, because tests compare that package with the
// TaskServer.
//
// A TaskServer serves any number of Conns (see Serve), and is an http.Handler. It waits only in
// timers, so that it takes no real time in a synctest bubble. Its tools:
//
//	greet{name}               never a task
//	slow_compute{seconds}     a task, except for 0 seconds or a client without tasks
//	failing_job               a task that ends with a tool error
//	protocol_error_job        a task that ends with a JSON-RPC error
//	confirm_delete{filename}  a task with an input request
//	multi_input               a task with two concurrent input requests
//	test_tool_with_task       an input request first, then a task
//
// All tools except the first two require that the client declares the extension. Tools with input
// requests also require that the client declares elicitation. The id of a task is sufficient to
// access the task. A task is deleted [TaskTTL] after its creation.
type TaskServer struct {
	mu        sync.Mutex
	tasks     map[string]*task
	listeners map[*listener]bool
	calls     int // number of tools/call requests
	closed    bool
}

// Task properties reported by a TaskServer, and the duration of each step of a task.
const (
	TaskTTL          = 10 * time.Minute
	TaskPollInterval = 100 * time.Millisecond
	TaskDelay        = 20 * time.Millisecond
)

// task is the state of a task, and its wire format.
type task struct {
	Type          string                  `json:"resultType,omitempty"`
	ID            string                  `json:"taskId"`
	Status        string                  `json:"status"`
	StatusMessage string                  `json:"statusMessage,omitempty"`
	Created       time.Time               `json:"createdAt"`
	Updated       time.Time               `json:"lastUpdatedAt"`
	TTL           int64                   `json:"ttlMs"`
	PollInterval  int64                   `json:"pollIntervalMs"`
	Result        any                     `json:"result,omitempty"`
	Error         *wire.Error             `json:"error,omitempty"`
	Inputs        map[string]inputRequest `json:"inputRequests,omitempty"`

	responses  map[string]inputResponse
	onAnswered func(answers map[string]inputResponse) // called when all Inputs have responses
}

type inputRequest struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

type inputResponse struct {
	Action  string
	Content map[string]any
}

// NewTaskServer returns a TaskServer without tasks.
func NewTaskServer() *TaskServer {
	return &TaskServer{tasks: make(map[string]*task), listeners: make(map[*listener]bool)}
}

// Serve serves the requests from c until the connection ends.
func (s *TaskServer) Serve(c transport.Conn) {
	open := make(map[wire.ID]*listener)
	for {
		m, _, err := c.Read()
		if _, malformed := err.(*transport.MalformedError); malformed {
			continue
		}
		if err != nil {
			break
		}
		switch {
		case m.Method() == "notifications/cancelled":
			s.removeListener(open[m.RequestID()])
			delete(open, m.RequestID())
		case m.Kind() == wire.Request:
			send := func(m wire.Message) bool { return c.Write(m, "") == nil }
			if l := s.handle(m, nil, send); l != nil {
				open[m.ID()] = l
			}
		}
	}
	for _, l := range open {
		s.removeListener(l)
	}
}

// Close ends all listen requests with a result, and stops all tasks.
func (s *TaskServer) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for l := range s.listeners {
		s.endListenLocked(l)
	}
}

// ToolCalls returns the number of tools/call requests so far.
func (s *TaskServer) ToolCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// RunningTasks returns the number of tasks that have not ended.
func (s *TaskServer) RunningTasks() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.Status == "working" || t.Status == "input_required" {
			n++
		}
	}
	return n
}

// after calls do, with mu held, when wait has passed, unless the server is closed.
func (s *TaskServer) after(wait time.Duration, do func()) {
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			do()
		}
	})
}

// createTaskLocked creates a task and returns it with its CreateTaskResult.
func (s *TaskServer) createTaskLocked() (*task, any) {
	now := time.Now().UTC()
	t := &task{ID: rand.Text(), Status: "working", Created: now, Updated: now,
		TTL: TaskTTL.Milliseconds(), PollInterval: TaskPollInterval.Milliseconds()}
	s.tasks[t.ID] = t
	s.after(TaskTTL, func() { delete(s.tasks, t.ID) })
	result := *t
	result.Type = "task"
	return t, result
}

// setStatusLocked changes a task that has not ended, and notifies the listeners of the task.
func (s *TaskServer) setStatusLocked(t *task, status string, how func(*task)) {
	if t.Status != "working" && t.Status != "input_required" {
		return
	}
	t.Status, t.Updated, t.Inputs, t.StatusMessage = status, time.Now().UTC(), nil, ""
	how(t)
	for l := range s.listeners {
		if l.tasks[t.ID] {
			s.notifyLocked(l, "notifications/tasks", t)
		}
	}
}

// requestInputLocked sets the input requests of a task. When all input requests have responses,
// onAnswered is called.
func (s *TaskServer) requestInputLocked(
	t *task, inputs map[string]inputRequest, onAnswered func(map[string]inputResponse),
) {
	s.setStatusLocked(t, "input_required", func(t *task) {
		t.Inputs, t.responses, t.onAnswered = inputs, make(map[string]inputResponse), onAnswered
	})
}

// addResponsesLocked adds responses to a task's input requests. Unknown keys are ignored.
func (s *TaskServer) addResponsesLocked(t *task, responses map[string]json.RawMessage) {
	remaining := make(map[string]inputRequest)
	for key, q := range t.Inputs {
		var a inputResponse
		if text, ok := responses[key]; ok && json.Unmarshal(text, &a) == nil && a.Action != "" {
			t.responses[key] = a
		} else {
			remaining[key] = q
		}
	}
	switch {
	case len(remaining) == len(t.Inputs):
	case len(remaining) > 0:
		s.setStatusLocked(t, "input_required", func(t *task) { t.Inputs = remaining })
	default:
		complete, onAnswered := t.responses, t.onAnswered
		s.setStatusLocked(t, "working", func(t *task) { t.StatusMessage = "thank you" })
		s.after(TaskDelay, func() { onAnswered(complete) })
	}
}

// A listener is an open subscriptions/listen.
type listener struct {
	id    wire.ID
	tasks map[string]bool
	send  func(wire.Message) bool
}

// notifyLocked sends a notification to a listener, and removes the listener if sending fails. send
// must not block, because it is called with mu held, to keep the order.
func (s *TaskServer) notifyLocked(l *listener, method string, params any) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(wire.Encode(params), &fields); err != nil {
		panic(err)
	}
	fields["_meta"] = json.RawMessage(l.meta())
	if !l.send(wire.NewNotification(method, wire.Encode(fields))) {
		delete(s.listeners, l)
	}
}

func (s *TaskServer) endListenLocked(l *listener) {
	delete(s.listeners, l)
	l.send(wire.NewResult(l.id, []byte(`{"resultType":"complete","_meta":`+l.meta()+`}`)))
}

// meta returns the _meta of messages to the listener.
func (l *listener) meta() string {
	return `{"io.modelcontextprotocol/subscriptionId":` + string(l.id) + `}`
}

// removeListener removes a listener whose client has cancelled the listen request or disconnected.
// l may be nil.
func (s *TaskServer) removeListener(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}
