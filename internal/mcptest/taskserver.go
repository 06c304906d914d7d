package mcptest

import (
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A TaskServer is a server of 2026-07-28 with the extension io.modelcontextprotocol/tasks,
// which no SDK in Go has: that of the conformance suite's tasks-* scenarios, which it
// passes. It is written without package revision, of which it is a judge.
//
// It speaks over any number of Conns, see Serve, and as an http.Handler. What it does
// takes time by the clock alone, so that in a synctest bubble it takes none. Its tools:
//
//	greet{name}               never a task
//	slow_compute{seconds}     a task, but at once for 0 seconds; who knows no tasks waits for it
//	failing_job               a task that ends with an error of the tool
//	protocol_error_job        a task that ends with a JSON-RPC error
//	confirm_delete{filename}  a task that asks something
//	multi_input               a task that asks two things at once
//	test_tool_with_task       asks something first, and is a task then
//
// All of them but the first two can be called only by who declares the extension, and
// those that ask only by who declares elicitation, too. Who has a task's id may ask about
// it. A task is forgotten [TaskTTL] after it was made.
type TaskServer struct {
	mu        sync.Mutex
	tasks     map[string]*task
	listeners map[*listener]bool
	calls     int // of tools
	closed    bool
}

// What a TaskServer says of its tasks, and how long each step of theirs takes.
const (
	TaskTTL          = 10 * time.Minute
	TaskPollInterval = 100 * time.Millisecond
	TaskDelay        = 20 * time.Millisecond
)

// A task is a task.
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
	onAnswered func(answers map[string]inputResponse) // once all Inputs are answered
}

type inputRequest struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

type inputResponse struct {
	Action  string
	Content map[string]any
}

// NewTaskServer returns one that has no tasks.
func NewTaskServer() *TaskServer {
	return &TaskServer{tasks: make(map[string]*task), listeners: make(map[*listener]bool)}
}

// Serve answers what comes over a Conn until it ends.
func (s *TaskServer) Serve(c transport.Conn) {
	mine := make(map[wire.ID]*listener)
	for {
		m, _, err := c.Read()
		if _, noise := err.(*transport.MalformedError); noise {
			continue
		}
		if err != nil {
			break
		}
		switch {
		case m.Method() == "notifications/cancelled":
			s.removeListener(mine[m.RequestID()])
			delete(mine, m.RequestID())
		case m.Kind() == wire.Request:
			tell := func(m wire.Message) bool { return c.Write(m, "") == nil }
			if l := s.handle(m, nil, tell); l != nil {
				mine[m.ID()] = l
			}
		}
	}
	for _, l := range mine {
		s.removeListener(l)
	}
}

// Close ends all listens, as a server does that goes down, and stops all tasks.
func (s *TaskServer) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for l := range s.listeners {
		s.endListenLocked(l)
	}
}

// ToolCalls returns how many calls of tools were begun.
func (s *TaskServer) ToolCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// RunningTasks returns how many tasks have not ended.
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

// after does what has to be done at a later time, under the lock.
func (s *TaskServer) after(wait time.Duration, do func()) {
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			do()
		}
	})
}

// createTaskLocked makes a task, and returns the result that says so.
func (s *TaskServer) createTaskLocked() (*task, any) {
	now := time.Now().UTC()
	t := &task{ID: rand.Text(), Status: "working", Created: now, Updated: now,
		TTL: TaskTTL.Milliseconds(), PollInterval: TaskPollInterval.Milliseconds()}
	s.tasks[t.ID] = t
	s.after(TaskTTL, func() { delete(s.tasks, t.ID) })
	made := *t
	made.Type = "task"
	return t, made
}

// setStatusLocked takes a task that has not ended on, and tells who listens.
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

// requestInputLocked has a task wait for input, and then go on.
func (s *TaskServer) requestInputLocked(t *task, inputs map[string]inputRequest, then func(map[string]inputResponse)) {
	s.setStatusLocked(t, "input_required", func(t *task) {
		t.Inputs, t.responses, t.onAnswered = inputs, make(map[string]inputResponse), then
	})
}

// addResponsesLocked takes answers to what a task asks; those to what it does not are left
// alone.
func (s *TaskServer) addResponsesLocked(t *task, responses map[string]json.RawMessage) {
	left := make(map[string]inputRequest)
	for key, q := range t.Inputs {
		var a inputResponse
		if text, ok := responses[key]; ok && json.Unmarshal(text, &a) == nil && a.Action != "" {
			t.responses[key] = a
		} else {
			left[key] = q
		}
	}
	switch {
	case len(left) == len(t.Inputs):
	case len(left) > 0:
		s.setStatusLocked(t, "input_required", func(t *task) { t.Inputs = left })
	default:
		answers, then := t.responses, t.onAnswered
		s.setStatusLocked(t, "working", func(t *task) { t.StatusMessage = "thank you" })
		s.after(TaskDelay, func() { then(answers) })
	}
}

// A listener is a subscriptions/listen that is open.
type listener struct {
	id    wire.ID
	tasks map[string]bool
	send  func(wire.Message) bool
}

// notifyLocked tells a listen something; one that does not take it is over. To tell does
// not block, so that the lock keeps all that is told in its order.
func (s *TaskServer) notifyLocked(l *listener, method string, params any) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(wire.Encode(params), &fields); err != nil {
		panic(err)
	}
	fields["_meta"] = json.RawMessage(`{"io.modelcontextprotocol/subscriptionId":` + string(l.id) + `}`)
	if !l.send(wire.NewNotification(method, wire.Encode(fields))) {
		delete(s.listeners, l)
	}
}

func (s *TaskServer) endListenLocked(l *listener) {
	delete(s.listeners, l)
	l.send(wire.NewResult(l.id, []byte(`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+string(l.id)+`}}`)))
}

// removeListener ends a listen of which the client wants to hear no more; nil is none.
func (s *TaskServer) removeListener(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}
