package gateway

import (
	"context"

	"mcpgateway/catalog"
	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A statelessCall is a call of a stateless client. If its method allows input requests, it waits
// for a [resumableCall]: its own, or one that an earlier request of the client has started
// (continuation.go).
type statelessCall struct {
	clientCall
	client *statelessClient // retained until the call ends
	// data of a retry; nil if the request is no retry
	continuation *continuation
	resumable    *resumableCall // nil if the method allows no input requests
}

// startCall handles a modern request that a backend serves, or a retry that continues a call.
func (cc *clientConn) startCall(client *statelessClient, r *peer.Request, spec *methodSpec) {
	c := &statelessCall{client: client}
	c.kind = c
	c.init(cc, r, spec, client.name, client.id, &client.links)
	client.retain()
	if c.begin() && c.continueCall() {
		c.resolve()
	}
}

// lastListed returns nil: the lists of stateless clients are not tracked.
func (c *statelessCall) lastListed(catalog.Kind) *catalog.Snapshot { return nil }

func (c *statelessCall) findTask(id string) (catalog.Route, bool) {
	st := c.g.statelessTasks.find(c.Principal, id)
	if st == nil || !c.conn.uses(st.backend) {
		return catalog.Route{}, false
	}
	return catalog.Route{Backend: st.backend, Original: st.scopedID.id}, true
}

func (c *statelessCall) notFoundError() *wire.Error {
	err := c.spec.notFound(c.Name)
	if err.Code == protocol.CodeResourceNotFound {
		err.Code = wire.CodeInvalidParams
	}
	return err
}

func (c *statelessCall) traced() TracedClient {
	return TracedClient{Revision: c.client.meta.Revision, HTTP: c.conn.transport != Stdio}
}

func (c *statelessCall) prepare() bool {
	if c.spec == taskSpec {
		c.goLocked(c.serveTaskRequest)
		return false
	}
	cont := c.continuation
	if cont != nil && cont.backend != "" &&
		(cont.backend != c.Route.Backend || cont.entry != c.Route.Original) {
		return c.rejectState(mrtr.ErrOtherCall)
	}
	reserved, asTask, err := c.reserveTask()
	if err != nil {
		c.reject(err)
		return false
	}
	if cont != nil && cont.claim != nil && !c.claimRerun(cont.claim) {
		if reserved {
			c.g.statelessTasks.unreserve(c.client.principal)
		}
		return false
	}
	if cont != nil {
		cont.claim = nil // used
	}
	request := c.backendRequest(c.backendMessage(asTask))
	if cont != nil && !cont.rerun { // with responses, which only a modern backend may get
		request.Continuation, request.ServerKey = true, cont.serverKey
	}
	if !c.spec.allowsInput {
		c.backendCall = c.newBackendCall(request, c)
		c.client.completions.add(c) // no other method comes here
		return true
	}
	rc := &resumableCall{client: c.client, id: newID(), call: c,
		callOrigin:   callOrigin{c.Route, c.Trace},
		taskReserved: reserved, sendAsTask: asTask}
	rc.backendCall = c.newBackendCall(request, rc)
	c.backendCall, c.resumable = rc.backendCall, rc
	c.client.retain()
	c.client.addCall(rc)
	return true
}

// backendMessage converts the request for the backend: it removes the members of the modern
// generation, which package backends adds if the backend is modern, and replaces the ticket by the
// backend's own requestState. AsTask is true if the request must ask for a task.
func (c *statelessCall) backendMessage(asTask bool) wire.Message {
	m := protocol.StripMeta(c.r.Message)
	if c.Method == protocol.MethodToolsCall {
		m = protocol.StripTaskParam(m)
	}
	if asTask {
		m = protocol.AddTaskParam(m)
	}
	switch cont := c.continuation; {
	case cont == nil:
	case cont.rerun:
		m = protocol.SetContinuation(m, nil, nil)
	case len(cont.state) > 0:
		m, _ = m.Set(cont.state, "params", "requestState")
	case cont.backend != "": // the ticket has no state
		m = protocol.SetContinuation(m, m.Part(wire.PartInputResponses), nil)
	}
	return m
}

// serveTaskRequest serves a request about a task.
func (c *statelessCall) serveTaskRequest(ctx context.Context) {
	st := c.g.statelessTasks.find(c.Principal, c.Name)
	if st == nil {
		c.reject(c.notFoundError()) // the task has just expired
		return
	}
	resp := st.handle(ctx, c.backendMessage(false), c.client)
	c.recordLinks(resp.Message)
	if resp.Err != nil {
		c.failWith(resp.Err)
	} else {
		c.forward(resp.Message, st.modern, outcomeOf(resp.Message))
	}
}

// OnProgress implements contract.CallHandler. It is not called if the call is resumable.
func (c *statelessCall) OnProgress(m wire.Message) {
	if !c.conn.isBacklogged(c.Route.Backend) {
		c.history.progress.Add(1)
		c.r.Notify(m)
	}
}

// fromLegacy converts a legacy backend's response for the client. An error that requires URL
// elicitations becomes input requests, and a task becomes a task of the principal.
func (c *statelessCall) fromLegacy(m wire.Message) error {
	result, failure := m.Part(wire.PartResult), m.Part(wire.PartError)
	switch {
	case failure != nil:
		if !c.requestURLConsent(failure) {
			c.forwardError(m, false)
		}
		return nil
	case !wire.IsObject(result):
		_, err := protocol.ParseResultType(result)
		return &peer.BadResponseError{Err: err}
	case c.resumable != nil && c.resumable.sendAsTask:
		if task, _ := wire.Lookup(result, "task"); wire.IsObject(task) {
			return c.forwardTask(m, false)
		}
	}
	c.forward(m, false, outcomeOf(m))
	return nil
}

// fromModern forwards a modern backend's response, with the requestState and the task id that the
// gateway has created.
func (c *statelessCall) fromModern(m wire.Message) error {
	kind, inputs, err := c.readResult(m)
	if err == nil {
		err = mrtr.CheckInputsDeclared(c.Route.Backend, c.client.meta.Capabilities, inputs)
	}
	switch {
	case err != nil:
		return err
	case kind == "":
		c.forwardError(m, true)
	case kind == protocol.ResultTask:
		return c.forwardTask(m, true)
	case kind == protocol.ResultInputRequired:
		out := outcomeOf(m)
		out.Kind = InputRequired
		c.history.rounds.Add(1)
		c.forward(c.sealState(m), true, out)
	default:
		c.forward(m, true, outcomeOf(m))
	}
	return nil
}

func (c *statelessCall) failed(err error) { c.failWith(err) }

func (c *statelessCall) respond(m wire.Message, o Outcome) { c.forward(m, true, o) }

// forward ends the call with a response, converted for the client. Modern is true if the response
// has the form of the modern generation. It returns false if the client's request has already
// ended.
func (c *statelessCall) forward(m wire.Message, modern bool, out Outcome) bool {
	if c.resumable != nil {
		c.resumable.unreserveTask()
	}
	c.recordLinks(m)
	if modern && c.Method == protocol.MethodResourcesRead && c.conn.view().Private {
		m = protocol.MakePrivate(m) // other clients may not read the resource
	}
	if !c.r.Forward(protocol.ToModern(m, c.Method, c.g.info, modern)) {
		return false
	}
	c.end(out)
	return true
}

func (c *statelessCall) forwardError(m wire.Message, modern bool) {
	e := wire.ReadError(m.Part(wire.PartError))
	if e.Code == protocol.CodeResourceNotFound && c.Method == protocol.MethodResourcesRead &&
		e.Data == nil {
		m, _ = m.Set(wire.Encode(map[string]string{"uri": c.Name}), "error", "data")
	}
	c.forward(m, modern, outcomeOf(protocol.ToModern(m, c.Method, c.g.info, modern)))
}

func (c *statelessCall) cancelSent(params []byte) {
	switch {
	case c.resumable != nil:
		c.resumable.cancelForCall(c, params)
	case c.backendCall != nil:
		c.backendCall.Cancel(params)
	}
}

// replyInputRequired ends the call with an input_required result. It reports whether the client's
// request was still open.
func (c *statelessCall) replyInputRequired(result []byte) bool {
	if !c.g.replyModern(c.r, result) {
		return false
	}
	c.end(Outcome{Kind: InputRequired, Result: result})
	return true
}

func (c *statelessCall) ended() {
	c.client.completions.remove(c)
	c.client.release()
}
