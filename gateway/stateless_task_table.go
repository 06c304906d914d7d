package gateway

import (
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A statelessTask is a task of a client that has no session. There is nothing by which such a
// client could be told from another but who it is: so the id that it is given is random,
// and good for its principal alone, whatever it declares in the next request.
//
//	call.begun ─ jobs.add                              task_guest.go
//	tasks/get, update, cancel ─ statelessTaskSpec ─ call.ofJob     task_guest.go
//	   of a backend of the session era ─ held          task_held.go, task_needs.go
//	subscriptions/listen with taskIds ─ listen.watch   task_watch.go
type statelessTask struct {
	scopedID  // the backend, and the id that it gave
	g         *Gateway
	id        string // by which its client knows it
	principal string
	modern    bool             // the backend is
	client    *statelessClient // for whom it was made; it stays while a backend of the session era has the task
	created   time.Time
	progress  *peer.ProgressRelay // keeps the backend from taking what it asks for somebody else's

	bridge legacyTaskBridge // of a backend of the session era

	// Guarded by jobs.mu.
	timer   *time.Timer // forgets it
	ended   bool
	removed bool
}

const (
	// maxStatelessTasks bounds the tasks of clients without sessions, of all of them; maxTasks those
	// of one principal.
	maxStatelessTasks = 20_000
	// defaultTaskTTL is how long a task is remembered that nobody asks about, if its backend has
	// not said how long it lives.
	defaultTaskTTL = 24 * time.Hour
	// taskTTLGrace is how much longer than it lives a task is remembered.
	taskTTLGrace = time.Minute
)

// statelessTasks are those there are. The zero value is none.
type statelessTasks struct {
	mu           sync.Mutex
	byID         map[string]*statelessTask
	byBackendID  map[scopedID][]*statelessTask // those of several connections may have one id
	all          []*statelessTask              // the oldest first
	perPrincipal map[string]int                // principal → how many, and how many places are kept
	reserved     int                           // places
}

// reserve keeps a place for a task that may come, if there is one: the oldest that has ended
// makes room.
func (t *statelessTasks) reserve(principal string) bool {
	t.mu.Lock()
	var old *statelessTask
	switch {
	case t.perPrincipal[principal] >= maxTasks:
		old = t.oldestLocked(func(st *statelessTask) bool { return st.ended && st.principal == principal })
	case len(t.all)+t.reserved >= maxStatelessTasks:
		old = t.oldestLocked(func(st *statelessTask) bool { return st.ended })
	default:
		old = &statelessTask{removed: true} // there is room
	}
	if old == nil {
		t.mu.Unlock()
		return false
	}
	removed := t.removeLocked(old)
	if t.perPrincipal == nil {
		t.perPrincipal = make(map[string]int)
	}
	t.perPrincipal[principal]++
	t.reserved++
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

// unreserve gives back a place that book has kept.
func (t *statelessTasks) unreserve(principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reserved--
	t.decrementLocked(principal)
}

func (t *statelessTasks) decrementLocked(principal string) {
	if t.perPrincipal[principal]--; t.perPrincipal[principal] == 0 {
		delete(t.perPrincipal, principal)
	}
}

// add enters the task that a call of a guest's has become; made is what the backend said
// of it. It takes the place that was kept for the call.
func (t *statelessTasks) add(c *clientCall, backendID string, modern bool, made []byte) *statelessTask {
	st := &statelessTask{
		scopedID: scopedID{c.Route.Backend, backendID}, g: c.s.g, id: newID(), principal: c.stateless.principal,
		modern: modern, client: c.stateless, created: time.Now(),
	}
	st.bridge.task, st.bridge.changed = st, make(chan struct{})
	st.progress = &peer.ProgressRelay{}
	if !modern {
		st.client.retain()
		st.progress = c.upstream.RelayProgress(func(wire.Message) {}) // "progress" is not of the extension
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID, t.byBackendID = make(map[string]*statelessTask), make(map[scopedID][]*statelessTask)
	}
	t.byID[st.id] = st
	t.byBackendID[st.scopedID] = append(t.byBackendID[st.scopedID], st)
	t.all = append(t.all, st)
	t.reserved--
	st.timer = time.AfterFunc(defaultTaskTTL, func() { t.remove(st) })
	t.extendLocked(st, made)
	return st
}

// extend has a task stay for as long as its backend says now, or for a while if it does
// not say.
func (t *statelessTasks) extend(st *statelessTask, task []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extendLocked(st, task)
}

// noteUnknown notes that a backend does not know a task any more: then it may make room.
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

// remove takes a task out: its time is over.
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
	t.byBackendID[st.scopedID] = without(t.byBackendID[st.scopedID], st)
	if len(t.byBackendID[st.scopedID]) == 0 {
		delete(t.byBackendID, st.scopedID)
	}
	t.all = without(t.all, st)
	t.decrementLocked(st.principal)
	return true
}

func without(all []*statelessTask, st *statelessTask) []*statelessTask {
	if i := slices.Index(all, st); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// release lets go of what a task has that was taken out.
func (st *statelessTask) release() {
	st.progress.Stop()
	if !st.modern {
		st.bridge.close()
		st.client.release()
	}
}

// removeAll is forget for all of them.
func (t *statelessTasks) removeAll() {
	t.mu.Lock()
	all := slices.Clone(t.all)
	t.mu.Unlock()
	for _, st := range all {
		t.remove(st)
	}
}

// find returns the task that a principal knows by an id, nil if there is none.
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

// Jobs returns how many tasks of clients that have no session are remembered.
func (g *Gateway) Jobs() int {
	g.statelessTasks.mu.Lock()
	defer g.statelessTasks.mu.Unlock()
	return len(g.statelessTasks.all)
}

// A byteBudget bounds what is kept of how tasks ended, in bytes. The zero value is empty.
type byteBudget struct {
	mu   sync.Mutex
	used int
}

// maxResultBytes is how much may be kept in all. Beyond it backends are asked again.
const maxResultBytes = 64 << 20

func (b *byteBudget) acquire(bytes int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+bytes > maxResultBytes {
		return false
	}
	b.used += bytes
	return true
}

func (b *byteBudget) release(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
}
