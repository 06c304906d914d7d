package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A CallInfo is a request on its way to a backend: who asked, for what, and where it
// goes. An Observer may read it, and must not keep it.
type CallInfo struct {
	Session   string
	Client    string // name/version
	Principal string // which of several tokens it has; "" if that is not told apart
	ID        wire.ID
	Method    string
	Name      string // of the tool or the prompt, as the client named it; the URI; the task's id
	Arguments []byte // as the client sent them, nil if it did not

	Route     catalog.Route // zero while it is not known
	BackendID wire.ID       // "" until it was sent
	Started   time.Time
	Sent      time.Time // to the backend, the last time; zero = it was not
}

// clientCall is a CallInfo in flight: the row that brings the answer home. Two may end
// it, the client, who takes back its request, and the backend; the one that
// takes the request from the client's table does, and tells the observers.
//
// [serverRequest] is the same in the other direction.
type clientCall struct {
	CallInfo
	spec          *methodSpec
	firstUpstream peer.Call
	upstream      *peer.Call // at the backend: row, or another round's, or the errand's if there is one
	s             *Session
	r             *peer.Request
	stateless     *statelessClient // whose it is, if that has no session
	continuation  *continuation    // of several, likewise; nil = it is the first
	resumable     *resumableCall   // what the backend is doing for it, likewise
	taskReserved  bool             // it may become a task, for which there is room
	sendAsTask    bool             // a guest's is sent with the wish for one
	relatedTaskID string           // the task to which what is asked on its behalf belongs; "" = none

	sawProgress atomic.Bool // the backend has told of progress

	older, newer *clientCall // in the session's list of flights

	mu         sync.Mutex
	sent       bool
	cancelled  bool
	cancelWait context.CancelFunc // ends the wait for the route; nil unless there is one
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

// startCall sends a request on its way. What it names may be of a backend that is not
// known yet; then the call waits for the catalog.
func (s *Session) startCall(client *statelessClient, r *peer.Request, spec *methodSpec, name string) {
	c := &clientCall{CallInfo: s.newCallInfo(r.Message, r.RemoteID(), name), spec: spec, s: s, r: r, stateless: client}
	c.upstream = &c.firstUpstream
	c.firstUpstream.Handler, c.firstUpstream.Tag, c.firstUpstream.Token, c.firstUpstream.SessionID, c.firstUpstream.AllowTask = c, c, r.Token(), s.id, spec == toolsCallSpec && client == nil
	if client != nil {
		c.upstream.SessionID = client.id
		client.retain()
	}
	s.g.observeBegin(&c.CallInfo)
	if !r.OnCancel(c) { // the session is ending and has cancelled it
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

// awaitRoute sees to it that the call goes on once it is known where to, or all
// backends are.
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

// failUnresolved ends a call for something that nobody has. That of a tool may be due
// to a backend that has never listed any.
func (c *clientCall) failUnresolved() {
	if c.isMethod(protocol.MethodToolsCall) {
		if backend, err := c.s.g.Backends.WhyUnavailable(c.Name); err != nil {
			c.mu.Lock()
			c.Route.Backend = backend
			c.mu.Unlock()
			c.OnResponse(wire.Message{}, &transport.CallLostError{Err: err})
			return
		}
	}
	c.rejectUnknown()
}

// rejectUnknown ends a call for a name that nobody has, or that the configuration forbids. Only the
// record tells the one from the other.
func (c *clientCall) rejectUnknown() {
	failure := c.notFoundError()
	if c.r.Fail(failure) {
		c.finish(c.rejectedOutcome(failure))
	}
}

// rejectedOutcome is the outcome of a call that ended with unknownError.
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

// notFoundError returns the error for a name that nobody has, or that the configuration forbids.
func (c *clientCall) notFoundError() *wire.Error {
	err := c.spec.notFound(c.Name)
	if c.stateless != nil && err.Code == protocol.CodeResourceNotFound {
		err.Code = wire.CodeInvalidParams
	}
	return err
}

// reject ends a call that no backend is asked.
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
	if c.continuation != nil && c.continuation.backend != "" && c.continuation.backend != route.Backend {
		c.rejectState(errOtherCall)
		return
	}
	if c.isMethod(protocol.MethodResourcesSubscribe) && len(c.Name) > maxURI { // it is kept
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
	c.upstream.RemoteName = route.Original
	if c.stateless != nil {
		c.makeResumable()
	} else {
		c.s.track(c)
	}
	c.sent = true
	// Under the lock, so that a cancellation comes before the call was sent or
	// finds it; to send does not wait.
	c.spec.send(c)
}

// Progressed implements peer.ResponseHandler.
func (c *clientCall) OnProgress(m wire.Message) {
	c.sawProgress.Store(true)
	if c.s.isBacklogged(c.Route.Backend) {
		return
	}
	c.r.Notify(c.s.toClientTaskIDs(c.Route.Backend, m))
}

// Done implements peer.ResponseHandler: the answer goes home as it is, or the reason why
// there is none. Where the backend is of another era than the client it goes home in
// the client's words, or not yet: see rounds.go and errand.go.
func (c *clientCall) OnResponse(m wire.Message, err error) {
	switch {
	case err != nil:
	case c.upstream.Modern || c.stateless != nil:
		err = c.validateResult(m)
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
			if errors.Is(err, peer.ErrForbidden) {
				o = c.rejectedOutcome(failure)
			}
			c.end(o)
		}
		return
	}
	switch modern := c.upstream.Modern; {
	case c.stateless != nil:
		c.respondStateless(m, modern)
		return
	case modern && c.startRoundTrips(m):
		return // the answer comes when the client has given its own
	case modern:
		m = c.toClientResponse(m)
	default:
		m = c.recordResponse(m)
	}
	c.forward(m)
}

// forward ends a call with a backend's answer, in the words of the client's revision.
func (c *clientCall) forward(m wire.Message) {
	if failure := m.Part(wire.PartError); failure != nil {
		marked, err := protocol.LabelElicitations(failure, backendLabel(c.Route.Backend))
		if err != nil {
			c.failWith(&peer.BadResponseError{Err: err})
			return
		}
		if len(marked) > len(failure) {
			m = m.Splice(wire.Edit{Part: wire.PartError, Text: marked})
		}
	}
	m = protocol.AdaptResponse(m, c.Method, c.s.traits())
	c.recordLinks(m)
	early := c.earlyStatuses()
	if c.r.Forward(m) {
		c.end(outcomeOf(m))
		for _, status := range early {
			c.s.g.forwardTaskStatus(c.s.id, c.Route.Backend, status, peer.Origin{CallEnded: true})
		}
	}
}

// replyResult ends a call with a result of ours.
func (c *clientCall) replyResult(result []byte) {
	reply := c.r.Reply
	if c.stateless != nil {
		reply = func(result []byte) bool { return c.s.g.replyModern(c.r, result) }
	}
	if reply(result) {
		c.end(Outcome{Kind: OK, Result: result})
	}
}

// Cancelled implements peer.CancelHandler: the client has taken the call back, or is
// gone.
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
	sent, rc := c.sent, c.resumable
	if c.cancelWait != nil {
		c.cancelWait()
	}
	c.mu.Unlock()
	switch {
	case rc != nil:
		rc.cancelForCall(c, params)
	case sent:
		c.s.g.Backends.Cancel(c.Route.Backend, c.upstream, params)
	}
	c.end(Outcome{Kind: Cancelled, Reason: reason})
}

func (c *clientCall) isMethod(method string) bool { return c.Method == method }

func (c *clientCall) end(o Outcome) {
	c.s.untrack(c)
	c.BackendID, c.Sent = c.upstream.ID(), c.upstream.SentAt()
	c.finish(o)
}

// finish lets go of what a call has that has ended.
func (c *clientCall) finish(o Outcome) {
	c.s.g.observeEnd(&c.CallInfo, o)
	if c.stateless != nil {
		c.stateless.release()
	}
}
