package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Requests of the stateless era. Each says itself who asks, and is answered by what is
// there at that moment: nothing of it depends on what was said before on the same
// connection, which may carry requests of both eras.

// modernMethods are those that there are, and the capabilities without which each
// does not exist; see [methodCapabilities].
var modernMethods = map[string][]string{
	protocol.MethodServerDiscover:         nil,
	protocol.MethodSubscriptionsListen:    nil,
	protocol.MethodToolsList:              nil,
	protocol.MethodToolsCall:              nil,
	protocol.MethodPromptsList:            nil,
	protocol.MethodPromptsGet:             nil,
	protocol.MethodResourcesList:          nil,
	protocol.MethodResourcesTemplatesList: nil,
	protocol.MethodResourcesRead:          nil,
	protocol.MethodCompletionComplete:     {"completions"},
	protocol.MethodTasksGet:               {"extensions", protocol.TasksExtension},
	protocol.MethodTasksUpdate:            {"extensions", protocol.TasksExtension},
	protocol.MethodTasksCancel:            {"extensions", protocol.TasksExtension},
}

// ValidateHeaders checks a request of the stateless era against the headers that came with it:
// that there is such a method at all, and that they say the same (streamable HTTP,
// "Standard Request Headers"). Get returns the values of a header. The error is nil
// if there is nothing wrong.
func (g *Gateway) ValidateHeaders(m wire.Message, get func(header string) []string) *wire.Error {
	if err := g.checkMethod(m.Method()); err != nil {
		return err
	}
	var schema []byte
	if m.Method() == protocol.MethodToolsCall {
		schema = g.Backends.View().Schema(m.Name())
	}
	return protocol.CheckHeaders(m, get, schema)
}

// checkMethod says that there is no such method in the stateless era, nil if there is.
func (g *Gateway) checkMethod(method string) *wire.Error {
	needs, known := modernMethods[method]
	if !known {
		return methodNotFound(method)
	}
	if len(needs) > 0 && !catalog.Declares(modernCaps(g.Backends.View()), needs...) {
		return methodNotFound(method)
	}
	return nil
}

// handleStateless serves a request of the stateless era.
func (s *Session) handleStateless(r *peer.Request) {
	method := r.Method()
	meta, err := protocol.ParseClientMeta(r.Message)
	if err == nil {
		err = s.g.checkMethod(method)
	}
	if err == nil {
		err = checkID(r.Message)
	}
	if err == nil && len(meta.Capabilities)+len(meta.ClientInfo) > maxClientMeta {
		err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: what _meta says of the client is longer than %d bytes", maxClientMeta)
	}
	s.mu.Lock()
	ended := s.state == closing
	s.mu.Unlock()
	if err == nil && ended {
		err = wire.Errorf(wire.CodeInternalError, "The gateway is ending; the request did not run")
	}
	if err != nil {
		s.fail(r, err)
		return
	}
	if method == protocol.MethodServerDiscover {
		s.discover(r)
		return
	}
	client, full := s.acquireClient(meta)
	if full != nil {
		s.fail(r, wire.Errorf(wire.CodeInternalError, "%v", full))
		return
	}
	s.g.Backends.Start() // the first request of all may be any; not before they know of the guest
	s.dispatchStateless(client, r, method)
}

// statelessClient returns the guest that a request on this connection is from. It stays for as
// long as the connection does, unless that brings many others later on: then for as long
// as anything is done for it, and a while.
func (s *Session) acquireClient(meta protocol.ClientMeta) (*statelessClient, error) {
	client, err := s.g.acquireClient(s.principal, meta)
	for errors.Is(err, errTooManyClients) && len(s.clients) > 0 {
		s.clients[0].release()
		s.clients = s.clients[1:]
		client, err = s.g.acquireClient(s.principal, meta)
	}
	if err != nil {
		return nil, err
	}
	s.clients = append(s.clients, client)
	i := slices.Index(s.clients, client)
	switch known := i < len(s.clients)-1; {
	case !known && len(s.clients) <= maxClientsPerConn:
		return client, nil
	case !known:
		i = 0 // the one that has asked for nothing the longest
	}
	s.clients[i].release()
	s.clients = slices.Delete(s.clients, i, i+1)
	return client, nil
}

func (s *Session) dispatchStateless(client *statelessClient, r *peer.Request, method string) {
	switch method {
	case protocol.MethodSubscriptionsListen:
		s.openListen(client, r)
	case protocol.MethodToolsList:
		s.listStateless(r, catalog.Tools)
	case protocol.MethodPromptsList:
		s.listStateless(r, catalog.Prompts)
	case protocol.MethodResourcesList:
		s.listStateless(r, catalog.Resources)
	case protocol.MethodResourcesTemplatesList:
		s.listStateless(r, catalog.Templates)
	case protocol.MethodToolsCall:
		s.callByName(client, r, toolsCallSpec)
	case protocol.MethodPromptsGet:
		s.callByName(client, r, promptsGetSpec)
	case protocol.MethodResourcesRead:
		s.callByParam(client, r, resourcesReadSpec, "uri")
	case protocol.MethodCompletionComplete:
		s.completeArgument(client, r)
	case protocol.MethodTasksGet, protocol.MethodTasksUpdate, protocol.MethodTasksCancel:
		s.handleTaskRequest(client, r)
	default:
		s.fail(r, methodNotFound(method))
	}
}

// discover tells a client what it can have here, from what is known at this moment. It
// starts no backend: there are clients that start several copies of a server only to ask
// this, and how backends are spoken to depends on what the client asks next.
func (s *Session) discover(r *peer.Request) {
	view := s.g.Backends.View()
	ttl := time.Minute
	if !view.Complete {
		ttl = 0 // what is offered may yet turn out to be less
	}
	s.g.replyModern(r, wire.Encode(struct {
		Versions     []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions,omitempty"`
		TTL          int64           `json:"ttlMs"`
		Scope        string          `json:"cacheScope"`
	}{protocol.RevisionDates(), modernCaps(view), view.Instructions, ttl.Milliseconds(), "public"}))
}

// replyModern answers a request of the stateless era with a result of ours. It reports
// whether the request was still open.
func (g *Gateway) replyModern(r *peer.Request, result []byte) bool {
	return r.Forward(protocol.ToModern(wire.NewResult("0", result), r.Method(), g.info, true))
}

// listStateless answers with a page of the merged list, which is the same for everybody: "lists
// MUST NOT vary by connection". Only while backends are starting for the first time
// does it wait.
func (s *Session) listStateless(r *peer.Request, kind catalog.Kind) {
	if v := s.g.Backends.View(); v.Settled {
		s.replyPage(r, kind, v.Snapshot)
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if !r.OnCancel(cancelHandler(cancel)) {
		cancel()
		return
	}
	s.work.Go(func() {
		defer cancel()
		if v, ok := s.awaitCatalog(ctx, func(v *catalog.View) bool { return v.Settled }); ok {
			s.replyPage(r, kind, v.Snapshot)
		} else {
			s.fail(r, wire.Errorf(wire.CodeInternalError, "The gateway is ending; the request did not run"))
		}
	})
}

func (s *Session) replyPage(r *peer.Request, kind catalog.Kind, snapshot *catalog.Snapshot) {
	page, ok := snapshot.Page(kind, r.Part(wire.PartCursor))
	if !ok {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: unknown cursor"))
		return
	}
	if kind == catalog.Tools {
		page = withoutExecution(page)
	}
	ttl, private := snapshot.Freshness(kind)
	scope := `"public"`
	if private {
		scope = `"private"`
	}
	s.g.replyModern(r, wire.EditObject(page, nil,
		wire.Member{Key: "ttlMs", Text: strconv.AppendInt(nil, ttl.Milliseconds(), 10)},
		wire.Member{Key: "cacheScope", Text: []byte(scope)}))
}

// statelessUpstreamMessage returns the request of a guest's as a backend gets it, which is told of the
// client by whoever sends it: without what is of the stateless era alone, and with the
// backend's own words in the place of ours.
func (c *clientCall) statelessUpstreamMessage() wire.Message {
	m := protocol.StripMeta(c.r.Message)
	if c.isMethod(protocol.MethodToolsCall) {
		m = protocol.StripTaskParam(m)
	}
	if c.sendAsTask {
		m = protocol.AddTaskParam(m)
	}
	switch cont := c.continuation; {
	case cont == nil:
	case cont.rerun:
		m = protocol.SetContinuation(m, nil, nil)
	case cont.state != nil:
		m, _ = m.Set(cont.state, "params", "requestState")
	}
	return m
}

// respondStateless gives a backend's answer to a client that has no session.
func (c *clientCall) respondStateless(m wire.Message, modernBackend bool) {
	out := outcomeOf(m)
	modern := modernBackend // the words that m is in
	kind := ""
	if modernBackend {
		kind = protocol.ResultType(m.Part(wire.PartResult))
	}
	switch failure := m.Part(wire.PartError); {
	case failure != nil:
		if m = c.statelessError(m, wire.ReadError(failure), modernBackend); m.Kind() == wire.Invalid {
			return
		}
		out = outcomeOf(protocol.ToModern(m, c.Method, c.s.g.info, modernBackend))
	case c.startsTask(m, kind):
		var ok bool
		if m, ok = c.registerTask(m, modernBackend); !ok {
			return
		}
		modern = true
	case kind == protocol.ResultInputRequired:
		m = c.sealState(m)
		out.Kind = InputRequired
	}
	if c.resumable != nil {
		c.resumable.unreserveTask()
	}
	c.recordLinks(m)
	if c.r.Forward(protocol.ToModern(m, c.Method, c.s.g.info, modern)) {
		c.end(out)
	}
}

// validateResult says what is wrong with a result that is a stateless backend's, or for a guest;
// nil if nothing is. It is no object, or, of a stateless backend, of a type that the request
// does not allow, or asks something that the client has not declared to be able to answer.
func (c *clientCall) validateResult(m wire.Message) error {
	result := m.Part(wire.PartResult)
	switch {
	case result == nil:
		return nil
	case !c.upstream.Modern && wire.IsObject(result):
		return nil
	}
	switch kind, err := protocol.ParseResultType(result); {
	case err != nil:
		return &peer.BadResponseError{Err: err}
	case kind == protocol.ResultComplete:
		return nil
	case kind == protocol.ResultInputRequired && c.spec.allowsInput:
		return c.checkInputs(result)
	case kind == protocol.ResultTask && c.isMethod(protocol.MethodToolsCall) && (c.stateless == nil || protocol.HasTasksExtension(c.stateless.meta.Capabilities)):
		return nil
	default:
		return errUnexpectedType(kind)
	}
}

func errUnexpectedType(kind string) error {
	return &peer.BadResponseError{Err: fmt.Errorf("its resultType %q is not for this request", truncate(kind))}
}

// checkInputs is unusable for a result that asks for input. A client that has a session
// is asked by us: see call.put.
func (c *clientCall) checkInputs(result []byte) error {
	inputs, _, err := protocol.ReadInputRequests(result)
	if err != nil {
		return &peer.BadResponseError{Err: err}
	}
	if c.stateless == nil {
		return nil
	}
	return checkInputsDeclared(c.Route.Backend, c.stateless.meta.Capabilities, inputs)
}

// statelessError returns a backend's error with what a client of the stateless era is told
// beside its code; a message of no kind if it got another answer.
func (c *clientCall) statelessError(m wire.Message, e *wire.Error, modern bool) wire.Message {
	switch {
	case !modern && c.requestURLConsent(m.Part(wire.PartError)):
		return wire.Message{}
	case e.Code == protocol.CodeResourceNotFound && c.isMethod(protocol.MethodResourcesRead) && e.Data == nil:
		m, _ = m.Set(wire.Encode(map[string]string{"uri": c.Name}), "error", "data")
	}
	return m
}

// sealState returns a result that is input_required as the client gets it: the backend's
// own state in a ticket, and its name in front of what it asks a person.
func (c *clientCall) sealState(m wire.Message) wire.Message {
	_, state, _ := protocol.ReadInputRequests(m.Part(wire.PartResult)) // it is usable
	m = c.s.g.labelInputs(c.Route.Backend, protocol.StripNullInputs(m))
	if state != nil {
		m = protocol.SetRequestState(m, c.sealTicket(ticketState, string(state), ticketTTL))
	}
	return m
}

// replyInputRequired answers a call of a guest's with what is asked of it. It reports whether the
// request was still open.
func (c *clientCall) replyInputRequired(result []byte) bool {
	if !c.s.g.replyModern(c.r, result) {
		return false
	}
	c.end(Outcome{Kind: InputRequired, Result: result})
	return true
}
