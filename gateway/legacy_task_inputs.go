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

// A taskInputRequest is a question of a task's, until it is answered.
type taskInputRequest struct {
	bridge *legacyTaskBridge
	r      *peer.Request
	key    string // by which the client knows it
}

// inputWait is how long it is waited for what a task asks that says that it needs input, and for
// how one ended that says that it has. What comes later is told by the next tasks/get.
const inputWait = time.Second

// gatherInputs waits for what the task asks, which it does while tasks/result is open.
func (b *legacyTaskBridge) gatherInputs(ctx context.Context) {
	rr := b.openResult(true)
	ctx, cancel := context.WithTimeout(ctx, inputWait)
	defer cancel()
	for first := true; ; first = false {
		changed := b.changes()
		if n := len(b.inputs()); n > 0 {
			if !first {
				pause(ctx, gatherTime) // for further ones
			}
			return
		}
		select {
		case <-changed:
		case <-rr.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// inputs are the questions that are open.
func (b *legacyTaskBridge) inputs() (all []protocol.InputRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ir := range b.inputRequests {
		all = append(all, toInput(ir.key, b.task.backend, ir.r.Message))
	}
	return all
}

// addInputRequest takes a question of the task's.
func (b *legacyTaskBridge) addInputRequest(r *peer.Request) {
	if err := checkDeclared(b.task.client.meta.Capabilities, r.Message); err != nil {
		decline(r, err)
		return
	}
	ir := &taskInputRequest{bridge: b, r: r}
	b.mu.Lock()
	ok := !b.closed && b.final == nil && len(b.inputRequests) < maxInputRequests
	if ok {
		b.inputCount++
		ir.key = "q" + strconv.Itoa(b.inputCount)
		b.inputRequests = append(b.inputRequests, ir)
		b.notifyChangedLocked()
	}
	b.mu.Unlock()
	switch {
	case !ok:
		decline(r, wire.Errorf(wire.CodeInternalError, "The task has ended, or has asked too much at one time"))
	case !r.OnCancel(ir):
		ir.claim() // the backend is gone
	}
}

// claim removes the question from those that are open, for whoever gets true.
func (ir *taskInputRequest) claim() bool {
	ir.bridge.mu.Lock()
	defer ir.bridge.mu.Unlock()
	i := slices.Index(ir.bridge.inputRequests, ir)
	if i < 0 {
		return false
	}
	ir.bridge.inputRequests = slices.Delete(ir.bridge.inputRequests, i, i+1)
	return true
}

// Cancelled implements peer.CancelHandler: the backend has taken the question back.
func (ir *taskInputRequest) HandleCancel([]byte) { ir.claim() }

func (ir *taskInputRequest) decline() {
	decline(ir.r, wire.Errorf(wire.CodeInternalError, "The client has not answered, and the task is over"))
}

// answerInputs answers what the task asks. What it does not ask, or not any more, is left alone.
func (b *legacyTaskBridge) answerInputs(responses []protocol.InputResponse) {
	for _, answer := range responses {
		b.mu.Lock()
		i := slices.IndexFunc(b.inputRequests, func(ir *taskInputRequest) bool {
			return ir.key == answer.Key && isValidInputResponse(ir.r.Method(), answer.Result)
		})
		var ir *taskInputRequest
		if i >= 0 {
			ir = b.inputRequests[i]
			b.inputRequests = slices.Delete(b.inputRequests, i, i+1)
		}
		b.mu.Unlock()
		if ir != nil {
			ir.r.Reply(answer.Result)
		}
	}
}

// namedTask returns the task of a guest's to which something belongs that a backend says, nil
// if it does not say.
func (sc *statelessClient) namedTask(backend string, m wire.Message, origin peer.Origin) *statelessTask {
	if origin.Call != nil {
		if rr, ok := origin.Call.Tag.(*resultRequest); ok && rr.bridge.task.client == sc {
			return rr.bridge.task
		}
	}
	for _, st := range sc.g.statelessTasks.withBackendID(backend, relatedTask(m)) {
		if st.client == sc && !st.modern {
			return st
		}
	}
	return nil
}

// taskAwaitingResult returns the task of a guest's whose result a backend is asked for at the moment: the
// newest. What is asked without a word of why is best taken for one of its.
func (sc *statelessClient) taskAwaitingResult(backend string) *statelessTask {
	t := &sc.g.statelessTasks
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range slices.Backward(t.all) {
		if st.client == sc && st.backend == backend && st.bridge.awaitsResult() {
			return st
		}
	}
	return nil
}

// awaitsResult reports whether a tasks/result is open.
func (b *legacyTaskBridge) awaitsResult() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.result == nil {
		return false
	}
	select {
	case <-b.result.done:
		return false
	default:
		return true
	}
}

// soleTaskFor returns the only task of a guest's to which a question belongs of which nobody
// knows whose it is, nil if there is none, or several.
func (t *statelessTasks) soleTaskFor(backend string, m wire.Message) *statelessTask {
	if all := t.withBackendID(backend, relatedTask(m)); len(all) == 1 && !all[0].modern {
		return all[0]
	}
	return nil
}
