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

// modernCaps returns the server capabilities for modern clients, and legacyCaps those for legacy
// clients. If a backend of either generation supports tasks, clients of both generations are
// offered tasks.
func modernCaps(v *catalog.View) []byte {
	all := v.Capabilities(v.Complete)
	return protocol.ServerCapabilitiesToModern(all, protocol.HasTasksExtension(all) ||
		catalog.Declares(all, "tasks", "requests", "tools", "call"))
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

// reserveTask decides whether the call may become a task, and if so reserves a slot. AsTask is true
// if the request must ask for a task, because the backend is a legacy one. It returns an error if
// no slot is free, or if the tool requires a task and the client has not declared the extension.
func (c *statelessCall) reserveTask() (reserved, asTask bool, err *wire.Error) {
	if c.spec != toolsCallSpec || c.Route.Builtin {
		return false, false, nil
	}
	v := c.conn.view()
	declared := protocol.HasTasksExtension(c.client.meta.Capabilities)
	allowed := declared
	if !v.HasCapability(c.Route.Backend, "extensions", protocol.TasksExtension) {
		support := protocol.TaskSupportForbidden
		if v.HasCapability(c.Route.Backend, "tasks", "requests", "tools", "call") {
			support = protocol.TaskSupport(v.Tool(c.Name))
		}
		if support == protocol.TaskSupportRequired && !declared {
			return false, false, protocol.MissingTasksError()
		}
		allowed = declared && support != protocol.TaskSupportForbidden
		asTask = allowed
	}
	if allowed && !c.g.statelessTasks.reserve(c.client.principal) {
		return false, false, errTooManyTasks
	}
	return allowed, asTask, nil
}

var (
	errUndeclaredTask = errors.New("it has created a task, and the client has not declared tasks")
	errNoTaskID       = errors.New("it has created a task whose id is missing or too long")
)

// forwardTask stores the task that the call has become, and ends the call with the task. If the
// client's request has already ended, it cancels the task. It returns an error if the response is
// invalid, or if the client has not declared the extension.
func (c *statelessCall) forwardTask(m wire.Message, modern bool) error {
	created := m.Part(wire.PartResult)
	backendID := protocol.TaskID(created)
	invalid := cmp.Or(protocol.CheckTask(created), protocol.CheckCreateTaskResult(created))
	switch {
	case c.resumable == nil || !c.resumable.taskReserved:
		invalid = errUndeclaredTask
	case invalid == nil && (backendID == "" || len(backendID) > maxIDSize):
		invalid = errNoTaskID
	}
	if invalid != nil {
		return &peer.BadResponseError{Err: invalid}
	}
	if !modern {
		created = protocol.CreateTaskResultToModern(created)
	}
	c.resumable.taskReserved = false
	st := c.g.statelessTasks.add(c, backendID, modern, created)
	if !c.forward(wire.NewResult("0", protocol.SanitizeCreateTaskResult(created, st.id)), true,
		outcomeOf(m)) {
		cancelTask(c.g.Backends, st.client.principal, st.client.id, st.scopedID, modern)
		c.g.statelessTasks.remove(st)
	}
	return nil
}

// cancelCreatedTask cancels the task in a response that no client gets, if the response has created
// a task.
func (rc *resumableCall) cancelCreatedTask(resp contract.BackendResponse) {
	task := resp.Message.Part(wire.PartResult)
	switch {
	case resp.Modern && protocol.ResultType(task) != protocol.ResultTask,
		!resp.Modern && !rc.sendAsTask:
		return
	case !resp.Modern:
		task, _ = wire.Lookup(task, "task")
	}
	if id := protocol.TaskID(task); id != "" && len(id) <= maxIDSize {
		cancelTask(rc.client.g.Backends, rc.client.principal, rc.client.id,
			scopedID{rc.route.Backend, id}, resp.Modern)
	}
}

// unreserveTask releases the slot that was reserved for a task, if the slot is unused. Only the
// goroutine that has ended the call may call it.
func (rc *resumableCall) unreserveTask() {
	if rc.taskReserved {
		rc.taskReserved = false
		rc.client.g.statelessTasks.unreserve(rc.client.principal)
	}
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
	resp := callTask(ctx, st.g.Backends, st.backend, contract.BackendRequest{
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
