package gateway

import (
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A continuation is what a request has with which a guest goes on with a call.
type continuation struct {
	backend string      // where the call is; "" = it does not say
	program string      // which program it ran there
	state   []byte      // the backend's own requestState, as JSON text; nil = none
	rerun   bool        // the call is sent anew, without what was answered
	claim   *rerunClaim // to be taken for that; nil = none is
}

// hasResponses reports whether the call is sent with what was answered: to a backend of the stateless
// era, for others were not asked so.
func (r *continuation) hasResponses() bool { return r != nil && !r.rerun }

// isRetry reports whether the request goes on with a call, or says so.
func (c *clientCall) isRetry() bool {
	_, _, retry := protocol.ReadContinuation(c.r.Message)
	return c.spec.allowsInput && retry
}

// continueCall takes a request with which a guest goes on with a call. It reports whether it is
// yet to be sent to the backend.
func (c *clientCall) continueCall() bool {
	responses, state, _ := protocol.ReadContinuation(c.r.Message)
	literal, _ := wire.Lookup(c.r.Part(wire.PartParams), "requestState")
	if wire.IsNull(literal) {
		if hasInputKeys(responses) {
			c.continuation = &continuation{}
		}
		return true // a backend that keeps no state may make of the answers what it likes
	}
	t, err := c.openTicket(state)
	if err != nil {
		return c.rejectState(err)
	}
	switch t.Kind {
	case ticketState:
		c.continuation = &continuation{backend: t.Backend, program: t.Program, state: []byte(t.Text)}
		return true
	case ticketRerun:
		c.continuation = &continuation{backend: t.Backend, rerun: true}
		return c.checkConsent(t, responses)
	}
	rc := c.s.g.suspended.find(t.Text)
	if rc == nil {
		return c.rejectState(errTicketExpired)
	}
	if !c.attach(rc) {
		return false
	}
	if !c.s.g.Backends.Permits(rc.route.Backend, c.r.Message, &rc.upstream) {
		rc.abort("the configuration does not permit it any longer")
		c.rejectUnknown()
	} else if failure := rc.resume(c, responses); failure != nil {
		c.reject(failure)
	} else if c.isCancelled() { // since before the errand knew for whom it goes on
		rc.cancelForCall(c, nil)
	}
	return false
}

// hasInputKeys reports whether there are answers under keys of ours: to what a backend of the
// session era has asked, whose call waits for them with a ticket. Under other keys there may be
// anything, for some servers read answers that they were not asked for in either era.
func hasInputKeys(responses []byte) (some bool) {
	wire.Members(responses, func(key string, _ []byte, _ int) { some = some || isInputKey(key) })
	return some
}

// attach makes the errand the one that is carried out for the call, and reports whether
// that is still wanted.
func (c *clientCall) attach(rc *resumableCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return false
	}
	c.Route, c.upstream, c.resumable, c.sent = rc.route, &rc.upstream, rc, true
	return true
}

// isCancelled reports whether the client has taken the call back.
func (c *clientCall) isCancelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled
}

func (c *clientCall) rejectState(err error) bool {
	c.reject(wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", err))
	return false
}
