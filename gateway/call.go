package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A CallInfo describes a client's call for Observers, which must not retain it.
type CallInfo struct {
	Session   string
	Client    string // name/version
	Principal string // authenticated identity; "" if there is no authentication
	ID        wire.ID
	Method    string
	Name      string // as in the request: name of a tool or prompt, URI, or task id
	Arguments []byte // as sent by the client, nil if absent

	Route     catalog.Route // zero until resolved
	BackendID wire.ID       // set when the call ends; "" = not sent
	Started   time.Time
	Sent      time.Time // set when the call ends: time of the last sending; zero = not sent
}

// A clientCall is a client's call in flight. A response of the backend or a cancellation by the
// client ends the call. If they are concurrent, only the first one removes the request from the
// client's peer and notifies the observers.
//
// [serverRequest] is the counterpart in the other direction.
type clientCall struct {
	CallInfo
	spec      *methodSpec
	s         *Session
	r         *peer.Request
	stateless *statelessClient // nil for a session client
	// the request to the backend, without the Message
	request contract.BackendRequest
	// set when the call is sent, or to resumable.backendCall; nil = not sent to the backend
	backendCall contract.BackendCall
	// data of a stateless client's retry; nil if the request is no retry
	continuation *continuation
	// stateless clients only; nil if the method allows no input requests
	resumable    *resumableCall
	taskReserved bool // a slot is reserved, because the call may become a task
	// stateless clients only: the request to the backend asks for a task
	sendAsTask    bool
	relatedTaskID string // task that input requests of the call belong to; "" = none

	sawProgress atomic.Bool // the backend has reported progress

	older, newer *clientCall // neighbours in the session's inFlightCalls

	mu        sync.Mutex
	cancelled bool
	// cancels the context of the goroutine that works for the call; nil if there is none
	cancelWait context.CancelFunc
}

func (s *Session) newCallInfo(m wire.Message, id wire.ID, name string) CallInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := s.negotiated.Name
	if protocol.IsModern(m) {
		client = clientName(m)
	}
	return CallInfo{
		Session: s.id, Client: client, Principal: s.principal, ID: id, Method: m.Method(),
		Name: name, Arguments: m.Part(wire.PartArguments), Started: time.Now(),
	}
}

// startCall starts a call. If the name is unknown but may become known while backends are
// starting, the call waits for the catalog.
func (s *Session) startCall(client *statelessClient, r *peer.Request, spec *methodSpec,
	name string) {
	c := &clientCall{CallInfo: s.newCallInfo(r.Message, r.RemoteID(), name), spec: spec, s: s, r: r,
		stateless: client}
	c.request = contract.BackendRequest{Session: s.id, ProgressToken: r.Token(),
		AllowTask: spec == toolsCallSpec && client == nil}
	if client != nil {
		c.request.Session = client.id
		client.retain()
	}
	s.g.observeBegin(&c.CallInfo)
	if !r.OnCancel(c) { // already cancelled
		c.finish(Outcome{Kind: Cancelled})
		return
	}
	if client != nil && c.isRetry() && !c.continueCall() {
		return
	}
	v := s.g.Backends.View()
	route, ok := spec.resolve(c, v)
	switch {
	case ok:
		c.send(route)
	case spec.mayResolveLater(c, v):
		c.awaitRoute()
	default:
		c.failUnresolved()
	}
}

// awaitRoute starts a goroutine that waits until the call's route is known or cannot become known,
// and then sends or fails the call.
func (c *clientCall) awaitRoute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return
	}
	ctx, cancel := context.WithCancel(c.s.ctx)
	c.cancelWait = cancel
	c.s.work.Go(func() {
		defer cancel()
		var route catalog.Route
		found := false
		_, ok := c.s.awaitCatalog(ctx, func(v *catalog.View) bool {
			route, found = c.spec.resolve(c, v)
			return found || !c.spec.mayResolveLater(c, v)
		})
		if ok && found {
			c.send(route)
		} else {
			c.failUnresolved()
		}
	})
}

// failUnresolved ends a call whose name is unknown. If WhyUnavailable returns a reason for the name
// of a tool, the error contains this reason.
func (c *clientCall) failUnresolved() {
	if c.isMethod(protocol.MethodToolsCall) {
		if backend, err := c.s.g.Backends.WhyUnavailable(c.Name); err != nil {
			c.mu.Lock()
			c.Route.Backend = backend
			c.mu.Unlock()
			c.OnResponse(contract.BackendResponse{Err: &transport.CallLostError{Err: err}})
			return
		}
	}
	c.rejectUnknown()
}

// rejectUnknown ends a call whose name is unknown or denied by the configuration. Only the audit
// record distinguishes these two causes.
func (c *clientCall) rejectUnknown() {
	failure := c.notFoundError()
	if c.r.Fail(failure) {
		c.finish(c.rejectedOutcome(failure))
	}
}

// rejectedOutcome returns the outcome of a call that ended with notFoundError.
func (c *clientCall) rejectedOutcome(failure *wire.Error) Outcome {
	o := errorOutcome(Rejected, failure)
	kind := catalog.Tools
	switch c.Method {
	case protocol.MethodPromptsGet:
		kind = catalog.Prompts
	case protocol.MethodResourcesRead:
		kind = catalog.Resources
	}
	if backend := c.s.g.Backends.DeniedBy(kind, c.Name); backend != "" {
		o.Reason = "the filters of backend " + backend + " deny it"
	}
	return o
}

// notFoundError returns the error for a name that is unknown or denied by the configuration.
func (c *clientCall) notFoundError() *wire.Error {
	err := c.spec.notFound(c.Name)
	if c.stateless != nil && err.Code == protocol.CodeResourceNotFound {
		err.Code = wire.CodeInvalidParams
	}
	return err
}

// reject ends, with an error, a call that was not sent to a backend.
func (c *clientCall) reject(err *wire.Error) {
	if c.r.Fail(err) {
		c.finish(errorOutcome(Rejected, err))
	}
}

func (c *clientCall) send(route catalog.Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return
	}
	c.Route = route
	if c.continuation != nil && c.continuation.backend != "" &&
		c.continuation.backend != route.Backend {
		c.rejectState(mrtr.ErrOtherCall)
		return
	}
	// the URI of a subscription is stored
	if c.isMethod(protocol.MethodResourcesSubscribe) && len(c.Name) > maxURI {
		c.reject(errURITooLong())
		return
	}
	if err := c.reserveTask(); err != nil {
		c.reject(err)
		return
	}
	if c.continuation != nil && c.continuation.claim != nil && !c.claimRerun(c.continuation.claim) {
		if c.taskReserved {
			c.s.g.statelessTasks.unreserve(c.stateless.principal)
		}
		return
	}
	c.request.Entry = route.Original
	// c.mu stays locked during sending: a concurrent cancellation either prevents sending, or
	// HandleCancel forwards it to the backend. Sending does not block.
	c.spec.send(c)
}

// newBackendCall creates the call to the backend, whose request is m. The call is known to
// attribution before it is sent. newBackendCall is called with c.mu locked.
func (c *clientCall) newBackendCall(m wire.Message) contract.BackendCall {
	request := c.request
	request.Message = m
	switch {
	case c.stateless == nil:
		c.backendCall = c.s.g.Backends.NewCall(c.Route.Backend, request, c)
		c.s.addInFlight(c)
	case c.spec.allowsInput:
		c.makeResumable(request)
	default:
		c.backendCall = c.s.g.Backends.NewCall(c.Route.Backend, request, c)
	}
	return c.backendCall
}

// pauseTimeout and resumeTimeout pause the timeout of the call at the backend. A request about a
// polledTask has no call of its own.
func (c *clientCall) pauseTimeout() {
	if c.backendCall != nil {
		c.backendCall.PauseTimeout()
	}
}

func (c *clientCall) resumeTimeout() {
	if c.backendCall != nil {
		c.backendCall.ResumeTimeout()
	}
}

// OnProgress implements contract.CallHandler.
func (c *clientCall) OnProgress(m wire.Message) {
	c.sawProgress.Store(true)
	if c.s.isBacklogged(c.Route.Backend) {
		return
	}
	c.r.Notify(c.s.toClientTaskIDs(c.Route.Backend, m))
}

// OnResponse implements contract.CallHandler. If the backend and the client are of different
// generations, OnResponse translates the response or keeps the call open; see round_trips.go and
// resumable_call.go.
func (c *clientCall) OnResponse(resp contract.BackendResponse) {
	m, err := resp.Message, resp.Err
	switch {
	case err != nil:
	case resp.Modern || c.stateless != nil:
		err = c.validateResult(m, resp.Modern)
	default:
		err = c.checkTaskResult(m)
	}
	if err != nil {
		if c.taskReserved && c.stateless == nil {
			c.s.tasks.unreserve()
		}
		kind, failure := c.clientError(err)
		if c.r.Fail(failure) {
			o := errorOutcome(kind, failure)
			if errors.Is(err, contract.ErrForbidden) {
				o = c.rejectedOutcome(failure)
			}
			c.end(o)
		}
		return
	}
	switch {
	case c.stateless != nil:
		c.respondStateless(m, resp.Modern)
		return
	case resp.Modern && c.startRoundTrips(m):
		return // runRoundTrips continues the call
	case resp.Modern:
		m = c.toClientResponse(m)
	default:
		m = c.recordResponse(m)
	}
	c.forward(m)
}

// forward ends a call with a backend's response, adapted to the client's revision.
func (c *clientCall) forward(m wire.Message) {
	if failure := m.Part(wire.PartError); failure != nil {
		marked, err := protocol.LabelElicitations(failure, mrtr.Label(c.Route.Backend))
		if err != nil {
			c.failWith(&peer.BadResponseError{Err: err})
			return
		}
		if len(marked) > len(failure) {
			m = m.Splice(wire.Edit{Part: wire.PartError, Text: marked})
		}
	}
	m = protocol.AdaptResponse(m, c.Method, c.s.revision())
	c.recordLinks(m)
	early := c.earlyStatuses()
	if c.r.Forward(m) {
		c.end(outcomeOf(m))
		for _, status := range early {
			c.s.g.forwardTaskStatus(c.Route.Backend,
				contract.Attribution{Session: c.s.id, StreamEnded: true}, status)
		}
	}
}

// replyResult ends a call with a result that the gateway has created.
func (c *clientCall) replyResult(result []byte) {
	reply := c.r.Reply
	if c.stateless != nil {
		reply = func(result []byte) bool { return c.s.g.replyModern(c.r, result) }
	}
	if reply(result) {
		c.end(Outcome{Kind: OK, Result: result})
	}
}

// HandleCancel implements peer.CancelHandler: the client has cancelled the call or disconnected.
func (c *clientCall) HandleCancel(params []byte) {
	reason := ""
	switch {
	case params != nil:
	case c.s.stopped.Load():
		reason = "the gateway was stopped"
	default:
		reason = "the client is gone"
	}
	params = protocol.StripParamsMeta(params)
	c.mu.Lock()
	c.cancelled = true
	call, rc := c.backendCall, c.resumable
	if c.cancelWait != nil {
		c.cancelWait()
	}
	c.mu.Unlock()
	switch {
	case rc != nil:
		rc.cancelForCall(c, params)
	case call != nil:
		call.Cancel(params)
	}
	c.end(Outcome{Kind: Cancelled, Reason: reason})
}

func (c *clientCall) isMethod(method string) bool { return c.Method == method }

func (c *clientCall) end(o Outcome) {
	c.s.removeInFlight(c)
	if c.backendCall != nil {
		c.BackendID, c.Sent = c.backendCall.ID(), c.backendCall.SentAt()
	}
	c.finish(o)
}

// finish notifies the observers of the end of a call and releases its stateless client.
func (c *clientCall) finish(o Outcome) {
	c.s.g.observeEnd(&c.CallInfo, o)
	if c.stateless != nil {
		c.stateless.release()
	}
}
