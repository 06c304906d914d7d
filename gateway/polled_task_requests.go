package gateway

import (
	"context"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// servePolledTask responds to a client's request about a task at a modern backend. It is called
// with c.mu locked.
func (c *clientCall) servePolledTask(p *polledTask) {
	ctx, cancel := context.WithCancel(c.s.ctx)
	c.cancelWait = cancel
	c.s.addInFlight(c)
	c.s.work.Go(func() {
		defer cancel()
		response, ok := wire.Message{}, false
		switch c.Method {
		case protocol.MethodTasksGet:
			response, ok = c.polledStatus(ctx, p)
		case protocol.MethodTasksResult:
			response, ok = c.polledResult(ctx, p)
		case protocol.MethodTasksCancel:
			response, ok = c.cancelPolledTask(ctx, p)
		}
		if ok {
			c.forward(response)
		}
	})
}

// polledStatus returns the response to tasks/get. Here and below, the second result is false if the
// call has already ended.
func (c *clientCall) polledStatus(ctx context.Context, p *polledTask) (wire.Message, bool) {
	task, final := p.last()
	if !final {
		resp := c.callTask(ctx, p, protocol.MethodTasksGet, taskParams(p.id))
		switch {
		case ctx.Err() != nil:
			return wire.Message{}, false
		case resp.Err != nil:
			c.failWith(resp.Err)
			return wire.Message{}, false
		case resp.Message.Part(wire.PartError) != nil:
			return c.toLegacy(resp.Message), true
		}
		p.setStatus(protocol.TaskToLegacy(resp.Message.Part(wire.PartResult)))
		task, _ = p.last()
	}
	c.s.noteTaskStatus(p.backend, p.id, protocol.TaskStatus(task))
	return wire.NewResult("0", protocol.SetTaskID(task, p.clientID)), true
}

// polledResult waits until the task has ended and returns the response to tasks/result.
func (c *clientCall) polledResult(ctx context.Context,
	p *polledTask) (response wire.Message, ok bool) {
	_, final := p.last()
	switch {
	case p.result != nil:
		response, ok = wire.NewResult("0", p.result), true
	case final:
		return p.cancelledError(), true
	default:
		c.relatedTaskID = p.clientID
		if response, ok = c.pollUntilDone(ctx, p, nil); !ok {
			return response, false
		}
		c.s.tasks.end(p.backend, p.id)
	}
	if result := response.Part(wire.PartResult); result != nil {
		response = wire.NewResult("0", protocol.AddRelatedTask(result, p.clientID))
	}
	return response, ok
}

// cancelPolledTask cancels a task and returns the response to tasks/cancel, an error if the task
// has ended. The client then gets the status cancelled even if the backend reports another status:
// a task "MUST remain in cancelled status" (tasks, 2025-11-25).
func (c *clientCall) cancelPolledTask(ctx context.Context, p *polledTask) (wire.Message, bool) {
	response, ok := c.polledStatus(ctx, p)
	task := response.Part(wire.PartResult)
	if !ok || task == nil {
		return response, ok
	}
	if protocol.IsTerminalStatus(protocol.TaskStatus(task)) {
		return wire.NewErrorResponse("0", errTaskEnded), true
	}
	resp := c.callTask(ctx, p, protocol.MethodTasksCancel, taskParams(p.id))
	switch {
	case ctx.Err() != nil:
		return wire.Message{}, false
	case resp.Err != nil:
		c.failWith(resp.Err)
		return wire.Message{}, false
	case resp.Message.Part(wire.PartError) != nil:
		return c.toLegacy(resp.Message), true
	}
	p.mu.Lock()
	p.lastTask, p.final = protocol.WithStatusCancelled(p.lastTask), true
	task = p.lastTask
	p.mu.Unlock()
	c.s.tasks.end(p.backend, p.id)
	return wire.NewResult("0", protocol.SetTaskID(task, p.clientID)), true
}
