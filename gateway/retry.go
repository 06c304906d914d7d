package gateway

import (
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A round is what a request has with which a guest goes on with a call.
type round struct {
	backend string // where the call is; "" = it does not say
	program string // which program it ran there
	state   []byte // the backend's own requestState, as JSON text; nil = none
	anew    bool   // the call is sent anew, without what was answered
	turn    *turn  // to be taken for that; nil = none is
}

// goesOn reports whether the call is sent with what was answered: to a backend of the stateless
// era, for others were not asked so.
func (r *round) goesOn() bool { return r != nil && !r.anew }

// isRound reports whether the request goes on with a call, or says so.
func (c *call) isRound() bool {
	_, _, retry := protocol.ReadContinuation(c.r.Message)
	return c.road.rounds && retry
}

// goOn takes a request with which a guest goes on with a call. It reports whether it is
// yet to be sent to the backend.
func (c *call) goOn() bool {
	responses, state, _ := protocol.ReadContinuation(c.r.Message)
	literal, _ := wire.Lookup(c.r.Part(wire.PartParams), "requestState")
	if wire.IsNull(literal) {
		if answersQueries(responses) {
			c.round = &round{}
		}
		return true // a backend that keeps no state may make of the answers what it likes
	}
	t, err := c.redeem(state)
	if err != nil {
		return c.refuse(err)
	}
	switch t.Kind {
	case forState:
		c.round = &round{backend: t.Backend, program: t.Program, state: []byte(t.Text)}
		return true
	case forRerun:
		c.round = &round{backend: t.Backend, anew: true}
		return c.hasBeen(t, responses)
	}
	e := c.s.g.parked.find(t.Text)
	if e == nil {
		return c.refuse(errExpired)
	}
	if !c.join(e) {
		return false
	}
	if !c.s.g.Backends.Permits(e.route.Backend, c.r.Message, &e.pending) {
		e.abandon("the configuration does not permit it any longer")
		c.rejectUnknown()
	} else if failure := e.resume(c, responses); failure != nil {
		c.reject(failure)
	} else if c.over() { // since before the errand knew for whom it goes on
		e.leave(c, nil)
	}
	return false
}

// answersQueries reports whether there are answers under keys of ours: to what a backend of the
// session era has asked, whose call waits for them with a ticket. Under other keys there may be
// anything, for some servers read answers that they were not asked for in either era.
func answersQueries(responses []byte) (some bool) {
	wire.Members(responses, func(key string, _ []byte, _ int) { some = some || isQueryKey(key) })
	return some
}

// join makes the errand the one that is carried out for the call, and reports whether
// that is still wanted.
func (c *call) join(e *errand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return false
	}
	c.Route, c.pending, c.errand, c.sent = e.route, &e.pending, e, true
	return true
}

// over reports whether the client has taken the call back.
func (c *call) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled
}

func (c *call) refuse(err error) bool {
	c.reject(wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", err))
	return false
}
