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

// requestURLConsent converts a legacy URLElicitationRequired error (-32042) into input_required
// with one URL elicitation per entry. Once all are accepted the call is sent again, at most once.
// It returns false if the error has no URL. A client without the capability gets an error.
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

// askURLs responds with the URL elicitations that a rerun requires. They are part of the ticket,
// so that missing responses can be requested again. Id identifies the rerun.
func (c *clientCall) askURLs(id string, inputs []protocol.InputRequest, ttl time.Duration) {
	text := id + " " + string(protocol.InputRequiredResult(inputs, ""))
	c.replyInputRequired(protocol.InputRequiredResult(inputs, c.sealTicket(ticketRerun, text, ttl)))
}

// claimRerun uses up the tickets of a call that is sent again, or refused. If they are already
// used the call ends.
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

// checkConsent reports whether the user has accepted every elicitation that a rerun requires, and
// the ticket is unused. If responses are missing they are requested again; otherwise the call
// ends.
func (c *clientCall) checkConsent(t ticket, responses []byte) bool {
	c.mu.Lock()
	c.Route.Backend = t.Backend
	c.mu.Unlock()
	id, requested, _ := strings.Cut(t.Text, " ")
	inputs, _, _ := protocol.ReadInputRequests([]byte(requested)) // the gateway wrote it
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
		// not beyond the first ticket, see usedTickets
		c.askURLs(id, unanswered, time.Until(t.Until))
		return false
	case agreed:
		c.continuation.claim = claim // claimed when the call is actually sent
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
	// maxReruns bounds the used tickets that have not expired; see perPrincipalLimit. At the
	// limit no more are accepted, because a forgotten ticket could be used again.
	maxReruns = 20_000
)

var errTooManyReruns = errors.New("too many calls were sent again recently; retry later")

// usedTickets are the ids of reruns whose tickets were used, kept until the tickets expire. A
// ticket is therefore valid for one run, however often the client sends it. The zero value is
// empty.
type usedTickets struct {
	counter quota.Counter[string]

	mu   sync.Mutex
	used map[string]bool
}

// A rerunClaim identifies the single run for which all tickets of a call are valid.
type rerunClaim struct {
	id        string
	principal string
	until     time.Time // expiry of the last of its tickets
}

// claim uses up a rerun; it returns nil to one caller only.
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
