package gateway

import (
	"bytes"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// This file handles tasks at session clients. A client may respond to a backend's request with a
// task, which the backend then polls. The backend knows such a task by the client's id, which is
// unique within the client. A backend can only access tasks that were created for its own
// requests.

// recordResponse records the task in a client's response, and returns the response with the ids
// that the backend knows. A response to tasks/list is reduced to tasks created for the backend.
func (sr *serverRequest) recordResponse(m wire.Message) wire.Message {
	if sr.taskAllowed {
		sr.s.clientTasks.add(sr.backend, stringAt(m, "result", "task", "taskId"))
	}
	if sr.r.Method() == protocol.MethodTasksList {
		m = sr.filterTasks(m)
	}
	return sr.s.tasks.toBackendIDs(sr.backend, m)
}

// filterTasks removes from a tasks/list response the tasks that were not created for the backend.
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
