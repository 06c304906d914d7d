package gateway

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// maxTasks bounds the tasks of one session. Beyond it the oldest that has ended
// is forgotten, and if none has, no more are made.
const maxTasks = 4096

var tooManyTasks = wire.Errorf(wire.CodeInternalError,
	"Too many tasks: there are %d that have not ended; wait for them, or cancel some", maxTasks)

// A task runs at a backend, which gave it an id. The client knows it by the same,
// unless a task of another backend has that already.
type task struct {
	ref
	exposed string
	ended   bool
	trail   *peer.ProgressRelay // brings the progress that it makes
	pursuit *pursuit            // of one at a backend of the stateless era; nil = it is none
}

// tasks are those that a session has made. That a task is in no other session's
// is what keeps it from everybody else. The zero value is none. All methods may
// be called concurrently.
type tasks struct {
	renamed atomic.Int32 // those with two ids: while there are none, messages are not searched for any

	mu      sync.Mutex
	exposed map[string]*task
	own     map[ref]*task
	all     []*task // the oldest first
	booked  int     // places for calls that may become tasks
	over    bool    // the session is
}

// book keeps a place for a task that may come, if there is one.
func (t *tasks) book() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all)+t.booked >= maxTasks && !t.forgetLocked() {
		return false
	}
	t.booked++
	return true
}

// unbook gives back a place that book has kept.
func (t *tasks) unbook() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.booked--
}

// forgetLocked makes room, if a task has ended.
func (t *tasks) forgetLocked() bool {
	i := slices.IndexFunc(t.all, func(known *task) bool { return known.ended })
	if i < 0 {
		return false
	}
	old := t.all[i]
	t.all = slices.Delete(t.all, i, i+1)
	old.trail.Stop()
	old.pursuit.release()
	delete(t.exposed, old.exposed)
	delete(t.own, old.ref)
	if old.exposed != old.id {
		t.renamed.Add(-1)
	}
	return true
}

// add enters a task in the place that was kept for it, and returns the id by
// which the client is to know it.
func (t *tasks) add(backend, id string, trail *peer.ProgressRelay) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if made := t.addLocked(backend, id, trail); made != nil {
		return made.exposed
	}
	trail.Stop()
	return id
}

// pursue is add for a task at a backend of the stateless era, which says nothing unasked.
func (t *tasks) pursue(p *pursuit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	made := t.addLocked(p.backend, p.id, &peer.ProgressRelay{})
	if made == nil {
		p.exposed = p.id
		p.release()
		return
	}
	made.pursuit.release()
	made.pursuit, p.exposed = p, made.exposed
}

// pursuits returns those of the tasks that are at a backend of the stateless era; pursuit
// the one that a ref stands for, nil if it is none of them.
func (t *tasks) pursuits() (all []*pursuit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, known := range t.all {
		if known.pursuit != nil {
			all = append(all, known.pursuit)
		}
	}
	return all
}

func (t *tasks) pursuit(of ref) *pursuit {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.own[of]; known != nil {
		return known.pursuit
	}
	return nil
}

// addLocked returns the task that was entered, nil if the session is over.
func (t *tasks) addLocked(backend, id string, trail *peer.ProgressRelay) *task {
	t.booked--
	if t.over {
		return nil
	}
	if known, ok := t.own[ref{backend, id}]; ok { // made anew, by a backend that was started anew
		known.trail.Stop()
		known.ended, known.trail = false, trail
		return known
	}
	fresh := &task{ref: ref{backend, id}, exposed: id, trail: trail}
	for n := 1; t.exposed[fresh.exposed] != nil; n++ {
		fresh.exposed = backend + ":" + id
		if n > 1 {
			fresh.exposed += fmt.Sprint("~", n)
		}
	}
	if fresh.exposed != id {
		t.renamed.Add(1)
	}
	if t.own == nil {
		t.exposed, t.own = make(map[string]*task), make(map[ref]*task)
	}
	t.exposed[fresh.exposed], t.own[fresh.ref] = fresh, fresh
	t.all = append(t.all, fresh)
	return fresh
}

// end notes that a task is over, and may be forgotten if there is need.
func (t *tasks) end(backend, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.own[ref{backend, id}]; ok {
		known.ended = true
		known.trail.Stop()
	}
}

// endAll is end for all of them, when the session is over.
func (t *tasks) endAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for _, known := range t.all {
		known.trail.Stop()
		known.pursuit.release()
		known.pursuit = nil
	}
}

// find returns the task that the client knows by an id.
func (t *tasks) find(exposed string) (ref, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.exposed[exposed]; ok {
		return known.ref, true
	}
	return ref{}, false
}

// expose returns the id by which the client knows a backend's task.
func (t *tasks) expose(backend, id string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.own[ref{backend, id}]; ok {
		return known.exposed, true
	}
	return "", false
}

// at reports which of the backends have any of the tasks.
func (t *tasks) at() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	backends := make(map[string]bool)
	for _, known := range t.all {
		backends[known.backend] = true
	}
	return backends
}
