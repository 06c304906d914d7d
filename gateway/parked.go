package gateway

import (
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	// parkedLife is how long a parked errand waits for its client to come back.
	parkedLife = 10 * time.Minute
	// maxParked bounds the errands that are, or were, parked; see share. Beyond it a call that
	// would be is ended with an error.
	maxParked = 20_000
)

// parked are the errands that wait for their clients to come back, or did. The zero
// value is none.
type parked struct {
	tally tally

	mu   sync.Mutex
	byID map[string]*errand
}

// add reports whether there is room for the errand; it may be there already.
func (p *parked) add(e *errand) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.byID[e.id] != nil:
		return true
	case !p.tally.enter(e.guest.principal, maxParked):
		return false
	case p.byID == nil:
		p.byID = make(map[string]*errand)
	}
	p.byID[e.id] = e
	return true
}

func (p *parked) remove(e *errand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID[e.id] == nil {
		return
	}
	delete(p.byID, e.id)
	p.tally.leave(e.guest.principal)
}

func (p *parked) find(id string) *errand {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id]
}

// Parked returns how many calls of clients that have no session wait for these to come
// back, or did.
func (g *Gateway) Parked() int {
	g.parked.mu.Lock()
	defer g.parked.mu.Unlock()
	return len(g.parked.byID)
}

// park answers the call that waits with what the backend asks, and has the errand wait
// for the client to come back.
func (e *errand) park() {
	e.mu.Lock()
	c := e.call
	if e.over || c == nil {
		e.mu.Unlock()
		return
	}
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	if len(e.asked) == 0 { // the backend has taken it back
		e.mu.Unlock()
		return
	}
	if !e.g.parked.add(e) {
		e.mu.Unlock()
		e.abandon("it asks the client something, and too many calls wait for their clients already")
		return
	}
	inputs := make([]protocol.InputRequest, 0, len(e.asked))
	for _, q := range e.asked {
		inputs = append(inputs, input(q.key, e.route.Backend, q.r.Message))
	}
	e.call = nil
	e.timer = time.AfterFunc(parkedLife, e.expire)
	e.mu.Unlock()
	c.s.log().Debug("call waits for its client to come back", "backend", e.route.Backend, "method", c.Method, "name", brief(c.Name), "id", string(e.pending.ID()))
	if !c.askFor(protocol.InputRequiredResult(inputs, c.ticket(forErrand, e.id, parkedLife))) {
		e.abandon("the client is gone") // it will never know how to come back
	}
}

// expire gives up on a client that does not come back.
func (e *errand) expire() {
	e.mu.Lock()
	if e.over || e.call != nil {
		e.mu.Unlock()
		return
	}
	e.finishLocked(because("the client did not answer in time"))
	e.g.Log.Warn("call ends: its client did not come back to answer", "backend", e.route.Backend, "client", e.guest.name,
		"id", string(e.pending.ID()), "dur", parkedLife)
}

// resume has the errand go on for the request c, with the client's answers. It fails,
// and leaves everything as it is, if another request is waiting for it.
func (e *errand) resume(c *call, responses []byte) *wire.Error {
	e.mu.Lock()
	switch {
	case e.over:
		e.mu.Unlock()
		return wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", errExpired)
	case e.call != nil:
		e.mu.Unlock()
		return wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", errTaken)
	}
	e.timer.Stop()
	e.timer = nil
	if answer := e.answer; answer != nil {
		e.endLocked()
		e.mu.Unlock()
		c.OnResponse(answer.m, answer.err)
		e.gone()
		return nil
	}
	e.call = c
	var answered []answeredQuery
	var left []*query
	for _, q := range e.asked {
		if value, _ := wire.Lookup(responses, q.key); fitsQuestion(q.r.Method(), value) {
			answered = append(answered, answeredQuery{q, value})
		} else {
			left = append(left, q)
		}
	}
	e.asked = left
	e.mu.Unlock()
	for _, a := range answered {
		a.reply(a.value)
	}
	if len(left) > 0 {
		e.park() // "missing: the server SHOULD ask again" (MRTR)
	}
	return nil
}

type answeredQuery struct {
	*query
	value []byte
}

// fitsQuestion reports whether a client's answer has the shape of one to what was
// asked.
func fitsQuestion(method string, answer []byte) bool {
	if !wire.IsObject(answer) {
		return false
	}
	has := func(member string, first byte) bool {
		value, _ := wire.Lookup(answer, member)
		return len(value) > 0 && (first == 0 || value[0] == first)
	}
	switch method {
	case "elicitation/create":
		return has("action", '"')
	case "roots/list":
		return has("roots", '[')
	case "sampling/createMessage":
		return has("content", 0) && has("role", '"')
	}
	return true
}

// input returns a backend's question as a client of the stateless era gets it.
func input(key, backend string, m wire.Message) protocol.InputRequest {
	m = tagged(backend, m)
	params := m.Part(wire.PartParams)
	if wire.IsObject(params) {
		meta := wire.EditObject(m.Part(wire.PartMeta), func(key string) bool { return key == "progressToken" || key == related })
		put := []wire.Member{{Key: "_meta", Text: meta}}
		if string(meta) == "{}" {
			put = nil
		}
		params = wire.EditObject(params, func(key string) bool { return key == "task" || key == "elicitationId" || key == "_meta" }, put...)
	} else {
		params = nil
	}
	return protocol.InputRequest{Key: key, Method: m.Method(), Params: params}
}

var _ peer.ResponseHandler = (*errand)(nil)
