package gateway

import (
	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A continuation is the data of a stateless client's retry that continues a call.
type continuation struct {
	backend   string           // backend of the call; "" = unknown
	serverKey string           // server that issued the state; see [contract.BackendCall]
	state     []byte           // the backend's own requestState, JSON; nil = none
	rerun     bool             // after URL elicitations: the call is sent again without responses
	claim     *mrtr.RerunClaim // claimed when the call is sent again; nil = none
}

// hasResponses reports whether the call is sent as a continuation with the client's responses,
// which only a modern backend may get.
func (r *continuation) hasResponses() bool { return r != nil && !r.rerun }

// isRetry reports whether the request has the members of a retry and its method allows input
// requests.
func (c *clientCall) isRetry() bool {
	_, _, retry := protocol.ReadContinuation(c.r.Message)
	return c.spec.allowsInput && retry
}

// continueCall handles a stateless client's retry. It returns true if the request must still be
// sent to the backend.
func (c *clientCall) continueCall() bool {
	responses, state, _ := protocol.ReadContinuation(c.r.Message)
	literal, _ := wire.Lookup(c.r.Part(wire.PartParams), "requestState")
	if wire.IsNull(literal) {
		if hasInputKeys(responses) {
			c.continuation = &continuation{}
		}
		return true // the backend may interpret the responses without a requestState
	}
	t, err := c.openTicket(state)
	if err != nil {
		return c.rejectState(err)
	}
	switch t.Kind {
	case mrtr.TicketState:
		c.continuation = &continuation{backend: t.Backend, serverKey: t.ServerKey,
			state: []byte(t.Text)}
		return true
	case mrtr.TicketRerun:
		c.continuation = &continuation{backend: t.Backend, rerun: true}
		return c.checkConsent(t, responses)
	}
	rc := c.s.g.suspended.find(t.Text)
	if rc == nil {
		return c.rejectState(mrtr.ErrTicketExpired)
	}
	if !c.attach(rc) {
		return false
	}
	if !c.s.g.Backends.Permits(rc.route.Backend, contract.BackendRequest{Message: c.r.Message,
		Session: rc.client.id, Entry: rc.route.Original}) {
		rc.abort("the configuration no longer permits it")
		c.rejectUnknown()
	} else if failure := rc.resume(c, responses); failure != nil {
		c.reject(failure)
	} else if c.isCancelled() { // cancelled before resume could see it
		rc.cancelForCall(c, nil)
	}
	return false
}

// hasInputKeys reports whether one of the responses has a key issued by the gateway. Such a
// response is for a legacy backend and requires a ticket. Responses with other keys are forwarded,
// because some servers of either generation read responses that they did not request.
func hasInputKeys(responses []byte) (some bool) {
	wire.Members(responses, func(key string, _ []byte, _ int) { some = some || mrtr.IsKey(key) })
	return some
}

// attach connects the request to the resumable call rc. It returns false if the request was
// cancelled.
func (c *clientCall) attach(rc *resumableCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return false
	}
	c.Route, c.backendCall, c.resumable = rc.route, rc.backendCall, rc
	c.request.Session = rc.client.id
	return true
}

// isCancelled reports whether the client has cancelled the call or has disconnected.
func (c *clientCall) isCancelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled
}

// rejectState ends the call with an error about its requestState. It returns false.
func (c *clientCall) rejectState(err error) bool {
	c.reject(wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", err))
	return false
}
