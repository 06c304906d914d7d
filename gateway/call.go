package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

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

// call is a CallInfo in flight: the row that brings the answer home. Two may end
// it, the client, who takes back its request, and the backend; the one that
// takes the request from the client's table does, and tells the observers.
//
// [question] is the same in the other direction.
type call struct {
	CallInfo
	road    *road
	row     peer.Call
	pending *peer.Call // at the backend: row, or another round's, or the errand's if there is one
	s       *Session
	r       *peer.Request
	guest   *guest  // whose it is, if that has no session
	round   *round  // of several, likewise; nil = it is the first
	errand  *errand // what the backend is doing for it, likewise
	task    bool    // it may become a task, for which there is room
	asTask  bool    // a guest's is sent with the wish for one
	related string  // the task to which what is asked on its behalf belongs; "" = none

	progressed atomic.Bool // the backend has told of progress

	older, newer *call // in the session's list of flights

	mu        sync.Mutex
	sent      bool
	cancelled bool
	giveUp    context.CancelFunc // ends the wait for the route; nil unless there is one
}

func (s *Session) newCall(m wire.Message, id wire.ID, name string) CallInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := s.caller.Name
	if protocol.IsModern(m) {
		client = clientName(m)
	}
	return CallInfo{
		Session: s.id, Client: client, Principal: s.principal, ID: id, Method: m.Method(),
		Name: name, Arguments: m.Part(wire.PartArguments), Started: time.Now(),
	}
}

// call sends a request on its way. What it names may be of a backend that is not
// known yet; then the call waits for the catalog.
func (s *Session) call(guest *guest, r *peer.Request, to *road, name string) {
	c := &call{CallInfo: s.newCall(r.Message, r.RemoteID(), name), road: to, s: s, r: r, guest: guest}
	c.pending = &c.row
	c.row.Handler, c.row.Tag, c.row.Token, c.row.SessionID, c.row.AllowTask = c, c, r.Token(), s.id, to == toTool && guest == nil
	if guest != nil {
		c.pending.SessionID = guest.id
		guest.stayOn()
	}
	s.g.begin(&c.CallInfo)
	if !r.OnCancel(c) { // the session is ending and has cancelled it
		c.finish(Outcome{Kind: Cancelled})
		return
	}
	if guest != nil && c.isRound() && !c.goOn() {
		return
	}
	v := s.g.Backends.View()
	route, ok := to.find(c, v)
	switch {
	case ok:
		c.send(route)
	case to.mayCome(c, v):
		c.awaitRoute()
	default:
		c.unknown()
	}
}

// awaitRoute sees to it that the call goes on once it is known where to, or all
// backends are.
func (c *call) awaitRoute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return
	}
	ctx, cancel := context.WithCancel(c.s.ctx)
	c.giveUp = cancel
	c.s.work.Go(func() {
		defer cancel()
		var route catalog.Route
		found := false
		_, ok := c.s.await(ctx, func(v *catalog.View) bool {
			route, found = c.road.find(c, v)
			return found || !c.road.mayCome(c, v)
		})
		if ok && found {
			c.send(route)
		} else {
			c.unknown()
		}
	})
}

// unknown ends a call for something that nobody has. That of a tool may be due
// to a backend that has never listed any.
func (c *call) unknown() {
	if c.is(mcp.MethodToolsCall) {
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
func (c *call) rejectUnknown() {
	failure := c.unknownError()
	if c.r.Fail(failure) {
		c.finish(c.forbidden(failure))
	}
}

// forbidden is the outcome of a call that ended with unknownError.
func (c *call) forbidden(failure *wire.Error) Outcome {
	o := unanswered(Rejected, failure)
	kind := catalog.Tools
	switch mcp.MCPMethod(c.Method) {
	case mcp.MethodPromptsGet:
		kind = catalog.Prompts
	case mcp.MethodResourcesRead:
		kind = catalog.Resources
	}
	if backend := c.s.g.Backends.DeniedBy(kind, c.Name); backend != "" {
		o.Reason = "the filters of backend " + backend + " deny it"
	}
	return o
}

// unknownError returns the error for a name that nobody has, or that the configuration forbids.
func (c *call) unknownError() *wire.Error {
	err := c.road.unknown(c.Name)
	if c.guest != nil && err.Code == protocol.CodeResourceNotFound {
		err.Code = wire.CodeInvalidParams
	}
	return err
}

// reject ends a call that no backend is asked.
func (c *call) reject(err *wire.Error) {
	if c.r.Fail(err) {
		c.finish(unanswered(Rejected, err))
	}
}

func (c *call) send(route catalog.Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return
	}
	c.Route = route
	if c.round != nil && c.round.backend != "" && c.round.backend != route.Backend {
		c.refuse(errForeign)
		return
	}
	if c.is(mcp.MethodResourcesSubscribe) && len(c.Name) > maxURI { // it is kept
		c.reject(longURI())
		return
	}
	if err := c.bookTask(); err != nil {
		c.reject(err)
		return
	}
	if c.round != nil && c.round.turn != nil && !c.takes(c.round.turn) {
		if c.task {
			c.s.g.jobs.unbook(c.guest.principal)
		}
		return
	}
	c.pending.RemoteName = route.Original
	if c.guest != nil {
		c.depart()
	} else {
		c.s.depart(c)
	}
	c.sent = true
	// Under the lock, so that a cancellation comes before the call was sent or
	// finds it; to send does not wait.
	c.road.send(c)
}

// Progressed implements peer.ResponseHandler.
func (c *call) OnProgress(m wire.Message) {
	c.progressed.Store(true)
	if c.s.isCrowded(c.Route.Backend) {
		return
	}
	c.r.Notify(c.s.exposeTasks(c.Route.Backend, m))
}

// Done implements peer.ResponseHandler: the answer goes home as it is, or the reason why
// there is none. Where the backend is of another era than the client it goes home in
// the client's words, or not yet: see rounds.go and errand.go.
func (c *call) OnResponse(m wire.Message, err error) {
	switch {
	case err != nil:
	case c.pending.Modern || c.guest != nil:
		err = c.unusable(m)
	default:
		err = c.unclear(m)
	}
	if err != nil {
		if c.task && c.guest == nil {
			c.s.tasks.unbook()
		}
		kind, failure := c.failure(err)
		if c.r.Fail(failure) {
			o := unanswered(kind, failure)
			if errors.Is(err, peer.ErrForbidden) {
				o = c.forbidden(failure)
			}
			c.ended(o)
		}
		return
	}
	switch stateless := c.pending.Modern; {
	case c.guest != nil:
		c.answerGuest(m, stateless)
		return
	case stateless && c.asksFor(m):
		return // the answer comes when the client has given its own
	case stateless:
		m = c.settled(m)
	default:
		m = c.learn(m)
	}
	c.forward(m)
}

// forward ends a call with a backend's answer, in the words of the client's revision.
func (c *call) forward(m wire.Message) {
	if failure := m.Part(wire.PartError); failure != nil {
		marked, err := protocol.LabelElicitations(failure, mark(c.Route.Backend))
		if err != nil {
			c.giveIn(&peer.BadResponseError{Err: err})
			return
		}
		if len(marked) > len(failure) {
			m = m.Splice(wire.Edit{Part: wire.PartError, Text: marked})
		}
	}
	m = protocol.AdaptResponse(m, c.Method, c.s.traits())
	c.noteLinks(m)
	early := c.earlyStatuses()
	if c.r.Forward(m) {
		c.ended(outcome(m))
		for _, status := range early {
			c.s.g.taskStatus(c.s.id, c.Route.Backend, status, peer.Origin{CallEnded: true})
		}
	}
}

// answer ends a call with a result of ours.
func (c *call) answer(result []byte) {
	reply := c.r.Reply
	if c.guest != nil {
		reply = func(result []byte) bool { return c.s.g.reply(c.r, result) }
	}
	if reply(result) {
		c.ended(Outcome{Kind: OK, Result: result})
	}
}

// Cancelled implements peer.CancelHandler: the client has taken the call back, or is
// gone.
func (c *call) HandleCancel(params []byte) {
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
	sent, e := c.sent, c.errand
	if c.giveUp != nil {
		c.giveUp()
	}
	c.mu.Unlock()
	switch {
	case e != nil:
		e.leave(c, params)
	case sent:
		c.s.g.Backends.Cancel(c.Route.Backend, c.pending, params)
	}
	c.ended(Outcome{Kind: Cancelled, Reason: reason})
}

func (c *call) is(method mcp.MCPMethod) bool { return c.Method == string(method) }

func (c *call) ended(o Outcome) {
	c.s.arrive(c)
	c.BackendID, c.Sent = c.pending.ID(), c.pending.SentAt()
	c.finish(o)
}

// finish lets go of what a call has that has ended.
func (c *call) finish(o Outcome) {
	c.s.g.finish(&c.CallInfo, o)
	if c.guest != nil {
		c.guest.leave()
	}
}
