package gateway

import (
	"context"
	"slices"
	"strconv"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A taskInputRequest is an unanswered request of a legacy backend on behalf of a task.
type taskInputRequest struct {
	bridge *legacyTaskBridge
	r      *peer.Request
	key    string // in inputRequests and inputResponses
}

// inputWait bounds the wait for the input requests of a task with the status input_required, and
// for the result of an ended task. The next tasks/get returns input requests and results that
// arrive later.
const inputWait = time.Second

// gatherInputs waits up to inputWait for the task's input requests. The backend sends them while
// tasks/result is open.
func (b *legacyTaskBridge) gatherInputs(ctx context.Context) {
	rr := b.openResult(true)
	ctx, cancel := context.WithTimeout(ctx, inputWait)
	defer cancel()
	for first := true; ; first = false {
		changed := b.changes()
		if n := len(b.inputs()); n > 0 {
			if !first {
				pause(ctx, gatherTime) // for further input requests
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

// inputs returns the unanswered input requests.
func (b *legacyTaskBridge) inputs() (all []protocol.InputRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ir := range b.inputRequests {
		all = append(all, mrtr.ToInput(ir.key, b.task.backend, ir.r.Message))
	}
	return all
}

// addInputRequest adds a request of the backend on behalf of the task. It declines the request if
// the client has not declared the capability, if the task has ended, or at maxInputRequests.
func (b *legacyTaskBridge) addInputRequest(r *peer.Request) {
	if err := mrtr.CheckDeclared(b.task.client.meta.Capabilities, r.Message); err != nil {
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
		decline(r, wire.Errorf(wire.CodeInternalError,
			"The task has ended, or has too many open requests"))
	case !r.OnCancel(ir):
		ir.claim() // already cancelled
	}
}

// claim removes the request from the unanswered requests. It returns true to one caller only.
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

// HandleCancel implements peer.CancelHandler: the backend has cancelled its request.
func (ir *taskInputRequest) HandleCancel([]byte) { ir.claim() }

func (ir *taskInputRequest) decline() {
	decline(ir.r, wire.Errorf(wire.CodeInternalError,
		"The client has not responded, and the task has ended"))
}

// answerInputs responds to the task's input requests. Responses with other keys, and invalid
// responses, are ignored.
func (b *legacyTaskBridge) answerInputs(responses []protocol.InputResponse) {
	for _, answer := range responses {
		b.mu.Lock()
		i := slices.IndexFunc(b.inputRequests, func(ir *taskInputRequest) bool {
			return ir.key == answer.Key && mrtr.IsValidResponse(ir.r.Method(), answer.Result)
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

// namedTask returns the client's task at a legacy backend on whose tasks/result stream a message
// arrived, or that the message names; nil if there is none.
func (sc *statelessClient) namedTask(backend string, from contract.Attribution,
	m wire.Message) *statelessTask {
	if rr, ok := from.Handler.(*resultRequest); ok && rr.bridge.task.client == sc {
		return rr.bridge.task
	}
	for _, st := range sc.g.statelessTasks.withBackendID(backend, relatedTask(m)) {
		if st.client == sc && !st.modern {
			return st
		}
	}
	return nil
}

// taskAwaitingResult returns the client's newest task with an open tasks/result at the backend;
// nil = none. A request that names no task most likely belongs to this task.
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

// soleTaskFor returns the only task, at a legacy backend, to which a request of an uncertain
// session is related; nil if there is no such task, or if there are several.
func (t *statelessTasks) soleTaskFor(backend string, m wire.Message) *statelessTask {
	if all := t.withBackendID(backend, relatedTask(m)); len(all) == 1 && !all[0].modern {
		return all[0]
	}
	return nil
}
