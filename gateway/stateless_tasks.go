package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"mcpgateway/catalog"
	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// This file handles the tasks of stateless clients, which use the tasks extension. A client
// declares the extension in each request that may create a task or is about a task.

var statelessTaskSpec = &methodSpec{resolve: resolveStatelessTask, mayResolveLater: never,
	notFound: unknownName("task"), send: (*clientCall).sendStatelessTaskRequest}

// modernCaps returns the server capabilities for modern clients, and legacyCaps those for legacy
// clients. If a backend of either generation supports tasks, clients of both generations are
// offered tasks.
func modernCaps(v *catalog.View) []byte {
	all := v.Capabilities(v.Complete)
	return protocol.ServerCapabilitiesToModern(all, hasTasks(all))
}

func legacyCaps(v *catalog.View) []byte {
	all := v.Capabilities(v.Complete)
	if !protocol.HasTasksExtension(all) {
		return all
	}
	return wire.EditObject(protocol.ServerCapabilitiesToLegacy(all), nil,
		wire.Member{Key: "tasks",
			Text: []byte(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)})
}

func hasTasks(capabilities []byte) bool {
	return protocol.HasTasksExtension(capabilities) ||
		catalog.Declares(capabilities, "tasks", "requests", "tools", "call")
}

// withoutExecution removes the member execution from the tools of a page. Modern clients do not
// know this member.
func withoutExecution(page []byte) []byte {
	if !bytes.Contains(page, []byte(`"execution"`)) {
		return page
	}
	list, _ := wire.Lookup(page, "tools")
	tools := wire.Elements(list)
	for i, tool := range tools {
		tools[i] = protocol.StripExecution(tool)
	}
	return wire.EditObject(page, nil, wire.Member{Key: "tools", Text: jsonArray(tools)})
}

// reserveStatelessTask decides whether a stateless client's call may become a task, and if so
// reserves a slot. It returns an error if no slot is free, or if the tool requires a task and the
// client has not declared the extension.
func (c *clientCall) reserveStatelessTask() *wire.Error {
	if !c.isMethod(protocol.MethodToolsCall) {
		return nil
	}
	v := c.s.g.Backends.View()
	declared := protocol.HasTasksExtension(c.stateless.meta.Capabilities)
	allowed := declared
	if !v.HasCapability(c.Route.Backend, "extensions", protocol.TasksExtension) {
		support := protocol.TaskSupportForbidden
		if v.HasCapability(c.Route.Backend, "tasks", "requests", "tools", "call") {
			support = protocol.TaskSupport(v.Tool(c.Name))
		}
		if support == protocol.TaskSupportRequired && !declared {
			return protocol.MissingTasksError()
		}
		allowed = declared && support != protocol.TaskSupportForbidden
		c.sendAsTask = allowed
	}
	if allowed {
		if !c.s.g.statelessTasks.reserve(c.stateless.principal) {
			return errTooManyTasks
		}
		c.taskReserved = true
	}
	return nil
}

// startsTask reports whether a backend's response to a stateless client's call creates a task.
// Kind is the resultType of the response; "" for a legacy backend.
func (c *clientCall) startsTask(m wire.Message, kind string) bool {
	if kind == protocol.ResultTask {
		return true
	}
	if kind != "" || c.resumable == nil || !c.resumable.sendAsTask {
		return false
	}
	task, _ := wire.Lookup(m.Part(wire.PartResult), "task")
	return wire.IsObject(task)
}

var (
	errUndeclaredTask = errors.New("it has created a task, and the client has not declared tasks")
	errNoTaskID       = errors.New("it has created a task whose id is missing or too long")
)

// registerTask stores the task that a call has become and returns the response for the client. It
// returns false if it has ended the call with an error, because the response is invalid or the
// client has not declared the extension.
func (c *clientCall) registerTask(m wire.Message, modern bool) (wire.Message, bool) {
	backendID := protocol.TaskID(m.Part(wire.PartResult))
	invalid := cmp.Or(protocol.CheckTask(m.Part(wire.PartResult)),
		protocol.CheckCreateTaskResult(m.Part(wire.PartResult)))
	switch {
	case c.resumable == nil || !c.resumable.taskReserved:
		c.failWith(&peer.BadResponseError{Err: errUndeclaredTask})
		return m, false
	case invalid != nil:
		c.failWith(&peer.BadResponseError{Err: invalid})
		return m, false
	case backendID == "" || len(backendID) > maxIDSize:
		c.failWith(&peer.BadResponseError{Err: errNoTaskID})
		return m, false
	}
	created := m.Part(wire.PartResult)
	if !modern {
		created = protocol.CreateTaskResultToModern(created)
	}
	c.resumable.taskReserved = false
	st := c.s.g.statelessTasks.add(c, backendID, modern, created)
	return wire.NewResult("0", protocol.SanitizeCreateTaskResult(created, st.id)), true
}

// unreserveTask releases the slot that was reserved for a task, if the slot is unused. Only the
// goroutine that has ended the call may call it.
func (rc *resumableCall) unreserveTask() {
	if rc.taskReserved {
		rc.taskReserved = false
		rc.g.statelessTasks.unreserve(rc.client.principal)
	}
}

// handleTaskRequest handles a stateless client's request about a task. It rejects the request if
// the client has not declared the extension.
func (s *Session) handleTaskRequest(client *statelessClient, r *peer.Request) {
	if !protocol.HasTasksExtension(client.meta.Capabilities) {
		s.fail(r, protocol.MissingTasksError())
		return
	}
	s.callByParam(client, r, statelessTaskSpec, "taskId")
}

func resolveStatelessTask(c *clientCall, _ *catalog.View) (catalog.Route, bool) {
	st := c.s.g.statelessTasks.find(c.s.principal, c.Name)
	if st == nil {
		return catalog.Route{}, false
	}
	return catalog.Route{Backend: st.backend, Original: st.scopedID.id}, true
}

// sendStatelessTaskRequest serves a request about a task. It is called with c.mu locked.
func (c *clientCall) sendStatelessTaskRequest() {
	st := c.s.g.statelessTasks.find(c.s.principal, c.Name)
	ctx, cancel := context.WithCancel(c.s.ctx)
	c.cancelWait = cancel
	c.s.work.Go(func() {
		defer cancel()
		if st == nil {
			c.reject(c.spec.notFound(c.Name)) // the task has just expired
			return
		}
		resp := st.handle(ctx, c.backendMessage(), c.stateless)
		c.recordLinks(resp.Message)
		switch {
		case resp.Err != nil:
			c.failWith(resp.Err)
		case c.r.Forward(protocol.ToModern(resp.Message, c.Method, c.s.g.info, st.modern)):
			c.end(outcomeOf(resp.Message))
		}
	})
}

// handle returns the response to a request about the task, in modern form and with the client's
// task id. Client is the sender of this request. If the task has input requests whose capabilities
// the client has not declared, the response is an error that lists the capabilities.
func (st *statelessTask) handle(ctx context.Context, m wire.Message,
	client *statelessClient) contract.BackendResponse {
	resp := st.handleRaw(ctx, m, client)
	task := resp.Message.Part(wire.PartResult)
	if resp.Err != nil || task == nil || m.Method() != protocol.MethodTasksGet {
		return resp
	}
	o, err := protocol.ReadTaskOutcome(task)
	if err != nil {
		return contract.BackendResponse{Err: &peer.BadResponseError{Err: err}}
	}
	if err := mrtr.CheckInputsDeclared(st.backend, client.meta.Capabilities, o.Inputs); err != nil {
		return contract.BackendResponse{Err: err}
	}
	return resp
}

// handleRaw returns the response to a request about the task, without checking input requests.
func (st *statelessTask) handleRaw(ctx context.Context, m wire.Message,
	client *statelessClient) contract.BackendResponse {
	var responses []protocol.InputResponse
	if m.Method() == protocol.MethodTasksUpdate {
		var err *wire.Error
		if _, responses, err = protocol.ParseTaskUpdate(m); err != nil {
			return contract.BackendResponse{Message: wire.NewErrorResponse("0", err)}
		}
	}
	switch {
	case st.modern:
		return st.forward(ctx, m, client.id)
	case m.Method() == protocol.MethodTasksUpdate:
		st.bridge.answerInputs(responses)
		return acknowledged()
	case m.Method() == protocol.MethodTasksCancel:
		return st.bridge.cancel(ctx)
	}
	return st.bridge.get(ctx)
}

func acknowledged() contract.BackendResponse {
	return contract.BackendResponse{Message: wire.NewResult("0", []byte(protocol.CompleteResult))}
}

// forward forwards a request to a modern backend and returns the response, with the client's task
// id, with the backend's label in elicitations, and without members that do not belong to the
// status.
func (st *statelessTask) forward(ctx context.Context, m wire.Message,
	sessionID string) contract.BackendResponse {
	resp := st.g.callTask(ctx, st.backend, contract.BackendRequest{
		Message: protocol.SetMessageTaskID(m, st.scopedID.id), Session: sessionID})
	get := m.Method() == protocol.MethodTasksGet
	result := resp.Message.Part(wire.PartResult)
	if resp.Err != nil || result == nil {
		if get {
			st.noteUnknown(resp)
		}
		return resp
	}
	switch kind, err := protocol.ParseResultType(result); {
	case err != nil:
		return contract.BackendResponse{Err: &peer.BadResponseError{Err: err}}
	case !get && kind == protocol.ResultComplete:
		// the result need not name the task
		resp.Message = protocol.StripInputRequired(protocol.SetMessageTaskID(resp.Message, st.id))
		return resp
	case kind != protocol.ResultComplete && !(get && kind == protocol.ResultTask):
		// tasks/get may respond with the resultType task, as in examples of the extension
		return contract.BackendResponse{Err: errUnexpectedType(kind)}
	}
	st.g.statelessTasks.extend(st, result)
	labelled := mrtr.LabelInputs(st.backend, resp.Message)
	return contract.BackendResponse{Message: wire.NewResult("0",
		protocol.SanitizeTask(labelled.Part(wire.PartResult), st.id))}
}

// callTask sends a request about a task and waits for the response. A result in which a client
// could read another task than the gateway does becomes an error.
func (g *Gateway) callTask(ctx context.Context, backend string,
	r contract.BackendRequest) contract.BackendResponse {
	resp := g.callBackend(ctx, backend, r)
	err := protocol.CheckTask(resp.Message.Part(wire.PartResult))
	if resp.Err == nil && err != nil {
		return contract.BackendResponse{Err: &peer.BadResponseError{Err: err}}
	}
	return resp
}

// callBackend sends a request to a backend and waits for the response. When ctx is done, it cancels
// the request.
func (g *Gateway) callBackend(ctx context.Context, backend string,
	r contract.BackendRequest) contract.BackendResponse {
	w := make(responseWaiter, 1)
	return w.sendAndWait(ctx, g.Backends.NewCall(backend, r, w))
}

// A responseWaiter is the CallHandler of a caller that waits for the response. It needs a capacity
// of 1, so that OnResponse, which is called once, does not block.
type responseWaiter chan contract.BackendResponse

// OnProgress implements contract.CallHandler.
func (w responseWaiter) OnProgress(wire.Message) {}

// OnResponse implements contract.CallHandler.
func (w responseWaiter) OnResponse(resp contract.BackendResponse) { w <- resp }

// sendAndWait sends a call and waits for the response. When ctx is done, it cancels the call.
func (w responseWaiter) sendAndWait(ctx context.Context,
	call contract.BackendCall) contract.BackendResponse {
	call.Send()
	select {
	case resp := <-w:
		return resp
	case <-ctx.Done():
		call.Cancel(nil)
		return <-w
	}
}
