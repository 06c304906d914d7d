package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// held is what a job needs whose backend is of the session era, and tells in several
// messages what the client is told in one: its status, by tasks/get; how it ended, by
// tasks/result; and what it asks, by requests of its own while that is open.
type held struct {
	j *job

	mu    sync.Mutex
	final []byte        // the task, once it has ended and it is kept how
	fetch *fetch        // the tasks/result that is open, or was answered; nil if none
	asked []*need       // not answered yet, the oldest first
	keys  int           // how many there were
	news  chan struct{} // closed when something may have changed
	over  bool
}

// A fetch is one tasks/result.
type fetch struct {
	h       *held
	early   bool // asked for before the task had ended
	pending peer.Call
	done    chan struct{}
	answer  peer.Response // once it is done
	stored  int           // bytes of it for which there was room
}

// get returns the task as it is now.
func (h *held) get(ctx context.Context) peer.Response {
	if task, o, ok := h.kept(); ok {
		return h.tell(task, o)
	}
	a := h.inquire(ctx, mcp.MethodTasksGet)
	task := a.Part(wire.PartResult)
	if a.Err != nil || task == nil {
		h.j.lost(a)
		return a
	}
	h.j.g.jobs.renew(h.j, task)
	var o protocol.TaskOutcome
	switch protocol.TaskStatus(task) {
	case protocol.TaskCompleted, protocol.TaskFailed:
		f, err := h.await(ctx)
		if err != nil {
			return peer.Response{Err: err}
		}
		if f != nil {
			o = f.outcome()
			h.keep(task)
		}
	case protocol.TaskCancelled:
		h.keep(task)
	case protocol.TaskInputRequired:
		h.gather(ctx)
		o.Inputs = h.inputs()
	default:
		o.Inputs = h.inputs()
	}
	return h.tell(task, o)
}

func (h *held) tell(task []byte, o protocol.TaskOutcome) peer.Response {
	if o.Error != nil {
		o.Error = protocol.ErrorToModern(o.Error, string(mcp.MethodToolsCall))
	}
	return peer.Response{Message: wire.NewResult("0", protocol.SetTaskID(protocol.TaskToModern(task, o), h.j.id))}
}

// inquire asks about the task, on behalf of the guest that has made it.
func (h *held) inquire(ctx context.Context, method mcp.MCPMethod) peer.Response {
	return h.j.g.inquireOfTask(ctx, h.j.backend, h.request(method), &peer.Call{SessionID: h.j.guest.id})
}

func (h *held) request(method mcp.MCPMethod) wire.Message {
	return wire.NewRequest("0", string(method), aboutTask(h.j.ref.id))
}

// aboutTask returns the params of a request about a task.
func aboutTask(id string) []byte { return wire.Encode(map[string]string{"taskId": id}) }

// kept returns how the task ended, if that is kept.
func (h *held) kept() (task []byte, o protocol.TaskOutcome, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.final != nil && protocol.TaskStatus(h.final) != protocol.TaskCancelled {
		o = h.fetch.outcome()
	}
	return h.final, o, h.final != nil
}

// keep keeps a task that has ended, if it was cancelled, or if it is kept how it ended.
func (h *held) keep(task []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cancelled := protocol.TaskStatus(task) == protocol.TaskCancelled
	if h.final == nil && (cancelled || h.fetch != nil && h.fetch.stored > 0) {
		h.final = slices.Clone(task)
	}
}

// await returns the answer to tasks/result of a task that has ended, for which it asks if
// nobody has; nil if it does not come soon: the client is told that the task works, and
// asks again.
func (h *held) await(ctx context.Context) (*fetch, error) {
	soon := time.NewTimer(asking)
	defer soon.Stop()
	for late := false; !late; {
		f := h.open(false)
		select {
		case <-f.done:
		case <-soon.C:
			if late = true; h.renounce(f) {
				return nil, nil
			}
		case <-ctx.Done():
			return nil, peer.ErrCancelled
		}
		if !f.early || !errors.Is(f.answer.Err, peer.ErrCancelled) {
			return f, f.answer.Err
		} // else somebody has renounced it
	}
	return nil, nil
}

// renounce is for a tasks/result that has not come soon; it reports false if it is there all
// the same. One that was open before the task had ended is given up: its server may
// have lost sight of it. The next who needs the answer asks anew.
func (h *held) renounce(f *fetch) bool {
	h.mu.Lock()
	select {
	case <-f.done:
		h.mu.Unlock()
		return false
	default:
	}
	stale := f.early && h.fetch == f
	if stale {
		h.fetch = nil
	}
	h.mu.Unlock()
	if stale {
		h.j.g.Backends.Cancel(h.j.backend, &f.pending, nil)
	}
	return true
}

// open returns the tasks/result that is open, or was answered. Early says that the task
// has not ended.
func (h *held) open(early bool) *fetch {
	h.mu.Lock()
	f := h.fetch
	fresh := f == nil
	if fresh {
		f = &fetch{h: h, early: early, done: make(chan struct{})}
		f.pending.Handler, f.pending.Tag, f.pending.SessionID = f, f, h.j.guest.id
		f.pending.PauseTimeout() // it is answered when the task has ended: no limit of time is for that
		if h.over {
			f.answer.Err = peer.ErrCancelled
			close(f.done)
			fresh = false
		} else {
			h.fetch = f
		}
	}
	h.mu.Unlock()
	if fresh {
		h.j.g.Backends.Send(h.j.backend, h.request(mcp.MethodTasksResult), &f.pending)
	}
	return f
}

// outcome reads an answer that has come.
func (f *fetch) outcome() protocol.TaskOutcome {
	return protocol.TaskOutcome{Result: f.answer.Part(wire.PartResult), Error: f.answer.Part(wire.PartError)}
}

// Progressed implements peer.ResponseHandler.
func (f *fetch) OnProgress(wire.Message) {}

// Done implements peer.ResponseHandler. After a failure, and if there is no room for the answer, the
// next who needs it asks anew.
func (f *fetch) OnResponse(m wire.Message, err error) {
	f.answer = peer.Response{Message: m, Err: err}
	h := f.h
	h.mu.Lock()
	var asked []*need
	wanted := h.fetch == f // nobody has renounced it
	if err == nil {
		asked, h.asked = h.asked, nil
		if size := len(m.Raw()); wanted && !h.over && h.j.g.stored.keep(size) {
			f.stored = size
		}
	}
	if wanted && f.stored == 0 {
		h.fetch = nil
	}
	h.stirLocked()
	close(f.done)
	h.mu.Unlock()
	for _, n := range asked {
		n.refuse()
	}
}

// stirLocked wakes those who wait for news.
func (h *held) stirLocked() {
	close(h.news)
	h.news = make(chan struct{})
}

// stir has it looked at again, if somebody does.
func (h *held) stir() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stirLocked()
}

func (h *held) changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.news
}

// cancel asks the backend to end the task. That it has ended already is no failure, nor
// that the backend cannot: it is a wish.
func (h *held) cancel(ctx context.Context) peer.Response {
	if _, _, ended := h.kept(); ended || !h.j.g.Backends.View().HasCapability(h.j.backend, "tasks", "cancel") {
		return acknowledged()
	}
	a := h.inquire(ctx, mcp.MethodTasksCancel)
	failure := a.Part(wire.PartError)
	switch task := a.Part(wire.PartResult); {
	case a.Err != nil:
		return a
	case failure != nil && wire.ReadError(failure).Code != wire.CodeInvalidParams:
		return a
	case failure == nil && protocol.TaskStatus(task) == protocol.TaskCancelled:
		h.j.g.jobs.renew(h.j, task)
		h.keep(task)
	}
	h.stir()
	return acknowledged()
}

// end lets go of everything: the task is forgotten.
func (h *held) end() {
	h.mu.Lock()
	h.over = true
	asked, f := h.asked, h.fetch
	h.asked = nil
	h.stirLocked()
	h.mu.Unlock()
	for _, n := range asked {
		n.refuse()
	}
	if f == nil {
		return
	}
	select {
	case <-f.done:
		h.j.g.stored.release(f.stored)
	default:
		h.j.g.Backends.Cancel(h.j.backend, &f.pending, nil)
	}
}
