package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpgateway/internal/quota"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A polledTask is a session client's task at a modern backend. The backend decides whether a call
// becomes a task, because the gateway declares the tasks extension for session clients
// (contract.BackendRequest.AllowTask). A client that has asked for a task gets the task, with an id
// from [sessionTasks]. For any other client the call stays open: the gateway polls the task,
// without a time limit, until the task has ended.
//
//	startRoundTrips ─ runRoundTrips ─ finishRoundTrips
//	   ├ the client asked for a task: sessionTasks.addPolled
//	   └ else pollUntilDone: tasks/get …, answerInputs (polled_task_inputs.go)
//	tasks/get, result, cancel ─ servePolledTask (polled_task_requests.go)
//	tasks/list ─ session_task_list.go
type polledTask struct {
	scopedID
	clientID string // "" = the client does not know the task

	mu        sync.Mutex
	askedKeys map[string]bool // input requests already sent to the client
	lastTask  []byte          // last known state, in the form of 2025-11-25; nil = none
	final     bool            // lastTask no longer changes
	result    []byte          // result of a call that has not become a task at the backend
	budget    *quota.Bytes    // byte budget from which the size of result was acquired
}

const (
	// maxTaskInputs bounds the input requests of one task.
	maxTaskInputs = 1024
	// maxPollFailures bounds the consecutive failed attempts to poll a task.
	maxPollFailures = 5
	// progressInterval is the interval of the progress notifications that the gateway creates.
	progressInterval = 10 * time.Second
)

var errTaskEnded = wire.Errorf(wire.CodeInvalidParams, "Invalid params: the task has ended")

// toClientResponse converts a modern backend's response for a session client. If the client has
// asked for a task and there is room to store the result, a result becomes an ended task.
func (c *clientCall) toClientResponse(m wire.Message) wire.Message {
	m = c.toLegacy(m)
	if !c.taskReserved {
		return m
	}
	c.taskReserved = false
	result := m.Part(wire.PartResult)
	if result == nil || !c.s.g.resultBytes.Acquire(len(result), maxResultBytes) {
		c.s.tasks.unreserve()
		return m
	}
	status := protocol.TaskCompleted
	if m.IsToolError() {
		status = protocol.TaskFailed
	}
	id := newID()
	p := &polledTask{scopedID: scopedID{c.Route.Backend, id}, final: true, result: result,
		budget: &c.s.g.resultBytes}
	p.lastTask = protocol.NewLegacyTask(id, status, time.Now())
	c.s.tasks.addPolled(p)
	c.s.tasks.end(p.backend, id)
	return wire.NewResult("0", wire.EditObject(nil, nil,
		wire.Member{Key: "task", Text: protocol.SetTaskID(p.lastTask, p.clientID)}))
}

// finishRoundTrips ends a call with the final response of a modern backend. If the response is a
// task that the client has not asked for, finishRoundTrips polls the task first. If the call ends
// before the task, it cancels the task.
func (c *clientCall) finishRoundTrips(ctx context.Context, m wire.Message) {
	created := m.Part(wire.PartResult)
	if created == nil || protocol.ResultType(created) != protocol.ResultTask {
		c.forward(c.toClientResponse(m))
		return
	}
	if err := protocol.CheckTask(created); err != nil {
		c.failWith(&peer.BadResponseError{Err: err})
		return
	}
	backendID := protocol.TaskID(created)
	if backendID == "" || len(backendID) > maxIDSize {
		c.failWith(&peer.BadResponseError{Err: errNoTaskID})
		return
	}
	p := &polledTask{scopedID: scopedID{c.Route.Backend, backendID}}
	if c.taskReserved {
		c.taskReserved = false
		c.s.tasks.addPolled(p)
		p.setStatus(protocol.TaskToLegacy(created))
		c.forward(wire.NewResult("0", protocol.SetTaskID(protocol.CreateTaskResultToLegacy(created),
			p.clientID)))
		return
	}
	if response, ok := c.pollUntilDone(ctx, p, created); ok {
		c.forward(response)
	} else {
		c.cancelAtBackend(p) // no client is waiting
	}
}

// pollUntilDone polls a task until it has ended and forwards its input requests to the client. It
// returns the response to the original call, or false if the call has already ended, possibly by an
// error of polling.
func (c *clientCall) pollUntilDone(ctx context.Context, p *polledTask,
	task []byte) (wire.Message, bool) {
	t := progressSynthesizer{c: c, last: time.Now()}
	failures := 0
	for {
		if task != nil && !pause(ctx, pollInterval(task)<<failures) {
			return wire.Message{}, false
		}
		resp := c.callTask(ctx, p, protocol.MethodTasksGet, taskParams(p.id))
		switch {
		case ctx.Err() != nil:
			return wire.Message{}, false
		case resp.Err != nil && failures < maxPollFailures && isRepeatable(resp.Err):
			failures++
			if task == nil {
				task = []byte("{}")
			}
			continue
		case resp.Err != nil:
			c.failWith(startedError(resp.Err))
			return wire.Message{}, false
		case resp.Message.Part(wire.PartError) != nil && p.clientID == "":
			c.failWith(&transport.CallLostError{Err: fmt.Errorf("its task is gone: %s",
				wire.ReadError(resp.Message.Part(wire.PartError)).Message), MayHaveRun: true})
			return wire.Message{}, false
		case resp.Message.Part(wire.PartError) != nil:
			return c.toLegacy(resp.Message), true
		}
		failures, task = 0, resp.Message.Part(wire.PartResult)
		o, err := protocol.ReadTaskOutcome(task)
		if err != nil {
			c.failWith(&peer.BadResponseError{Err: err})
			return wire.Message{}, false
		}
		if _, final := p.last(); final {
			return p.cancelledError(), true
		}
		if p.setStatus(protocol.TaskToLegacy(task)) {
			c.notifyStatus(p)
		}
		switch {
		case o.Result != nil:
			return c.toLegacy(wire.NewResult("0", o.Result)), true
		case o.Error != nil:
			return c.toLegacy(errorResponse(o.Error)), true
		case protocol.IsTerminalStatus(protocol.TaskStatus(task)):
			return p.cancelledError(), true
		}
		t.maybeReport(task)
		if response, ok := c.answerInputs(ctx, p, o.Inputs); !ok {
			return response, response.Kind() != wire.Invalid
		}
	}
}

// cancelledError returns the response to a call whose task was cancelled.
func (p *polledTask) cancelledError() wire.Message {
	return wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError,
		"backend %s: the task was cancelled", p.backend))
}

// isRepeatable reports whether a read-only request may be repeated after an error: a lost
// connection or a timeout does not mean that the task has ended.
func isRepeatable(err error) bool {
	_, lost := errors.AsType[*transport.CallLostError](err)
	_, late := errors.AsType[*contract.TimeoutError](err)
	return lost || late
}

// errorResponse returns a response with the given error object.
func errorResponse(object []byte) wire.Message {
	m := wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, ""))
	return m.Splice(wire.Edit{Part: wire.PartError, Text: object})
}

// setStatus records the state of a task and reports whether its status has changed. It does not
// replace a final state.
func (p *polledTask) setStatus(task []byte) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final {
		return false
	}
	changed = p.lastTask != nil && protocol.TaskStatus(p.lastTask) != protocol.TaskStatus(task)
	p.lastTask = append([]byte(nil), task...)
	return changed
}

// last returns the last known state of the task; final is true if this state no longer changes.
func (p *polledTask) last() (task []byte, final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastTask, p.final
}

// release releases the stored result. A nil p is ignored.
func (p *polledTask) release() {
	if p != nil && p.result != nil {
		p.budget.Release(len(p.result))
	}
}

// callTask sends a request about a task to its modern backend and waits for the response.
func (c *clientCall) callTask(ctx context.Context, p *polledTask, method string,
	params []byte) contract.BackendResponse {
	return c.s.g.callTask(ctx, p.backend, contract.BackendRequest{
		Message: wire.NewRequest("0", method, params), Session: c.s.id, AllowTask: true})
}

// cancelAtBackend cancels a task at its backend, without waiting for the response.
func (c *clientCall) cancelAtBackend(p *polledTask) {
	m := wire.NewRequest("0", protocol.MethodTasksCancel, taskParams(p.id))
	r := contract.BackendRequest{Message: m, Session: c.s.id, AllowTask: true}
	c.s.g.Backends.NewCall(p.backend, r, make(responseWaiter, 1)).Send()
}

// notifyStatus sends the status of a task to a client that knows the task.
func (c *clientCall) notifyStatus(p *polledTask) {
	if task, _ := p.last(); p.clientID != "" {
		c.s.notify(wire.NewNotification(protocol.NotificationTasksStatus,
			protocol.SetTaskID(task, p.clientID)), "")
	}
}
