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
	mu      sync.Mutex
	jobs    map[string]*job
	listens map[*listen]bool
	calls   int // of tools
	over    bool
}

// What a TaskServer says of its tasks, and how long each step of theirs takes.
const (
	TaskTTL          = 10 * time.Minute
	TaskPollInterval = 100 * time.Millisecond
	TaskDelay        = 20 * time.Millisecond
)

// A job is a task.
type job struct {
	Type    string              `json:"resultType,omitempty"`
	ID      string              `json:"taskId"`
	Status  string              `json:"status"`
	Message string              `json:"statusMessage,omitempty"`
	Created time.Time           `json:"createdAt"`
	Updated time.Time           `json:"lastUpdatedAt"`
	TTL     int64               `json:"ttlMs"`
	Pace    int64               `json:"pollIntervalMs"`
	Result  any                 `json:"result,omitempty"`
	Error   *wire.Error         `json:"error,omitempty"`
	Inputs  map[string]question `json:"inputRequests,omitempty"`

	answers map[string]answer
	then    func(answers map[string]answer) // once all Inputs are answered
}

type question struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

type answer struct {
	Action  string
	Content map[string]any
}

// NewTaskServer returns one that has no tasks.
func NewTaskServer() *TaskServer {
	return &TaskServer{jobs: make(map[string]*job), listens: make(map[*listen]bool)}
}

// Serve answers what comes over a Conn until it ends.
func (s *TaskServer) Serve(c transport.Conn) {
	mine := make(map[wire.ID]*listen)
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
			s.forget(mine[m.RequestID()])
			delete(mine, m.RequestID())
		case m.Kind() == wire.Request:
			tell := func(m wire.Message) bool { return c.Write(m, "") == nil }
			if l := s.ask(m, nil, tell); l != nil {
				mine[m.ID()] = l
			}
		}
	}
	for _, l := range mine {
		s.forget(l)
	}
}

// Close ends all listens, as a server does that goes down, and stops all tasks.
func (s *TaskServer) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for l := range s.listens {
		s.endLocked(l)
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
	for _, j := range s.jobs {
		if j.Status == "working" || j.Status == "input_required" {
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
		if !s.over {
			do()
		}
	})
}

// createLocked makes a task, and returns the result that says so.
func (s *TaskServer) createLocked() (*job, any) {
	now := time.Now().UTC()
	j := &job{ID: rand.Text(), Status: "working", Created: now, Updated: now,
		TTL: TaskTTL.Milliseconds(), Pace: TaskPollInterval.Milliseconds()}
	s.jobs[j.ID] = j
	s.after(TaskTTL, func() { delete(s.jobs, j.ID) })
	made := *j
	made.Type = "task"
	return j, made
}

// changeLocked takes a task that has not ended on, and tells who listens.
func (s *TaskServer) changeLocked(j *job, status string, how func(*job)) {
	if j.Status != "working" && j.Status != "input_required" {
		return
	}
	j.Status, j.Updated, j.Inputs, j.Message = status, time.Now().UTC(), nil, ""
	how(j)
	for l := range s.listens {
		if l.tasks[j.ID] {
			s.tellLocked(l, "notifications/tasks", j)
		}
	}
}

// askLocked has a task wait for input, and then go on.
func (s *TaskServer) askLocked(j *job, inputs map[string]question, then func(map[string]answer)) {
	s.changeLocked(j, "input_required", func(j *job) {
		j.Inputs, j.answers, j.then = inputs, make(map[string]answer), then
	})
}

// updateLocked takes answers to what a task asks; those to what it does not are left
// alone.
func (s *TaskServer) updateLocked(j *job, responses map[string]json.RawMessage) {
	left := make(map[string]question)
	for key, q := range j.Inputs {
		var a answer
		if text, ok := responses[key]; ok && json.Unmarshal(text, &a) == nil && a.Action != "" {
			j.answers[key] = a
		} else {
			left[key] = q
		}
	}
	switch {
	case len(left) == len(j.Inputs):
	case len(left) > 0:
		s.changeLocked(j, "input_required", func(j *job) { j.Inputs = left })
	default:
		answers, then := j.answers, j.then
		s.changeLocked(j, "working", func(j *job) { j.Message = "thank you" })
		s.after(TaskDelay, func() { then(answers) })
	}
}

// A listen is a subscriptions/listen that is open.
type listen struct {
	id    wire.ID
	tasks map[string]bool
	tell  func(wire.Message) bool
}

// tellLocked tells a listen something; one that does not take it is over. To tell does
// not block, so that the lock keeps all that is told in its order.
func (s *TaskServer) tellLocked(l *listen, method string, params any) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(wire.Encode(params), &fields); err != nil {
		panic(err)
	}
	fields["_meta"] = json.RawMessage(`{"io.modelcontextprotocol/subscriptionId":` + string(l.id) + `}`)
	if !l.tell(wire.NewNotification(method, wire.Encode(fields))) {
		delete(s.listens, l)
	}
}

func (s *TaskServer) endLocked(l *listen) {
	delete(s.listens, l)
	l.tell(wire.NewResult(l.id, []byte(`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+string(l.id)+`}}`)))
}

// forget ends a listen of which the client wants to hear no more; nil is none.
func (s *TaskServer) forget(l *listen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listens, l)
}
