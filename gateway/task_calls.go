package gateway

import (
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// related is the member of _meta by which a message says to which task it
// belongs.
const related = "io.modelcontextprotocol/related-task"

var toTask = &road{find: findTask, mayCome: never, unknown: nobodyHas("task"), send: (*call).sendOfTask}

// findTask finds the tasks of the session alone: those of others are unknown to
// it.
func findTask(c *call, _ *catalog.View) (catalog.Route, bool) {
	at, ok := c.s.tasks.find(c.Name)
	if !ok {
		return catalog.Route{}, false
	}
	return catalog.Route{Backend: at.backend, Original: at.id, OriginalJSON: wire.Quote(at.id)}, true
}

func never(*call, *catalog.View) bool { return false }

// sendOfTask sends a request about a task. The one for its result is answered
// when the task has ended, so that no limit of time is for it.
func (c *call) sendOfTask() {
	if p := c.s.tasks.pursuit(ref{c.Route.Backend, c.Route.Original}); p != nil {
		c.pursue(p)
		return
	}
	m := c.message()
	if c.Name != c.Route.Original {
		m, _ = m.Set(c.Route.OriginalJSON, "params", "taskId")
	}
	if c.is(mcp.MethodTasksResult) {
		c.pending.PauseTimeout()
	}
	c.s.g.Backends.Send(c.Route.Backend, m, c.pending)
}

// bookTask keeps a place for the task that a tool call asks for, if it does.
func (c *call) bookTask() *wire.Error {
	if c.guest != nil {
		return c.bookJob()
	}
	if !c.is(mcp.MethodToolsCall) || !c.s.offersTasks() || !asksForTask(c.r.Message) {
		return nil
	}
	if c.task = c.s.tasks.book(); !c.task {
		return tooManyTasks
	}
	return nil
}

// asksForTask reports whether a request may be answered with a task.
func asksForTask(m wire.Message) bool {
	value, _ := wire.Lookup(m.Part(wire.PartParams), "task")
	return !wire.IsNull(value)
}

// message returns the request as the backend gets it, but for what it names.
func (c *call) message() wire.Message {
	if c.guest != nil {
		return c.unstamped()
	}
	return c.s.ownTasks(c.Route.Backend, c.r.Message)
}

// unclear returns an error if the client could read another task than the gateway in the answer of
// a backend of the session era.
func (c *call) unclear(m wire.Message) (err error) {
	switch {
	case c.task:
		err = protocol.CheckCreateTaskResult(m.Part(wire.PartResult))
	case c.is(mcp.MethodTasksGet), c.is(mcp.MethodTasksCancel):
		err = protocol.CheckTask(m.Part(wire.PartResult))
	}
	if err != nil {
		return &peer.BadResponseError{Err: err}
	}
	return nil
}

// learn takes what an answer says of tasks, and of what the client will be asked
// elsewhere, and returns it as the client gets it.
func (c *call) learn(m wire.Message) wire.Message {
	backend := c.Route.Backend
	if failure := m.Part(wire.PartError); failure != nil {
		c.s.elicitedBy(backend, failure)
	}
	switch {
	case c.task:
		id := stringAt(m, "result", "task", "taskId")
		if id == "" || len(id) > maxRef {
			c.s.tasks.unbook() // it was not made a task
			break
		}
		m = exchange(m, id, c.s.tasks.add(backend, id, c.trail()), "result", "task", "taskId")
		c.s.taskIs(backend, id, stringAt(m, "result", "task", "status"))
	case c.is(mcp.MethodTasksGet), c.is(mcp.MethodTasksCancel):
		m = exchange(m, c.Route.Original, c.Name, "result", "taskId")
		c.s.taskIs(backend, c.Route.Original, stringAt(m, "result", "status"))
	case c.is(mcp.MethodTasksResult):
		c.s.tasks.end(backend, c.Route.Original)
	}
	return c.s.exposeTasks(backend, m)
}

// trail sees to it that the client hears of the progress of what has become a task.
// It comes on the stream on which the client waits for the result, if it does.
func (c *call) trail() *peer.ProgressRelay {
	s, backend := c.s, c.Route.Backend
	return c.pending.RelayProgress(func(m wire.Message) {
		on := s.cause(backend, m, peer.Origin{}).on()
		s.tell(s.exposeTasks(backend, m), on)
	})
}

// taskIs notes the status that a backend reports of a task.
func (s *Session) taskIs(backend, id, status string) {
	if slices.Contains([]string{"completed", "failed", "cancelled"}, status) {
		s.tasks.end(backend, id)
	}
}

// exchange puts another id in the place of the one to which path leads.
func exchange(m wire.Message, was, is string, path ...string) wire.Message {
	if was == is {
		return m
	}
	if value, _ := wire.Lookup(m.Raw(), path...); wire.Unquote(value) == was {
		m, _ = m.Set(wire.Quote(is), path...)
	}
	return m
}

// exposeTasks returns a backend's message with the id of the task that it
// belongs to as the client knows it.
func (s *Session) exposeTasks(backend string, m wire.Message) wire.Message {
	return s.relate(m, func(id string) (string, bool) { return s.tasks.expose(backend, id) })
}

// ownTasks is exposeTasks for a client's message to a backend.
func (s *Session) ownTasks(backend string, m wire.Message) wire.Message {
	return s.relate(m, func(id string) (string, bool) {
		at, ok := s.tasks.find(id)
		return at.id, ok && at.backend == backend
	})
}

func (s *Session) relate(m wire.Message, other func(string) (string, bool)) wire.Message {
	if s.tasks.renamed.Load() == 0 {
		return m
	}
	for _, part := range []string{"params", "result"} {
		if is, ok := other(stringAt(m, part, "_meta", related, "taskId")); ok {
			return exchange(m, stringAt(m, part, "_meta", related, "taskId"), is, part, "_meta", related, "taskId")
		}
	}
	return m
}

// relatedTask returns the id of the task that a message belongs to, "" if it
// does not say.
func relatedTask(m wire.Message) string {
	id, _ := wire.Lookup(m.Part(wire.PartMeta), related, "taskId")
	return wire.Unquote(id)
}

// taskID returns the id of the task that a request is about, "" if it is about
// none.
func taskID(m wire.Message) string {
	switch mcp.MCPMethod(m.Method()) {
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel:
		return stringAt(m, "params", "taskId")
	}
	return ""
}
