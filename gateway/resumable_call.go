package gateway

import (
	"container/list"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A resumableCall is an upstream call on behalf of a stateless client. It outlives the client's
// request: a legacy backend that sends a request in mid-call is answered when the client comes
// back with responses, in a new request. Until then the call is suspended (suspended_calls.go).
//
//	clientCall.send ─ resumableCall ─ Backends.Send
//	statelessClient.handleRequest ─ addInputRequest ─ suspend: input_required and a ticket
//	   clientCall.continueCall (a retry with the ticket) ─ resume ─ inputRequest.reply
//	OnResponse ─ clientCall.OnResponse of the waiting request; or stored for the next one
//
// Each ends once: by the backend's response, by cancellation or disconnect of the client, or by
// suspendTimeout. No call is run a second time because of a suspension.
type resumableCall struct {
	g            *Gateway
	client       *statelessClient
	elem         *list.Element // in the client's list
	id           string
	taskReserved bool // a slot for a task is reserved
	sendAsTask   bool // the backend was asked for a task
	route        catalog.Route
	upstream     peer.Call

	mu            sync.Mutex
	call          *clientCall      // waiting for the response; nil = suspended or ended
	inputRequests []*inputRequest  // unanswered, the oldest first
	inputCount    int              // input requests so far, for their keys
	timer         *time.Timer      // gatherTime or suspendTimeout; nil if neither runs
	response      *backendResponse // received while suspended
	storedBytes   int              // its size, acquired from the budget
	ended         bool
}

// backendResponse is a backend's response, or the error instead of it.
type backendResponse struct {
	m   wire.Message
	err error
}

// An inputRequest is a backend's request to a stateless client, until it is answered.
type inputRequest struct {
	rc         *resumableCall
	r          *peer.Request
	key        string // in inputRequests and inputResponses
	attributed bool   // certain to belong to this call, or already reassigned
}

const (
	// gatherTime is how long further input requests are awaited after the first.
	gatherTime = 20 * time.Millisecond
	// maxInputRequests bounds the unanswered input requests of one call.
	maxInputRequests = maxServerRequests
)

// inputKey returns the key of a call's nth input request.
func inputKey(n int) string { return "q" + strconv.Itoa(n) }

func isInputKey(key string) bool {
	n, ok := strings.CutPrefix(key, "q")
	_, err := strconv.Atoi(n)
	return ok && err == nil
}

// makeResumable turns the call's upstream part into a resumableCall, if its method allows input
// requests.
func (c *clientCall) makeResumable() {
	if !c.spec.allowsInput {
		return
	}
	rc := &resumableCall{g: c.s.g, client: c.stateless, id: newID(), route: c.Route, call: c,
		taskReserved: c.taskReserved, sendAsTask: c.sendAsTask}
	rc.upstream.Handler, rc.upstream.Tag = rc, rc
	rc.upstream.Token, rc.upstream.SessionID = c.upstream.Token, c.upstream.SessionID
	rc.upstream.RemoteName = c.upstream.RemoteName
	if c.continuation.hasResponses() {
		rc.upstream.IsContinuation, rc.upstream.ServerKey = true, c.continuation.serverKey
	}
	c.upstream, c.resumable = &rc.upstream, rc
	c.stateless.retain()
	c.stateless.addCall(rc)
}

// waitingCall returns the client's request that waits for the response, nil if there is none.
func (rc *resumableCall) waitingCall() *clientCall {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.call
}

// OnProgress implements peer.ResponseHandler: it forwards progress to the waiting request, under
// that request's token.
func (rc *resumableCall) OnProgress(m wire.Message) {
	if c := rc.waitingCall(); c != nil {
		if token := c.r.Token(); token != "" && !c.s.isBacklogged(rc.route.Backend) {
			edit := wire.Edit{Part: wire.PartToken, Text: []byte(token)}
			c.r.Notify(protocol.StripMeta(m).Splice(edit))
		}
	}
}

// OnResponse implements peer.ResponseHandler.
func (rc *resumableCall) OnResponse(m wire.Message, err error) {
	rc.mu.Lock()
	if rc.ended {
		rc.mu.Unlock()
		return
	}
	c, open := rc.call, rc.inputRequests
	rc.inputRequests = nil
	if c == nil {
		rc.storeResponseLocked(m, err) // for the client's next request
	} else {
		rc.endLocked()
	}
	rc.mu.Unlock()
	for _, ir := range open {
		ir.reassign()
	}
	if c != nil {
		c.OnResponse(m, err)
		rc.cleanUp()
	}
}

var errResponseDropped = errors.New("it has responded, and there was no room to store " +
	"the response until the client came back")

// storeResponseLocked stores a response that no request waits for. If the shared byte budget is
// exhausted, only the fact that there was a response is kept.
func (rc *resumableCall) storeResponseLocked(m wire.Message, err error) {
	size := len(m.Raw())
	if !rc.g.resultBytes.Acquire(size, maxResultBytes) {
		m, size = wire.Message{}, 0
		err = &transport.CallLostError{Err: errResponseDropped, MayHaveRun: true}
	}
	rc.response, rc.storedBytes = &backendResponse{m, err}, size
}

// endLocked ends the call; cleanUp must follow after mu is released.
func (rc *resumableCall) endLocked() {
	rc.g.resultBytes.Release(rc.storedBytes)
	rc.ended, rc.call, rc.response, rc.storedBytes = true, nil, nil, 0
	if rc.timer != nil {
		rc.timer.Stop()
		rc.timer = nil
	}
}

func (rc *resumableCall) cleanUp() {
	rc.unreserveTask()
	rc.g.suspended.remove(rc)
	rc.client.removeCall(rc)
	rc.client.release()
}

// addInputRequest adds a request of the backend. Certain means that it belongs to this call.
func (rc *resumableCall) addInputRequest(r *peer.Request, certain bool) {
	if err := checkDeclared(rc.client.meta.Capabilities, r.Message); err != nil {
		rc.rejectInputRequest(r, err)
		return
	}
	ir := &inputRequest{rc: rc, r: r, attributed: certain}
	rc.mu.Lock()
	rc.inputCount++
	ir.key = inputKey(rc.inputCount)
	ok := !rc.ended && rc.response == nil && len(rc.inputRequests) < maxInputRequests
	if ok {
		rc.upstream.PauseTimeout()
		rc.inputRequests = append(rc.inputRequests, ir)
		if rc.call != nil && rc.timer == nil {
			rc.timer = time.AfterFunc(gatherTime, rc.suspend)
		}
	}
	rc.mu.Unlock()
	switch {
	case !ok:
		r.Fail(wire.Errorf(wire.CodeInternalError,
			"The call accepts no more requests to the client, or has too many open ones"))
	case !r.OnCancel(ir):
		ir.withdraw() // already cancelled
	}
}

// rejectInputRequest declines a request for which the client has not declared the capability, and
// fails and cancels the call, as the client's own server would.
func (rc *resumableCall) rejectInputRequest(r *peer.Request, err *wire.Error) {
	decline(r, err)
	var s missingCapabilities
	s.add(rc.client.meta.Capabilities, r.Message)
	rc.mu.Lock()
	c := rc.call
	if rc.ended || c == nil || s.isEmpty() {
		rc.mu.Unlock()
		return
	}
	open := rc.inputRequests
	rc.inputRequests = nil
	rc.endLocked()
	rc.mu.Unlock()
	for _, ir := range open {
		ir.decline()
	}
	rc.g.Backends.Cancel(rc.route.Backend, &rc.upstream, nil)
	failure := s.clientError(rc.route.Backend)
	if c.r.Fail(failure) {
		c.end(Outcome{Kind: RPCError, Code: failure.Code})
	}
	rc.cleanUp()
}

// cancelForCall ends the call because the request c that waited for it was cancelled, or its
// client disconnected.
func (rc *resumableCall) cancelForCall(c *clientCall, params []byte) {
	rc.mu.Lock()
	if rc.ended || rc.call != c {
		rc.mu.Unlock()
		return
	}
	rc.cancelAndUnlock(params)
}

// abort ends the call with an error.
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

// cancelAndUnlock ends the call and cancels it at the backend. It unlocks mu.
func (rc *resumableCall) cancelAndUnlock(params []byte) {
	open, answered := rc.inputRequests, rc.response != nil
	rc.inputRequests = nil
	rc.endLocked()
	rc.mu.Unlock()
	for _, ir := range open {
		ir.reassign()
	}
	if !answered {
		rc.g.Backends.Cancel(rc.route.Backend, &rc.upstream, params)
	}
	rc.cleanUp()
}

// claim removes the request from the unanswered ones; it returns true to one caller only.
func (ir *inputRequest) claim() bool {
	ir.rc.mu.Lock()
	defer ir.rc.mu.Unlock()
	i := slices.Index(ir.rc.inputRequests, ir)
	if i < 0 {
		return false
	}
	ir.rc.inputRequests = slices.Delete(ir.rc.inputRequests, i, i+1)
	return true
}

// HandleCancel implements peer.CancelHandler: the backend has cancelled its request.
func (ir *inputRequest) HandleCancel([]byte) { ir.withdraw() }

func (ir *inputRequest) withdraw() {
	if ir.claim() {
		ir.rc.upstream.ResumeTimeout()
	}
}

// reply and decline answer a request that was claimed.
func (ir *inputRequest) reply(result []byte) {
	ir.r.Reply(result)
	ir.rc.upstream.ResumeTimeout()
}

func (ir *inputRequest) decline() {
	decline(ir.r, wire.Errorf(wire.CodeInternalError,
		"The client has not responded, and the call has ended"))
	ir.rc.upstream.ResumeTimeout()
}

// reassign attaches the input request to another suspended call when its own has ended. On stdio
// the original attribution was a guess, so the request may belong to that one.
func (ir *inputRequest) reassign() {
	if ir.attributed {
		ir.decline()
		return
	}
	ir.rc.upstream.ResumeTimeout()
	if rc, _ := ir.rc.client.originCall(ir.rc.route.Backend, peer.Origin{}); rc != nil &&
		rc != ir.rc {
		// attributed: otherwise it would be reassigned by every call that ends
		rc.addInputRequest(ir.r, true)
		return
	}
	decline(ir.r, wire.Errorf(wire.CodeInternalError, "The call has ended"))
}

// decline answers a backend's request for the client: an elicitation with the action cancel, "the
// user dismissed without making an explicit choice" (elicitation, response actions), anything
// else with an error. It reports whether the request was still open.
func decline(r *peer.Request, err *wire.Error) bool {
	if r.Method() == protocol.MethodElicitationCreate {
		return r.Reply([]byte(`{"action":"cancel"}`))
	}
	return r.Fail(err)
}
