package gateway

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// sendElsewhere asks the client to send its user to where a backend of 2025-11-25 has
// it that the call needs it (-32042), and to come back then: the call is sent anew, once. It
// reports false if the error says nothing of the kind. A client that cannot is told what it
// lacks.
func (c *call) sendElsewhere(failure []byte) bool {
	list, err := protocol.URLElicitations(failure)
	if err != nil {
		c.giveIn(&peer.BadResponseError{Err: err})
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
			wire.Member{Key: "message", Text: prefixed(mark(c.Route.Backend), text)})
		inputs = append(inputs, protocol.InputRequest{Key: queryKey(len(inputs) + 1), Method: string(mcp.MethodElicitationCreate), Params: params})
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
	c.askToGo(newID(), inputs, parkedLife)
	return true
}

// askToGo asks for what a rerun waits for, which goes by id. What is asked is in the ticket, so
// that what is missing can be asked for again.
func (c *call) askToGo(id string, inputs []protocol.InputRequest, life time.Duration) {
	text := id + " " + string(protocol.InputRequiredResult(inputs, ""))
	c.askFor(protocol.InputRequiredResult(inputs, c.ticket(forRerun, text, life)))
}

// takes takes the turn of a call that is sent anew, or will not be. If it is not to be had the
// call ends.
func (c *call) takes(turn *turn) bool {
	switch err := c.s.g.reruns.take(turn); {
	case errors.Is(err, errTaken):
		return c.refuse(err)
	case err != nil:
		c.reject(wire.Errorf(wire.CodeInternalError, "%v", err))
		return false
	}
	return true
}

// hasBeen reports whether the client's user has agreed to everything that a call waits for
// which is to be sent anew, and no request has come back with that before. If the client has
// not answered all of it, it is asked for the rest again; if not the call ends.
func (c *call) hasBeen(t ticket, responses []byte) bool {
	c.mu.Lock()
	c.Route.Backend = t.Backend
	c.mu.Unlock()
	id, asked, _ := strings.Cut(t.Text, " ")
	inputs, _, _ := protocol.ReadInputRequests([]byte(asked)) // we have written it
	agreed := true
	var left []protocol.InputRequest
	for _, in := range inputs {
		answer, _ := wire.Lookup(responses, in.Key)
		if !fitsQuestion(in.Method, answer) {
			left = append(left, in)
			continue
		}
		action, _ := wire.Lookup(answer, "action")
		agreed = agreed && wire.Unquote(action) == "accept"
	}
	turn := &turn{id, t.Principal, t.Until}
	switch {
	case c.s.g.reruns.taken(id):
		return c.refuse(errTaken)
	case agreed && len(left) > 0:
		c.askToGo(id, left, time.Until(t.Until)) // no longer than the first ticket: see reruns
		return false
	case agreed:
		c.round.turn = turn // it is taken when the call is really sent
		return true
	case !c.takes(turn):
		return false
	}
	m := c.sorry(wire.Errorf(wire.CodeInternalError, "the user has not agreed to what is needed first"))
	if c.r.Forward(protocol.ToModern(m, c.Method, c.s.g.info, true)) {
		c.ended(outcome(m))
	}
	return false
}

const (
	// maxReruns bounds the tickets for which a call was sent anew and that are not out of date;
	// see share. Beyond it no more are taken: one that was forgotten could be used again.
	maxReruns = 20_000
)

var (
	errTaken      = errors.New("another request goes on with this call")
	errManyReruns = errors.New("too many calls were sent anew within the last minutes; come back later")
)

// reruns are the calls that were sent anew, or will not be, by the ids that stand in their
// tickets, for as long as these are good. So a ticket is good for one run however often the
// client comes back with it. The zero value is none.
type reruns struct {
	tally tally

	mu   sync.Mutex
	used map[string]bool
}

// A turn is the one run that all tickets of a call are good for.
type turn struct {
	id        string
	principal string
	until     time.Time // when the last of its tickets is out of date
}

// take takes a turn, for whoever gets nil.
func (r *reruns) take(t *turn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.used[t.id]:
		return errTaken
	case !r.tally.enter(t.principal, maxReruns):
		return errManyReruns
	case r.used == nil:
		r.used = make(map[string]bool)
	}
	r.used[t.id] = true
	time.AfterFunc(time.Until(t.until)+time.Second, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.used, t.id)
		r.tally.leave(t.principal)
	})
	return nil
}

func (r *reruns) taken(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used[id]
}
