package gateway

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// pursue answers a request about a task at a stateless backend that the client knows. It
// is called under c.mu.
func (c *call) pursue(p *pursuit) {
	ctx, cancel := context.WithCancel(c.s.ctx)
	c.giveUp = cancel
	c.s.work.Go(func() {
		defer cancel()
		answer, ok := wire.Message{}, false
		switch mcp.MCPMethod(c.Method) {
		case mcp.MethodTasksGet:
			answer, ok = c.pursued(ctx, p)
		case mcp.MethodTasksResult:
			answer, ok = c.resultOf(ctx, p)
		case mcp.MethodTasksCancel:
			answer, ok = c.cancelTask(ctx, p)
		}
		if ok {
			c.forward(answer)
		}
	})
}

// pursued returns the task as it is now, as the answer to a request.
func (c *call) pursued(ctx context.Context, p *pursuit) (wire.Message, bool) {
	task, final := p.last()
	if !final {
		a := c.inquire(ctx, p, string(mcp.MethodTasksGet), aboutTask(p.id))
		switch {
		case ctx.Err() != nil:
			return wire.Message{}, false
		case a.Err != nil:
			c.giveIn(a.Err)
			return wire.Message{}, false
		case a.Part(wire.PartError) != nil:
			return c.classic(a.Message), true
		}
		p.heard(protocol.TaskToLegacy(a.Part(wire.PartResult)))
		task, _ = p.last()
	}
	c.s.taskIs(p.backend, p.id, protocol.TaskStatus(task))
	return wire.NewResult("0", protocol.SetTaskID(task, p.exposed)), true
}

// resultOf returns the answer to the call that has become a task, once it has ended.
func (c *call) resultOf(ctx context.Context, p *pursuit) (answer wire.Message, ok bool) {
	_, final := p.last()
	switch {
	case p.done != nil:
		answer, ok = wire.NewResult("0", p.done), true
	case final:
		return p.cancelled(), true
	default:
		c.related = p.exposed
		if answer, ok = c.chase(ctx, p, nil); !ok {
			return answer, false
		}
		c.s.tasks.end(p.backend, p.id)
	}
	if result := answer.Part(wire.PartResult); result != nil {
		answer = wire.NewResult("0", protocol.AddRelatedTask(result, p.exposed))
	}
	return answer, ok
}

// cancelTask has a task cancelled, which is so from now on whatever its backend says: a
// task "MUST remain in cancelled status" (tasks, 2025-11-25).
func (c *call) cancelTask(ctx context.Context, p *pursuit) (wire.Message, bool) {
	answer, ok := c.pursued(ctx, p)
	task := answer.Part(wire.PartResult)
	if !ok || task == nil {
		return answer, ok
	}
	if protocol.IsTerminalStatus(protocol.TaskStatus(task)) {
		return wire.NewErrorResponse("0", errTaskEnded), true
	}
	a := c.inquire(ctx, p, string(mcp.MethodTasksCancel), aboutTask(p.id))
	switch {
	case ctx.Err() != nil:
		return wire.Message{}, false
	case a.Err != nil:
		c.giveIn(a.Err)
		return wire.Message{}, false
	case a.Part(wire.PartError) != nil:
		return c.classic(a.Message), true
	}
	p.mu.Lock()
	p.task, p.final = protocol.WithStatusCancelled(p.task), true
	task = p.task
	p.mu.Unlock()
	c.s.tasks.end(p.backend, p.id)
	return wire.NewResult("0", protocol.SetTaskID(task, p.exposed)), true
}
