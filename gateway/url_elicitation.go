package gateway

import (
	"errors"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/quota"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// requestURLConsent converts a legacy URLElicitationRequired error (-32042) into an input_required
// result with one URL elicitation per entry. When the user has accepted all of them, the call is
// sent again, at most once. A client without the capability gets an error. So does every client if
// the elicitations are invalid. If the error contains no URL, requestURLConsent returns false and
// does nothing.
func (c *clientCall) requestURLConsent(failure []byte) bool {
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
			wire.Member{Key: "message", Text: prependJSONString(backendLabel(c.Route.Backend),
				text)})
		inputs = append(inputs, protocol.InputRequest{Key: inputKey(len(inputs) + 1),
			Method: protocol.MethodElicitationCreate, Params: params})
		return len(inputs) < maxInputRequests
	})
	switch {
	case len(inputs) == 0:
		return false
	case !declaresElicitation(c.stateless.meta.Capabilities, "url"):
		failure := errMissingCapability([]byte(`{"elicitation":{"url":{}}}`),
			"backend %s requires a URL elicitation", c.Route.Backend)
		if c.r.Fail(failure) {
			c.end(Outcome{Kind: RPCError, Code: failure.Code})
		}
		return true
	}
	c.askURLs(newID(), inputs, suspendTimeout)
	return true
}

// askURLs responds with the URL elicitations that a rerun requires. The ticket contains the
// elicitations, so that missing responses can be requested again. The id identifies the rerun.
func (c *clientCall) askURLs(id string, inputs []protocol.InputRequest, ttl time.Duration) {
	text := id + " " + string(protocol.InputRequiredResult(inputs, ""))
	c.replyInputRequired(protocol.InputRequiredResult(inputs, c.sealTicket(ticketRerun, text, ttl)))
}

// claimRerun marks the tickets of a call as used, because the call is about to be sent again or
// the user has declined. If they were already used, or at the limit of usedTickets, it rejects the
// request and returns false.
func (c *clientCall) claimRerun(claim *rerunClaim) bool {
	switch err := c.s.g.usedTickets.claim(claim); {
	case errors.Is(err, errAlreadyContinued):
		return c.rejectState(err)
	case err != nil:
		c.reject(wire.Errorf(wire.CodeInternalError, "%v", err))
		return false
	}
	return true
}

// checkConsent returns true if the ticket is unused and the user has accepted every elicitation
// that a rerun requires. Otherwise it requests missing responses again, or ends the call.
func (c *clientCall) checkConsent(t ticket, responses []byte) bool {
	c.mu.Lock()
	c.Route.Backend = t.Backend
	c.mu.Unlock()
	id, requested, _ := strings.Cut(t.Text, " ")
	inputs, _, _ := protocol.ReadInputRequests([]byte(requested)) // written by the gateway
	agreed := true
	var unanswered []protocol.InputRequest
	for _, input := range inputs {
		answer, _ := wire.Lookup(responses, input.Key)
		if !isValidInputResponse(input.Method, answer) {
			unanswered = append(unanswered, input)
			continue
		}
		action, _ := wire.Lookup(answer, "action")
		agreed = agreed && wire.Unquote(action) == "accept"
	}
	claim := &rerunClaim{id, t.Principal, t.Until}
	switch {
	case c.s.g.usedTickets.isUsed(id):
		return c.rejectState(errAlreadyContinued)
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
	if c.r.Forward(protocol.ToModern(m, c.Method, c.s.g.info, true)) {
		c.end(outcomeOf(m))
	}
	return false
}

const (
	// maxReruns bounds the used tickets that have not expired; see perPrincipalLimit. At the limit
	// further tickets are rejected: if an older entry were removed, its ticket could be used
	// again.
	maxReruns = 20_000
)

var errTooManyReruns = errors.New("too many calls were sent again recently; retry later")

// usedTickets is the table of the ids of reruns whose tickets were used. An id stays in the table
// until the tickets expire, so that all tickets of a rerun together are valid for one run. The
// zero value is empty.
type usedTickets struct {
	counter quota.Counter[string]

	mu   sync.Mutex
	used map[string]bool
}

// A rerunClaim identifies a rerun. All tickets of one call are for the same rerun.
type rerunClaim struct {
	id        string
	principal string
	until     time.Time // latest expiry of its tickets
}

// claim records a rerun as used. It returns nil to at most one of all callers with the same rerun,
// errAlreadyContinued to the others, and errTooManyReruns at the limit.
func (r *usedTickets) claim(t *rerunClaim) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.used[t.id]:
		return errAlreadyContinued
	case !acquireShare(&r.counter, t.principal, maxReruns):
		return errTooManyReruns
	case r.used == nil:
		r.used = make(map[string]bool)
	}
	r.used[t.id] = true
	time.AfterFunc(time.Until(t.until)+time.Second, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.used, t.id)
		r.counter.Release(t.principal)
	})
	return nil
}

func (r *usedTickets) isUsed(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used[id]
}
