package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpgateway/internal/quota"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A polledTask is a session client's task at a modern backend, which creates tasks on its own
// initiative: the gateway declares the extension for session clients (peer.Call.AllowTask). A
// client that has asked for a task gets it, under an id from [sessionTasks]. Any other client
// waits for the response: the gateway polls the task until it has ended, however long that takes.
//
//	startRoundTrips ─ runRoundTrips ─ finishRoundTrips
//	   ├ the client asked for a task: sessionTasks.addPolled
//	   └ else pollUntilDone: tasks/get …, answerInputs (polled_task_inputs.go)
//	tasks/get, result, cancel ─ servePolledTask (polled_task_requests.go)
//	tasks/list ─ session_task_list.go
type polledTask struct {
	scopedID
	clientID string // "" = unknown to the client

	mu        sync.Mutex
	askedKeys map[string]bool // input requests already sent to the client
	lastTask  []byte          // last known state, as of 2025-11-25; nil = none
	final     bool            // lastTask no longer changes
	result    []byte          // of a call that returned at once, without a task at the backend
	budget    *quota.Bytes    // that result was acquired from
}

const (
	// maxTaskInputs bounds the input requests of one task.
	maxTaskInputs = 1024
	// maxPollFailures bounds consecutive failures to poll a task.
	maxPollFailures = 5
	// progressInterval is the interval of synthesized progress.
	progressInterval = 10 * time.Second
)

var errTaskEnded = wire.Errorf(wire.CodeInvalidParams, "Invalid params: the task has ended")

// toClientResponse returns a modern backend's response as a session client gets it. If the client
// has asked for a task, the response becomes a task that has ended.
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

// finishRoundTrips ends a call with the final response of a modern backend, which may be a task.
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
		c.cancelUpstream(p) // no client is waiting
	}
}

// pollUntilDone polls a task until it has ended, forwards its input requests to the client and
// returns the response to the original call. It returns false if the call has ended otherwise.
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
			c.failWith(resp.Err)
			return wire.Message{}, false
		case resp.Part(wire.PartError) != nil && p.clientID == "":
			c.failWith(&transport.CallLostError{Err: fmt.Errorf("its task is gone: %s",
				wire.ReadError(resp.Part(wire.PartError)).Message), MayHaveRun: true})
			return wire.Message{}, false
		case resp.Part(wire.PartError) != nil:
			return c.toLegacy(resp.Message), true
		}
		failures, task = 0, resp.Part(wire.PartResult)
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

// isRepeatable reports whether a read-only request may be repeated: the error says nothing about
// the task.
func isRepeatable(err error) bool {
	_, lost := errors.AsType[*transport.CallLostError](err)
	return lost || errors.Is(err, peer.ErrTimeout)
}

// errorResponse returns a response with the given error object.
func errorResponse(object []byte) wire.Message {
	m := wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, ""))
	return m.Splice(wire.Edit{Part: wire.PartError, Text: object})
}

// setStatus records the state of a task and reports whether its status has changed. A final state
// is kept.
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

// last returns the last known state, and whether it is final.
func (p *polledTask) last() (task []byte, final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastTask, p.final
}

// release releases the stored result; p may be nil.
func (p *polledTask) release() {
	if p != nil && p.result != nil {
		p.budget.Release(len(p.result))
	}
}

// callTask sends a request about a task to a modern backend and waits for the response.
func (c *clientCall) callTask(ctx context.Context, p *polledTask, method string,
	params []byte) peer.Response {
	return c.s.g.callTask(ctx, p.backend, wire.NewRequest("0", method, params),
		&peer.Call{SessionID: c.s.id, AllowTask: true})
}

// cancelUpstream cancels a task at its backend, without waiting for the response.
func (c *clientCall) cancelUpstream(p *polledTask) {
	m := wire.NewRequest("0", protocol.MethodTasksCancel, taskParams(p.id))
	c.s.g.Backends.Send(p.backend, m, &peer.Call{Handler: make(peer.ResponseChan, 1),
		SessionID: c.s.id, AllowTask: true})
}

// notifyStatus sends the status of a task to a client that knows the task.
func (c *clientCall) notifyStatus(p *polledTask) {
	if task, _ := p.last(); p.clientID != "" {
		c.s.notify(wire.NewNotification(protocol.NotificationTasksStatus,
			protocol.SetTaskID(task, p.clientID)), "")
	}
}
