package gateway

import (
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/quota"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A polledTask is a session client's task at a modern backend. The backend decides whether a call
// becomes a task, because the gateway declares the tasks extension for session clients
// (contract.BackendRequest.AllowTask). A client that has asked for a task gets the task, with an id
// from [sessionTasks]. For any other client the call stays open: the gateway polls the task,
// without a time limit, until the task has ended.
//
//	sessionCall.finishRoundTrips
//	   ├ the client asked for a task: sessionTasks.addPolled
//	   └ else taskPoller.untilDone: tasks/get …, answerInputs (task_poller.go)
//	tasks/get, result, cancel ─ taskPoller.serve (polled_task_requests.go)
//	tasks/list ─ session_task_list.go
type polledTask struct {
	scopedID
	clientID string // "" = the client does not know the task

	mu        sync.Mutex
	askedKeys map[string]bool // input requests already sent to the client
	lastTask  []byte          // last known state, in the form of 2025-11-25; nil = none
	final     bool            // lastTask no longer changes
	result    []byte          // result of a call that has not become a task at the backend
	budget    *quota.Bytes    // byte budget from which the size of result was acquired
}

const (
	// maxTaskInputs bounds the input requests of one task.
	maxTaskInputs = 1024
	// maxPollFailures bounds the consecutive failed attempts to poll a task.
	maxPollFailures = 5
	// progressInterval is the interval of the progress notifications that the gateway creates.
	progressInterval = 10 * time.Second
)

var errTaskEnded = wire.Errorf(wire.CodeInvalidParams, "Invalid params: the task has ended")

// cancelledError returns the response to a call whose task was cancelled.
func (p *polledTask) cancelledError() wire.Message {
	return wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError,
		"backend %s: the task was cancelled", p.backend))
}

// setStatus records the state of a task and reports whether its status has changed. It does not
// replace a final state.
func (p *polledTask) setStatus(task []byte) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final {
		return false
	}
	changed = p.lastTask != nil && protocol.TaskStatus(p.lastTask) != protocol.TaskStatus(task)
	p.lastTask = append([]byte(nil), task...)
	return changed
}

// last returns the last known state of the task; final is true if this state no longer changes.
func (p *polledTask) last() (task []byte, final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastTask, p.final
}

// release releases the stored result. A nil p is ignored.
func (p *polledTask) release() {
	if p != nil && p.result != nil {
		p.budget.Release(len(p.result))
	}
}

// claimInputs returns the input requests that were not yet sent to the client, and marks them as
// sent. Full is true if the task exceeds maxTaskInputs.
func (p *polledTask) claimInputs(
	inputs []protocol.InputRequest) (newInputs []protocol.InputRequest, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, input := range inputs {
		if p.askedKeys[input.Key] {
			continue
		}
		if len(p.askedKeys) >= maxTaskInputs {
			return nil, true
		}
		if p.askedKeys == nil {
			p.askedKeys = make(map[string]bool)
		}
		input.Key = strings.Clone(input.Key)
		p.askedKeys[input.Key] = true
		newInputs = append(newInputs, input)
	}
	return newInputs, false
}

func (p *polledTask) unclaimInputs(inputs []protocol.InputRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, input := range inputs {
		delete(p.askedKeys, input.Key)
	}
}
