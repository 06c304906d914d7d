package gateway

import (
	"context"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/peer"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// A Call is a tools/call on its way: who asked, for what, and where it goes. An
// Observer may read it, and must not keep it.
type Call struct {
	Session   string
	Client    string // name/version
	ID        wire.ID
	Tool      string // as the client named it
	Arguments []byte // as the client sent them, nil if it did not

	Route     catalog.Route // zero while it is not known
	BackendID wire.ID       // "" until it was sent
	Started   time.Time
}

// call is a Call in flight: the row that brings the answer home. Two may end
// it, the client, who takes back its request, and the backend; the one that
// takes the request from the client's table does, and tells the observers.
type call struct {
	Call
	pending peer.Pending
	s       *Session
	r       *peer.Request

	mu        sync.Mutex
	sent      bool
	cancelled bool
	giveUp    context.CancelFunc // ends the wait for the route; nil unless there is one
}

func (s *Session) newCall(m wire.Message) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Call{
		Session: s.id, Client: s.caller.Name, ID: m.ID(),
		Tool: m.Name(), Arguments: m.Part(wire.PartArguments), Started: time.Now(),
	}
}

// callTool sends a call on its way. What it names may be a tool of a backend
// that is not known yet; then the call waits for the catalog.
func (s *Session) callTool(r *peer.Request) {
	name := r.Part(wire.PartName)
	if len(name) == 0 || name[0] != '"' {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: tools/call needs a name"))
		return
	}
	c := &call{Call: *s.newCall(r.Message), s: s, r: r}
	c.pending.To, c.pending.Token = c, r.Token()
	s.g.begin(&c.Call)
	if !r.Own(c) { // the session is ending and has cancelled it
		s.g.finish(&c.Call, Outcome{Kind: Cancelled})
		return
	}
	v := s.g.Backends.View()
	route, ok := s.route(c.Tool, v)
	switch {
	case ok:
		c.send(route)
	case s.mayCome(c.Tool, v):
		c.awaitRoute()
	default:
		c.unknownTool()
	}
}

// awaitRoute sees to it that the call goes on once the tool is known, or all
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
			route, found = c.s.route(c.Tool, v)
			return found || !c.s.mayCome(c.Tool, v)
		})
		if ok && found {
			c.send(route)
		} else {
			c.unknownTool()
		}
	})
}

func (c *call) unknownTool() {
	if backend, err := c.s.g.Backends.Excuse(c.Tool); err != nil {
		c.mu.Lock()
		c.Route.Backend = backend
		c.mu.Unlock()
		c.Done(wire.Message{}, &transport.Lost{Err: err})
		return
	}
	err := wire.Errorf(wire.CodeInvalidParams, "Unknown tool: %s", brief(c.Tool))
	if c.r.Fail(err) {
		c.s.g.finish(&c.Call, Outcome{Kind: Rejected, Code: err.Code})
	}
}

func (c *call) send(route catalog.Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return
	}
	c.sent = true
	c.Route = route
	if c.Tool != route.Own {
		c.pending.Name = route.OwnJSON
	}
	// Under the lock, so that a cancellation comes before the call was sent or
	// finds it; Send does not wait.
	c.s.g.Backends.Send(route.Backend, c.r.Message, &c.pending)
}

// Progressed implements peer.Asker.
func (c *call) Progressed(m wire.Message) { c.r.Progress(m) }

// Done implements peer.Asker: the answer goes home as it is, or the reason why
// there is none.
func (c *call) Done(m wire.Message, err error) {
	if err != nil {
		kind, failure := c.failure(err)
		if c.r.Fail(failure) {
			c.ended(Outcome{Kind: kind, Code: failure.Code})
		}
		return
	}
	if c.r.Forward(m) {
		c.ended(outcome(m))
	}
}

// Cancelled implements peer.Owner: the client has taken the call back, or is
// gone.
func (c *call) Cancelled(params []byte) {
	c.mu.Lock()
	c.cancelled = true
	sent := c.sent
	if c.giveUp != nil {
		c.giveUp()
	}
	c.mu.Unlock()
	if sent {
		c.s.g.Backends.Cancel(c.Route.Backend, &c.pending, params)
	}
	c.ended(Outcome{Kind: Cancelled})
}

func (c *call) ended(o Outcome) {
	c.BackendID = c.pending.ID()
	c.s.g.finish(&c.Call, o)
}
