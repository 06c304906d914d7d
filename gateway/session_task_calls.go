package gateway

import (
	"slices"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

var sessionTaskSpec = &methodSpec{resolve: resolveSessionTask, mayResolveLater: never, notFound: unknownName("task"), send: (*clientCall).sendTaskRequest}

// resolveSessionTask finds the tasks of the session alone: those of others are unknown to
// it.
func resolveSessionTask(c *clientCall, _ *catalog.View) (catalog.Route, bool) {
	at, ok := c.s.tasks.toBackend(c.Name)
	if !ok {
		return catalog.Route{}, false
	}
	return catalog.Route{Backend: at.backend, Original: at.id, OriginalJSON: wire.Quote(at.id)}, true
}

func never(*clientCall, *catalog.View) bool { return false }

// sendTaskRequest sends a request about a task. The one for its result is answered
// when the task has ended, so that no limit of time is for it.
func (c *clientCall) sendTaskRequest() {
	if p := c.s.tasks.polled(scopedID{c.Route.Backend, c.Route.Original}); p != nil {
		c.servePolledTask(p)
		return
	}
	m := c.upstreamMessage()
	if c.Name != c.Route.Original {
		m, _ = m.Set(c.Route.OriginalJSON, "params", "taskId")
	}
	if c.isMethod(protocol.MethodTasksResult) {
		c.upstream.PauseTimeout()
	}
	c.s.g.Backends.Send(c.Route.Backend, m, c.upstream)
}

// reserveTask keeps a place for the task that a tool call asks for, if it does.
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

// asksForTask reports whether a request may be answered with a task.
func asksForTask(m wire.Message) bool {
	value, _ := wire.Lookup(m.Part(wire.PartParams), "task")
	return !wire.IsNull(value)
}

// upstreamMessage returns the request as the backend gets it, but for what it names.
func (c *clientCall) upstreamMessage() wire.Message {
	if c.stateless != nil {
		return c.statelessUpstreamMessage()
	}
	return c.s.toBackendTaskIDs(c.Route.Backend, c.r.Message)
}

// checkTaskResult returns an error if the client could read another task than the gateway in the answer of
// a backend of the session era.
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

// recordResponse takes what an answer says of tasks, and of what the client will be asked
// elsewhere, and returns it as the client gets it.
func (c *clientCall) recordResponse(m wire.Message) wire.Message {
	backend := c.Route.Backend
	if failure := m.Part(wire.PartError); failure != nil {
		c.s.recordURLElicitations(backend, failure)
	}
	switch {
	case c.taskReserved:
		id := stringAt(m, "result", "task", "taskId")
		if id == "" || len(id) > maxIDSize {
			c.s.tasks.unreserve() // it was not made a task
			break
		}
		m = replaceID(m, id, c.s.tasks.add(backend, id, c.progressRelay()), "result", "task", "taskId")
		c.s.noteTaskStatus(backend, id, stringAt(m, "result", "task", "status"))
	case c.isMethod(protocol.MethodTasksGet), c.isMethod(protocol.MethodTasksCancel):
		m = replaceID(m, c.Route.Original, c.Name, "result", "taskId")
		c.s.noteTaskStatus(backend, c.Route.Original, stringAt(m, "result", "status"))
	case c.isMethod(protocol.MethodTasksResult):
		c.s.tasks.end(backend, c.Route.Original)
	}
	return c.s.toClientTaskIDs(backend, m)
}

// progressRelay sees to it that the client hears of the progress of what has become a task.
// It comes on the stream on which the client waits for the result, if it does.
func (c *clientCall) progressRelay() *peer.ProgressRelay {
	s, backend := c.s, c.Route.Backend
	return c.upstream.RelayProgress(func(m wire.Message) {
		relatedTo := s.originCall(backend, m, peer.Origin{}).relatedID()
		s.notify(s.toClientTaskIDs(backend, m), relatedTo)
	})
}

// noteTaskStatus notes the status that a backend reports of a task.
func (s *Session) noteTaskStatus(backend, id, status string) {
	if slices.Contains([]string{"completed", "failed", "cancelled"}, status) {
		s.tasks.end(backend, id)
	}
}

// replaceID puts another id in the place of the one to which path leads.
func replaceID(m wire.Message, oldID, newID string, path ...string) wire.Message {
	if oldID == newID {
		return m
	}
	if value, _ := wire.Lookup(m.Raw(), path...); wire.Unquote(value) == oldID {
		m, _ = m.Set(wire.Quote(newID), path...)
	}
	return m
}

// toClientTaskIDs returns a backend's message with the id of the task that it
// belongs to as the client knows it.
func (s *Session) toClientTaskIDs(backend string, m wire.Message) wire.Message {
	return s.rewriteTaskIDs(m, func(id string) (string, bool) { return s.tasks.toClient(backend, id) })
}

// toBackendTaskIDs is exposeTasks for a client's message to a backend.
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
			return replaceID(m, stringAt(m, part, "_meta", protocol.MetaRelatedTask, "taskId"), newID, part, "_meta", protocol.MetaRelatedTask, "taskId")
		}
	}
	return m
}

// relatedTask returns the id of the task that a message belongs to, "" if it
// does not say.
func relatedTask(m wire.Message) string {
	id, _ := wire.Lookup(m.Part(wire.PartMeta), protocol.MetaRelatedTask, "taskId")
	return wire.Unquote(id)
}

// taskID returns the id of the task that a request is about, "" if it is about
// none.
func taskID(m wire.Message) string {
	switch m.Method() {
	case protocol.MethodTasksGet, protocol.MethodTasksResult, protocol.MethodTasksCancel:
		return stringAt(m, "params", "taskId")
	}
	return ""
}
