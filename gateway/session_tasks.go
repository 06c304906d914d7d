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

var errTooManyTasks = wire.Errorf(wire.CodeInternalError,
	"Too many tasks: there are %d that have not ended; wait for them, or cancel some", maxTasks)

// A sessionTask runs at a backend, which gave it an id. The client knows it by the same,
// unless a task of another backend has that already.
type sessionTask struct {
	scopedID
	clientID string
	ended    bool
	progress *peer.ProgressRelay // brings the progress that it makes
	polled   *polledTask         // of one at a backend of the stateless era; nil = it is none
}

// sessionTasks are those that a session has made. That a task is in no other session's
// is what keeps it from everybody else. The zero value is none. All methods may
// be called concurrently.
type sessionTasks struct {
	renamed atomic.Int32 // those with two ids: while there are none, messages are not searched for any

	mu          sync.Mutex
	byClientID  map[string]*sessionTask
	byBackendID map[scopedID]*sessionTask
	all         []*sessionTask // the oldest first
	reserved    int            // places for calls that may become tasks
	closed      bool           // the session is
}

// reserve keeps a place for a task that may come, if there is one.
func (t *sessionTasks) reserve() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all)+t.reserved >= maxTasks && !t.evictEndedLocked() {
		return false
	}
	t.reserved++
	return true
}

// unreserve gives back a place that book has kept.
func (t *sessionTasks) unreserve() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reserved--
}

// evictEndedLocked makes room, if a task has ended.
func (t *sessionTasks) evictEndedLocked() bool {
	i := slices.IndexFunc(t.all, func(st *sessionTask) bool { return st.ended })
	if i < 0 {
		return false
	}
	old := t.all[i]
	t.all = slices.Delete(t.all, i, i+1)
	old.progress.Stop()
	old.polled.release()
	delete(t.byClientID, old.clientID)
	delete(t.byBackendID, old.scopedID)
	if old.clientID != old.id {
		t.renamed.Add(-1)
	}
	return true
}

// add enters a task in the place that was kept for it, and returns the id by
// which the client is to know it.
func (t *sessionTasks) add(backend, id string, progress *peer.ProgressRelay) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if made := t.addLocked(backend, id, progress); made != nil {
		return made.clientID
	}
	progress.Stop()
	return id
}

// addPolled is add for a task at a backend of the stateless era, which says nothing unasked.
func (t *sessionTasks) addPolled(p *polledTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	made := t.addLocked(p.backend, p.id, &peer.ProgressRelay{})
	if made == nil {
		p.clientID = p.id
		p.release()
		return
	}
	made.polled.release()
	made.polled, p.clientID = p, made.clientID
}

// polledTasks returns those of the tasks that are at a backend of the stateless era; pursuit
// the one that a ref stands for, nil if it is none of them.
func (t *sessionTasks) polledTasks() (all []*polledTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range t.all {
		if st.polled != nil {
			all = append(all, st.polled)
		}
	}
	return all
}

func (t *sessionTasks) polled(of scopedID) *polledTask {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byBackendID[of]; st != nil {
		return st.polled
	}
	return nil
}

// addLocked returns the task that was entered, nil if the session is over.
func (t *sessionTasks) addLocked(backend, id string, progress *peer.ProgressRelay) *sessionTask {
	t.reserved--
	if t.closed {
		return nil
	}
	if st, ok := t.byBackendID[scopedID{backend, id}]; ok { // made anew, by a backend that was started anew
		st.progress.Stop()
		st.ended, st.progress = false, progress
		return st
	}
	st := &sessionTask{scopedID: scopedID{backend, id}, clientID: id, progress: progress}
	for n := 1; t.byClientID[st.clientID] != nil; n++ {
		st.clientID = backend + ":" + id
		if n > 1 {
			st.clientID += fmt.Sprint("~", n)
		}
	}
	if st.clientID != id {
		t.renamed.Add(1)
	}
	if t.byBackendID == nil {
		t.byClientID, t.byBackendID = make(map[string]*sessionTask), make(map[scopedID]*sessionTask)
	}
	t.byClientID[st.clientID], t.byBackendID[st.scopedID] = st, st
	t.all = append(t.all, st)
	return st
}

// end notes that a task is over, and may be forgotten if there is need.
func (t *sessionTasks) end(backend, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st, ok := t.byBackendID[scopedID{backend, id}]; ok {
		st.ended = true
		st.progress.Stop()
	}
}

// endAll is end for all of them, when the session is over.
func (t *sessionTasks) endAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, st := range t.all {
		st.progress.Stop()
		st.polled.release()
		st.polled = nil
	}
}

// toBackend returns the task that the client knows by an id.
func (t *sessionTasks) toBackend(clientID string) (scopedID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st, ok := t.byClientID[clientID]; ok {
		return st.scopedID, true
	}
	return scopedID{}, false
}

// toClient returns the id by which the client knows a backend's task.
func (t *sessionTasks) toClient(backend, id string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st, ok := t.byBackendID[scopedID{backend, id}]; ok {
		return st.clientID, true
	}
	return "", false
}

// backends reports which of the backends have any of the tasks.
func (t *sessionTasks) backends() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	backends := make(map[string]bool)
	for _, st := range t.all {
		backends[st.backend] = true
	}
	return backends
}
