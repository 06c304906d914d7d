package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Requests of the stateless era. Each says itself who asks, and is answered by what is
// there at that moment: nothing of it depends on what was said before on the same
// connection, which may carry requests of both eras.

const (
	methodDiscover = "server/discover"
	methodListen   = "subscriptions/listen"
)

// statelessMethods are those that there are, and the capabilities without which each
// does not exist; see [needed].
var statelessMethods = map[string][]string{
	methodDiscover:                           nil,
	methodListen:                             nil,
	string(mcp.MethodToolsList):              nil,
	string(mcp.MethodToolsCall):              nil,
	string(mcp.MethodPromptsList):            nil,
	string(mcp.MethodPromptsGet):             nil,
	string(mcp.MethodResourcesList):          nil,
	string(mcp.MethodResourcesTemplatesList): nil,
	string(mcp.MethodResourcesRead):          nil,
	string(mcp.MethodCompletionComplete):     {"completions"},
	string(mcp.MethodTasksGet):               {"extensions", protocol.TasksExtension},
	methodUpdate:                             {"extensions", protocol.TasksExtension},
	string(mcp.MethodTasksCancel):            {"extensions", protocol.TasksExtension},
}

// ValidateHeaders checks a request of the stateless era against the headers that came with it:
// that there is such a method at all, and that they say the same (streamable HTTP,
// "Standard Request Headers"). Get returns the values of a header. The error is nil
// if there is nothing wrong.
func (g *Gateway) ValidateHeaders(m wire.Message, get func(header string) []string) *wire.Error {
	if err := g.missing(m.Method()); err != nil {
		return err
	}
	var schema []byte
	if m.Method() == string(mcp.MethodToolsCall) {
		schema = g.Backends.View().Schema(m.Name())
	}
	return protocol.CheckHeaders(m, get, schema)
}

// missing says that there is no such method in the stateless era, nil if there is.
func (g *Gateway) missing(method string) *wire.Error {
	needs, known := statelessMethods[method]
	if !known {
		return methodNotFound(method)
	}
	if len(needs) > 0 && !catalog.Declares(offer(g.Backends.View()), needs...) {
		return methodNotFound(method)
	}
	return nil
}

// askedStateless serves a request of the stateless era.
func (s *Session) askedStateless(r *peer.Request) {
	method := r.Method()
	stamp, err := protocol.ParseClientMeta(r.Message)
	if err == nil {
		err = s.g.missing(method)
	}
	if err == nil {
		err = checkID(r.Message)
	}
	if err == nil && len(stamp.Capabilities)+len(stamp.ClientInfo) > maxStamp {
		err = wire.Errorf(wire.CodeInvalidParams, "Invalid params: what _meta says of the client is longer than %d bytes", maxStamp)
	}
	s.mu.Lock()
	over := s.state == closing
	s.mu.Unlock()
	if err == nil && over {
		err = wire.Errorf(wire.CodeInternalError, "The gateway is ending; the request did not run")
	}
	if err != nil {
		s.fail(r, err)
		return
	}
	if method == methodDiscover {
		s.discover(r)
		return
	}
	guest, full := s.guest(stamp)
	if full != nil {
		s.fail(r, wire.Errorf(wire.CodeInternalError, "%v", full))
		return
	}
	s.g.Backends.Start() // the first request of all may be any; not before they know of the guest
	s.serveGuest(guest, r, method)
}

// guest returns the guest that a request on this connection is from. It stays for as
// long as the connection does, unless that brings many others later on: then for as long
// as anything is done for it, and a while.
func (s *Session) guest(stamp protocol.ClientMeta) (*guest, error) {
	one, err := s.g.guest(s.principal, stamp)
	for errors.Is(err, errCrowd) && len(s.guests) > 0 {
		s.guests[0].leave()
		s.guests = s.guests[1:]
		one, err = s.g.guest(s.principal, stamp)
	}
	if err != nil {
		return nil, err
	}
	s.guests = append(s.guests, one)
	i := slices.Index(s.guests, one)
	switch known := i < len(s.guests)-1; {
	case !known && len(s.guests) <= maxKept:
		return one, nil
	case !known:
		i = 0 // the one that has asked for nothing the longest
	}
	s.guests[i].leave()
	s.guests = slices.Delete(s.guests, i, i+1)
	return one, nil
}

func (s *Session) serveGuest(guest *guest, r *peer.Request, method string) {
	switch method {
	case methodListen:
		s.listen(guest, r)
	case string(mcp.MethodToolsList):
		s.listNow(r, catalog.Tools)
	case string(mcp.MethodPromptsList):
		s.listNow(r, catalog.Prompts)
	case string(mcp.MethodResourcesList):
		s.listNow(r, catalog.Resources)
	case string(mcp.MethodResourcesTemplatesList):
		s.listNow(r, catalog.Templates)
	case string(mcp.MethodToolsCall):
		s.byName(guest, r, toTool)
	case string(mcp.MethodPromptsGet):
		s.byName(guest, r, toPrompt)
	case string(mcp.MethodResourcesRead):
		s.byParam(guest, r, toResource, "uri")
	case string(mcp.MethodCompletionComplete):
		s.complete(guest, r)
	case string(mcp.MethodTasksGet), methodUpdate, string(mcp.MethodTasksCancel):
		s.ofTask(guest, r)
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
	s.g.reply(r, wire.Encode(struct {
		Versions     []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions,omitempty"`
		TTL          int64           `json:"ttlMs"`
		Scope        string          `json:"cacheScope"`
	}{protocol.RevisionDates(), offer(view), view.Instructions, ttl.Milliseconds(), "public"}))
}

// reply answers a request of the stateless era with a result of ours. It reports
// whether the request was still open.
func (g *Gateway) reply(r *peer.Request, result []byte) bool {
	return r.Forward(protocol.ToModern(wire.NewResult("0", result), r.Method(), g.info, true))
}

// listNow answers with a page of the merged list, which is the same for everybody: "lists
// MUST NOT vary by connection". Only while backends are starting for the first time
// does it wait.
func (s *Session) listNow(r *peer.Request, kind catalog.Kind) {
	if v := s.g.Backends.View(); v.Settled {
		s.page(r, kind, v.Snapshot)
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if !r.OnCancel(withdrawal(cancel)) {
		cancel()
		return
	}
	s.work.Go(func() {
		defer cancel()
		if v, ok := s.await(ctx, func(v *catalog.View) bool { return v.Settled }); ok {
			s.page(r, kind, v.Snapshot)
		} else {
			s.fail(r, wire.Errorf(wire.CodeInternalError, "The gateway is ending; the request did not run"))
		}
	})
}

func (s *Session) page(r *peer.Request, kind catalog.Kind, snapshot *catalog.Snapshot) {
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
	s.g.reply(r, wire.EditObject(page, nil,
		wire.Member{Key: "ttlMs", Text: strconv.AppendInt(nil, ttl.Milliseconds(), 10)},
		wire.Member{Key: "cacheScope", Text: []byte(scope)}))
}

// unstamped returns the request of a guest's as a backend gets it, which is told of the
// client by whoever sends it: without what is of the stateless era alone, and with the
// backend's own words in the place of ours.
func (c *call) unstamped() wire.Message {
	m := protocol.StripMeta(c.r.Message)
	if c.is(mcp.MethodToolsCall) {
		m = protocol.StripTaskParam(m)
	}
	if c.asTask {
		m = protocol.AddTaskParam(m)
	}
	switch round := c.round; {
	case round == nil:
	case round.anew:
		m = protocol.SetContinuation(m, nil, nil)
	case round.state != nil:
		m, _ = m.Set(round.state, "params", "requestState")
	}
	return m
}

// answerGuest gives a backend's answer to a client that has no session.
func (c *call) answerGuest(m wire.Message, stateless bool) {
	out := outcome(m)
	modern := stateless // the words that m is in
	kind := ""
	if stateless {
		kind = protocol.ResultType(m.Part(wire.PartResult))
	}
	switch failure := m.Part(wire.PartError); {
	case failure != nil:
		if m = c.guestError(m, wire.ReadError(failure), stateless); m.Kind() == wire.Invalid {
			return
		}
		out = outcome(protocol.ToModern(m, c.Method, c.s.g.info, stateless))
	case c.begins(m, kind):
		var ok bool
		if m, ok = c.begun(m, stateless); !ok {
			return
		}
		modern = true
	case kind == protocol.ResultInputRequired:
		m = c.sealed(m)
		out.Kind = InputRequired
	}
	if c.errand != nil {
		c.errand.unbook()
	}
	c.noteLinks(m)
	if c.r.Forward(protocol.ToModern(m, c.Method, c.s.g.info, modern)) {
		c.ended(out)
	}
}

// unusable says what is wrong with a result that is a stateless backend's, or for a guest;
// nil if nothing is. It is no object, or, of a stateless backend, of a type that the request
// does not allow, or asks something that the client has not declared to be able to answer.
func (c *call) unusable(m wire.Message) error {
	result := m.Part(wire.PartResult)
	switch {
	case result == nil:
		return nil
	case !c.pending.Modern && wire.IsObject(result):
		return nil
	}
	switch kind, err := protocol.ParseResultType(result); {
	case err != nil:
		return &peer.BadResponseError{Err: err}
	case kind == protocol.ResultComplete:
		return nil
	case kind == protocol.ResultInputRequired && c.road.rounds:
		return c.overdemanding(result)
	case kind == protocol.ResultTask && c.is(mcp.MethodToolsCall) && (c.guest == nil || protocol.HasTasksExtension(c.guest.stamp.Capabilities)):
		return nil
	default:
		return unfit(kind)
	}
}

func unfit(kind string) error {
	return &peer.BadResponseError{Err: fmt.Errorf("its resultType %q is not for this request", brief(kind))}
}

// overdemanding is unusable for a result that asks for input. A client that has a session
// is asked by us: see call.put.
func (c *call) overdemanding(result []byte) error {
	inputs, _, err := protocol.ReadInputRequests(result)
	if err != nil {
		return &peer.BadResponseError{Err: err}
	}
	if c.guest == nil {
		return nil
	}
	return excess(c.Route.Backend, c.guest.stamp.Capabilities, inputs)
}

// guestError returns a backend's error with what a client of the stateless era is told
// beside its code; a message of no kind if it got another answer.
func (c *call) guestError(m wire.Message, e *wire.Error, stateless bool) wire.Message {
	switch {
	case !stateless && c.sendElsewhere(m.Part(wire.PartError)):
		return wire.Message{}
	case e.Code == protocol.CodeResourceNotFound && c.is(mcp.MethodResourcesRead) && e.Data == nil:
		m, _ = m.Set(wire.Encode(map[string]string{"uri": c.Name}), "error", "data")
	}
	return m
}

// sealed returns a result that is input_required as the client gets it: the backend's
// own state in a ticket, and its name in front of what it asks a person.
func (c *call) sealed(m wire.Message) wire.Message {
	_, state, _ := protocol.ReadInputRequests(m.Part(wire.PartResult)) // it is usable
	m = c.s.g.signed(c.Route.Backend, protocol.StripNullInputs(m))
	if state != nil {
		m = protocol.SetRequestState(m, c.ticket(forState, string(state), ticketLife))
	}
	return m
}

// askFor answers a call of a guest's with what is asked of it. It reports whether the
// request was still open.
func (c *call) askFor(result []byte) bool {
	if !c.s.g.reply(c.r, result) {
		return false
	}
	c.ended(Outcome{Kind: InputRequired, Result: result})
	return true
}
