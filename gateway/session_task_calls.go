package gateway

import (
	"slices"

	"mcpgateway/catalog"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

var sessionTaskSpec = &methodSpec{resolve: resolveSessionTask, mayResolveLater: never,
	notFound: unknownName("task"), send: (*clientCall).sendTaskRequest}

// resolveSessionTask resolves a task id of the session. The ids of other sessions' tasks are
// unknown.
func resolveSessionTask(c *clientCall, _ *catalog.View) (catalog.Route, bool) {
	at, ok := c.s.tasks.toBackend(c.Name)
	if !ok {
		return catalog.Route{}, false
	}
	route := catalog.Route{Backend: at.backend, Original: at.id, OriginalJSON: wire.Quote(at.id)}
	return route, true
}

func never(*clientCall, *catalog.View) bool { return false }

// sendTaskRequest sends a request about a task. tasks/result has no timeout, because the backend
// responds when the task has ended.
func (c *clientCall) sendTaskRequest() {
	if p := c.s.tasks.polled(scopedID{c.Route.Backend, c.Route.Original}); p != nil {
		c.servePolledTask(p)
		return
	}
	m := c.backendMessage()
	if c.Name != c.Route.Original {
		m, _ = m.Set(c.Route.OriginalJSON, "params", "taskId")
	}
	call := c.newBackendCall(m)
	if c.isMethod(protocol.MethodTasksResult) {
		call.PauseTimeout()
	}
	call.Send()
}

// reserveTask reserves a slot for a task if the call may become a task: for a session client, if a
// tool call asks for a task and the client was offered tasks; for a stateless client, see
// reserveStatelessTask. It returns an error if no slot is free.
func (c *clientCall) reserveTask() *wire.Error {
	if c.stateless != nil {
		return c.reserveStatelessTask()
	}
	if !c.isMethod(protocol.MethodToolsCall) || !c.s.offersTasks() || !asksForTask(c.r.Message) {
		return nil
	}
	if c.taskReserved = c.s.tasks.reserve(); !c.taskReserved {
		return errTooManyTasks
	}
	return nil
}

// asksForTask reports whether a request asks for a task as the response.
func asksForTask(m wire.Message) bool {
	value, _ := wire.Lookup(m.Part(wire.PartParams), "task")
	return !wire.IsNull(value)
}

// backendMessage returns the request for the backend. The name in the request is still the
// client's.
func (c *clientCall) backendMessage() wire.Message {
	if c.stateless != nil {
		return c.statelessBackendMessage()
	}
	return c.s.toBackendTaskIDs(c.Route.Backend, c.r.Message)
}

// checkTaskResult returns an error if a legacy backend's response is ambiguous, that is, if a
// client could read another task in the response than the gateway does.
func (c *clientCall) checkTaskResult(m wire.Message) (err error) {
	switch {
	case c.taskReserved:
		err = protocol.CheckCreateTaskResult(m.Part(wire.PartResult))
	case c.isMethod(protocol.MethodTasksGet), c.isMethod(protocol.MethodTasksCancel):
		err = protocol.CheckTask(m.Part(wire.PartResult))
	}
	if err != nil {
		return &peer.BadResponseError{Err: err}
	}
	return nil
}

// recordResponse records the tasks and URL elicitations in a legacy backend's response, and
// returns the response with the task ids that the client knows.
func (c *clientCall) recordResponse(m wire.Message) wire.Message {
	backend := c.Route.Backend
	if failure := m.Part(wire.PartError); failure != nil {
		c.s.recordURLElicitations(backend, failure)
	}
	switch {
	case c.taskReserved:
		id := stringAt(m, "result", "task", "taskId")
		if id == "" || len(id) > maxIDSize {
			c.s.tasks.unreserve() // no task was created
			break
		}
		m = replaceID(m, id, c.s.tasks.add(backend, id, c.relayProgress()), "result", "task",
			"taskId")
		c.s.noteTaskStatus(backend, id, stringAt(m, "result", "task", "status"))
	case c.isMethod(protocol.MethodTasksGet), c.isMethod(protocol.MethodTasksCancel):
		m = replaceID(m, c.Route.Original, c.Name, "result", "taskId")
		c.s.noteTaskStatus(backend, c.Route.Original, stringAt(m, "result", "status"))
	case c.isMethod(protocol.MethodTasksResult):
		c.s.tasks.end(backend, c.Route.Original)
	}
	return c.s.toClientTaskIDs(backend, m)
}

// relayProgress forwards the progress of a call that has become a task, until stop is called. The
// notifications use the stream of the client's tasks/result request, if that request is open.
func (c *clientCall) relayProgress() (stop func()) {
	s, backend := c.s, c.Route.Backend
	return c.backendCall.RelayProgress(func(m wire.Message) {
		relatedTo := s.originCall(backend, contract.Attribution{}, m).relatedID()
		s.notify(s.toClientTaskIDs(backend, m), relatedTo)
	})
}

// noteTaskStatus marks a task as ended if the backend has reported a terminal status.
func (s *Session) noteTaskStatus(backend, id, status string) {
	if slices.Contains([]string{"completed", "failed", "cancelled"}, status) {
		s.tasks.end(backend, id)
	}
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

// toClientTaskIDs returns a backend's message with the client's id of the related task.
func (s *Session) toClientTaskIDs(backend string, m wire.Message) wire.Message {
	return s.rewriteTaskIDs(m, func(id string) (string, bool) {
		return s.tasks.toClient(backend, id)
	})
}

// toBackendTaskIDs returns a client's message with the backend's id of the related task.
func (s *Session) toBackendTaskIDs(backend string, m wire.Message) wire.Message {
	return s.rewriteTaskIDs(m, func(id string) (string, bool) {
		at, ok := s.tasks.toBackend(id)
		return at.id, ok && at.backend == backend
	})
}

func (s *Session) rewriteTaskIDs(m wire.Message, other func(string) (string, bool)) wire.Message {
	if s.tasks.renamed.Load() == 0 {
		return m
	}
	for _, part := range []string{"params", "result"} {
		if newID, ok := other(stringAt(m, part, "_meta", protocol.MetaRelatedTask, "taskId")); ok {
			return replaceID(m, stringAt(m, part, "_meta", protocol.MetaRelatedTask, "taskId"),
				newID, part, "_meta", protocol.MetaRelatedTask, "taskId")
		}
	}
	return m
}

// relatedTask returns the id of the related task in a message's _meta; "" if there is none.
func relatedTask(m wire.Message) string {
	id, _ := wire.Lookup(m.Part(wire.PartMeta), protocol.MetaRelatedTask, "taskId")
	return wire.Unquote(id)
}

// taskID returns the task id in the params of a tasks/get, tasks/result or tasks/cancel request;
// "" for any other message.
func taskID(m wire.Message) string {
	switch m.Method() {
	case protocol.MethodTasksGet, protocol.MethodTasksResult, protocol.MethodTasksCancel:
		return stringAt(m, "params", "taskId")
	}
	return ""
}
