package gateway

import (
	"bytes"
	"time"

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

// continueCall handles a request that is a retry: it has the members of a retry, and its method
// allows input requests. It returns true if the request is no retry or must still be sent to the
// backend.
func (c *statelessCall) continueCall() bool {
	responses, state, retry := protocol.ReadContinuation(c.r.Message)
	if !retry || !c.spec.allowsInput {
		return true
	}
	literal, _ := wire.Lookup(c.r.Part(wire.PartParams), "requestState")
	if wire.IsNull(literal) {
		if hasInputKeys(responses) {
			c.continuation = &continuation{}
		}
		return true // the backend may interpret the responses without a requestState
	}
	t, err := c.g.sealer.Open(state)
	if err == nil && (t.Principal != c.client.principal.Key() || !bytes.Equal(t.Call, c.digest())) {
		err = mrtr.ErrOtherCall
	}
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
	rc := c.g.suspended.find(t.Text)
	if rc == nil {
		return c.rejectState(mrtr.ErrTicketExpired)
	}
	if rc.sendAsTask && !protocol.HasTasksExtension(c.client.meta.Capabilities) {
		c.reject(protocol.MissingTasksError())
		return false
	}
	if !c.attach(rc) {
		return false
	}
	if !c.g.Backends.Permits(rc.route.Backend, contract.BackendRequest{Message: c.r.Message,
		Session: rc.client.id, Entry: rc.route.Original}) {
		rc.abort("the configuration no longer permits it")
		c.rejectUnknown()
	} else if err := rc.resume(c, responses); err != nil {
		c.rejectState(err)
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
func (c *statelessCall) attach(rc *resumableCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return false
	}
	c.Route, c.backendCall, c.resumable = rc.route, rc.backendCall, rc
	c.backendSession = rc.client.id
	return true
}

// rejectState ends the call with an error about its requestState. It returns false.
func (c *statelessCall) rejectState(err error) bool {
	c.reject(wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", err))
	return false
}

func (c *statelessCall) digest() []byte { return mrtr.Digest(c.Method, c.Name, c.Arguments) }

// sealTicket returns a sealed ticket for the call.
func (c *statelessCall) sealTicket(kind, text string, ttl time.Duration) string {
	t := mrtr.Ticket{
		Kind: kind, Principal: c.client.principal.Key(), Backend: c.Route.Backend,
		Call: c.digest(), Until: time.Now().Add(ttl), Text: text,
	}
	if c.backendCall != nil {
		t.ServerKey = c.backendCall.ServerKey()
	}
	return c.g.sealer.Seal(t)
}

// sealState converts an input_required result for the client: it seals the backend's requestState
// in a ticket, and adds the backend's label to elicitations.
func (c *statelessCall) sealState(m wire.Message) wire.Message {
	_, state, _ := protocol.ReadInputRequests(m.Part(wire.PartResult)) // already validated
	m = mrtr.LabelInputs(c.Route.Backend, protocol.StripNullInputs(m))
	if state != nil {
		m = protocol.SetRequestState(m,
			c.sealTicket(mrtr.TicketState, string(state), mrtr.TicketTTL))
	}
	return m
}
