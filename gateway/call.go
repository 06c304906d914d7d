package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A CallInfo describes a client's call for Observers, which must not retain it.
type CallInfo struct {
	Seq       uint64 // the number of the call in this process; see package callid
	Session   string
	Client    string               // name/version
	Principal *principal.Principal // nil if there is no authentication
	ID        wire.ID
	Method    string
	Name      string // as in the request: name of a tool or prompt, URI, or task id
	Arguments []byte // as sent by the client, nil if absent

	Route     catalog.Route // zero until resolved
	BackendID wire.ID       // set when the call ends; "" = not sent
	Started   time.Time
	Sent      time.Time // set when the call ends: time of the last sending; zero = not sent
	Trace     Trace     // nil = the gateway has no Tracer
}

// A clientCall is a client's call in flight, without the parts that depend on the kind of client.
// It is embedded in a [sessionCall] or a [statelessCall]. A response of the backend or a
// cancellation by the client ends the call. If they are concurrent, only the first one claims the
// client's request and notifies the observers.
//
//	begin ─ resolve, awaitRoute ─ send ─ prepare, BackendCall.Send
//	OnResponse ─ fromLegacy, fromModern or failed of the clientKind ─ end
//
// [serverRequest] is the counterpart in the other direction.
type clientCall struct {
	CallInfo
	g    *Gateway
	conn *clientConn
	kind clientKind // the sessionCall or statelessCall that contains the call
	spec *methodSpec
	r    *peer.Request

	links          *links // of the client
	backendSession string // session of the call at the backends
	// nil until the call is sent; not changed after a cancellation
	backendCall contract.BackendCall

	history callHistory
	// counted for the rate limits, itself or the earlier request that led to a question
	counted bool

	mu        sync.Mutex
	cancelled bool
	// consents of the user to the call; changed only while the call is not at a backend, without mu
	consents callConsents
	// cancels the context of the goroutine that works for the call; nil if there is none
	cancelWait context.CancelFunc
}

// A callHistory has the events of a call that its Outcome reports.
type callHistory struct {
	confirmation atomic.Uint32 // a confirmation
	rounds       atomic.Uint32 // see audit.Counts
	progress     atomic.Uint32
	reconnects   atomic.Uint32 // of further BackendCalls than clientCall.backendCall
}

// callConsents are the consents of the user to a call.
type callConsents struct {
	given contract.Consents
	// page is the URL of the page that the user has agreed to open; "" = none, or not known: an
	// earlier request has led to it.
	page string
}

// A clientKind is the part of a clientCall that depends on the kind of client.
type clientKind interface {
	// lastListed returns the snapshot of the list that the client has read; nil if the client has
	// not read the list, or if its lists are not tracked.
	lastListed(catalog.Kind) *catalog.Snapshot
	// findTask returns the route of a request about a task of the client.
	findTask(id string) (catalog.Route, bool)
	// notFoundError returns the error for a name that is unknown or denied by the configuration.
	notFoundError() *wire.Error
	// traced describes the client for the Tracer.
	traced() TracedClient

	// prepare creates backendCall, for the backend in Route. The call is known to attribution when
	// prepare returns. It returns false if nothing is to be sent, because it has ended the call or
	// a goroutine serves it. It is called with clientCall.mu locked.
	prepare() bool
	// fromLegacy and fromModern respond to the client with the response of a backend of this
	// generation, or keep the call open. They return an error if the response is invalid.
	fromLegacy(m wire.Message) error
	fromModern(m wire.Message) error
	// failed ends a call that got no response, or an invalid one.
	failed(err error)
	// ask asks the client a question about a call that was not sent. The answer decides whether the
	// call is sent again. It is called like OnResponse, and does not block.
	ask(q question)
	// respond ends the call with a response of the gateway, if the client's request is still open.
	respond(m wire.Message, o Outcome)
	// cancelSent forwards the client's cancellation to the backend, if the call was sent.
	cancelSent(params []byte)

	// ended releases the resources of a call that has ended.
	ended()
}

// init sets the fields of a new call, except for kind. The name is set by begin.
func (c *clientCall) init(conn *clientConn, r *peer.Request, spec *methodSpec,
	client, session string, links *links) {
	c.CallInfo = CallInfo{
		Session: conn.id, Client: client, Principal: conn.principal, ID: r.RemoteID(),
		Method: r.Method(), Arguments: r.Part(wire.PartArguments), Started: time.Now(),
	}
	c.g, c.conn, c.spec, c.r = conn.g, conn, spec, r
	c.links, c.backendSession = links, session
}

// begin notifies the observers of a new call. It returns false if the call has already ended,
// because it is cancelled or has no name.
func (c *clientCall) begin() bool {
	if c.Method == protocol.MethodCompletionComplete {
		c.spec = completionSpec(c.r.Message)
	}
	var name []byte
	if c.spec != nil {
		name = c.spec.nameIn(c.r.Message)
	}
	c.Name = wire.Unquote(name)
	c.beginTrace()
	c.g.Observers.begin(&c.CallInfo)
	switch {
	case !c.r.OnCancel(c): // already cancelled
		c.finish(Outcome{Kind: Cancelled})
		return false
	case c.spec == nil:
		c.reject(errNoReference)
		return false
	case len(name) == 0 || name[0] != '"':
		c.reject(wire.Errorf(wire.CodeInvalidParams, "Invalid params: %s needs a %s", c.Method,
			strings.Join(c.spec.namePath, " with a ")))
		return false
	}
	return true
}

// beginTrace begins the trace of a call, if the gateway has a Tracer.
func (c *clientCall) beginTrace() {
	if t := c.g.Tracer; t != nil {
		c.Trace = t.Begin(&c.CallInfo, c.r.Message, c.kind.traced())
	}
}

// resolve sends the call to the backend that has its name. If the name is unknown but may become
// known while backends are starting, the call waits for the catalog.
func (c *clientCall) resolve() {
	v := c.conn.view()
	route, ok := c.spec.resolve(c, v)
	switch {
	case ok:
		c.send(route)
	case c.spec.mayResolveLater(c, v):
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
	c.goLocked(func(ctx context.Context) {
		var route catalog.Route
		found := false
		_, ok := awaitCatalog(ctx, c.conn.view, func(v *catalog.View) bool {
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

// goLocked starts a goroutine that works for the call. Its context is done when the call is
// cancelled or the connection has ended. The call must not be cancelled; mu stays locked until the
// goroutine has started, so that no goroutine is started for a cancelled call.
func (c *clientCall) goLocked(work func(context.Context)) {
	ctx, cancel := context.WithCancel(c.conn.work.ctx)
	c.cancelWait = cancel
	c.conn.work.Go(func() { // does nothing if the connection, and so the call, has ended
		defer cancel()
		work(ctx)
	})
}

// goLater starts a goroutine that works for the call, unless the call was cancelled. In contrast to
// goLocked, it may be called with or without mu locked.
func (c *clientCall) goLater(work func(context.Context)) {
	c.conn.work.Go(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.cancelled {
			c.goLocked(work)
		}
	})
}

// send sends the call to a backend, unless the call is cancelled. It does not block.
func (c *clientCall) send(route catalog.Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return
	}
	c.Route = route
	c.g.Observers.routed(&c.CallInfo)
	switch {
	case c.isHidden():
		c.rejectUnknown()
	case c.Method == protocol.MethodCompletionComplete &&
		!c.conn.view().HasCapability(route.Backend, "completions"):
		// no error: the gateway has offered the capability on behalf of other backends
		c.OnResponse(contract.BackendResponse{Message: wire.NewResult("0",
			[]byte(`{"completion":{"values":[],"hasMore":false}}`))})
	case c.Method == protocol.MethodResourcesSubscribe && len(c.Name) > maxURI:
		c.reject(errURITooLong()) // the URI of a subscription is stored
	case !c.takeRate():
	case c.kind.prepare():
		// mu stays locked, so that a cancellation does not overtake the call: it either prevents
		// sending, or HandleCancel forwards it to the backend. OnResponse, if it is called during
		// Send, does not lock mu: only results of a backend can start round trips.
		c.backendCall.Send()
	}
}

// isHidden reports whether the profiles of the client do not permit the call, although a list or a
// link that the client has got contains its name. The call then ends like one with an unknown name:
// before it counts for a rate limit, and also if the backend lacks a capability.
func (c *clientCall) isHidden() bool {
	return c.Principal.ProfileKey() != "" && errors.Is(
		c.g.Backends.Permits(c.Route.Backend, c.backendRequest(c.r.Message)),
		contract.ErrForbidden)
}

// backendRequest returns a request to the backend: m with the name that the backend uses.
func (c *clientCall) backendRequest(m wire.Message) contract.BackendRequest {
	r := contract.BackendRequest{Message: m, Session: c.backendSession, Entry: c.Route.Original,
		Builtin: c.Route.Builtin, ProgressToken: c.r.Token(), Consents: c.consents.given}
	switch {
	case c.Name == c.Route.Original:
	case c.spec.hasPlainName():
		r.Name = c.Route.OriginalJSON
	default:
		path := append([]string{"params"}, c.spec.namePath...)
		r.Message, _ = m.Set(c.Route.OriginalJSON, path...)
	}
	return r
}

// newBackendCall returns a call to the backend in Route, with a span if the call is traced.
func (c *clientCall) newBackendCall(
	r contract.BackendRequest, h contract.CallHandler,
) contract.BackendCall {
	if c.Trace != nil {
		r.Span = c.Trace.BackendSpan()
	}
	return c.g.Backends.NewCall(c.Route.Backend, r, h)
}

// OnResponse implements contract.CallHandler.
func (c *clientCall) OnResponse(resp contract.BackendResponse) {
	err := resp.Err
	switch {
	case err != nil: // has no generation
		if q, ok := errors.AsType[*contract.QuestionError](err); ok {
			c.kind.ask(question{q, c})
			return
		}
	case resp.Modern:
		err = c.kind.fromModern(resp.Message)
	default:
		err = c.kind.fromLegacy(resp.Message)
	}
	if err != nil {
		c.kind.failed(err)
	}
}

// failUnresolved ends a call whose name is unknown. If WhyUnavailable or NotApproved returns a
// reason for the name of a tool, the error contains this reason.
func (c *clientCall) failUnresolved() {
	if c.Method == protocol.MethodToolsCall {
		backend, err := c.g.Backends.WhyUnavailable(c.conn.principal, c.Name)
		if err != nil {
			if c.setTarget(backend, "") {
				c.failWith(&transport.CallLostError{Err: err})
			}
			return
		}
		if backend, err := c.g.Backends.NotApproved(c.conn.principal, c.Name); err != nil {
			if c.setTarget(backend, "") {
				c.rejectForbidden(err)
			}
			return
		}
	}
	c.rejectUnknown()
}

// setTarget sets the backend of a call that is not sent, and the backend's own name of the tool,
// prompt or resource, "" if it is unknown. It returns false if the call is cancelled.
func (c *clientCall) setTarget(backend, own string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cancelled {
		c.Route.Backend, c.Route.Original = backend, own
	}
	return !c.cancelled
}

// failWith ends the call with an error.
func (c *clientCall) failWith(err error) {
	kind, failure := c.clientError(err)
	o := errorOutcome(kind, failure) // without a link
	if q, ok := errors.AsType[*contract.QuestionError](err); ok {
		if link := q.Link(); link != "" {
			failure.Message += ". " + link
		}
	}
	if c.r.Fail(failure) {
		if errors.Is(err, contract.ErrForbidden) {
			o = c.rejectedOutcome(failure)
		}
		c.end(o)
	}
}

// rejectUnknown ends a call whose name is unknown or denied by the configuration. Only the audit
// record distinguishes these two causes.
func (c *clientCall) rejectUnknown() {
	failure := c.kind.notFoundError()
	if c.r.Fail(failure) {
		c.finish(c.rejectedOutcome(failure))
	}
}

// rejectForbidden ends a call that was not sent because of err, an error of Backends.Permits.
func (c *clientCall) rejectForbidden(err error) {
	if errors.Is(err, contract.ErrForbidden) {
		c.rejectUnknown()
		return
	}
	_, failure := c.clientError(err)
	c.reject(failure)
}

// rejectedOutcome returns the outcome of a call that ended with notFoundError.
func (c *clientCall) rejectedOutcome(failure *wire.Error) Outcome {
	o := errorOutcome(Rejected, failure)
	if backend := c.g.Backends.DeniedBy(c.spec.kind, c.Name); backend != "" {
		o.Reason = "the filters of backend " + backend + " deny it"
	} else if profiles := c.Principal.ProfileKey(); profiles != "" {
		if route, ok := c.spec.resolve(c, c.g.Backends.View()); ok {
			o.Reason = "the profiles of the client hide it: " + profiles +
				", backend " + route.Backend
		}
	}
	return o
}

// reject ends, with an error, a call that was not sent to a backend.
func (c *clientCall) reject(err *wire.Error) {
	if c.r.Fail(err) {
		c.finish(errorOutcome(Rejected, err))
	}
}

// readResult returns the resultType of a modern backend's response, "" for an error response, and
// the input requests in it. It returns an error if the result is invalid, or if the request does
// not allow its resultType.
func (c *clientCall) readResult(m wire.Message) (kind string, inputs []protocol.InputRequest,
	err error) {
	result := m.Part(wire.PartResult)
	if result == nil {
		return "", nil, nil
	}
	kind, err = protocol.ParseResultType(result)
	switch {
	case err != nil:
	case kind == protocol.ResultInputRequired && c.spec.allowsInput:
		inputs, _, err = protocol.ReadInputRequests(result)
	case kind == protocol.ResultTask && c.Method != protocol.MethodToolsCall,
		kind != protocol.ResultTask && kind != protocol.ResultComplete:
		return "", nil, errUnexpectedType(kind)
	}
	if err != nil {
		err = &peer.BadResponseError{Err: err}
	}
	return kind, inputs, err
}

// inputDeclined returns the final response of a call whose client does not supply the input: for a
// tool call a result with isError, so that the model can react; for any other call an error.
func (c *clientCall) inputDeclined(err *wire.Error) wire.Message {
	if c.Method != protocol.MethodToolsCall {
		return wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError,
			"backend %s needs input that the client does not provide: %s", c.Route.Backend,
			err.Message))
	}
	return wire.NewResult("0", wire.Encode(map[string]any{
		"isError": true,
		"content": []any{map[string]string{"type": "text",
			"text": "The tool needs input that the client does not provide: " + err.Message}},
	}))
}

// HandleCancel implements peer.CancelHandler: the client has cancelled the call or disconnected.
func (c *clientCall) HandleCancel(params []byte) {
	reason := ""
	switch {
	case params != nil:
	case c.conn.stopped.Load():
		reason = "the gateway was stopped"
	default:
		reason = "the client is gone"
	}
	c.mu.Lock()
	c.cancelled = true
	if c.cancelWait != nil {
		c.cancelWait()
	}
	c.mu.Unlock()
	c.kind.cancelSent(protocol.StripParamsMeta(params))
	c.end(Outcome{Kind: Cancelled, Reason: reason})
}

// isCancelled reports whether the client has cancelled the call or has disconnected.
func (c *clientCall) isCancelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled
}

// end ends a call that may have been sent. It must be called once, by the caller that has claimed
// the request.
func (c *clientCall) end(o Outcome) {
	if c.backendCall != nil {
		c.BackendID, c.Sent = c.backendCall.ID(), c.backendCall.SentAt()
		o.Reconnects = c.backendCall.Reconnects()
	}
	c.finish(o)
}

// finish ends a call that was not sent. It must be called once, like end.
func (c *clientCall) finish(o Outcome) {
	c.kind.ended()
	h := &c.history
	o.Confirmation = confirmation(h.confirmation.Load()).String()
	o.Rounds, o.Progress = int(h.rounds.Load()), int(h.progress.Load())
	o.Reconnects += int(h.reconnects.Load())
	if c.Trace != nil {
		c.Trace.End(&c.CallInfo, o)
	}
	c.g.Observers.end(&c.CallInfo, o)
}
