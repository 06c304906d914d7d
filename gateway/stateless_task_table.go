package gateway

import (
	"math"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/principal"
	"mcpgateway/internal/quota"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A statelessTask is a task of a stateless client. The task's id is random. The id is valid for all
// requests of the principal with the same profiles, even with other client metadata than those of
// the request that has created the task.
//
//	forwardTask ─ statelessTasks.add                         stateless_tasks.go
//	tasks/get, update, cancel ─ serveTaskRequest      stateless_call.go
//	   legacy backend ─ legacyTaskBridge                      legacy_task_*.go
//	subscriptions/listen with taskIds ─ pollTasks             task_listeners.go
type statelessTask struct {
	scopedID  // backend, and the backend's id
	g         *Gateway
	id        string // client's id
	principal *principal.Principal
	modern    bool             // the backend is modern
	client    *statelessClient // creator; retained if the backend is legacy
	created   time.Time
	// until it is called, the session of the call counts as busy at a legacy backend, so that the
	// backend's later messages about the task are not attributed to another session
	stopProgress func()

	bridge legacyTaskBridge // for a legacy backend

	// Guarded by statelessTasks.mu.
	timer   *time.Timer // expiry
	ended   bool
	removed bool
}

const (
	// maxStatelessTasks bounds the tasks of all stateless clients, and maxTasks those of one
	// principal.
	maxStatelessTasks = 20_000
	// defaultTaskTTL is the time for which a task is kept after the last report of its state, if
	// the backend reports no ttl.
	defaultTaskTTL = 24 * time.Hour
	// taskTTLGrace is the time for which a task is kept after the end of its ttl.
	taskTTLGrace = time.Minute
)

// statelessTasks is the table of the tasks of all stateless clients. The zero value is empty.
type statelessTasks struct {
	mu          sync.Mutex
	byID        map[string]*statelessTask
	byBackendID map[scopedID][]*statelessTask // several connections may issue the same id
	all         []*statelessTask              // the oldest first
	counter     quota.Counter[string]         // by key of the principal: tasks and reserved slots
}

// reserve reserves a slot for a task of a principal. At the limit of the principal it evicts the
// principal's oldest ended task, at the total limit the oldest ended task of all principals. It
// returns false if there is no such task.
func (t *statelessTasks) reserve(p *principal.Principal) bool {
	var evicted *statelessTask
	defer func() { evicted.release() }() // after mu is released
	t.mu.Lock()
	defer t.mu.Unlock()
	ofPrincipal := t.counter.Of(p.Key()) >= maxTasks
	if ofPrincipal || t.counter.Total() >= maxStatelessTasks {
		i := slices.IndexFunc(t.all, func(st *statelessTask) bool {
			return st.ended && (!ofPrincipal || st.principal.Is(p))
		})
		if i < 0 {
			return false
		}
		evicted = t.all[i]
		t.removeLocked(evicted)
	}
	t.counter.Acquire(p.Key(), math.MaxInt, math.MaxInt)
	return true
}

// unreserve releases a reserved slot.
func (t *statelessTasks) unreserve(p *principal.Principal) { t.counter.Release(p.Key()) }

// add stores the task that a resumable call has become, in the reserved slot. The argument created
// is the backend's CreateTaskResult. The task belongs to the client that has sent the call to the
// backend: another client of the principal may have continued it, and may have other connections.
func (t *statelessTasks) add(c *statelessCall, backendID string, modern bool,
	created []byte) *statelessTask {
	st := &statelessTask{
		scopedID: scopedID{c.Route.Backend, backendID}, g: c.g, id: newID(),
		principal: c.client.principal,
		modern:    modern, client: c.resumable.client, created: time.Now(),
	}
	st.bridge.task, st.bridge.changed = st, make(chan struct{})
	st.stopProgress = func() {}
	if !modern {
		st.client.retain()
		// the extension has no progress
		st.stopProgress = c.backendCall.RelayProgress(func(wire.Message) {})
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

// extend sets the expiry of a task from the state that the backend has reported: taskTTLGrace
// after the end of the ttl, but not earlier than taskTTLGrace from now, or defaultTaskTTL from now
// if there is no ttl. It also marks the task as ended if the status is terminal.
func (t *statelessTasks) extend(st *statelessTask, task []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extendLocked(st, task)
}

// noteUnknown marks a task as ended if the response means that the backend no longer knows the
// task. The task may then be evicted.
func (st *statelessTask) noteUnknown(resp contract.BackendResponse) {
	if resp.Err == nil &&
		wire.ReadError(resp.Message.Part(wire.PartError)).Code == wire.CodeInvalidParams {
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

// remove removes a task and releases its resources, unless the task was already removed.
func (t *statelessTasks) remove(st *statelessTask) {
	t.mu.Lock()
	removed := st.removed
	if !removed {
		t.removeLocked(st)
	}
	t.mu.Unlock()
	if !removed {
		st.release()
	}
}

// removeLocked removes a task. The method release must be called after mu is released.
func (t *statelessTasks) removeLocked(st *statelessTask) {
	st.removed = true
	st.timer.Stop()
	delete(t.byID, st.id)
	t.byBackendID[st.scopedID] = removeTask(t.byBackendID[st.scopedID], st)
	if len(t.byBackendID[st.scopedID]) == 0 {
		delete(t.byBackendID, st.scopedID)
	}
	t.all = removeTask(t.all, st)
	t.counter.Release(st.principal.Key())
}

func removeTask(all []*statelessTask, st *statelessTask) []*statelessTask {
	if i := slices.Index(all, st); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// release releases the resources of a removed task. A nil st is ignored.
func (st *statelessTask) release() {
	if st == nil {
		return
	}
	st.stopProgress()
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

// find returns the task with this id that belongs to the principal and its profiles; nil if there
// is none.
func (t *statelessTasks) find(p *principal.Principal, id string) *statelessTask {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byID[id]; st != nil && st.principal.HasViewOf(p) {
		return st
	}
	return nil
}

// withBackendID returns the tasks for which a backend has issued this id, and whose clients a
// message with this attribution may be for.
func (t *statelessTasks) withBackendID(
	backend string, from contract.Attribution, id string,
) []*statelessTask {
	if id == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.byBackendID[scopedID{backend, id}]),
		func(st *statelessTask) bool {
			return from.IsFor != nil && !from.IsFor(st.principal.Key())
		})
}

// maxResultBytes bounds the stored results of tasks and suspended calls, in bytes. At the limit
// the result of a legacy task is requested again for each client request, a result for a session
// client is not converted to a task, and the response to a suspended call is lost.
const maxResultBytes = 64 << 20
