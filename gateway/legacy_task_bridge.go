package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A legacyTaskBridge serves a task at a legacy backend to modern clients. It combines three parts
// that the backend sends separately: the status (tasks/get), the result (tasks/result), and the
// input requests, which the backend sends while tasks/result is open.
type legacyTaskBridge struct {
	task *statelessTask

	mu      sync.Mutex
	final   []byte         // state of the ended task, in the byte budget; nil = none is stored
	result  *resultRequest // open or answered; nil = none
	inputs  mrtr.Queue     // input requests of the backend
	changed chan struct{}  // closed and replaced at each possible change
	closed  bool
}

// A resultRequest is a tasks/result request to the backend.
type resultRequest struct {
	bridge      *legacyTaskBridge
	early       bool // sent before the task had ended
	backendCall contract.BackendCall
	done        chan struct{}
	response    contract.BackendResponse // valid once done is closed
	storedBytes int                      // acquired for the response from the byte budget
}

// get returns the response to tasks/get.
func (b *legacyTaskBridge) get(ctx context.Context) contract.BackendResponse {
	if task, o, ok := b.finalState(); ok {
		return b.toModern(task, o)
	}
	resp := b.callBackend(ctx, protocol.MethodTasksGet)
	task := resp.Message.Part(wire.PartResult)
	if resp.Err != nil || task == nil {
		b.task.noteUnknown(resp)
		return resp
	}
	b.task.g.statelessTasks.extend(b.task, task)
	var o protocol.TaskOutcome
	switch protocol.TaskStatus(task) {
	case protocol.TaskCompleted, protocol.TaskFailed:
		rr, err := b.awaitResult(ctx)
		if err != nil {
			return contract.BackendResponse{Err: err}
		}
		if rr != nil {
			o = rr.outcome()
			b.keepFinal(task)
		}
	case protocol.TaskCancelled:
		b.keepFinal(task)
	case protocol.TaskInputRequired:
		b.gatherInputs(ctx)
		o.Inputs = b.inputRequests()
	default:
		o.Inputs = b.inputRequests()
	}
	return b.toModern(task, o)
}

func (b *legacyTaskBridge) toModern(task []byte, o protocol.TaskOutcome) contract.BackendResponse {
	if o.Error != nil {
		o.Error = protocol.ErrorToModern(o.Error, protocol.MethodToolsCall)
	}
	return contract.BackendResponse{Message: wire.NewResult("0",
		protocol.SetTaskID(protocol.TaskToModern(task, o), b.task.id))}
}

// callBackend sends a request about the task, on behalf of the client that created it.
func (b *legacyTaskBridge) callBackend(ctx context.Context,
	method string) contract.BackendResponse {
	return callTask(ctx, b.task.g.Backends, b.task.backend,
		contract.BackendRequest{Session: b.task.client.id, Message: b.request(method)})
}

func (b *legacyTaskBridge) request(method string) wire.Message {
	return wire.NewRequest("0", method, taskParams(b.task.scopedID.id))
}

// taskParams returns the params of a request about a task.
func taskParams(id string) []byte { return wire.Encode(map[string]string{"taskId": id}) }

// finalState returns the stored task and its outcome; ok is false if they are not stored.
func (b *legacyTaskBridge) finalState() (task []byte, o protocol.TaskOutcome, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.final != nil && protocol.TaskStatus(b.final) != protocol.TaskCancelled {
		o = b.result.outcome()
	}
	return b.final, o, b.final != nil
}

// keepFinal stores the state of a task that has ended, if the task was cancelled or its result is
// stored, and if the byte budget is not exhausted.
func (b *legacyTaskBridge) keepFinal(task []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cancelled := protocol.TaskStatus(task) == protocol.TaskCancelled
	if b.final == nil && !b.closed &&
		(cancelled || b.result != nil && b.result.storedBytes > 0) &&
		b.task.g.resultBytes.Acquire(len(task), maxResultBytes) {
		b.final = slices.Clone(task)
	}
}

// awaitResult returns the answered tasks/result of a task that has ended, and sends the request if
// none is open. It returns nil if there is no response within inputWait. The client then gets the
// status working and polls again. It returns an error if the request has failed or ctx is done.
func (b *legacyTaskBridge) awaitResult(ctx context.Context) (*resultRequest, error) {
	timer := time.NewTimer(inputWait)
	defer timer.Stop()
	for late := false; !late; {
		rr := b.openResult(false)
		select {
		case <-rr.done:
		case <-timer.C:
			if late = true; b.abandonResult(rr) {
				return nil, nil
			}
		case <-ctx.Done():
			return nil, peer.ErrCancelled
		}
		if !rr.refused() && (!rr.early || !errors.Is(rr.response.Err, peer.ErrCancelled)) {
			return rr, rr.response.Err
		} // refused, or abandoned by another caller: send a new request
	}
	return nil, nil
}

// abandonResult handles a tasks/result without a response in time. It returns false if the
// response has just arrived. A request that was sent before the task had ended is cancelled,
// because the backend may have lost it; the next caller sends a new request.
func (b *legacyTaskBridge) abandonResult(rr *resultRequest) bool {
	b.mu.Lock()
	select {
	case <-rr.done:
		b.mu.Unlock()
		return false
	default:
	}
	stale := rr.early && b.result == rr
	if stale {
		b.result = nil
	}
	b.mu.Unlock()
	if stale {
		rr.backendCall.Cancel(nil)
	}
	return true
}

// openResult returns the open or answered tasks/result, and sends a request if there is none.
// Early is true if the task has not ended. After close, openResult sends nothing and returns a
// request that has failed with peer.ErrCancelled.
func (b *legacyTaskBridge) openResult(early bool) *resultRequest {
	b.mu.Lock()
	rr := b.result
	isNew := rr == nil
	if isNew {
		rr = &resultRequest{bridge: b, early: early, done: make(chan struct{})}
		if b.closed {
			rr.response.Err = peer.ErrCancelled
			close(rr.done)
			isNew = false
		} else {
			rr.backendCall = b.task.g.Backends.NewCall(b.task.backend, contract.BackendRequest{
				Message: b.request(protocol.MethodTasksResult), Session: b.task.client.id}, rr)
			rr.backendCall.PauseTimeout() // no timeout: the response comes when the task has ended
			b.result = rr
		}
	}
	b.mu.Unlock()
	if isNew {
		rr.backendCall.Send()
	}
	return rr
}

// outcome returns the task's outcome as contained in the response.
func (rr *resultRequest) outcome() protocol.TaskOutcome {
	return protocol.TaskOutcome{Result: rr.response.Message.Part(wire.PartResult),
		Error: rr.response.Message.Part(wire.PartError)}
}

// refused reports whether the backend has responded with an error to a request that was sent before
// the task had ended. Such an error is not the outcome of the task. If it is, the backend responds
// with it again after the task has ended.
func (rr *resultRequest) refused() bool {
	return rr.early && rr.response.Message.Part(wire.PartError) != nil
}

// OnProgress implements contract.CallHandler.
func (rr *resultRequest) OnProgress(wire.Message) {}

// OnResponse implements contract.CallHandler. If the request failed or was refused, or the byte
// budget is exhausted, the response is not stored and the next caller sends a new request. When the
// backend has responded with the outcome, OnResponse declines the open input requests.
func (rr *resultRequest) OnResponse(resp contract.BackendResponse) {
	rr.response = resp
	b := rr.bridge
	b.mu.Lock()
	var open []*mrtr.PendingInput
	wanted := b.result == rr // not abandoned
	if resp.Err == nil && !rr.refused() {
		open = b.inputs.TakeAll()
		size := len(resp.Message.Raw())
		if wanted && !b.closed && b.task.g.resultBytes.Acquire(size, maxResultBytes) {
			rr.storedBytes, rr.response.Message = size, resp.Message.Clone()
		}
	}
	if wanted && rr.storedBytes == 0 {
		b.result = nil
	}
	if rr.storedBytes > 0 { // otherwise a poll would cause the next one at once
		b.notifyChangedLocked()
	}
	close(rr.done)
	b.mu.Unlock()
	declineEnded(open)
}

// notifyChangedLocked wakes the goroutines that wait for changes.
func (b *legacyTaskBridge) notifyChangedLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// notifyChanged wakes the goroutines that wait for changes.
func (b *legacyTaskBridge) notifyChanged() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notifyChangedLocked()
}

func (b *legacyTaskBridge) changes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// cancel sends tasks/cancel. Even if the task has already ended, or the backend does not support
// tasks/cancel, the client gets an acknowledgement, because an acknowledgement does not guarantee
// that the task is cancelled. Any other error is returned.
func (b *legacyTaskBridge) cancel(ctx context.Context) contract.BackendResponse {
	if _, _, ended := b.finalState(); ended ||
		!b.task.g.Backends.ViewFor(b.task.principal).HasCapability(b.task.backend,
			"tasks", "cancel") {
		return acknowledged()
	}
	resp := b.callBackend(ctx, protocol.MethodTasksCancel)
	failure := resp.Message.Part(wire.PartError)
	switch task := resp.Message.Part(wire.PartResult); {
	case resp.Err != nil:
		return resp
	case failure != nil && wire.ReadError(failure).Code != wire.CodeInvalidParams:
		return resp
	case failure == nil && protocol.TaskStatus(task) == protocol.TaskCancelled:
		b.task.g.statelessTasks.extend(b.task, task)
		b.keepFinal(task)
	}
	b.notifyChanged()
	return acknowledged()
}

// close declines the open input requests of a removed task, and releases the stored state and the
// result, or cancels the open tasks/result. It is called once.
func (b *legacyTaskBridge) close() {
	b.mu.Lock()
	b.closed = true
	b.task.g.resultBytes.Release(len(b.final))
	open, rr := b.inputs.TakeAll(), b.result
	b.notifyChangedLocked()
	b.mu.Unlock()
	declineEnded(open)
	if rr == nil {
		return
	}
	select {
	case <-rr.done:
		b.task.g.resultBytes.Release(rr.storedBytes)
	default:
		rr.backendCall.Cancel(nil)
	}
}
