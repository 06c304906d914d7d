package gateway

import (
	"bytes"
	"crypto/sha256"
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
	askedKeys map[keyHash]bool // input requests already sent to the client
	lastTask  []byte           // last known state, see storedState; nil = none
	final     bool             // lastTask no longer changes
	result    []byte           // result of a call that has not become a task at the backend
	budget    *quota.Bytes     // byte budget from which the size of result was acquired
}

// A keyHash is the hash of the key of an input request. Keys may be long.
type keyHash [sha256.Size]byte

func hashKey(key string) keyHash { return sha256.Sum256([]byte(key)) }

const (
	// maxTaskSize bounds the stored state of a task at a modern backend, in bytes.
	maxTaskSize = 8 << 10
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
	p.lastTask = p.storedState(task)
	return changed
}

// storedState returns a copy of the state of a task, in the form of 2025-11-25. The copy of a state
// that exceeds maxTaskSize contains only the status, the times and the id of the task.
func (p *polledTask) storedState(task []byte) []byte {
	if len(task) <= maxTaskSize {
		return bytes.Clone(task)
	}
	members := []wire.Member{{Key: "taskId", Text: wire.Quote(p.id)}}
	for _, key := range []string{"status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"} {
		const longest = 100
		if value, _ := wire.Lookup(task, key); value != nil && len(value) <= longest {
			members = append(members, wire.Member{Key: key, Text: value})
		}
	}
	return wire.EditObject(nil, nil, members...)
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
		key := hashKey(input.Key)
		if p.askedKeys[key] {
			continue
		}
		if len(p.askedKeys) >= maxTaskInputs {
			return nil, true
		}
		if p.askedKeys == nil {
			p.askedKeys = make(map[keyHash]bool)
		}
		p.askedKeys[key] = true
		newInputs = append(newInputs, input)
	}
	return newInputs, false
}

func (p *polledTask) unclaimInputs(inputs []protocol.InputRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, input := range inputs {
		delete(p.askedKeys, hashKey(input.Key))
	}
}
