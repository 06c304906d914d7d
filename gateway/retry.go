package gateway

import (
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/revision"
	"mcpgateway/wire"
)

// A round is what a request has with which a guest goes on with a call.
type round struct {
	backend string // where the call is; "" = it does not say
	state   []byte // the backend's own requestState, as JSON text; nil = none
	anew    bool   // the call is sent anew, without what was answered
}

// isRound reports whether the request goes on with a call, or says so.
func (c *call) isRound() bool {
	_, _, retry := revision.Responses(c.r.Message)
	return c.road.rounds && retry
}

// goOn takes a request with which a guest goes on with a call. It reports whether it is
// yet to be sent to the backend.
func (c *call) goOn() bool {
	responses, state, _ := revision.Responses(c.r.Message)
	literal, _ := wire.Lookup(c.r.Part(wire.PartParams), "requestState")
	if wire.IsNull(literal) {
		return true // the backend keeps no state: it may make of the answers what it likes
	}
	t, err := c.redeem(state)
	if err != nil {
		return c.refuse(err)
	}
	switch t.Kind {
	case forState:
		c.round = &round{backend: t.Backend, state: []byte(t.Text)}
		return true
	case forRerun:
		c.round = &round{backend: t.Backend, anew: true}
		return c.hasBeen(t.Text, responses)
	}
	e := c.s.g.parked.find(t.Text)
	if e == nil {
		return c.refuse(errExpired)
	}
	if !c.join(e) {
		return false
	}
	if failure := e.resume(c, responses); failure != nil {
		c.reject(failure)
	} else if c.over() { // since before the errand knew for whom it goes on
		e.leave(c, nil)
	}
	return false
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

// sendElsewhere asks the client to send its user to where a backend of 2025-11-25 has
// it that the call needs it (-32042), and to come back then: the call is sent anew. It
// reports false if the error says nothing of the kind. A client that cannot is told what it
// lacks.
func (c *call) sendElsewhere(e *wire.Error) bool {
	list, _ := wire.Lookup(e.Data, "elicitations")
	var inputs []revision.Input
	wire.EachElement(list, func(one []byte) bool {
		if url, _ := wire.Lookup(one, "url"); len(url) == 0 || url[0] != '"' {
			return true
		}
		put := []wire.Member{{Key: "mode", Text: []byte(`"url"`)}}
		if text, _ := wire.Lookup(one, "message"); len(text) > 0 && text[0] == '"' {
			put = append(put, wire.Member{Key: "message", Text: prefixed("["+c.Route.Backend+"] ", text)})
		}
		params := wire.Revise(one, func(key string) bool { return key == "elicitationId" }, put...)
		inputs = append(inputs, revision.Input{Key: queryKey(len(inputs) + 1), Method: string(mcp.MethodElicitationCreate), Params: params})
		return len(inputs) < maxQueries
	})
	switch {
	case len(inputs) == 0:
		return false
	case !canElicit(c.guest.stamp.Capabilities, "url"):
		failure := lacks([]byte(`{"elicitation":{"url":{}}}`), "backend %s sends its user to a URL", c.Route.Backend)
		if c.r.Fail(failure) {
			c.ended(Outcome{Kind: RPCError, Code: failure.Code})
		}
		return true
	}
	c.askFor(revision.WriteInputs(inputs, c.ticket(forRerun, strconv.Itoa(len(inputs)), parkedLife)))
	return true
}

// hasBeen reports whether the client's user has agreed to everything, so many
// elicitations, that a call waits for that is to be sent anew. If not the call ends.
func (c *call) hasBeen(elicitations string, responses []byte) bool {
	all, _ := strconv.Atoi(elicitations)
	agreed := 0
	for i := range all {
		if action, _ := wire.Lookup(responses, queryKey(i+1), "action"); wire.Unquote(action) == "accept" {
			agreed++
		}
	}
	if agreed == all {
		return true
	}
	m := c.sorry(wire.Errorf(wire.CodeInternalError, "the user has not agreed to what is needed first"))
	if c.r.Forward(revision.Modern(m, c.Method, c.s.g.info, true)) {
		c.ended(outcome(m))
	}
	return false
}
