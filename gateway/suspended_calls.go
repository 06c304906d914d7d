package gateway

import (
	"sync"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/quota"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	// suspendTimeout bounds the time for which a suspended call waits for its client's next
	// request.
	suspendTimeout = 10 * time.Minute
	// maxSuspended bounds the calls in suspendedCalls; see [quota.Share]. At the limit a call
	// fails instead of being suspended.
	maxSuspended = 20_000
)

// suspendedCalls is the table of calls that were suspended at least once and have not ended. The
// zero value is empty.
type suspendedCalls struct {
	counter quota.Counter[string] // by key of the principal

	mu   sync.Mutex
	byID map[string]*resumableCall
}

// add adds a call to the table, if it is not yet in the table. It returns false at the limit.
func (p *suspendedCalls) add(rc *resumableCall) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.byID[rc.id] != nil:
		return true
	case !rc.client.principal.AcquireShare(&p.counter, maxSuspended):
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
	p.counter.Release(rc.client.principal.Key())
}

func (p *suspendedCalls) find(id string) *resumableCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id]
}

// suspend responds to the waiting request with the backend's input requests. The call then waits
// for the client's next request. At the limit of suspendedCalls, or if the client is gone, suspend
// aborts the call. It ends the call with an error if the waiting request, which may have other
// metadata than the first request of the call, has not declared a capability. It does nothing if no
// request is waiting or no input requests are left.
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
	if rc.inputs.Len() == 0 { // the backend has cancelled them
		rc.mu.Unlock()
		return
	}
	inputs := rc.inputs.Requests(rc.route.Backend)
	if err := mrtr.CheckInputsDeclared(rc.route.Backend, c.client.meta.Capabilities,
		inputs); err != nil {
		rc.cancelAndUnlock(nil)
		c.failWith(err)
		return
	}
	if !rc.client.g.suspended.add(rc) {
		rc.mu.Unlock()
		rc.abort("it sent a request to the client, and too many calls wait for their clients")
		return
	}
	rc.rounds++
	c.history.rounds.Store(rc.rounds)
	rc.call = nil
	rc.timer = time.AfterFunc(suspendTimeout, rc.expire)
	rc.mu.Unlock()
	c.conn.log().Debug("call suspended", "backend", rc.route.Backend, "method", c.Method, "name",
		truncate(c.Name), "id", string(rc.backendCall.ID()))
	if !c.replyInputRequired(protocol.InputRequiredResult(inputs,
		c.sealTicket(mrtr.Ticket{Kind: mrtr.TicketSuspended, Text: rc.id}, suspendTimeout))) {
		rc.abort("the client is gone") // without the ticket the client cannot continue the call
	}
}

// expire cancels a suspended call if its client has not continued the call in time.
func (rc *resumableCall) expire() {
	rc.mu.Lock()
	if rc.ended || rc.call != nil {
		rc.mu.Unlock()
		return
	}
	rc.cancelAndUnlock(cancelParams("the client did not answer in time"))
	rc.client.g.Log.Warn("call cancelled: the client did not send the requested input in time",
		"backend", rc.route.Backend, "client", rc.client.name,
		"id", string(rc.backendCall.ID()), "dur", suspendTimeout)
}

// resume continues a suspended call with the client's responses. From now on, c waits for the
// backend's response. If the backend has already responded, c ends with this response. If responses
// are missing, the call is suspended again. If the call has ended or another request waits for it,
// resume changes nothing and returns an error.
func (rc *resumableCall) resume(c *statelessCall, responses []byte) error {
	rc.mu.Lock()
	switch {
	case rc.ended:
		rc.mu.Unlock()
		return mrtr.ErrTicketExpired
	case rc.call != nil:
		rc.mu.Unlock()
		return mrtr.ErrAlreadyContinued
	}
	rc.timer.Stop()
	rc.timer = nil
	c.history.rounds.Store(rc.rounds)
	if answer := rc.response; answer != nil {
		rc.endLocked()
		rc.mu.Unlock()
		c.OnResponse(*answer)
		rc.cleanUp()
		return nil
	}
	rc.call = c
	answered := rc.inputs.TakeAnswered(func(in *mrtr.PendingInput) []byte {
		value, _ := wire.Lookup(responses, in.Key)
		return value
	})
	missing := rc.inputs.Len() > 0
	rc.mu.Unlock()
	for _, a := range answered {
		a.Reply(a.Result)
		rc.backendCall.ResumeTimeout()
	}
	if missing {
		rc.suspend() // specification, multi round-trip requests: "the server SHOULD ask again"
	}
	return nil
}
