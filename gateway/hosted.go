package gateway

import (
	"bytes"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/wire"
)

// Tasks that clients have made for backends: a question may be answered with one,
// about which the backend asks again. They keep the client's ids, which are
// unique there. A backend has to do with those alone that were made for it.

// named returns the session to which a task belongs that a backend's message names:
// one that its client has, which is asked about, or one of its own that the message
// belongs to. It is nil if there is none.
func (g *Gateway) named(backend string, m wire.Message) *Session {
	if id := taskID(m); id != "" {
		return g.only(func(s *Session) bool { return s.hosted.has(backend, id) })
	}
	if id := relatedTask(m); id != "" {
		return g.only(func(s *Session) bool {
			_, ok := s.tasks.expose(backend, id)
			return ok
		})
	}
	return nil
}

// learn takes what a client's answer says of tasks, and returns it as the backend
// gets it.
func (q *question) learn(m wire.Message) wire.Message {
	if q.task {
		q.s.hosted.add(q.backend, stringAt(m, "result", "task", "taskId"))
	}
	if q.r.Method() == string(mcp.MethodTasksList) {
		m = q.ofBackend(m)
	}
	return q.s.ownTasks(q.backend, m)
}

// ofBackend returns a list of tasks without those that were made for others.
func (q *question) ofBackend(m wire.Message) wire.Message {
	list, _ := wire.Lookup(m.Raw(), "result", "tasks")
	var its [][]byte
	for _, one := range wire.Elements(list) {
		if id, _ := wire.Lookup(one, "taskId"); q.s.hosted.has(q.backend, wire.Unquote(id)) {
			its = append(its, one)
		}
	}
	if list == nil {
		return m
	}
	m, _ = m.Set(array(its), "result", "tasks")
	return m
}

func array(elements [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
}
