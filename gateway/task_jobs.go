package gateway

import (
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A job is a task of a client that has no session. There is nothing by which such a
// client could be told from another but who it is: so the id that it is given is random,
// and good for its principal alone, whatever it declares in the next request.
//
//	call.begun ─ jobs.add                              task_guest.go
//	tasks/get, update, cancel ─ toJob ─ call.ofJob     task_guest.go
//	   of a backend of the session era ─ held          task_held.go, task_needs.go
//	subscriptions/listen with taskIds ─ listen.watch   task_watch.go
type job struct {
	ref       // the backend, and the id that it gave
	g         *Gateway
	id        string // by which its client knows it
	principal string
	stateless bool   // the backend is
	guest     *guest // for whom it was made; it stays while a backend of the session era has the task
	made      time.Time
	trail     *peer.ProgressRelay // keeps the backend from taking what it asks for somebody else's

	held held // of a backend of the session era

	// Guarded by jobs.mu.
	timer *time.Timer // forgets it
	ended bool
	gone  bool
}

const (
	// maxJobs bounds the tasks of clients without sessions, of all of them; maxTasks those
	// of one principal.
	maxJobs = 20_000
	// idleJob is how long a task is remembered that nobody asks about, if its backend has
	// not said how long it lives.
	idleJob = 24 * time.Hour
	// lateJob is how much longer than it lives a task is remembered.
	lateJob = time.Minute
)

// jobs are those there are. The zero value is none.
type jobs struct {
	mu   sync.Mutex
	byID map[string]*job
	own  map[ref][]*job // those of several connections may have one id
	all  []*job         // the oldest first
	per  map[string]int // principal → how many, and how many places are kept
	kept int            // places
}

// book keeps a place for a task that may come, if there is one: the oldest that has ended
// makes room.
func (t *jobs) book(principal string) bool {
	t.mu.Lock()
	var old *job
	switch {
	case t.per[principal] >= maxTasks:
		old = t.oldestLocked(func(j *job) bool { return j.ended && j.principal == principal })
	case len(t.all)+t.kept >= maxJobs:
		old = t.oldestLocked(func(j *job) bool { return j.ended })
	default:
		old = &job{gone: true} // there is room
	}
	if old == nil {
		t.mu.Unlock()
		return false
	}
	removed := t.removeLocked(old)
	if t.per == nil {
		t.per = make(map[string]int)
	}
	t.per[principal]++
	t.kept++
	t.mu.Unlock()
	if removed {
		old.end()
	}
	return true
}

func (t *jobs) oldestLocked(is func(*job) bool) *job {
	if i := slices.IndexFunc(t.all, is); i >= 0 {
		return t.all[i]
	}
	return nil
}

// unbook gives back a place that book has kept.
func (t *jobs) unbook(principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept--
	t.leaveLocked(principal)
}

func (t *jobs) leaveLocked(principal string) {
	if t.per[principal]--; t.per[principal] == 0 {
		delete(t.per, principal)
	}
}

// add enters the task that a call of a guest's has become; made is what the backend said
// of it. It takes the place that was kept for the call.
func (t *jobs) add(c *call, own string, stateless bool, made []byte) *job {
	j := &job{
		ref: ref{c.Route.Backend, own}, g: c.s.g, id: newID(), principal: c.guest.principal,
		stateless: stateless, guest: c.guest, made: time.Now(),
	}
	j.held.j, j.held.news = j, make(chan struct{})
	j.trail = &peer.ProgressRelay{}
	if !stateless {
		j.guest.stayOn()
		j.trail = c.pending.RelayProgress(func(wire.Message) {}) // "progress" is not of the extension
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID, t.own = make(map[string]*job), make(map[ref][]*job)
	}
	t.byID[j.id] = j
	t.own[j.ref] = append(t.own[j.ref], j)
	t.all = append(t.all, j)
	t.kept--
	j.timer = time.AfterFunc(idleJob, func() { t.forget(j) })
	t.renewLocked(j, made)
	return j
}

// renew has a task stay for as long as its backend says now, or for a while if it does
// not say.
func (t *jobs) renew(j *job, task []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewLocked(j, task)
}

// lost notes that a backend does not know a task any more: then it may make room.
func (j *job) lost(a peer.Response) {
	if a.Err == nil && wire.ReadError(a.Part(wire.PartError)).Code == wire.CodeInvalidParams {
		j.g.jobs.mu.Lock()
		defer j.g.jobs.mu.Unlock()
		j.ended = true
	}
}

func (t *jobs) renewLocked(j *job, task []byte) {
	if j.gone {
		return
	}
	j.ended = j.ended || protocol.IsTerminalStatus(protocol.TaskStatus(task))
	left := idleJob
	if life, ok := protocol.TaskTTL(task); ok {
		left = time.Until(j.made.Add(life)) + lateJob
	}
	j.timer.Reset(max(left, lateJob))
}

// forget takes a task out: its time is over.
func (t *jobs) forget(j *job) {
	t.mu.Lock()
	removed := t.removeLocked(j)
	t.mu.Unlock()
	if removed {
		j.end()
	}
}

func (t *jobs) removeLocked(j *job) bool {
	if j.gone {
		return false
	}
	j.gone = true
	j.timer.Stop()
	delete(t.byID, j.id)
	t.own[j.ref] = without(t.own[j.ref], j)
	if len(t.own[j.ref]) == 0 {
		delete(t.own, j.ref)
	}
	t.all = without(t.all, j)
	t.leaveLocked(j.principal)
	return true
}

func without(all []*job, j *job) []*job {
	if i := slices.Index(all, j); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// end lets go of what a task has that was taken out.
func (j *job) end() {
	j.trail.Stop()
	if !j.stateless {
		j.held.end()
		j.guest.leave()
	}
}

// endAll is forget for all of them.
func (t *jobs) endAll() {
	t.mu.Lock()
	all := slices.Clone(t.all)
	t.mu.Unlock()
	for _, j := range all {
		t.forget(j)
	}
}

// find returns the task that a principal knows by an id, nil if there is none.
func (t *jobs) find(principal, id string) *job {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.byID[id]; j != nil && j.principal == principal {
		return j
	}
	return nil
}

// at returns the tasks that a backend knows by an id.
func (t *jobs) at(backend, id string) []*job {
	if id == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.own[ref{backend, id}])
}

// Jobs returns how many tasks of clients that have no session are remembered.
func (g *Gateway) Jobs() int {
	g.jobs.mu.Lock()
	defer g.jobs.mu.Unlock()
	return len(g.jobs.all)
}

// A store bounds what is kept of how tasks ended, in bytes. The zero value is empty.
type store struct {
	mu   sync.Mutex
	used int
}

// maxStored is how much may be kept in all. Beyond it backends are asked again.
const maxStored = 64 << 20

func (k *store) keep(bytes int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used+bytes > maxStored {
		return false
	}
	k.used += bytes
	return true
}

func (k *store) release(bytes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used -= bytes
}
