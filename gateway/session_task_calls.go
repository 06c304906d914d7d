package gateway

import (
	"bytes"
	"time"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// reserveTask reserves a slot for a task if the call may become a task: if it is a tool call that
// asks for a task and the client was offered tasks. It returns an error if no slot is free.
func (c *sessionCall) reserveTask() *wire.Error {
	if c.spec != toolsCallSpec || !asksForTask(c.r.Message) ||
		!c.s.lifecycle.handshake().offersTasks {
		return nil
	}
	if !c.s.tasks.reserve() {
		return errTooManyTasks
	}
	c.asksForTask, c.taskReserved = true, true
	return nil
}

// unreserveTask releases the reserved slot, if it is unused.
func (c *sessionCall) unreserveTask() {
	if c.taskReserved {
		c.taskReserved = false
		c.s.tasks.unreserve()
	}
}

// asksForTask reports whether a request asks for a task as the response.
func asksForTask(m wire.Message) bool {
	if !m.HasTask() { // without a second scan of long params
		return false
	}
	value, _ := wire.Lookup(m.Part(wire.PartParams), "task")
	return !wire.IsNull(value)
}

// checkTaskResult returns an error if a legacy backend's response is ambiguous, that is, if a
// client could read another task in the response than the gateway does.
func (c *sessionCall) checkTaskResult(m wire.Message) (err error) {
	switch {
	case c.taskReserved:
		err = protocol.CheckCreateTaskResult(m.Part(wire.PartResult))
	case c.Method == protocol.MethodTasksGet, c.Method == protocol.MethodTasksCancel:
		err = protocol.CheckTask(m.Part(wire.PartResult))
	}
	if err != nil {
		return &peer.BadResponseError{Err: err}
	}
	return nil
}

// recordResponse records the tasks and URL elicitations in a legacy backend's response, and
// returns the response with the task ids that the client knows.
func (c *sessionCall) recordResponse(m wire.Message) wire.Message {
	backend := c.Route.Backend
	failure := m.Part(wire.PartError)
	if failure != nil {
		c.s.urlElicitations.addElicitations(backend, failure)
	}
	switch {
	case c.taskReserved:
		id := stringAt(m, "result", "task", "taskId")
		if id == "" || len(id) > maxIDSize {
			c.unreserveTask() // no task was created
			break
		}
		c.taskReserved = false
		m = replaceID(m, id, c.s.tasks.add(backend, id, c.relayProgress()), "result", "task",
			"taskId")
		c.s.tasks.noteStatus(backend, id, stringAt(m, "result", "task", "status"))
	case failure != nil && c.spec == taskSpec:
		c.s.tasks.noteFailure(backend, c.Route.Original, c.Method, failure)
	case c.Method == protocol.MethodTasksGet, c.Method == protocol.MethodTasksCancel:
		m = replaceID(m, c.Route.Original, c.Name, "result", "taskId")
		c.s.tasks.noteStatus(backend, c.Route.Original, stringAt(m, "result", "status"))
	case c.Method == protocol.MethodTasksResult:
		c.s.tasks.end(backend, c.Route.Original)
	}
	return c.s.tasks.toClientIDs(backend, m)
}

// toClientResponse converts a modern backend's response for a session client. If the client has
// asked for a task and there is room to store the result, a result becomes an ended task.
func (c *sessionCall) toClientResponse(m wire.Message) wire.Message {
	m = c.toLegacy(m)
	if !c.taskReserved {
		return m
	}
	result := m.Part(wire.PartResult)
	if result == nil || !c.g.resultBytes.Acquire(len(result), maxResultBytes) {
		c.unreserveTask()
		return m
	}
	c.taskReserved = false
	status := protocol.TaskCompleted
	if m.IsToolError() {
		status = protocol.TaskFailed
	}
	id := newID()
	p := &polledTask{scopedID: scopedID{c.Route.Backend, id}, final: true,
		result: bytes.Clone(result), budget: &c.g.resultBytes}
	p.lastTask = protocol.NewLegacyTask(id, status, time.Now())
	c.s.tasks.addPolled(p)
	c.s.tasks.end(p.backend, id)
	return wire.NewResult("0", wire.EditObject(nil, nil,
		wire.Member{Key: "task", Text: protocol.SetTaskID(p.lastTask, p.clientID)}))
}

// relayProgress forwards the progress of a call that has become a task, until stop is called. The
// notifications use the stream of the client's tasks/result request, if that request is open. They
// are dropped while the client is backlogged.
func (c *sessionCall) relayProgress() (stop func()) {
	s, backend := c.s, c.Route.Backend
	return c.backendCall.RelayProgress(func(m wire.Message) {
		if s.isBacklogged(backend) {
			return
		}
		relatedTo := s.calls.origin(backend, contract.Attribution{}, m).relatedID()
		s.notify(s.tasks.toClientIDs(backend, m), relatedTo)
	})
}

// cancelTask cancels a task at the call's backend, see the function cancelTask. If the session has
// the task, the task may be evicted. If the id is missing or too long, cancelTask does nothing.
func (c *sessionCall) cancelTask(id string, modern bool) {
	if id != "" && len(id) <= maxIDSize {
		c.s.tasks.end(c.Route.Backend, id)
		cancelTask(c.g.Backends, c.s.principal, c.s.id,
			scopedID{c.Route.Backend, id}, modern)
	}
}

// cancelCreatedTask cancels the task in a modern backend's response that the client does not get.
func (c *sessionCall) cancelCreatedTask(m wire.Message) {
	if result := m.Part(wire.PartResult); protocol.ResultType(result) == protocol.ResultTask {
		c.cancelTask(protocol.TaskID(result), true)
	}
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
