package gateway

import (
	"bytes"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A continuation is the data of a stateless client's retry that continues a call.
type continuation struct {
	backend   string           // backend of the call; "" = unknown
	entry     string           // name of the tool, prompt or resource there, if backend is known
	serverKey string           // server that issued the state; see [contract.BackendCall]
	state     []byte           // the backend's own requestState, JSON; nil = none
	rerun     bool             // after elicitations: the call is sent without responses
	claim     *mrtr.RerunClaim // claimed when the call is about to be sent; nil = none
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
	if p := c.client.principal; err == nil && (t.Principal != p.Key() ||
		t.Profiles != p.ProfileKey() || !bytes.Equal(t.Call, c.digest())) {
		err = mrtr.ErrOtherCall
	}
	if err != nil {
		return c.rejectState(err)
	}
	c.consents.given = t.Consents
	if c.consents.given&contract.Confirmed != 0 {
		c.history.confirmation.Store(uint32(confirmationAccepted))
	}
	switch t.Kind {
	case mrtr.TicketState:
		c.continuation = &continuation{backend: t.Backend, entry: t.Entry, serverKey: t.ServerKey,
			state: []byte(t.Text), claim: c.claimOf(t)}
		return true
	case mrtr.TicketRerun:
		c.continuation = &continuation{backend: t.Backend, entry: t.Entry, rerun: true}
		if !c.checkConsent(t, responses) {
			return false
		}
		if t.Builtin { // by now the name may be unknown, or that of a tool of the backend
			c.send(catalog.Route{Backend: t.Backend, Original: t.Entry,
				OriginalJSON: wire.Quote(t.Entry), Builtin: true})
		}
		return !t.Builtin
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
	err = c.g.Backends.Permits(rc.route.Backend, contract.BackendRequest{Message: c.r.Message,
		Session: rc.client.id, Entry: rc.route.Original})
	if err != nil {
		rc.abort("the configuration no longer permits it")
		c.rejectForbidden(err)
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
	if c.Trace != nil {
		c.Trace.Continue(rc.trace)
	}
	return true
}

// rejectState ends the call with an error about its requestState. It returns false.
func (c *statelessCall) rejectState(err error) bool {
	c.reject(wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", err))
	return false
}

func (c *statelessCall) digest() []byte { return mrtr.Digest(c.Method, c.Name, c.Arguments) }

// claimOf returns the claim of a ticket that is valid for one call; nil for any other ticket.
func (c *statelessCall) claimOf(t mrtr.Ticket) *mrtr.RerunClaim {
	if t.Run == "" {
		return nil
	}
	return &mrtr.RerunClaim{ID: t.Run, Principal: c.client.principal, Until: t.Until}
}

// sealTicket returns the sealed ticket t, bound to the call. The caller sets its Kind, and what
// else depends on the kind.
func (c *statelessCall) sealTicket(t mrtr.Ticket, ttl time.Duration) string {
	t.Principal, t.Profiles = c.client.principal.Key(), c.client.principal.ProfileKey()
	t.Backend, t.Entry, t.Builtin = c.Route.Backend, c.Route.Original, c.Route.Builtin
	t.Call, t.Until, t.Consents = c.digest(), time.Now().Add(ttl), c.consents.given
	if c.backendCall != nil {
		t.ServerKey = c.backendCall.ServerKey()
	}
	return c.g.sealer.Seal(t)
}

// sealState converts an input_required result for the client: it seals the backend's requestState
// in a ticket, and adds the backend's label to elicitations. If the user has consented to the call,
// there is a ticket even without a requestState, because the consent is valid for the next round
// too. Such a ticket can be used once, like the consent itself.
func (c *statelessCall) sealState(m wire.Message) wire.Message {
	_, state, _ := protocol.ReadInputRequests(m.Part(wire.PartResult)) // already validated
	m = mrtr.LabelInputs(c.Route.Backend, protocol.StripNullInputs(m))
	t, ttl := mrtr.Ticket{Kind: mrtr.TicketState, Text: string(state)}, mrtr.TicketTTL
	if c.consents.given != 0 {
		t.Run, ttl = newID(), suspendTimeout
	}
	if state != nil || c.consents.given != 0 {
		m = protocol.SetRequestState(m, c.sealTicket(t, ttl))
	}
	return m
}
