package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/peer"
	"mcpgateway/revision"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// A pursuit is what a session knows of a task at a backend of the stateless era, which
// makes tasks where it likes: the gateway declares the extension for clients that have a
// session (peer.Pending.Tasks). One that has asked for a task is given it, by the id that
// [tasks] has for it. One that has not waits for its answer: the task is pursued to its
// end, for as long as that takes.
//
//	call.asksFor ─ rounds ─ settle ─┬ the client has asked for it: tasks.add
//	                                └ else: chase ─ tasks/get … the result
//	tasks/get, result, cancel, list ─ call.pursue
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
	status := revision.TaskCompleted
	if m.IsToolError() {
		status = revision.TaskFailed
	}
	id := newID()
	p := &pursuit{ref: ref{c.Route.Backend, id}, final: true, done: result, store: &c.s.g.stored}
	p.task = revision.NewTask(id, status, time.Now())
	c.s.tasks.pursue(p)
	c.s.tasks.end(p.backend, id)
	return wire.NewResult("0", wire.Revise(nil, nil, wire.Member{Key: "task", Text: revision.NameTask(p.task, p.exposed)}))
}

// settle ends a call with what a stateless backend has answered in the end, be it that it
// has become a task.
func (c *call) settle(ctx context.Context, m wire.Message) {
	made := m.Part(wire.PartResult)
	if made == nil || revision.TypeOf(made) != revision.Task {
		c.forward(c.settled(m))
		return
	}
	own := revision.TaskNamed(made)
	if own == "" || len(own) > maxRef {
		c.giveIn(&peer.BadAnswer{Err: errNameless})
		return
	}
	p := &pursuit{ref: ref{c.Route.Backend, own}}
	if c.task {
		c.task = false
		c.s.tasks.pursue(p)
		p.heard(revision.ClassicTask(made))
		c.forward(wire.NewResult("0", revision.NameTask(revision.ClassicCreated(made), p.exposed)))
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
			c.giveIn(&transport.Lost{Err: fmt.Errorf("its task is gone: %s", wire.ReadError(a.Part(wire.PartError)).Message), Ran: true})
			return wire.Message{}, false
		case a.Part(wire.PartError) != nil:
			return c.classic(a.Message), true
		}
		missed, task = 0, a.Part(wire.PartResult)
		o, err := revision.OutcomeOf(task)
		if err != nil {
			c.giveIn(&peer.BadAnswer{Err: err})
			return wire.Message{}, false
		}
		if _, final := p.last(); final {
			return p.cancelled(), true
		}
		if p.heard(revision.ClassicTask(task)) {
			c.noticeOf(p)
		}
		switch {
		case o.Result != nil:
			return c.classic(wire.NewResult("0", o.Result)), true
		case o.Error != nil:
			return c.classic(failed(o.Error)), true
		case revision.TaskEnded(revision.TaskStatus(task)):
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
	return wire.NewFailure("0", wire.Errorf(wire.CodeInternalError, "backend %s: the task was cancelled", p.backend))
}

// isLost reports whether a request may be repeated that changes nothing: what came back
// says nothing of it.
func isLost(err error) bool {
	_, lost := errors.AsType[*transport.Lost](err)
	return lost || errors.Is(err, peer.ErrTimeout)
}

// failed returns a response that is an error, as it stands.
func failed(object []byte) wire.Message {
	m := wire.NewFailure("0", wire.Errorf(wire.CodeInternalError, ""))
	return m.Splice(wire.Edit{Part: wire.PartError, Text: object})
}

// supply puts to the client what a task asks, as far as that has not been done, and tells
// the task the answers. It reports false if the call has ended, or is to end with answer,
// if that is a message.
func (c *call) supply(ctx context.Context, p *pursuit, inputs []revision.Input) (answer wire.Message, ok bool) {
	fresh, full := p.take(inputs)
	switch {
	case full:
		c.giveIn(&transport.Lost{Err: errRounds, Ran: true})
		return wire.Message{}, false
	case len(fresh) == 0:
		return wire.Message{}, true
	}
	responses, sorry := c.put(ctx, fresh)
	switch {
	case ctx.Err() != nil:
		p.giveBack(fresh) // who asks next is asked
		return wire.Message{}, false
	case sorry != nil:
		c.drop(p)
		return *sorry, false
	}
	params := wire.Revise(aboutTask(p.id), nil, wire.Member{Key: "inputResponses", Text: responses})
	a := c.inquire(ctx, p, methodUpdate, params)
	switch {
	case ctx.Err() != nil:
		return wire.Message{}, false
	case a.Err != nil:
		if lost, ok := errors.AsType[*transport.Lost](a.Err); ok && !lost.Ran {
			p.giveBack(fresh)
		}
		c.giveIn(a.Err) // it may have been told: an answer is given once
		return wire.Message{}, false
	case a.Part(wire.PartError) != nil:
		return c.classic(a.Message), false
	}
	return wire.Message{}, true
}

// take returns the questions that are to be put to the client, which nobody else does
// then; full says that there have been too many.
func (p *pursuit) take(inputs []revision.Input) (fresh []revision.Input, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range inputs {
		if p.asked[in.Key] {
			continue
		}
		if len(p.asked) >= maxAsked {
			return nil, true
		}
		if p.asked == nil {
			p.asked = make(map[string]bool)
		}
		in.Key = strings.Clone(in.Key)
		p.asked[in.Key] = true
		fresh = append(fresh, in)
	}
	return fresh, false
}

func (p *pursuit) giveBack(inputs []revision.Input) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range inputs {
		delete(p.asked, in.Key)
	}
}

// heard notes how a task is, and reports whether that is another status than before. One
// that stays as it is is not heard of any more.
func (p *pursuit) heard(task []byte) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final {
		return false
	}
	changed = p.task != nil && revision.TaskStatus(p.task) != revision.TaskStatus(task)
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
func (c *call) inquire(ctx context.Context, p *pursuit, method string, params []byte) peer.Answer {
	return c.s.g.inquire(ctx, p.backend, wire.NewRequest("0", method, params), &peer.Pending{Owner: c.s.id, Tasks: true})
}

// drop has a backend give a task up, for whose end nobody waits.
func (c *call) drop(p *pursuit) {
	m := wire.NewRequest("0", string(mcp.MethodTasksCancel), aboutTask(p.id))
	c.s.g.Backends.Send(p.backend, m, &peer.Pending{To: make(peer.Waiter, 1), Owner: c.s.id, Tasks: true})
}

// noticeOf tells a client of the status of a task that it knows.
func (c *call) noticeOf(p *pursuit) {
	if task, _ := p.last(); p.exposed != "" {
		c.s.tell(wire.NewNotification(mcp.MethodNotificationTasksStatus, revision.NameTask(task, p.exposed)), "")
	}
}

// A ticker tells a client that wants progress of its call what the task says of itself, or
// that it goes on; unless the backend has told it of progress itself, which would not
// agree.
type ticker struct {
	c    *call
	n    int
	last time.Time
	said string
}

func (t *ticker) tick(task []byte) {
	token := t.c.r.Token()
	literal, _ := wire.Lookup(task, "statusMessage")
	message := string(literal)
	if token == "" || t.c.progressed.Load() || message == t.said && time.Since(t.last) < ticking {
		return
	}
	t.n++
	t.last, t.said = time.Now(), message
	put := []wire.Member{{Key: "progressToken", Text: []byte(token)}, {Key: "progress", Text: strconv.AppendInt(nil, int64(t.n), 10)}}
	if wire.Unquote(literal) != "" {
		put = append(put, wire.Member{Key: "message", Text: literal})
	}
	t.c.r.Progress(wire.NewNotification("notifications/progress", wire.Revise(nil, nil, put...)))
}

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
		p.heard(revision.ClassicTask(a.Part(wire.PartResult)))
		task, _ = p.last()
	}
	c.s.taskIs(p.backend, p.id, revision.TaskStatus(task))
	return wire.NewResult("0", revision.NameTask(task, p.exposed)), true
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
		answer = wire.NewResult("0", revision.Related(result, p.exposed))
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
	if revision.TaskEnded(revision.TaskStatus(task)) {
		return wire.NewFailure("0", errTaskEnded), true
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
	p.task, p.final = revision.CancelledTask(p.task), true
	task = p.task
	p.mu.Unlock()
	c.s.tasks.end(p.backend, p.id)
	return wire.NewResult("0", revision.NameTask(task, p.exposed)), true
}
