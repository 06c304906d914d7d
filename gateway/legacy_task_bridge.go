package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// legacyTaskBridge is what a job needs whose backend is of the session era, and tells in several
// messages what the client is told in one: its status, by tasks/get; how it ended, by
// tasks/result; and what it asks, by requests of its own while that is open.
type legacyTaskBridge struct {
	task *statelessTask

	mu            sync.Mutex
	final         []byte              // the task, once it has ended and it is kept how
	result        *resultRequest      // the tasks/result that is open, or was answered; nil if none
	inputRequests []*taskInputRequest // not answered yet, the oldest first
	inputCount    int                 // how many there were
	changed       chan struct{}       // closed when something may have changed
	closed        bool
}

// A resultRequest is one tasks/result.
type resultRequest struct {
	bridge      *legacyTaskBridge
	early       bool // asked for before the task had ended
	upstream    peer.Call
	done        chan struct{}
	response    peer.Response // once it is done
	storedBytes int           // bytes of it for which there was room
}

// get returns the task as it is now.
func (b *legacyTaskBridge) get(ctx context.Context) peer.Response {
	if task, o, ok := b.finalState(); ok {
		return b.toModern(task, o)
	}
	resp := b.callBackend(ctx, protocol.MethodTasksGet)
	task := resp.Part(wire.PartResult)
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
			return peer.Response{Err: err}
		}
		if rr != nil {
			o = rr.outcome()
			b.keepFinal(task)
		}
	case protocol.TaskCancelled:
		b.keepFinal(task)
	case protocol.TaskInputRequired:
		b.gatherInputs(ctx)
		o.Inputs = b.inputs()
	default:
		o.Inputs = b.inputs()
	}
	return b.toModern(task, o)
}

func (b *legacyTaskBridge) toModern(task []byte, o protocol.TaskOutcome) peer.Response {
	if o.Error != nil {
		o.Error = protocol.ErrorToModern(o.Error, protocol.MethodToolsCall)
	}
	return peer.Response{Message: wire.NewResult("0", protocol.SetTaskID(protocol.TaskToModern(task, o), b.task.id))}
}

// callBackend asks about the task, on behalf of the guest that has made it.
func (b *legacyTaskBridge) callBackend(ctx context.Context, method string) peer.Response {
	return b.task.g.callTask(ctx, b.task.backend, b.request(method), &peer.Call{SessionID: b.task.client.id})
}

func (b *legacyTaskBridge) request(method string) wire.Message {
	return wire.NewRequest("0", method, taskParams(b.task.scopedID.id))
}

// taskParams returns the params of a request about a task.
func taskParams(id string) []byte { return wire.Encode(map[string]string{"taskId": id}) }

// finalState returns how the task ended, if that is kept.
func (b *legacyTaskBridge) finalState() (task []byte, o protocol.TaskOutcome, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.final != nil && protocol.TaskStatus(b.final) != protocol.TaskCancelled {
		o = b.result.outcome()
	}
	return b.final, o, b.final != nil
}

// keepFinal keeps a task that has ended, if it was cancelled, or if it is kept how it ended.
func (b *legacyTaskBridge) keepFinal(task []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cancelled := protocol.TaskStatus(task) == protocol.TaskCancelled
	if b.final == nil && (cancelled || b.result != nil && b.result.storedBytes > 0) {
		b.final = slices.Clone(task)
	}
}

// awaitResult returns the answer to tasks/result of a task that has ended, for which it asks if
// nobody has; nil if it does not come soon: the client is told that the task works, and
// asks again.
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
		if !rr.early || !errors.Is(rr.response.Err, peer.ErrCancelled) {
			return rr, rr.response.Err
		} // else somebody has renounced it
	}
	return nil, nil
}

// abandonResult is for a tasks/result that has not come soon; it reports false if it is there all
// the same. One that was open before the task had ended is given up: its server may
// have lost sight of it. The next who needs the answer asks anew.
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
		b.task.g.Backends.Cancel(b.task.backend, &rr.upstream, nil)
	}
	return true
}

// openResult returns the tasks/result that is open, or was answered. Early says that the task
// has not ended.
func (b *legacyTaskBridge) openResult(early bool) *resultRequest {
	b.mu.Lock()
	rr := b.result
	isNew := rr == nil
	if isNew {
		rr = &resultRequest{bridge: b, early: early, done: make(chan struct{})}
		rr.upstream.Handler, rr.upstream.Tag, rr.upstream.SessionID = rr, rr, b.task.client.id
		rr.upstream.PauseTimeout() // it is answered when the task has ended: no limit of time is for that
		if b.closed {
			rr.response.Err = peer.ErrCancelled
			close(rr.done)
			isNew = false
		} else {
			b.result = rr
		}
	}
	b.mu.Unlock()
	if isNew {
		b.task.g.Backends.Send(b.task.backend, b.request(protocol.MethodTasksResult), &rr.upstream)
	}
	return rr
}

// outcome reads an answer that has come.
func (rr *resultRequest) outcome() protocol.TaskOutcome {
	return protocol.TaskOutcome{Result: rr.response.Part(wire.PartResult), Error: rr.response.Part(wire.PartError)}
}

// Progressed implements peer.ResponseHandler.
func (rr *resultRequest) OnProgress(wire.Message) {}

// Done implements peer.ResponseHandler. After a failure, and if there is no room for the answer, the
// next who needs it asks anew.
func (rr *resultRequest) OnResponse(m wire.Message, err error) {
	rr.response = peer.Response{Message: m, Err: err}
	b := rr.bridge
	b.mu.Lock()
	var open []*taskInputRequest
	wanted := b.result == rr // nobody has renounced it
	if err == nil {
		open, b.inputRequests = b.inputRequests, nil
		if size := len(m.Raw()); wanted && !b.closed && b.task.g.resultBytes.acquire(size) {
			rr.storedBytes = size
		}
	}
	if wanted && rr.storedBytes == 0 {
		b.result = nil
	}
	b.notifyChangedLocked()
	close(rr.done)
	b.mu.Unlock()
	for _, ir := range open {
		ir.decline()
	}
}

// notifyChangedLocked wakes those who wait for news.
func (b *legacyTaskBridge) notifyChangedLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// notifyChanged has it looked at again, if somebody does.
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

// cancel asks the backend to end the task. That it has ended already is no failure, nor
// that the backend cannot: it is a wish.
func (b *legacyTaskBridge) cancel(ctx context.Context) peer.Response {
	if _, _, ended := b.finalState(); ended || !b.task.g.Backends.View().HasCapability(b.task.backend, "tasks", "cancel") {
		return acknowledged()
	}
	resp := b.callBackend(ctx, protocol.MethodTasksCancel)
	failure := resp.Part(wire.PartError)
	switch task := resp.Part(wire.PartResult); {
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

// close lets go of everything: the task is forgotten.
func (b *legacyTaskBridge) close() {
	b.mu.Lock()
	b.closed = true
	open, rr := b.inputRequests, b.result
	b.inputRequests = nil
	b.notifyChangedLocked()
	b.mu.Unlock()
	for _, ir := range open {
		ir.decline()
	}
	if rr == nil {
		return
	}
	select {
	case <-rr.done:
		b.task.g.resultBytes.release(rr.storedBytes)
	default:
		b.task.g.Backends.Cancel(b.task.backend, &rr.upstream, nil)
	}
}
