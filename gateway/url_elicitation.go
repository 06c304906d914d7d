package gateway

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"mcpgateway/gateway/internal/mrtr"
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
	c.askURLs(newID(), inputs, suspendTimeout)
	return true
}

// askURLs responds with the URL elicitations that a rerun requires, or with an error if the client
// has not declared the capability. The ticket contains the elicitations, so that missing responses
// can be requested again. The id identifies the rerun.
func (c *statelessCall) askURLs(id string, inputs []protocol.InputRequest, ttl time.Duration) {
	if !mrtr.DeclaresElicitation(c.client.meta.Capabilities, "url") {
		c.failWith(mrtr.MissingCapabilityError([]byte(`{"elicitation":{"url":{}}}`),
			"backend %s requires a URL elicitation", c.Route.Backend))
		return
	}
	text := id + " " + string(protocol.InputRequiredResult(inputs, ""))
	c.replyInputRequired(protocol.InputRequiredResult(inputs,
		c.sealTicket(mrtr.TicketRerun, text, ttl)))
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
// that a rerun requires. Otherwise it requests missing responses again, or ends the call.
func (c *statelessCall) checkConsent(t mrtr.Ticket, responses []byte) bool {
	if !c.setBackend(t.Backend) {
		return false
	}
	id, requested, _ := strings.Cut(t.Text, " ")
	inputs, _, err := protocol.ReadInputRequests([]byte(requested)) // written by askURLs
	if err != nil {
		return c.rejectState(err)
	}
	agreed := true
	var unanswered []protocol.InputRequest
	for _, input := range inputs {
		answer, _ := wire.Lookup(responses, input.Key)
		if !mrtr.IsValidResponse(input.Method, answer) {
			unanswered = append(unanswered, input)
			continue
		}
		action, _ := wire.Lookup(answer, "action")
		agreed = agreed && wire.Unquote(action) == "accept"
	}
	claim := &mrtr.RerunClaim{ID: id, Principal: c.client.principal, Until: t.Until}
	switch {
	case c.g.usedTickets.IsUsed(id):
		return c.rejectState(mrtr.ErrAlreadyContinued)
	case agreed && len(unanswered) > 0:
		// the new ticket must not outlive the first ticket, see usedTickets
		c.askURLs(id, unanswered, time.Until(t.Until))
		return false
	case agreed:
		c.continuation.claim = claim // claimed when the call is about to be sent
		return true
	case !c.claimRerun(claim):
		return false
	}
	m := c.inputDeclined(wire.Errorf(wire.CodeInternalError,
		"the user has not accepted a required URL elicitation"))
	c.forward(m, true, outcomeOf(m))
	return false
}
