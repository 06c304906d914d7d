package gateway

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// maxTasks bounds the tasks of one session. At the limit the oldest ended task is evicted, or else
// the oldest one that may have ended; if there is none, further tasks are rejected.
const maxTasks = 4096

var errTooManyTasks = wire.Errorf(wire.CodeInternalError,
	"Too many tasks have not ended; wait for them, or cancel some")

// A sessionTask is a task at a backend. Its id for the client is the backend's id, unless the
// client knows a task of another backend by this id.
type sessionTask struct {
	scopedID
	clientID string
	ended    bool
	hadError bool // the response to a request was an error, so the task may have ended
	// ends the forwarding of the progress that follows the call's response
	stopProgress func()
	polled       *polledTask // task at a modern backend; nil = legacy backend
}

// sessionTasks is the table of a session's tasks. Each task is in the table of one session only,
// so that other sessions cannot access the task. The zero value is empty. Its methods may be
// called concurrently.
type sessionTasks struct {
	renamed atomic.Int32 // tasks whose two ids differ; if 0, messages need no translation

	mu          sync.Mutex
	byClientID  map[string]*sessionTask
	byBackendID map[scopedID]*sessionTask
	all         []*sessionTask // the oldest first
	reserved    int            // slots of calls that may become tasks
	closed      bool           // the session has ended
}

// reserve reserves a slot for a task. At the limit it evicts the oldest ended task, or returns
// false if no task has ended.
func (t *sessionTasks) reserve() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all)+t.reserved >= maxTasks && !t.evictEndedLocked() {
		return false
	}
	t.reserved++
	return true
}

// unreserve releases a reserved slot.
func (t *sessionTasks) unreserve() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reserved--
}

// evictEndedLocked removes the oldest ended task, or else the oldest one that may have ended. It
// returns false if there is none.
func (t *sessionTasks) evictEndedLocked() bool {
	i := slices.IndexFunc(t.all, func(st *sessionTask) bool { return st.ended })
	if i < 0 {
		i = slices.IndexFunc(t.all, func(st *sessionTask) bool { return st.hadError })
	}
	if i < 0 {
		return false
	}
	old := t.all[i]
	t.all = slices.Delete(t.all, i, i+1)
	old.stopProgress()
	old.polled.release()
	delete(t.byClientID, old.clientID)
	delete(t.byBackendID, old.scopedID)
	if old.clientID != old.id {
		t.renamed.Add(-1)
	}
	return true
}

// add stores a task in its reserved slot and returns the id for the client. If the session has
// ended, it only releases the slot and returns id.
func (t *sessionTasks) add(backend, id string, stopProgress func()) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.addLocked(backend, id, stopProgress); st != nil {
		return st.clientID
	}
	stopProgress()
	return id
}

// addPolled stores a task at a modern backend in its reserved slot, and sets p.clientID. If the
// session has ended, it only releases the slot and the result, and p.clientID is p.id.
func (t *sessionTasks) addPolled(p *polledTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.addLocked(p.backend, p.id, func() {})
	if st == nil {
		p.clientID = p.id
		p.release()
		return
	}
	st.polled.release()
	st.polled, p.clientID = p, st.clientID
}

// polledTasks returns the tasks at modern backends.
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

// addLocked returns the stored task, nil if the session has ended.
func (t *sessionTasks) addLocked(backend, id string, stopProgress func()) *sessionTask {
	t.reserved--
	if t.closed {
		return nil
	}
	// the backend has issued the id again, for example after a restart
	if st, ok := t.byBackendID[scopedID{backend, id}]; ok {
		st.stopProgress()
		st.ended, st.hadError, st.stopProgress = false, false, stopProgress
		return st
	}
	st := &sessionTask{scopedID: scopedID{backend, id}, clientID: id,
		stopProgress: stopProgress}
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

// end marks a task as ended, so that the task may be evicted.
func (t *sessionTasks) end(backend, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st, ok := t.byBackendID[scopedID{backend, id}]; ok {
		st.ended = true
		st.stopProgress()
	}
}

// noteFailure notes the error with which a backend has responded to a request about a task. It
// marks a task that the backend does not know as ended. A task that may have ended may be evicted,
// but its progress is still forwarded.
func (t *sessionTasks) noteFailure(backend, id, method string, failure []byte) {
	invalid := wire.ReadError(failure).Code == wire.CodeInvalidParams
	switch {
	case invalid && method != protocol.MethodTasksCancel:
		t.end(backend, id)
	case invalid, // it is unknown or has ended
		method == protocol.MethodTasksResult: // it has failed, or the backend refuses the request
		t.setHadError(backend, id, true)
	}
}

func (t *sessionTasks) setHadError(backend, id string, hadError bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st, ok := t.byBackendID[scopedID{backend, id}]; ok {
		st.hadError = hadError
	}
}

// noteStatus notes the status of a task that the backend has reported; "" = none.
func (t *sessionTasks) noteStatus(backend, id, status string) {
	switch {
	case protocol.IsTerminalStatus(status):
		t.end(backend, id)
	case status != "":
		t.setHadError(backend, id, false)
	}
}

// endAll releases all tasks. It is called when the session has ended.
func (t *sessionTasks) endAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, st := range t.all {
		st.stopProgress()
		st.polled.release()
		st.polled = nil
	}
}

// toBackend returns the backend and the backend's id of the task with this clientID.
func (t *sessionTasks) toBackend(clientID string) (scopedID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st, ok := t.byClientID[clientID]; ok {
		return st.scopedID, true
	}
	return scopedID{}, false
}

// toClient returns the client's id of a backend's task.
func (t *sessionTasks) toClient(backend, id string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st, ok := t.byBackendID[scopedID{backend, id}]; ok {
		return st.clientID, true
	}
	return "", false
}

// backends returns the backends that have any of the tasks.
func (t *sessionTasks) backends() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	backends := make(map[string]bool)
	for _, st := range t.all {
		backends[st.backend] = true
	}
	return backends
}

// toClientListed returns a task from a backend's list, with the client's id. It returns false
// if the task does not belong to the session.
func (t *sessionTasks) toClientListed(backend string, one []byte) ([]byte, bool) {
	literal, _ := wire.Lookup(one, "taskId")
	id := wire.Unquote(literal)
	clientID, ok := t.toClient(backend, id)
	if !ok {
		return nil, false
	}
	status, _ := wire.Lookup(one, "status")
	t.noteStatus(backend, id, wire.Unquote(status))
	if clientID == id {
		return one, true
	}
	return protocol.SetTaskID(one, clientID), true
}

// toClientIDs returns a backend's message with the client's id of the related task.
func (t *sessionTasks) toClientIDs(backend string, m wire.Message) wire.Message {
	return t.rewriteIDs(m, func(id string) (string, bool) { return t.toClient(backend, id) })
}

// toBackendIDs returns a client's message with the backend's id of the related task.
func (t *sessionTasks) toBackendIDs(backend string, m wire.Message) wire.Message {
	return t.rewriteIDs(m, func(id string) (string, bool) {
		at, ok := t.toBackend(id)
		return at.id, ok && at.backend == backend
	})
}

func (t *sessionTasks) rewriteIDs(m wire.Message, other func(string) (string, bool)) wire.Message {
	if t.renamed.Load() == 0 {
		return m
	}
	for _, part := range []string{"params", "result"} {
		id := stringAt(m, part, "_meta", protocol.MetaRelatedTask, "taskId")
		if newID, ok := other(id); ok {
			return replaceID(m, id, newID, part, "_meta", protocol.MetaRelatedTask, "taskId")
		}
	}
	return m
}

// replaceID replaces the id at path if it is oldID.
func replaceID(m wire.Message, oldID, newID string, path ...string) wire.Message {
	if oldID == newID {
		return m
	}
	if value, _ := wire.Lookup(m.Raw(), path...); wire.Unquote(value) == oldID {
		m, _ = m.Set(wire.Quote(newID), path...)
	}
	return m
}
