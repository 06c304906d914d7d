package gateway

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A resumableCall is a call to a backend on behalf of a stateless client. The call may outlive the
// client's request: if a legacy backend sends a request to the client during the call, the
// client's request gets an input_required result, and the call is suspended (suspended_calls.go)
// until the client's next request contains the responses.
//
//	statelessCall.prepare ─ resumableCall ─ Backends.NewCall
//	statelessClient.handleRequest ─ addInputRequest ─ suspend: input_required and a ticket
//	   statelessCall.continueCall (a retry with the ticket) ─ resume ─ Request.Reply
//	OnResponse ─ statelessCall.OnResponse of the waiting request, or stored for the next request
//
// Each call ends once: by the backend's response, by a cancellation or the disconnection of the
// client, by suspendTimeout, or by an error of the gateway. A suspension never makes a call run
// twice.
type resumableCall struct {
	client       *statelessClient
	elem         *list.Element // in client.resumable
	id           string
	taskReserved bool // a slot for a task is reserved
	sendAsTask   bool // the backend was asked for a task
	callOrigin
	backendCall contract.BackendCall

	mu          sync.Mutex
	call        *statelessCall            // waiting for the response; nil = suspended or ended
	inputs      mrtr.Queue                // input requests of the backend
	timer       *time.Timer               // gatherTime or suspendTimeout; nil if neither runs
	response    *contract.BackendResponse // received while suspended
	storedBytes int                       // size of response, acquired from the byte budget
	rounds      uint32                    // suspensions
	ended       bool
}

// A callOrigin is the part of the client's first request that a resumableCall keeps.
type callOrigin struct {
	route catalog.Route
	trace Trace // nil = not traced
}

// gatherTime is the time between the first input request and the suspension, in which further input
// requests may arrive.
const gatherTime = 20 * time.Millisecond

// waitingCall returns the client's call that waits for the response; nil if there is none, or if rc
// is nil.
func (rc *resumableCall) waitingCall() *statelessCall {
	if rc == nil {
		return nil
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.call
}

// OnProgress implements contract.CallHandler: it forwards progress on behalf of the waiting
// request, with the progress token of that request.
func (rc *resumableCall) OnProgress(m wire.Message) {
	if c := rc.waitingCall(); c != nil {
		if token := c.r.Token(); token != "" && !c.conn.isBacklogged(rc.route.Backend) {
			c.history.progress.Add(1)
			edit := wire.Edit{Part: wire.PartToken, Text: []byte(token)}
			c.r.Notify(protocol.StripMeta(m).Splice(edit))
		}
	}
}

// OnResponse implements contract.CallHandler.
func (rc *resumableCall) OnResponse(resp contract.BackendResponse) {
	rc.mu.Lock()
	if rc.ended {
		rc.mu.Unlock()
		rc.cancelCreatedTask(resp)
		return
	}
	c, open := rc.call, rc.inputs.TakeAll()
	stored := false
	if c == nil {
		stored = rc.storeResponseLocked(resp) // for the client's next request
	} else {
		rc.endLocked()
	}
	rc.mu.Unlock()
	rc.reassign(open)
	if c == nil && !stored {
		rc.cancelCreatedTask(resp)
	}
	if c != nil {
		c.OnResponse(resp)
		rc.cleanUp()
	}
}

var errResponseDropped = errors.New("it has responded, and there was no room to store " +
	"the response until the client came back")

// storeResponseLocked stores a response for which no request waits. If the shared byte budget is
// exhausted, it returns false and stores an error instead, which says that the backend has
// responded.
func (rc *resumableCall) storeResponseLocked(resp contract.BackendResponse) (stored bool) {
	size := len(resp.Message.Raw())
	stored = rc.client.g.resultBytes.Acquire(size, maxResultBytes)
	if stored {
		resp.Message = resp.Message.Clone()
	} else {
		size = 0
		resp = contract.BackendResponse{
			Err: &transport.CallLostError{Err: errResponseDropped, MayHaveRun: true}}
	}
	rc.response, rc.storedBytes = &resp, size
	return stored
}

// endLocked ends the call. cleanUp must be called after mu is released.
func (rc *resumableCall) endLocked() {
	rc.client.g.resultBytes.Release(rc.storedBytes)
	rc.ended, rc.call, rc.response, rc.storedBytes = true, nil, nil, 0
	if rc.timer != nil {
		rc.timer.Stop()
		rc.timer = nil
	}
}

func (rc *resumableCall) cleanUp() {
	rc.unreserveTask()
	rc.client.g.suspended.remove(rc)
	rc.client.removeCall(rc)
	rc.client.release()
}

// addInputRequest adds a request of the backend. Certain is true if the request certainly belongs
// to this call. The request gets an error if the client has not declared the capability, if the
// backend has responded to the call or the call has ended, or at mrtr.MaxInputRequests.
func (rc *resumableCall) addInputRequest(r *peer.Request, certain bool) {
	if err := mrtr.CheckDeclared(rc.client.meta.Capabilities, r.Message); err != nil {
		decline(r, err)
		if certain || !rc.client.hasOtherCall(rc) {
			rc.endUndeclared(r.Message)
		}
		return
	}
	var in *mrtr.PendingInput
	rc.mu.Lock()
	if !rc.ended && rc.response == nil {
		in = rc.inputs.Add(r)
	}
	if in != nil {
		in.StaysOnCall = certain
		rc.backendCall.PauseTimeout()
		if rc.call != nil && rc.timer == nil {
			rc.timer = time.AfterFunc(gatherTime, rc.suspend)
		}
	}
	rc.mu.Unlock()
	withdraw := func() { rc.withdraw(in) }
	switch {
	case in == nil:
		r.Fail(wire.Errorf(wire.CodeInternalError,
			"The call accepts no more requests to the client, or has too many open ones"))
	case !r.OnCancel(cancelFunc(withdraw)):
		withdraw() // already cancelled
	}
}

// withdraw removes an input request that the backend has cancelled.
func (rc *resumableCall) withdraw(in *mrtr.PendingInput) {
	rc.mu.Lock()
	removed := rc.inputs.Remove(in)
	rc.mu.Unlock()
	if removed {
		rc.backendCall.ResumeTimeout()
	}
}

// endUndeclared ends a call during which the backend has requested what the client has not
// declared. If the client could have declared the capability and a request of the client waits,
// endUndeclared cancels the call and responds with an error that lists the capability.
func (rc *resumableCall) endUndeclared(m wire.Message) {
	var s mrtr.MissingCapabilities
	s.Add(rc.client.meta.Capabilities, m.Method(), m.Part(wire.PartParams))
	rc.mu.Lock()
	c := rc.call
	if rc.ended || c == nil || s.IsEmpty() {
		rc.mu.Unlock()
		return
	}
	rc.cancelAndUnlock(nil)
	c.failWith(s.ClientError(rc.route.Backend))
}

// cancelForCall ends the resumable call if c waits for it. It is called when c was cancelled or
// the client of c has disconnected.
func (rc *resumableCall) cancelForCall(c *statelessCall, params []byte) {
	rc.mu.Lock()
	if rc.ended || rc.call != c {
		rc.mu.Unlock()
		return
	}
	rc.cancelAndUnlock(params)
}

// abort cancels the call at the backend and ends it with an error.
func (rc *resumableCall) abort(reason string) {
	rc.mu.Lock()
	if rc.ended {
		rc.mu.Unlock()
		return
	}
	c := rc.call
	rc.cancelAndUnlock(cancelParams(reason))
	failure := wire.Errorf(wire.CodeInternalError,
		"backend %s: %s; outcome unknown: the call may have run", rc.route.Backend, reason)
	if c != nil && c.r.Fail(failure) {
		c.end(errorOutcome(BackendLost, failure))
	}
}

// cancelParams returns the params of a cancellation by the gateway.
func cancelParams(reason string) []byte {
	return wire.Encode(map[string]any{"requestId": 0, "reason": reason}) // the peer sets the id
}

// cancelAndUnlock ends the call, reassigns its input requests, and cancels the call at the backend
// or, if the backend has responded with a task, the task. It unlocks mu.
func (rc *resumableCall) cancelAndUnlock(params []byte) {
	open, response := rc.inputs.TakeAll(), rc.response
	rc.endLocked()
	rc.mu.Unlock()
	rc.reassign(open)
	if response == nil {
		rc.backendCall.Cancel(params)
	} else {
		rc.cancelCreatedTask(*response)
	}
	rc.cleanUp()
}

// decline responds to an input request of the call, which was taken.
func (rc *resumableCall) decline(in *mrtr.PendingInput) {
	decline(in.Request, wire.Errorf(wire.CodeInternalError,
		"The client has not responded, and the call has ended"))
	rc.backendCall.ResumeTimeout()
}

// reassign moves the input requests of an ended call to another call of the client at the backend.
// The requests may belong to that call, because an attribution without a stream, as on stdio, is
// uncertain. It declines requests that stay on the call, and all if there is no other call.
func (rc *resumableCall) reassign(open []*mrtr.PendingInput) {
	for _, in := range open {
		if in.StaysOnCall {
			rc.decline(in)
			continue
		}
		rc.backendCall.ResumeTimeout()
		other, _ := rc.client.originCall(rc.route.Backend, contract.Attribution{})
		if other != nil && other != rc {
			// as certain: otherwise every call that ends would reassign the request
			other.addInputRequest(in.Request, true)
			continue
		}
		decline(in.Request, wire.Errorf(wire.CodeInternalError, "The call has ended"))
	}
}

// decline responds to a backend's request on behalf of the client: to an elicitation with the
// action cancel, "the user dismissed without making an explicit choice" (elicitation, response
// actions), to any other request with an error. It reports whether the request was still open.
func decline(r *peer.Request, err *wire.Error) bool {
	if r.Method() == protocol.MethodElicitationCreate {
		return r.Reply([]byte(`{"action":"cancel"}`))
	}
	return r.Fail(err)
}
