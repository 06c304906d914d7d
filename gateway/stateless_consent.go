package gateway

import (
	"errors"
	"fmt"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// requestURLConsent converts a legacy URLElicitationRequired error (-32042) into an input_required
// result with one URL elicitation per entry. When the user has accepted all of them, the call is
// sent again, at most once. A client without the capability gets an error. So does every client if
// the elicitations are invalid. If the error contains no URL, requestURLConsent returns false and
// does nothing.
func (c *statelessCall) requestURLConsent(failure []byte) bool {
	list, err := protocol.URLElicitations(failure)
	if err != nil {
		c.failWith(&peer.BadResponseError{Err: err})
		return true
	}
	var inputs []protocol.InputRequest
	wire.EachElement(list, func(one []byte) bool {
		if url, _ := wire.Lookup(one, "url"); len(url) == 0 || url[0] != '"' {
			return true
		}
		text, _ := wire.Lookup(one, "message")
		params := wire.EditObject(one, func(key string) bool { return key == "elicitationId" },
			wire.Member{Key: "mode", Text: []byte(`"url"`)},
			wire.Member{Key: "message", Text: wire.PrependString(mrtr.Label(c.Route.Backend),
				text)})
		inputs = append(inputs, protocol.InputRequest{Key: mrtr.Key(len(inputs) + 1),
			Method: protocol.MethodElicitationCreate, Params: params})
		_, err = wire.ParseRequest("0", protocol.MethodElicitationCreate, params)
		return err == nil && len(inputs) < mrtr.MaxInputRequests
	})
	switch {
	case err != nil:
		c.failWith(&peer.BadResponseError{Err: fmt.Errorf(
			"an entry of its elicitations is ambiguous: %w", err)})
		return true
	case len(inputs) == 0:
		return false
	}
	c.history.rounds.Add(1)
	c.askBeforeRerun(question{}, mrtr.Ticket{Run: newID()}, inputs, suspendTimeout)
	return true
}

// ask implements clientKind. The responses of a retry that continues the backend's own rounds would
// be lost with another question in between, so such a call has to be started again.
func (c *statelessCall) ask(q question) {
	if c.resumable != nil {
		c.resumable.unreserveTask()
	}
	switch cont := c.continuation; {
	case q.isAccepted():
		q.awaitAgain()
	case !c.spec.allowsInput:
		c.failWith(q.QuestionError)
	case cont != nil && !cont.rerun:
		c.rejectState(fmt.Errorf("%w; start the call again", q.QuestionError))
	default:
		t := mrtr.Ticket{Run: newID(), Asks: q.Asks}
		if q.Err != nil {
			t.Reason = q.Err.Error()
		}
		c.askBeforeRerun(q, t, []protocol.InputRequest{{
			Key: mrtr.Key(1), Method: protocol.MethodElicitationCreate, Params: q.params(),
		}}, suspendTimeout)
	}
}

// asked returns the question of a ticket with these input requests.
func (c *statelessCall) asked(t mrtr.Ticket, inputs []protocol.InputRequest) question {
	e := &contract.QuestionError{Asks: t.Asks}
	if t.Reason != "" {
		e.Err = errors.New(t.Reason)
	}
	for _, input := range inputs {
		page, _ := wire.Lookup(input.Params, "url")
		e.URL = wire.Unquote(page)
	}
	return question{e, &c.clientCall}
}

// askBeforeRerun responds with the elicitations that a rerun requires, or with an error if the
// client has not declared the capability. The ticket contains the elicitations, so that missing
// responses can be requested again. The caller sets Run and Asks of t. q is the question that t
// asks for; it is not used if there is none.
func (c *statelessCall) askBeforeRerun(q question, t mrtr.Ticket, inputs []protocol.InputRequest,
	ttl time.Duration) {
	var missing mrtr.MissingCapabilities
	for _, input := range inputs {
		missing.Add(c.client.meta.Capabilities, input.Method, input.Params)
	}
	switch {
	case missing.IsEmpty():
	case t.Asks != 0:
		q.note(confirmationImpossible)
		e := missing.ClientError(c.Route.Backend)
		e.Message = q.explain("Missing client capability: the call did not run", fmt.Sprintf(
			"%s, and this client cannot be asked: %s%s", q.requires(), &missing, q.advice()))
		c.reject(e)
		return
	default:
		c.failWith(mrtr.MissingCapabilityError([]byte(`{"elicitation":{"url":{}}}`),
			"backend %s requires a URL elicitation", c.Route.Backend))
		return
	}
	t.Kind, t.Text = mrtr.TicketRerun, string(protocol.InputRequiredResult(inputs, ""))
	c.asked(t, inputs).note(confirmationAsked)
	c.replyInputRequired(protocol.InputRequiredResult(inputs, c.sealTicket(t, ttl)))
}

// claimRerun marks the tickets of a call as used, because the call is about to be sent again or
// the user has declined. If they were already used, or at the limit of usedTickets, it rejects the
// request and returns false.
func (c *statelessCall) claimRerun(claim *mrtr.RerunClaim) bool {
	switch err := c.g.usedTickets.Claim(claim); {
	case errors.Is(err, mrtr.ErrAlreadyContinued):
		return c.rejectState(err)
	case err != nil:
		c.reject(wire.Errorf(wire.CodeInternalError, "%v", err))
		return false
	}
	return true
}

// checkConsent returns true if the ticket is unused and the user has accepted every elicitation
// that a rerun requires: then the call has the consents that the ticket asks for. Otherwise it
// requests missing responses again, or ends the call.
func (c *statelessCall) checkConsent(t mrtr.Ticket, responses []byte) bool {
	if !c.setTarget(t.Backend, t.Entry) {
		return false
	}
	inputs, _, err := protocol.ReadInputRequests([]byte(t.Text)) // written by askBeforeRerun
	if err != nil {
		return c.rejectState(err)
	}
	answer := confirmationAccepted
	var unanswered []protocol.InputRequest
	for _, input := range inputs {
		response, _ := wire.Lookup(responses, input.Key)
		if !mrtr.IsValidResponse(input.Method, response) {
			unanswered = append(unanswered, input)
		} else if one := readAnswer(input.Params, response); one != confirmationAccepted {
			answer = one
		}
	}
	claim := c.claimOf(t)
	switch {
	case c.g.usedTickets.IsUsed(t.Run):
		return c.rejectState(mrtr.ErrAlreadyContinued)
	case answer == confirmationAccepted && len(unanswered) > 0:
		// the new ticket must not outlive the first ticket, see usedTickets
		c.askBeforeRerun(c.asked(t, inputs), t, unanswered, time.Until(t.Until))
		return false
	case answer == confirmationAccepted:
		c.continuation.claim = claim // claimed when the call is about to be sent
		c.asked(t, inputs).accept()
		c.counted = t.Asks != 0 // the call has not been at the backend
		return true
	case !c.claimRerun(claim):
		return false
	case t.Asks != 0:
		c.asked(t, inputs).refuse(answer, "")
		return false
	}
	m := c.inputDeclined(wire.Errorf(wire.CodeInternalError,
		"the user has not accepted a required URL elicitation"))
	c.forward(m, true, outcomeOf(m))
	return false
}
