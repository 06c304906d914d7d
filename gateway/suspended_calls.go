package gateway

import (
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	// suspendTimeout is how long a parked errand waits for its client to come back.
	suspendTimeout = 10 * time.Minute
	// maxSuspended bounds the errands that are, or were, parked; see share. Beyond it a call that
	// would be is ended with an error.
	maxSuspended = 20_000
)

// suspendedCalls are the errands that wait for their clients to come back, or did. The zero
// value is none.
type suspendedCalls struct {
	counter counter

	mu   sync.Mutex
	byID map[string]*resumableCall
}

// add reports whether there is room for the errand; it may be there already.
func (p *suspendedCalls) add(rc *resumableCall) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.byID[rc.id] != nil:
		return true
	case !p.counter.acquire(rc.client.principal, maxSuspended):
		return false
	case p.byID == nil:
		p.byID = make(map[string]*resumableCall)
	}
	p.byID[rc.id] = rc
	return true
}

func (p *suspendedCalls) remove(rc *resumableCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID[rc.id] == nil {
		return
	}
	delete(p.byID, rc.id)
	p.counter.release(rc.client.principal)
}

func (p *suspendedCalls) find(id string) *resumableCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id]
}

// Parked returns how many calls of clients that have no session wait for these to come
// back, or did.
func (g *Gateway) Parked() int {
	g.suspended.mu.Lock()
	defer g.suspended.mu.Unlock()
	return len(g.suspended.byID)
}

// suspend answers the call that waits with what the backend asks, and has the errand wait
// for the client to come back.
func (rc *resumableCall) suspend() {
	rc.mu.Lock()
	c := rc.call
	if rc.ended || c == nil {
		rc.mu.Unlock()
		return
	}
	if rc.timer != nil {
		rc.timer.Stop()
		rc.timer = nil
	}
	if len(rc.inputRequests) == 0 { // the backend has taken it back
		rc.mu.Unlock()
		return
	}
	if !rc.g.suspended.add(rc) {
		rc.mu.Unlock()
		rc.abort("it asks the client something, and too many calls wait for their clients already")
		return
	}
	inputs := make([]protocol.InputRequest, 0, len(rc.inputRequests))
	for _, ir := range rc.inputRequests {
		inputs = append(inputs, toInput(ir.key, rc.route.Backend, ir.r.Message))
	}
	rc.call = nil
	rc.timer = time.AfterFunc(suspendTimeout, rc.expire)
	rc.mu.Unlock()
	c.s.log().Debug("call waits for its client to come back", "backend", rc.route.Backend, "method", c.Method, "name", truncate(c.Name), "id", string(rc.upstream.ID()))
	if !c.replyInputRequired(protocol.InputRequiredResult(inputs, c.sealTicket(ticketSuspended, rc.id, suspendTimeout))) {
		rc.abort("the client is gone") // it will never know how to come back
	}
}

// expire gives up on a client that does not come back.
func (rc *resumableCall) expire() {
	rc.mu.Lock()
	if rc.ended || rc.call != nil {
		rc.mu.Unlock()
		return
	}
	rc.cancelAndUnlock(cancelParams("the client did not answer in time"))
	rc.g.Log.Warn("call ends: its client did not come back to answer", "backend", rc.route.Backend, "client", rc.client.name,
		"id", string(rc.upstream.ID()), "dur", suspendTimeout)
}

// resume has the errand go on for the request c, with the client's answers. It fails,
// and leaves everything as it is, if another request is waiting for it.
func (rc *resumableCall) resume(c *clientCall, responses []byte) *wire.Error {
	rc.mu.Lock()
	switch {
	case rc.ended:
		rc.mu.Unlock()
		return wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", errTicketExpired)
	case rc.call != nil:
		rc.mu.Unlock()
		return wire.Errorf(wire.CodeInvalidParams, "Invalid params: requestState: %v", errAlreadyContinued)
	}
	rc.timer.Stop()
	rc.timer = nil
	if answer := rc.response; answer != nil {
		rc.endLocked()
		rc.mu.Unlock()
		c.OnResponse(answer.m, answer.err)
		rc.cleanUp()
		return nil
	}
	rc.call = c
	var answered []answeredInput
	var unanswered []*inputRequest
	for _, ir := range rc.inputRequests {
		if value, _ := wire.Lookup(responses, ir.key); isValidInputResponse(ir.r.Method(), value) {
			answered = append(answered, answeredInput{ir, value})
		} else {
			unanswered = append(unanswered, ir)
		}
	}
	rc.inputRequests = unanswered
	rc.mu.Unlock()
	for _, a := range answered {
		a.reply(a.value)
	}
	if len(unanswered) > 0 {
		rc.suspend() // "missing: the server SHOULD ask again" (MRTR)
	}
	return nil
}

type answeredInput struct {
	*inputRequest
	value []byte
}

// isValidInputResponse reports whether a client's answer has the shape of one to what was
// asked.
func isValidInputResponse(method string, answer []byte) bool {
	if !wire.IsObject(answer) {
		return false
	}
	has := func(member string, first byte) bool {
		value, _ := wire.Lookup(answer, member)
		return len(value) > 0 && (first == 0 || value[0] == first)
	}
	switch method {
	case protocol.MethodElicitationCreate:
		return has("action", '"')
	case protocol.MethodRootsList:
		return has("roots", '[')
	case protocol.MethodSamplingCreateMessage:
		return has("content", 0) && has("role", '"')
	}
	return true
}

// toInput returns a backend's question as a client of the stateless era gets it.
func toInput(key, backend string, m wire.Message) protocol.InputRequest {
	m = withBackendLabel(backend, m)
	params := m.Part(wire.PartParams)
	if wire.IsObject(params) {
		meta := wire.EditObject(m.Part(wire.PartMeta), func(key string) bool { return key == "progressToken" || key == protocol.MetaRelatedTask })
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

var _ peer.ResponseHandler = (*resumableCall)(nil)
