package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Tasks as clients without sessions have them: the extension, which they declare in each
// request that may be answered with one, or is about one.

const methodUpdate = "tasks/update"

var toJob = &road{find: findJob, mayCome: never, unknown: nobodyHas("task"), send: (*call).sendOfJob}

// offer returns the capabilities that clients without sessions are told of, and
// classicOffer those that the others are: who has tasks of the one kind is given those of
// the other, too.
func offer(v *catalog.View) []byte {
	all := v.Capabilities(v.Complete)
	return protocol.ServerCapabilitiesToModern(all, hasTasks(all))
}

func classicOffer(v *catalog.View) []byte {
	all := v.Capabilities(v.Complete)
	if !protocol.HasTasksExtension(all) {
		return all
	}
	return wire.EditObject(protocol.ServerCapabilitiesToLegacy(all), nil,
		wire.Member{Key: "tasks", Text: []byte(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)})
}

func hasTasks(capabilities []byte) bool {
	return protocol.HasTasksExtension(capabilities) || catalog.Declares(capabilities, "tasks", "requests", "tools", "call")
}

// withoutExecution returns a page of tools as clients of the stateless era read it.
func withoutExecution(page []byte) []byte {
	if !bytes.Contains(page, []byte(`"execution"`)) {
		return page
	}
	list, _ := wire.Lookup(page, "tools")
	tools := wire.Elements(list)
	for i, tool := range tools {
		tools[i] = protocol.StripExecution(tool)
	}
	return wire.EditObject(page, nil, wire.Member{Key: "tools", Text: array(tools)})
}

// bookJob decides whether a call of a guest's may become a task, and keeps a place for
// that. A call that cannot be had otherwise fails if it may not.
func (c *call) bookJob() *wire.Error {
	if !c.is(mcp.MethodToolsCall) {
		return nil
	}
	v := c.s.g.Backends.View()
	declared := protocol.HasTasksExtension(c.guest.stamp.Capabilities)
	may := declared
	if !v.HasCapability(c.Route.Backend, "extensions", protocol.TasksExtension) {
		support := protocol.TaskSupportForbidden
		if v.HasCapability(c.Route.Backend, "tasks", "requests", "tools", "call") {
			support = protocol.TaskSupport(v.Tool(c.Name))
		}
		if support == protocol.TaskSupportRequired && !declared {
			return protocol.MissingTasksError()
		}
		may = declared && support != protocol.TaskSupportForbidden
		c.asTask = may
	}
	if may {
		if !c.s.g.jobs.book(c.guest.principal) {
			return tooManyTasks
		}
		c.task = true
	}
	return nil
}

// begins reports whether a backend's answer to a call of a guest's says that it has
// become a task. OutcomeKind is its resultType, "" if the backend is of the session era.
func (c *call) begins(m wire.Message, kind string) bool {
	if kind == protocol.ResultTask {
		return true
	}
	if kind != "" || c.errand == nil || !c.errand.asTask {
		return false
	}
	task, _ := wire.Lookup(m.Part(wire.PartResult), "task")
	return wire.IsObject(task)
}

var (
	errUndeclared = errors.New("it has made a task of the call, and the client knows none")
	errNameless   = errors.New("it has made a task of the call, and the task's id is missing or too long")
)

// begun returns the answer that says that a call has become a task as the client gets it.
func (c *call) begun(m wire.Message, stateless bool) (wire.Message, bool) {
	own := protocol.TaskID(m.Part(wire.PartResult))
	unclear := cmp.Or(protocol.CheckTask(m.Part(wire.PartResult)), protocol.CheckCreateTaskResult(m.Part(wire.PartResult)))
	switch {
	case c.errand == nil || !c.errand.task:
		c.giveIn(&peer.BadResponseError{Err: errUndeclared})
		return m, false
	case unclear != nil:
		c.giveIn(&peer.BadResponseError{Err: unclear})
		return m, false
	case own == "" || len(own) > maxRef:
		c.giveIn(&peer.BadResponseError{Err: errNameless})
		return m, false
	}
	made := m.Part(wire.PartResult)
	if !stateless {
		made = protocol.CreateTaskResultToModern(made)
	}
	c.errand.task = false
	j := c.s.g.jobs.add(c, own, stateless, made)
	return wire.NewResult("0", protocol.SanitizeCreateTaskResult(made, j.id)), true
}

// unbook gives back the place that was kept for a task, if it still is. It is called by
// whoever has ended the errand, before the client hears of that.
func (e *errand) unbook() {
	if e.task {
		e.task = false
		e.g.jobs.unbook(e.guest.principal)
	}
}

// ofTask takes a request about a task of a guest's.
func (s *Session) ofTask(guest *guest, r *peer.Request) {
	if !protocol.HasTasksExtension(guest.stamp.Capabilities) {
		s.fail(r, protocol.MissingTasksError())
		return
	}
	s.byParam(guest, r, toJob, "taskId")
}

func findJob(c *call, _ *catalog.View) (catalog.Route, bool) {
	j := c.s.g.jobs.find(c.s.principal, c.Name)
	if j == nil {
		return catalog.Route{}, false
	}
	return catalog.Route{Backend: j.backend, Original: j.ref.id}, true
}

// sendOfJob does what a request about a task is for. It is called under c.mu.
func (c *call) sendOfJob() {
	j := c.s.g.jobs.find(c.s.principal, c.Name)
	ctx, cancel := context.WithCancel(c.s.ctx)
	c.giveUp = cancel
	c.s.work.Go(func() {
		defer cancel()
		if j == nil {
			c.reject(c.road.unknown(c.Name)) // its time was over just now
			return
		}
		a := j.do(ctx, c.message(), c.guest)
		c.noteLinks(a.Message)
		switch {
		case a.Err != nil:
			c.giveIn(a.Err)
		case c.r.Forward(protocol.ToModern(a.Message, c.Method, c.s.g.info, j.stateless)):
			c.ended(outcome(a.Message))
		}
	})
}

// do returns what a request about the task is answered with: in the words of the stateless
// era, by the id that the client knows. The guest asks: what the task asks it must have
// declared, or the answer is what it would have to declare.
func (j *job) do(ctx context.Context, m wire.Message, guest *guest) peer.Response {
	a := j.tell(ctx, m, guest)
	task := a.Part(wire.PartResult)
	if a.Err != nil || task == nil || m.Method() != string(mcp.MethodTasksGet) {
		return a
	}
	o, err := protocol.ReadTaskOutcome(task)
	if err != nil {
		return peer.Response{Err: &peer.BadResponseError{Err: err}}
	}
	if err := excess(j.backend, guest.stamp.Capabilities, o.Inputs); err != nil {
		return peer.Response{Err: err}
	}
	return a
}

// tell is do for what need not be fit for the guest.
func (j *job) tell(ctx context.Context, m wire.Message, guest *guest) peer.Response {
	var responses []protocol.InputResponse
	if m.Method() == methodUpdate {
		var err *wire.Error
		if _, responses, err = protocol.ParseTaskUpdate(m); err != nil {
			return peer.Response{Message: wire.NewErrorResponse("0", err)}
		}
	}
	switch {
	case j.stateless:
		return j.relay(ctx, m, guest.id)
	case m.Method() == methodUpdate:
		j.held.update(responses)
		return acknowledged()
	case m.Method() == string(mcp.MethodTasksCancel):
		return j.held.cancel(ctx)
	}
	return j.held.get(ctx)
}

func acknowledged() peer.Response {
	return peer.Response{Message: wire.NewResult("0", []byte(protocol.CompleteResult))}
}

// relay asks a backend of the stateless era, whose words are the client's but for the id,
// and for its own name in front of what it asks a person.
func (j *job) relay(ctx context.Context, m wire.Message, owner string) peer.Response {
	a := j.g.inquireOfTask(ctx, j.backend, protocol.SetMessageTaskID(m, j.ref.id), &peer.Call{SessionID: owner})
	get := m.Method() == string(mcp.MethodTasksGet)
	result := a.Part(wire.PartResult)
	if a.Err != nil || result == nil {
		if get {
			j.lost(a)
		}
		return a
	}
	switch kind, err := protocol.ParseResultType(result); {
	case err != nil:
		return peer.Response{Err: &peer.BadResponseError{Err: err}}
	case !get && kind == protocol.ResultComplete:
		a.Message = protocol.StripInputRequired(protocol.SetMessageTaskID(a.Message, j.id)) // it need not say anything of it
		return a
	case kind != protocol.ResultComplete && !(get && kind == protocol.ResultTask): // examples of the extension have that
		return peer.Response{Err: unfit(kind)}
	}
	j.g.jobs.renew(j, result)
	signed := j.g.signed(j.backend, a.Message)
	return peer.Response{Message: wire.NewResult("0", protocol.SanitizeTask(signed.Part(wire.PartResult), j.id))}
}

// signed returns a result that may have inputRequests with the backend's name in front of
// what a person is asked.
func (g *Gateway) signed(backend string, m wire.Message) wire.Message {
	requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
	wire.Members(requests, func(key string, one []byte, _ int) {
		method, _ := wire.Lookup(one, "method")
		text, _ := wire.Lookup(one, "params", "message")
		if wire.Unquote(method) == string(mcp.MethodElicitationCreate) && len(text) > 0 && text[0] == '"' {
			m, _ = m.Set(prefixed(mark(backend), text), "result", "inputRequests", key, "params", "message")
		}
	})
	return m
}

// inquireOfTask is inquire for a request about a task. A result in which a client could read another
// task than the gateway is an error.
func (g *Gateway) inquireOfTask(ctx context.Context, backend string, m wire.Message, c *peer.Call) peer.Response {
	a := g.inquire(ctx, backend, m, c)
	if err := protocol.CheckTask(a.Part(wire.PartResult)); a.Err == nil && err != nil {
		return peer.Response{Err: &peer.BadResponseError{Err: err}}
	}
	return a
}

// inquire sends a request to a backend, and waits.
func (g *Gateway) inquire(ctx context.Context, backend string, m wire.Message, c *peer.Call) peer.Response {
	w := make(peer.ResponseChan, 1)
	c.Handler = w
	g.Backends.Send(backend, m, c)
	var a peer.Response
	select {
	case a = <-w:
	case <-ctx.Done():
		g.Backends.Cancel(backend, c, nil)
		a = <-w
	}
	if errors.Is(a.Err, peer.ErrTimeout) {
		a.Err = overdue(c.Timeout)
	}
	return a
}

// overdue is a peer.ErrTimeout that says after what time.
type overdue time.Duration

func (o overdue) Error() string { return "no answer within " + time.Duration(o).String() }
func (o overdue) Unwrap() error { return peer.ErrTimeout }
