package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A pursuit is what a session knows of a task at a backend of the stateless era, which
// makes tasks where it likes: the gateway declares the extension for clients that have a
// session (peer.Call.Tasks). One that has asked for a task is given it, by the id that
// [tasks] has for it. One that has not waits for its answer: the task is pursued to its
// end, for as long as that takes.
//
//	call.asksFor ─ rounds ─ settle ─┬ the client has asked for it: tasks.add
//	                                └ else: chase ─ tasks/get … the result; supply (task_supply.go)
//	tasks/get, result, cancel ─ call.pursue (task_pursued.go); tasks/list ─ task_list.go
type pursuit struct {
	ref
	exposed string // by which the client knows it; "" = it does not

	mu    sync.Mutex
	asked map[string]bool // questions that were put to the client: each is, once
	task  []byte          // the task as it was last heard of, in the words of 2025-11-25; nil = never
	final bool            // and as it stays
	done  []byte          // the result of a call that was answered at once
	store *store          // that has room for it
}

const (
	// maxAsked bounds what one task asks in all.
	maxAsked = 1024
	// maxMissed bounds how often in a row it is asked in vain how a task is.
	maxMissed = 5
	// ticking is how often a client that wants progress of its call hears that it goes on.
	ticking = 10 * time.Second
)

var errTaskEnded = wire.Errorf(wire.CodeInvalidParams, "Invalid params: the task has ended")

// settled returns a stateless backend's answer to a call as a client that has a session
// gets it. One that has asked for a task is given a task that has ended.
func (c *call) settled(m wire.Message) wire.Message {
	m = c.classic(m)
	if !c.task {
		return m
	}
	c.task = false
	result := m.Part(wire.PartResult)
	if result == nil || !c.s.g.stored.keep(len(result)) {
		c.s.tasks.unbook()
		return m
	}
	status := protocol.TaskCompleted
	if m.IsToolError() {
		status = protocol.TaskFailed
	}
	id := newID()
	p := &pursuit{ref: ref{c.Route.Backend, id}, final: true, done: result, store: &c.s.g.stored}
	p.task = protocol.NewLegacyTask(id, status, time.Now())
	c.s.tasks.pursue(p)
	c.s.tasks.end(p.backend, id)
	return wire.NewResult("0", wire.EditObject(nil, nil, wire.Member{Key: "task", Text: protocol.SetTaskID(p.task, p.exposed)}))
}

// settle ends a call with what a stateless backend has answered in the end, be it that it
// has become a task.
func (c *call) settle(ctx context.Context, m wire.Message) {
	made := m.Part(wire.PartResult)
	if made == nil || protocol.ResultType(made) != protocol.ResultTask {
		c.forward(c.settled(m))
		return
	}
	if err := protocol.CheckTask(made); err != nil {
		c.giveIn(&peer.BadResponseError{Err: err})
		return
	}
	own := protocol.TaskID(made)
	if own == "" || len(own) > maxRef {
		c.giveIn(&peer.BadResponseError{Err: errNameless})
		return
	}
	p := &pursuit{ref: ref{c.Route.Backend, own}}
	if c.task {
		c.task = false
		c.s.tasks.pursue(p)
		p.heard(protocol.TaskToLegacy(made))
		c.forward(wire.NewResult("0", protocol.SetTaskID(protocol.CreateTaskResultToLegacy(made), p.exposed)))
		return
	}
	if answer, ok := c.chase(ctx, p, made); ok {
		c.forward(answer)
	} else {
		c.drop(p) // nobody waits for it any more
	}
}

// chase asks how a task is until it has ended, has the client asked what it asks, and
// returns the answer to the call that it was. It reports false if the call has ended
// otherwise.
func (c *call) chase(ctx context.Context, p *pursuit, task []byte) (wire.Message, bool) {
	t := ticker{c: c, last: time.Now()}
	missed := 0
	for {
		if task != nil && !pause(ctx, pace(task)<<missed) {
			return wire.Message{}, false
		}
		a := c.inquire(ctx, p, string(mcp.MethodTasksGet), aboutTask(p.id))
		switch {
		case ctx.Err() != nil:
			return wire.Message{}, false
		case a.Err != nil && missed < maxMissed && isLost(a.Err):
			missed++
			if task == nil {
				task = []byte("{}")
			}
			continue
		case a.Err != nil:
			c.giveIn(a.Err)
			return wire.Message{}, false
		case a.Part(wire.PartError) != nil && p.exposed == "":
			c.giveIn(&transport.CallLostError{Err: fmt.Errorf("its task is gone: %s", wire.ReadError(a.Part(wire.PartError)).Message), MayHaveRun: true})
			return wire.Message{}, false
		case a.Part(wire.PartError) != nil:
			return c.classic(a.Message), true
		}
		missed, task = 0, a.Part(wire.PartResult)
		o, err := protocol.ReadTaskOutcome(task)
		if err != nil {
			c.giveIn(&peer.BadResponseError{Err: err})
			return wire.Message{}, false
		}
		if _, final := p.last(); final {
			return p.cancelled(), true
		}
		if p.heard(protocol.TaskToLegacy(task)) {
			c.noticeOf(p)
		}
		switch {
		case o.Result != nil:
			return c.classic(wire.NewResult("0", o.Result)), true
		case o.Error != nil:
			return c.classic(failed(o.Error)), true
		case protocol.IsTerminalStatus(protocol.TaskStatus(task)):
			return p.cancelled(), true
		}
		t.tick(task)
		if answer, ok := c.supply(ctx, p, o.Inputs); !ok {
			return answer, answer.Kind() != wire.Invalid
		}
	}
}

// cancelled is the answer to a call whose task was cancelled.
func (p *pursuit) cancelled() wire.Message {
	return wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, "backend %s: the task was cancelled", p.backend))
}

// isLost reports whether a request may be repeated that changes nothing: what came back
// says nothing of it.
func isLost(err error) bool {
	_, lost := errors.AsType[*transport.CallLostError](err)
	return lost || errors.Is(err, peer.ErrTimeout)
}

// failed returns a response that is an error, as it stands.
func failed(object []byte) wire.Message {
	m := wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, ""))
	return m.Splice(wire.Edit{Part: wire.PartError, Text: object})
}

// heard notes how a task is, and reports whether that is another status than before. One
// that stays as it is is not heard of any more.
func (p *pursuit) heard(task []byte) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final {
		return false
	}
	changed = p.task != nil && protocol.TaskStatus(p.task) != protocol.TaskStatus(task)
	p.task = append([]byte(nil), task...)
	return changed
}

// last returns the task as it was last heard of, and whether it stays so.
func (p *pursuit) last() (task []byte, final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.task, p.final
}

// release lets go of a result that was kept; p may be nil.
func (p *pursuit) release() {
	if p != nil && p.done != nil {
		p.store.release(len(p.done))
	}
}

// inquire asks a backend of the stateless era about a task.
func (c *call) inquire(ctx context.Context, p *pursuit, method string, params []byte) peer.Response {
	return c.s.g.inquireOfTask(ctx, p.backend, wire.NewRequest("0", method, params), &peer.Call{SessionID: c.s.id, AllowTask: true})
}

// drop has a backend give a task up, for whose end nobody waits.
func (c *call) drop(p *pursuit) {
	m := wire.NewRequest("0", string(mcp.MethodTasksCancel), aboutTask(p.id))
	c.s.g.Backends.Send(p.backend, m, &peer.Call{Handler: make(peer.ResponseChan, 1), SessionID: c.s.id, AllowTask: true})
}

// noticeOf tells a client of the status of a task that it knows.
func (c *call) noticeOf(p *pursuit) {
	if task, _ := p.last(); p.exposed != "" {
		c.s.tell(wire.NewNotification(mcp.MethodNotificationTasksStatus, protocol.SetTaskID(task, p.exposed)), "")
	}
}
