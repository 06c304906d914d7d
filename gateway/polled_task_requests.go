package gateway

import (
	"context"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// serve responds to a client's request about the task, the call.
func (t *taskPoller) serve(ctx context.Context) {
	response, ok := wire.Message{}, false
	switch t.c.Method {
	case protocol.MethodTasksGet:
		response, ok = t.status(ctx)
	case protocol.MethodTasksResult:
		response, ok = t.result(ctx)
	case protocol.MethodTasksCancel:
		response, ok = t.cancel(ctx)
	}
	if ok {
		t.c.forward(response)
	}
}

// status returns the response to tasks/get. Here and below, the second result is false if the
// call has already ended.
func (t *taskPoller) status(ctx context.Context) (wire.Message, bool) {
	c, p := t.c, t.p
	task, final := p.last()
	if !final {
		resp := t.send(ctx, protocol.MethodTasksGet, taskParams(p.id))
		switch {
		case ctx.Err() != nil:
			return wire.Message{}, false
		case resp.Err != nil:
			c.failWith(resp.Err)
			return wire.Message{}, false
		case resp.Message.Part(wire.PartError) != nil:
			c.s.tasks.noteFailure(p.backend, p.id, protocol.MethodTasksGet,
				resp.Message.Part(wire.PartError))
			return c.toLegacy(resp.Message), true
		}
		current := protocol.TaskToLegacy(resp.Message.Part(wire.PartResult))
		p.setStatus(current)
		if task, final = p.last(); !final { // not cancelled meanwhile
			task = current
		}
	}
	c.s.tasks.noteStatus(p.backend, p.id, protocol.TaskStatus(task))
	return wire.NewResult("0", protocol.SetTaskID(task, p.clientID)), true
}

// result waits until the task has ended and returns the response to tasks/result.
func (t *taskPoller) result(ctx context.Context) (response wire.Message, ok bool) {
	p := t.p
	_, final := p.last()
	switch {
	case p.result != nil:
		response, ok = wire.NewResult("0", p.result), true
	case final:
		return p.cancelledError(), true
	default:
		if response, ok = t.untilDone(ctx, nil); !ok {
			return response, false
		}
	}
	if result := response.Part(wire.PartResult); result != nil {
		response = wire.NewResult("0", protocol.AddRelatedTask(result, p.clientID))
	}
	return response, ok
}

// cancel cancels the task and returns the response to tasks/cancel, an error if the task
// has ended. The client then gets the status cancelled even if the backend reports another status:
// a task "MUST remain in cancelled status" (tasks, 2025-11-25).
func (t *taskPoller) cancel(ctx context.Context) (wire.Message, bool) {
	c, p := t.c, t.p
	response, ok := t.status(ctx)
	task := response.Part(wire.PartResult)
	if !ok || task == nil {
		return response, ok
	}
	if protocol.IsTerminalStatus(protocol.TaskStatus(task)) {
		return wire.NewErrorResponse("0", errTaskEnded), true
	}
	resp := t.send(ctx, protocol.MethodTasksCancel, taskParams(p.id))
	switch {
	case ctx.Err() != nil:
		return wire.Message{}, false
	case resp.Err != nil:
		c.failWith(resp.Err)
		return wire.Message{}, false
	case resp.Message.Part(wire.PartError) != nil:
		c.s.tasks.noteFailure(p.backend, p.id, protocol.MethodTasksCancel,
			resp.Message.Part(wire.PartError))
		return c.toLegacy(resp.Message), true
	}
	p.mu.Lock()
	p.lastTask, p.final = protocol.WithStatusCancelled(p.lastTask), true
	task = p.lastTask
	p.mu.Unlock()
	c.s.tasks.end(p.backend, p.id)
	return wire.NewResult("0", protocol.SetTaskID(task, p.clientID)), true
}
