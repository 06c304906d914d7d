package gateway

import (
	"context"
	"slices"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

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
		if len(b.inputRequests()) > 0 {
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

// inputRequests returns the unanswered input requests.
func (b *legacyTaskBridge) inputRequests() []protocol.InputRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inputs.Requests(b.task.backend)
}

// addInputRequest adds a request of the backend on behalf of the task. It declines the request if
// the client has not declared the capability, if the task has ended, or at mrtr.MaxInputRequests.
func (b *legacyTaskBridge) addInputRequest(r *peer.Request) {
	if err := mrtr.CheckDeclared(b.task.client.meta.Capabilities, r.Message); err != nil {
		decline(r, err)
		return
	}
	var in *mrtr.PendingInput
	b.mu.Lock()
	if !b.closed && b.final == nil {
		in = b.inputs.Add(r)
	}
	if in != nil {
		b.notifyChangedLocked()
	}
	b.mu.Unlock()
	withdraw := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inputs.Remove(in)
	}
	switch {
	case in == nil:
		decline(r, wire.Errorf(wire.CodeInternalError,
			"The task has ended, or has too many open requests"))
	case !r.OnCancel(cancelFunc(withdraw)):
		withdraw() // already cancelled
	}
}

// declineEnded declines the open input requests of a task that has ended.
func declineEnded(open []*mrtr.PendingInput) {
	for _, in := range open {
		decline(in.Request, wire.Errorf(wire.CodeInternalError,
			"The client has not responded, and the task has ended"))
	}
}

// answerInputs responds to the task's input requests. Responses with other keys, and invalid
// responses, are ignored.
func (b *legacyTaskBridge) answerInputs(responses []protocol.InputResponse) {
	b.mu.Lock()
	answered := b.inputs.TakeAnswered(func(in *mrtr.PendingInput) []byte {
		for _, response := range responses {
			if response.Key == in.Key && mrtr.IsValidResponse(in.Method(), response.Result) {
				return response.Result
			}
		}
		return nil
	})
	b.mu.Unlock()
	for _, a := range answered {
		a.Reply(a.Result)
	}
}

// namedTask returns the client's task at a legacy backend on whose tasks/result stream a message
// arrived, or that the message names; nil if there is none.
func (sc *statelessClient) namedTask(backend string, from contract.Attribution,
	m wire.Message) *statelessTask {
	if rr, ok := from.Handler.(*resultRequest); ok && rr.bridge.task.client == sc {
		return rr.bridge.task
	}
	for _, st := range sc.g.statelessTasks.withBackendID(backend, from, relatedTask(m)) {
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
