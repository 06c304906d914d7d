package gateway

import (
	"bytes"
	"slices"
	"sync"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Tasks that clients have made for backends: a question may be answered with one,
// about which the backend asks again. They keep the client's ids, which are
// unique there. A backend has to do with those alone that were made for it.

// sessionForTask returns the session to which a task belongs that a backend's message names:
// one that its client has, which is asked about, or one of its own that the message
// belongs to. It is nil if there is none.
func (g *Gateway) sessionForTask(backend string, m wire.Message) *Session {
	if id := taskID(m); id != "" {
		return g.soleSession(func(s *Session) bool { return s.clientTasks.has(backend, id) })
	}
	if id := relatedTask(m); id != "" {
		return g.soleSession(func(s *Session) bool {
			_, ok := s.tasks.toClient(backend, id)
			return ok
		})
	}
	return nil
}

// recordResponse takes what a client's answer says of tasks, and returns it as the backend
// gets it.
func (sr *serverRequest) recordResponse(m wire.Message) wire.Message {
	if sr.taskAllowed {
		sr.s.clientTasks.add(sr.backend, stringAt(m, "result", "task", "taskId"))
	}
	if sr.r.Method() == protocol.MethodTasksList {
		m = sr.filterTasks(m)
	}
	return sr.s.toBackendTaskIDs(sr.backend, m)
}

// filterTasks returns a list of tasks without those that were made for others.
func (sr *serverRequest) filterTasks(m wire.Message) wire.Message {
	list, _ := wire.Lookup(m.Raw(), "result", "tasks")
	var its [][]byte
	for _, one := range wire.Elements(list) {
		if id, _ := wire.Lookup(one, "taskId"); sr.s.clientTasks.has(sr.backend, wire.Unquote(id)) {
			its = append(its, one)
		}
	}
	if list == nil {
		return m
	}
	m, _ = m.Set(jsonArray(its), "result", "tasks")
	return m
}

func jsonArray(elements [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
}

// A scopedID is an id together with the backend from which it came, or for which it
// was given: what another backend says of the same id is about something else.
type scopedID struct{ backend, id string }

const (
	// maxRecentIDs bounds what a recent remembers. Beyond it the oldest is forgotten.
	maxRecentIDs = 256
	// maxIDSize bounds an id that is remembered, in bytes. Longer ones are not.
	maxIDSize = 1 << 10
)

// recentIDs remembers the latest of some ids. The zero value remembers none. All
// methods may be called concurrently.
type recentIDs struct {
	mu  sync.Mutex
	ids []scopedID // the oldest first
}

func (r *recentIDs) add(backend, id string) {
	if id == "" || len(id) > maxIDSize {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.ids, scopedID{backend, id}) {
		return
	}
	if len(r.ids) == maxRecentIDs {
		r.ids = slices.Delete(r.ids, 0, 1)
	}
	r.ids = append(r.ids, scopedID{backend, id})
}

func (r *recentIDs) has(backend, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.ids, scopedID{backend, id})
}

// backends returns the backends for which an id is known.
func (r *recentIDs) backends(id string) (backends []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.ids {
		if known.id == id {
			backends = append(backends, known.backend)
		}
	}
	return backends
}
