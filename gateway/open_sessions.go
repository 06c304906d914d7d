package gateway

import (
	"maps"
	"slices"
	"sync"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// openSessions is the table of sessions. The zero value is empty. Its methods may be called
// concurrently.
type openSessions struct {
	mu   sync.Mutex
	byID map[string]*Session
}

// add adds a session. It returns false if the id is in use.
func (t *openSessions) add(s *Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.id] != nil {
		return false
	}
	if t.byID == nil {
		t.byID = make(map[string]*Session)
	}
	t.byID[s.id] = s
	return true
}

// remove removes a session, if it is in the table.
func (t *openSessions) remove(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.id] == s {
		delete(t.byID, s.id)
	}
}

// get returns the session with an id, nil if there is none.
func (t *openSessions) get(id string) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *openSessions) all() []*Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byID))
}

// where returns the session with the given id if match returns true for this session. For the id
// "" it returns the only session for which match returns true. The result may be nil.
func (t *openSessions) where(id string, match func(*Session) bool) *Session {
	if id == "" {
		return t.sole(match)
	}
	if s := t.get(id); s != nil && match(s) {
		return s
	}
	return nil
}

// sole returns the only session that matches, nil if there are several or none.
func (t *openSessions) sole(match func(*Session) bool) *Session {
	var found *Session
	for _, s := range t.all() {
		if !match(s) {
			continue
		}
		if found != nil {
			return nil
		}
		found = s
	}
	return found
}

// withTask returns the session of the task that a backend's message names: a task at the client if
// the message is a request about the task, otherwise the related task at the backend. It returns
// nil if no session or several sessions have such a task.
func (t *openSessions) withTask(
	backend string, from contract.Attribution, m wire.Message,
) *Session {
	isFor := func(s *Session) bool { return from.IsFor == nil || from.IsFor(s.principal.Key()) }
	if id := taskID(m); id != "" {
		return t.sole(func(s *Session) bool {
			return isFor(s) && s.clientTasks.has(backend, id)
		})
	}
	if id := relatedTask(m); id != "" {
		return t.sole(func(s *Session) bool {
			_, ok := s.tasks.toClient(backend, id)
			return ok && isFor(s)
		})
	}
	return nil
}
