package gateway

import (
	"math"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/quota"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A statelessTask is a task of a stateless client. Such a client is only identified by its
// principal: the task's id is random and valid for that principal, whatever the next request
// declares.
//
//	registerTask ─ statelessTasks.add                         stateless_tasks.go
//	tasks/get, update, cancel ─ sendStatelessTaskRequest      stateless_tasks.go
//	   legacy backend ─ legacyTaskBridge                      legacy_task_*.go
//	subscriptions/listen with taskIds ─ pollTasks             task_listeners.go
type statelessTask struct {
	scopedID  // the backend, and its id
	g         *Gateway
	id        string // for the client
	principal string
	modern    bool             // the backend is modern
	client    *statelessClient // creator; retained while the task is at a legacy backend
	created   time.Time
	// keeps the call attributed to the client: the backend's later messages for the task are not
	// taken for another session's
	progress *peer.ProgressRelay

	bridge legacyTaskBridge // for a legacy backend

	// Guarded by statelessTasks.mu.
	timer   *time.Timer // expiry
	ended   bool
	removed bool
}

const (
	// maxStatelessTasks bounds the tasks of all stateless clients, maxTasks those of one
	// principal.
	maxStatelessTasks = 20_000
	// defaultTaskTTL is how long an unused task is kept if its backend reports no ttl.
	defaultTaskTTL = 24 * time.Hour
	// taskTTLGrace is how much longer than its ttl a task is kept.
	taskTTLGrace = time.Minute
)

// statelessTasks is the table of stateless clients' tasks. The zero value is empty.
type statelessTasks struct {
	mu          sync.Mutex
	byID        map[string]*statelessTask
	byBackendID map[scopedID][]*statelessTask // tasks of several connections may have the same id
	all         []*statelessTask              // the oldest first
	counter     quota.Counter[string]         // by principal: tasks and reserved slots
}

// reserve reserves a slot for a task. At a limit it evicts the oldest task that has ended;
// without one it returns false.
func (t *statelessTasks) reserve(principal string) bool {
	t.mu.Lock()
	var old *statelessTask
	switch {
	case t.counter.Of(principal) >= maxTasks:
		old = t.oldestLocked(func(st *statelessTask) bool {
			return st.ended && st.principal == principal
		})
	case t.counter.Total() >= maxStatelessTasks:
		old = t.oldestLocked(func(st *statelessTask) bool { return st.ended })
	default:
		old = &statelessTask{removed: true} // there is room
	}
	if old == nil {
		t.mu.Unlock()
		return false
	}
	removed := t.removeLocked(old)
	t.counter.Acquire(principal, math.MaxInt, math.MaxInt)
	t.mu.Unlock()
	if removed {
		old.release()
	}
	return true
}

func (t *statelessTasks) oldestLocked(match func(*statelessTask) bool) *statelessTask {
	if i := slices.IndexFunc(t.all, match); i >= 0 {
		return t.all[i]
	}
	return nil
}

// unreserve releases a reserved slot.
func (t *statelessTasks) unreserve(principal string) { t.counter.Release(principal) }

// add stores the task that a call has become, in the reserved slot; created is the backend's
// task.
func (t *statelessTasks) add(c *clientCall, backendID string, modern bool,
	created []byte) *statelessTask {
	st := &statelessTask{
		scopedID: scopedID{c.Route.Backend, backendID}, g: c.s.g, id: newID(),
		principal: c.stateless.principal,
		modern:    modern, client: c.stateless, created: time.Now(),
	}
	st.bridge.task, st.bridge.changed = st, make(chan struct{})
	st.progress = &peer.ProgressRelay{}
	if !modern {
		st.client.retain()
		// the extension has no progress
		st.progress = c.upstream.RelayProgress(func(wire.Message) {})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID, t.byBackendID = make(map[string]*statelessTask), make(map[scopedID][]*statelessTask)
	}
	t.byID[st.id] = st
	t.byBackendID[st.scopedID] = append(t.byBackendID[st.scopedID], st)
	t.all = append(t.all, st)
	st.timer = time.AfterFunc(defaultTaskTTL, func() { t.remove(st) })
	t.extendLocked(st, created)
	return st
}

// extend restarts a task's expiry: the ttl that its backend has reported, or defaultTaskTTL.
func (t *statelessTasks) extend(st *statelessTask, task []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extendLocked(st, task)
}

// noteUnknown marks a task that its backend no longer knows as ended: it may be evicted.
func (st *statelessTask) noteUnknown(resp peer.Response) {
	if resp.Err == nil && wire.ReadError(resp.Part(wire.PartError)).Code == wire.CodeInvalidParams {
		st.g.statelessTasks.mu.Lock()
		defer st.g.statelessTasks.mu.Unlock()
		st.ended = true
	}
}

func (t *statelessTasks) extendLocked(st *statelessTask, task []byte) {
	if st.removed {
		return
	}
	st.ended = st.ended || protocol.IsTerminalStatus(protocol.TaskStatus(task))
	remaining := defaultTaskTTL
	if ttl, ok := protocol.TaskTTL(task); ok {
		remaining = time.Until(st.created.Add(ttl)) + taskTTLGrace
	}
	st.timer.Reset(max(remaining, taskTTLGrace))
}

// remove removes an expired task.
func (t *statelessTasks) remove(st *statelessTask) {
	t.mu.Lock()
	removed := t.removeLocked(st)
	t.mu.Unlock()
	if removed {
		st.release()
	}
}

func (t *statelessTasks) removeLocked(st *statelessTask) bool {
	if st.removed {
		return false
	}
	st.removed = true
	st.timer.Stop()
	delete(t.byID, st.id)
	t.byBackendID[st.scopedID] = removeTask(t.byBackendID[st.scopedID], st)
	if len(t.byBackendID[st.scopedID]) == 0 {
		delete(t.byBackendID, st.scopedID)
	}
	t.all = removeTask(t.all, st)
	t.counter.Release(st.principal)
	return true
}

func removeTask(all []*statelessTask, st *statelessTask) []*statelessTask {
	if i := slices.Index(all, st); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// release releases the resources of a removed task.
func (st *statelessTask) release() {
	st.progress.Stop()
	if !st.modern {
		st.bridge.close()
		st.client.release()
	}
}

// removeAll removes all tasks.
func (t *statelessTasks) removeAll() {
	t.mu.Lock()
	all := slices.Clone(t.all)
	t.mu.Unlock()
	for _, st := range all {
		t.remove(st)
	}
}

// find returns a principal's task, nil if there is none.
func (t *statelessTasks) find(principal, id string) *statelessTask {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byID[id]; st != nil && st.principal == principal {
		return st
	}
	return nil
}

// withBackendID returns the tasks that a backend knows by an id.
func (t *statelessTasks) withBackendID(backend, id string) []*statelessTask {
	if id == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.byBackendID[scopedID{backend, id}])
}

// maxResultBytes bounds the stored results of tasks and suspended calls, in bytes. Beyond it
// results are not stored: backends are asked again.
const maxResultBytes = 64 << 20
