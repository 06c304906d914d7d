package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A polledTask is what a session knows of a task at a backend of the stateless era, which
// makes tasks where it likes: the gateway declares the extension for clients that have a
// session (peer.Call.Tasks). One that has asked for a task is given it, by the id that
// [sessionTasks] has for it. One that has not waits for its answer: the task is pursued to its
// end, for as long as that takes.
//
//	call.asksFor ─ rounds ─ settle ─┬ the client has asked for it: tasks.add
//	                                └ else: chase ─ tasks/get … the result; supply (task_supply.go)
//	tasks/get, result, cancel ─ call.pursue (task_pursued.go); tasks/list ─ task_list.go
type polledTask struct {
	scopedID
	clientID string // by which the client knows it; "" = it does not

	mu        sync.Mutex
	askedKeys map[string]bool // questions that were put to the client: each is, once
	lastTask  []byte          // the task as it was last heard of, in the words of 2025-11-25; nil = never
	final     bool            // and as it stays
	result    []byte          // the result of a call that was answered at once
	budget    *byteBudget     // that has room for it
}

const (
	// maxTaskInputs bounds what one task asks in all.
	maxTaskInputs = 1024
	// maxPollFailures bounds how often in a row it is asked in vain how a task is.
	maxPollFailures = 5
	// progressInterval is how often a client that wants progress of its call hears that it goes on.
	progressInterval = 10 * time.Second
)

var errTaskEnded = wire.Errorf(wire.CodeInvalidParams, "Invalid params: the task has ended")

// toClientResponse returns a stateless backend's answer to a call as a client that has a session
// gets it. One that has asked for a task is given a task that has ended.
func (c *clientCall) toClientResponse(m wire.Message) wire.Message {
	m = c.toLegacy(m)
	if !c.taskReserved {
		return m
	}
	c.taskReserved = false
	result := m.Part(wire.PartResult)
	if result == nil || !c.s.g.resultBytes.acquire(len(result)) {
		c.s.tasks.unreserve()
		return m
	}
	status := protocol.TaskCompleted
	if m.IsToolError() {
		status = protocol.TaskFailed
	}
	id := newID()
	p := &polledTask{scopedID: scopedID{c.Route.Backend, id}, final: true, result: result, budget: &c.s.g.resultBytes}
	p.lastTask = protocol.NewLegacyTask(id, status, time.Now())
	c.s.tasks.addPolled(p)
	c.s.tasks.end(p.backend, id)
	return wire.NewResult("0", wire.EditObject(nil, nil, wire.Member{Key: "task", Text: protocol.SetTaskID(p.lastTask, p.clientID)}))
}

// finishRoundTrips ends a call with what a stateless backend has answered in the end, be it that it
// has become a task.
func (c *clientCall) finishRoundTrips(ctx context.Context, m wire.Message) {
	made := m.Part(wire.PartResult)
	if made == nil || protocol.ResultType(made) != protocol.ResultTask {
		c.forward(c.toClientResponse(m))
		return
	}
	if err := protocol.CheckTask(made); err != nil {
		c.failWith(&peer.BadResponseError{Err: err})
		return
	}
	backendID := protocol.TaskID(made)
	if backendID == "" || len(backendID) > maxIDSize {
		c.failWith(&peer.BadResponseError{Err: errNoTaskID})
		return
	}
	p := &polledTask{scopedID: scopedID{c.Route.Backend, backendID}}
	if c.taskReserved {
		c.taskReserved = false
		c.s.tasks.addPolled(p)
		p.setStatus(protocol.TaskToLegacy(made))
		c.forward(wire.NewResult("0", protocol.SetTaskID(protocol.CreateTaskResultToLegacy(made), p.clientID)))
		return
	}
	if response, ok := c.pollUntilDone(ctx, p, made); ok {
		c.forward(response)
	} else {
		c.cancelUpstream(p) // nobody waits for it any more
	}
}

// pollUntilDone asks how a task is until it has ended, has the client asked what it asks, and
// returns the answer to the call that it was. It reports false if the call has ended
// otherwise.
func (c *clientCall) pollUntilDone(ctx context.Context, p *polledTask, task []byte) (wire.Message, bool) {
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
			c.failWith(&transport.CallLostError{Err: fmt.Errorf("its task is gone: %s", wire.ReadError(resp.Part(wire.PartError)).Message), MayHaveRun: true})
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

// cancelledError is the answer to a call whose task was cancelled.
func (p *polledTask) cancelledError() wire.Message {
	return wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, "backend %s: the task was cancelled", p.backend))
}

// isRepeatable reports whether a request may be repeated that changes nothing: what came back
// says nothing of it.
func isRepeatable(err error) bool {
	_, lost := errors.AsType[*transport.CallLostError](err)
	return lost || errors.Is(err, peer.ErrTimeout)
}

// errorResponse returns a response that is an error, as it stands.
func errorResponse(object []byte) wire.Message {
	m := wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, ""))
	return m.Splice(wire.Edit{Part: wire.PartError, Text: object})
}

// setStatus notes how a task is, and reports whether that is another status than before. One
// that stays as it is is not heard of any more.
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

// last returns the task as it was last heard of, and whether it stays so.
func (p *polledTask) last() (task []byte, final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastTask, p.final
}

// release lets go of a result that was kept; p may be nil.
func (p *polledTask) release() {
	if p != nil && p.result != nil {
		p.budget.release(len(p.result))
	}
}

// callTask asks a backend of the stateless era about a task.
func (c *clientCall) callTask(ctx context.Context, p *polledTask, method string, params []byte) peer.Response {
	return c.s.g.callTask(ctx, p.backend, wire.NewRequest("0", method, params), &peer.Call{SessionID: c.s.id, AllowTask: true})
}

// cancelUpstream has a backend give a task up, for whose end nobody waits.
func (c *clientCall) cancelUpstream(p *polledTask) {
	m := wire.NewRequest("0", protocol.MethodTasksCancel, taskParams(p.id))
	c.s.g.Backends.Send(p.backend, m, &peer.Call{Handler: make(peer.ResponseChan, 1), SessionID: c.s.id, AllowTask: true})
}

// notifyStatus tells a client of the status of a task that it knows.
func (c *clientCall) notifyStatus(p *polledTask) {
	if task, _ := p.last(); p.clientID != "" {
		c.s.notify(wire.NewNotification(protocol.NotificationTasksStatus, protocol.SetTaskID(task, p.clientID)), "")
	}
}
