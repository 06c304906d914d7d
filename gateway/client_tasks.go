package gateway

import (
	"bytes"
	"slices"
	"sync"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Tasks at session clients: a client may respond to a backend's request with a task, which the
// backend then polls. These keep the client's ids, which are unique within the client. A backend
// can only access tasks that were created for it.

// sessionForTask returns the only session to which the task belongs that a backend's message
// names: a task at the client, which the request is about, or a task at the backend, which the
// message is related to. It is nil if there is none.
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

// recordResponse records the task in a client's response, and returns the response as the backend
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

// filterTasks returns a list of tasks reduced to those created for the backend.
func (sr *serverRequest) filterTasks(m wire.Message) wire.Message {
	list, _ := wire.Lookup(m.Raw(), "result", "tasks")
	var filtered [][]byte
	for _, one := range wire.Elements(list) {
		if id, _ := wire.Lookup(one, "taskId"); sr.s.clientTasks.has(sr.backend, wire.Unquote(id)) {
			filtered = append(filtered, one)
		}
	}
	if list == nil {
		return m
	}
	m, _ = m.Set(jsonArray(filtered), "result", "tasks")
	return m
}

func jsonArray(elements [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
}

// A scopedID is an id together with the backend that issued it, or that it was issued for. The
// same id of another backend is a different one.
type scopedID struct{ backend, id string }

const (
	// maxRecentIDs bounds a recentIDs. Beyond it the oldest id is forgotten.
	maxRecentIDs = 256
	// maxIDSize bounds an id, in bytes. Longer ones are not remembered.
	maxIDSize = 1 << 10
)

// recentIDs remembers the latest ids. The zero value is empty. Its methods may be called
// concurrently.
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

// backends returns the backends of an id.
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
