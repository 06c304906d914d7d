package gateway

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/peer"
	"mcpgateway/revision"
	"mcpgateway/wire"
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
	pending peer.Pending
	done    chan struct{}
	answer  peer.Answer // once it is done
	stored  int         // bytes of it for which there was room
}

// A need is a question of a task's, until it is answered.
type need struct {
	h   *held
	r   *peer.Request
	key string // by which the client knows it
}

// asking is how long it is waited for what a task asks that says that it needs input. What
// comes later is told by the next tasks/get.
const asking = time.Second

// get returns the task as it is now.
func (h *held) get(ctx context.Context) peer.Answer {
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
	var o revision.Outcome
	switch revision.TaskStatus(task) {
	case revision.TaskCompleted, revision.TaskFailed:
		f, err := h.await(ctx)
		if err != nil {
			return peer.Answer{Err: err}
		}
		o = f.outcome()
		h.keep(task)
	case revision.TaskCancelled:
		h.keep(task)
	case revision.TaskInputRequired:
		h.gather(ctx)
		o.Inputs = h.inputs()
	default:
		o.Inputs = h.inputs()
	}
	return h.tell(task, o)
}

func (h *held) tell(task []byte, o revision.Outcome) peer.Answer {
	return peer.Answer{Message: wire.NewResult("0", revision.NameTask(revision.ModernTask(task, o), h.j.id))}
}

// inquire asks about the task, on behalf of the guest that has made it.
func (h *held) inquire(ctx context.Context, method mcp.MCPMethod) peer.Answer {
	return h.j.g.inquire(ctx, h.j.backend, h.request(method), &peer.Pending{Owner: h.j.guest.id})
}

func (h *held) request(method mcp.MCPMethod) wire.Message {
	return wire.NewRequest("0", string(method), aboutTask(h.j.ref.id))
}

// aboutTask returns the params of a request about a task.
func aboutTask(id string) []byte { return wire.Encode(map[string]string{"taskId": id}) }

// kept returns how the task ended, if that is kept.
func (h *held) kept() (task []byte, o revision.Outcome, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.final != nil && revision.TaskStatus(h.final) != revision.TaskCancelled {
		o = h.fetch.outcome()
	}
	return h.final, o, h.final != nil
}

// keep keeps a task that has ended, if it was cancelled, or if it is kept how it ended.
func (h *held) keep(task []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cancelled := revision.TaskStatus(task) == revision.TaskCancelled
	if h.final == nil && (cancelled || h.fetch != nil && h.fetch.stored > 0) {
		h.final = slices.Clone(task)
	}
}

// await returns the answer to tasks/result, for which it asks if nobody has.
func (h *held) await(ctx context.Context) (*fetch, error) {
	f := h.open()
	select {
	case <-f.done:
		return f, f.answer.Err
	case <-ctx.Done():
		return nil, peer.ErrCancelled
	}
}

// open returns the tasks/result that is open, or was answered.
func (h *held) open() *fetch {
	h.mu.Lock()
	f := h.fetch
	fresh := f == nil
	if fresh {
		f = &fetch{h: h, done: make(chan struct{})}
		f.pending.To, f.pending.Owner = f, h.j.guest.id
		f.pending.Hold() // it is answered when the task has ended: no limit of time is for that
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
func (f *fetch) outcome() revision.Outcome {
	return revision.Outcome{Result: f.answer.Part(wire.PartResult), Error: f.answer.Part(wire.PartError)}
}

// Progressed implements peer.Asker.
func (f *fetch) Progressed(wire.Message) {}

// Done implements peer.Asker. After a failure, and if there is no room for the answer, the
// next who needs it asks anew.
func (f *fetch) Done(m wire.Message, err error) {
	f.answer = peer.Answer{Message: m, Err: err}
	h := f.h
	h.mu.Lock()
	var asked []*need
	if err == nil {
		asked, h.asked = h.asked, nil
		if size := len(m.Raw()); !h.over && h.j.g.stored.keep(size) {
			f.stored = size
		}
	}
	if f.stored == 0 {
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

// gather waits for what the task asks, which it does while tasks/result is open.
func (h *held) gather(ctx context.Context) {
	f := h.open()
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	for first := true; ; first = false {
		news := h.changed()
		if n := len(h.inputs()); n > 0 {
			if !first {
				pause(ctx, gathering) // for further ones
			}
			return
		}
		select {
		case <-news:
		case <-f.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// inputs are the questions that are open.
func (h *held) inputs() (all []revision.Input) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.asked {
		all = append(all, input(n.key, h.j.backend, n.r.Message))
	}
	return all
}

// ask takes a question of the task's.
func (h *held) ask(r *peer.Request) {
	if err := mayAsk(h.j.guest.stamp.Capabilities, r.Message); err != nil {
		decline(r, err)
		return
	}
	n := &need{h: h, r: r}
	h.mu.Lock()
	ok := !h.over && h.final == nil && len(h.asked) < maxQueries
	if ok {
		h.keys++
		n.key = "q" + strconv.Itoa(h.keys)
		h.asked = append(h.asked, n)
		h.stirLocked()
	}
	h.mu.Unlock()
	switch {
	case !ok:
		decline(r, wire.Errorf(wire.CodeInternalError, "The task has ended, or has asked too much at one time"))
	case !r.Own(n):
		n.take() // the backend is gone
	}
}

// take removes the question from those that are open, for whoever gets true.
func (n *need) take() bool {
	n.h.mu.Lock()
	defer n.h.mu.Unlock()
	i := slices.Index(n.h.asked, n)
	if i < 0 {
		return false
	}
	n.h.asked = slices.Delete(n.h.asked, i, i+1)
	return true
}

// Cancelled implements peer.Owner: the backend has taken the question back.
func (n *need) Cancelled([]byte) { n.take() }

func (n *need) refuse() {
	decline(n.r, wire.Errorf(wire.CodeInternalError, "The client has not answered, and the task is over"))
}

// update answers what the task asks. What it does not ask, or not any more, is left alone.
func (h *held) update(responses []revision.Response) {
	for _, answer := range responses {
		h.mu.Lock()
		i := slices.IndexFunc(h.asked, func(n *need) bool {
			return n.key == answer.Key && fitsQuestion(n.r.Message, answer.Result)
		})
		var n *need
		if i >= 0 {
			n = h.asked[i]
			h.asked = slices.Delete(h.asked, i, i+1)
		}
		h.mu.Unlock()
		if n != nil {
			n.r.Reply(answer.Result)
		}
	}
}

// cancel asks the backend to end the task. That it has ended already is no failure, nor
// that the backend cannot: it is a wish.
func (h *held) cancel(ctx context.Context) peer.Answer {
	if _, _, ended := h.kept(); ended || !h.j.g.Backends.View().Has(h.j.backend, "tasks", "cancel") {
		return acknowledged()
	}
	a := h.inquire(ctx, mcp.MethodTasksCancel)
	failure := a.Part(wire.PartError)
	switch task := a.Part(wire.PartResult); {
	case a.Err != nil:
		return a
	case failure != nil && wire.ReadError(failure).Code != wire.CodeInvalidParams:
		return a
	case failure == nil && revision.TaskStatus(task) == revision.TaskCancelled:
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

// jobOf returns the task of a guest's to which something belongs that a backend says, nil
// if it does not say.
func (v *guest) jobOf(backend string, m wire.Message, about *peer.Pending) *job {
	if about != nil {
		if f, ok := about.To.(*fetch); ok && f.h.j.guest == v {
			return f.h.j
		}
	}
	for _, j := range v.g.jobs.at(backend, relatedTask(m)) {
		if j.guest == v && !j.stateless {
			return j
		}
	}
	return nil
}

// jobAt returns the task of a guest's whose result a backend is asked for at the moment: the
// newest. What is asked without a word of why is best taken for one of its.
func (v *guest) jobAt(backend string) *job {
	t := &v.g.jobs
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range slices.Backward(t.all) {
		if j.guest == v && j.backend == backend && j.held.waits() {
			return j
		}
	}
	return nil
}

// waits reports whether a tasks/result is open.
func (h *held) waits() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fetch == nil {
		return false
	}
	select {
	case <-h.fetch.done:
		return false
	default:
		return true
	}
}

// asksOf returns the only task of a guest's to which a question belongs of which nobody
// knows whose it is, nil if there is none, or several.
func (t *jobs) asksOf(backend string, m wire.Message) *job {
	if all := t.at(backend, relatedTask(m)); len(all) == 1 && !all[0].stateless {
		return all[0]
	}
	return nil
}
