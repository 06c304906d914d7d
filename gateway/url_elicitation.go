package gateway

import (
	"errors"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// requestURLConsent asks the client to send its user to where a backend of 2025-11-25 has
// it that the call needs it (-32042), and to come back then: the call is sent anew, once. It
// reports false if the error says nothing of the kind. A client that cannot is told what it
// lacks.
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
			wire.Member{Key: "message", Text: prependJSONString(backendLabel(c.Route.Backend), text)})
		inputs = append(inputs, protocol.InputRequest{Key: inputKey(len(inputs) + 1), Method: protocol.MethodElicitationCreate, Params: params})
		return len(inputs) < maxInputRequests
	})
	switch {
	case len(inputs) == 0:
		return false
	case !declaresElicitation(c.stateless.meta.Capabilities, "url"):
		failure := errMissingCapability([]byte(`{"elicitation":{"url":{}}}`), "backend %s sends its user to a URL", c.Route.Backend)
		if c.r.Fail(failure) {
			c.end(Outcome{Kind: RPCError, Code: failure.Code})
		}
		return true
	}
	c.askURLs(newID(), inputs, suspendTimeout)
	return true
}

// askURLs asks for what a rerun waits for, which goes by id. What is asked is in the ticket, so
// that what is missing can be asked for again.
func (c *clientCall) askURLs(id string, inputs []protocol.InputRequest, ttl time.Duration) {
	text := id + " " + string(protocol.InputRequiredResult(inputs, ""))
	c.replyInputRequired(protocol.InputRequiredResult(inputs, c.sealTicket(ticketRerun, text, ttl)))
}

// claimRerun takes the turn of a call that is sent anew, or will not be. If it is not to be had the
// clientCall ends.
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

// checkConsent reports whether the client's user has agreed to everything that a call waits for
// which is to be sent anew, and no request has come back with that before. If the client has
// not answered all of it, it is asked for the rest again; if not the call ends.
func (c *clientCall) checkConsent(t ticket, responses []byte) bool {
	c.mu.Lock()
	c.Route.Backend = t.Backend
	c.mu.Unlock()
	id, asked, _ := strings.Cut(t.Text, " ")
	inputs, _, _ := protocol.ReadInputRequests([]byte(asked)) // we have written it
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
		c.askURLs(id, unanswered, time.Until(t.Until)) // no longer than the first ticket: see reruns
		return false
	case agreed:
		c.continuation.claim = claim // it is taken when the call is really sent
		return true
	case !c.claimRerun(claim):
		return false
	}
	m := c.inputDeclined(wire.Errorf(wire.CodeInternalError, "the user has not agreed to what is needed first"))
	if c.r.Forward(protocol.ToModern(m, c.Method, c.s.g.info, true)) {
		c.end(outcomeOf(m))
	}
	return false
}

const (
	// maxReruns bounds the tickets for which a call was sent anew and that are not out of date;
	// see share. Beyond it no more are taken: one that was forgotten could be used again.
	maxReruns = 20_000
)

var (
	errAlreadyContinued = errors.New("another request goes on with this call")
	errTooManyReruns    = errors.New("too many calls were sent anew within the last minutes; come back later")
)

// usedTickets are the calls that were sent anew, or will not be, by the ids that stand in their
// tickets, for as long as these are good. So a ticket is good for one run however often the
// client comes back with it. The zero value is none.
type usedTickets struct {
	counter counter

	mu   sync.Mutex
	used map[string]bool
}

// A rerunClaim is the one run that all tickets of a call are good for.
type rerunClaim struct {
	id        string
	principal string
	until     time.Time // when the last of its tickets is out of date
}

// claim takes a turn, for whoever gets nil.
func (r *usedTickets) claim(t *rerunClaim) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.used[t.id]:
		return errAlreadyContinued
	case !r.counter.acquire(t.principal, maxReruns):
		return errTooManyReruns
	case r.used == nil:
		r.used = make(map[string]bool)
	}
	r.used[t.id] = true
	time.AfterFunc(time.Until(t.until)+time.Second, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.used, t.id)
		r.counter.release(t.principal)
	})
	return nil
}

func (r *usedTickets) isUsed(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used[id]
}
