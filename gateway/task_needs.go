package gateway

import (
	"context"
	"slices"
	"strconv"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A need is a question of a task's, until it is answered.
type need struct {
	h   *held
	r   *peer.Request
	key string // by which the client knows it
}

// asking is how long it is waited for what a task asks that says that it needs input, and for
// how one ended that says that it has. What comes later is told by the next tasks/get.
const asking = time.Second

// gather waits for what the task asks, which it does while tasks/result is open.
func (h *held) gather(ctx context.Context) {
	f := h.open(true)
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
func (h *held) inputs() (all []protocol.InputRequest) {
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
	case !r.OnCancel(n):
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

// Cancelled implements peer.CancelHandler: the backend has taken the question back.
func (n *need) HandleCancel([]byte) { n.take() }

func (n *need) refuse() {
	decline(n.r, wire.Errorf(wire.CodeInternalError, "The client has not answered, and the task is over"))
}

// update answers what the task asks. What it does not ask, or not any more, is left alone.
func (h *held) update(responses []protocol.InputResponse) {
	for _, answer := range responses {
		h.mu.Lock()
		i := slices.IndexFunc(h.asked, func(n *need) bool {
			return n.key == answer.Key && fitsQuestion(n.r.Method(), answer.Result)
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

// jobOf returns the task of a guest's to which something belongs that a backend says, nil
// if it does not say.
func (v *guest) jobOf(backend string, m wire.Message, on peer.Origin) *job {
	if on.Call != nil {
		if f, ok := on.Call.Tag.(*fetch); ok && f.h.j.guest == v {
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
