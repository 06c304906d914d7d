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

// An resumableCall is what a backend is doing for a call of a guest's. The request that
// waits for it may come and go: a backend of the session era that asks something in
// mid-call is not answered until the client comes back with the answers, in a new
// request. Until then the errand is parked (parked.go).
//
//	call.send ─ errand ─ Backends.Send
//	guest.asked ─ errand.ask ─ the call is answered: input_required, and a ticket
//	   call.goOn (a retry with the ticket) ─ errand.resume ─ query.answer
//	errand.Done ─ call.Done, of the request that waits; or it is kept for the next
//
// Each errand ends once, be it by the backend's answer, by the client, who hangs up,
// or because nobody comes back; and no call is ever run a second time for that.
type resumableCall struct {
	g            *Gateway
	client       *statelessClient
	elem         *list.Element // among the guest's
	id           string
	taskReserved bool // a place for a task is kept for it
	sendAsTask   bool // it was asked for one
	route        catalog.Route
	upstream     peer.Call

	mu            sync.Mutex
	call          *clientCall      // that waits for it; nil = it is parked, or over
	inputRequests []*inputRequest  // not answered yet, the oldest first
	inputCount    int              // how many queries there were
	timer         *time.Timer      // gathers queries, or gives up on the client; nil if neither
	response      *backendResponse // that came while it was parked
	storedBytes   int              // bytes of it, for which there was room
	ended         bool
}

// backendResponse is what came back from a backend.
type backendResponse struct {
	m   wire.Message
	err error
}

// A inputRequest is a question of a backend's to a guest, until it is answered.
type inputRequest struct {
	rc         *resumableCall
	r          *peer.Request
	key        string // by which the client knows it
	attributed bool   // that it is this errand's, and not another one's of the guest; or it was moved
}

const (
	// gatherTime is how long it is waited for further questions after the first.
	gatherTime = 20 * time.Millisecond
	// maxInputRequests bounds the questions of one errand that are not answered.
	maxInputRequests = maxServerRequests
)

// inputKey returns the key of the nth question of a call.
func inputKey(n int) string { return "q" + strconv.Itoa(n) }

func isInputKey(key string) bool {
	n, ok := strings.CutPrefix(key, "q")
	_, err := strconv.Atoi(n)
	return ok && err == nil
}

// makeResumable has the call carried out as an errand, if it may take several rounds.
func (c *clientCall) makeResumable() {
	if !c.spec.allowsInput {
		return
	}
	rc := &resumableCall{g: c.s.g, client: c.stateless, id: newID(), route: c.Route, call: c, taskReserved: c.taskReserved, sendAsTask: c.sendAsTask}
	rc.upstream.Handler, rc.upstream.Tag, rc.upstream.Token, rc.upstream.SessionID = rc, rc, c.upstream.Token, c.upstream.SessionID
	rc.upstream.RemoteName = c.upstream.RemoteName
	if c.continuation.hasResponses() {
		rc.upstream.IsContinuation, rc.upstream.ServerKey = true, c.continuation.program
	}
	c.upstream, c.resumable = &rc.upstream, rc
	c.stateless.retain()
	c.stateless.addCall(rc)
}

// waitingCall returns the call that waits for the errand, nil if none does.
func (rc *resumableCall) waitingCall() *clientCall {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.call
}

// Progressed implements peer.ResponseHandler: progress goes to whoever waits now, under the
// token that it has given.
func (rc *resumableCall) OnProgress(m wire.Message) {
	if c := rc.waitingCall(); c != nil {
		if token := c.r.Token(); token != "" && !c.s.isBacklogged(rc.route.Backend) {
			c.r.Notify(protocol.StripMeta(m).Splice(wire.Edit{Part: wire.PartToken, Text: []byte(token)}))
		}
	}
}

// Done implements peer.ResponseHandler.
func (rc *resumableCall) OnResponse(m wire.Message, err error) {
	rc.mu.Lock()
	if rc.ended {
		rc.mu.Unlock()
		return
	}
	c, open := rc.call, rc.inputRequests
	rc.inputRequests = nil
	if c == nil {
		rc.storeResponseLocked(m, err) // the client hears of it when it comes back
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

var errResponseDropped = errors.New("it has answered, and there was no room to keep that until the client came back")

// storeResponseLocked keeps what came back while nobody waits for it. All that is kept together is
// bounded, with the outcomes of tasks; beyond it only that there was an answer.
func (rc *resumableCall) storeResponseLocked(m wire.Message, err error) {
	size := len(m.Raw())
	if !rc.g.resultBytes.acquire(size) {
		m, err, size = wire.Message{}, &transport.CallLostError{Err: errResponseDropped, MayHaveRun: true}, 0
	}
	rc.response, rc.storedBytes = &backendResponse{m, err}, size
}

// endLocked ends the errand; gone has to follow when mu is free.
func (rc *resumableCall) endLocked() {
	rc.g.resultBytes.release(rc.storedBytes)
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

// addInputRequest takes a question of the backend's. Certain says that it is this errand's.
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
		r.Fail(wire.Errorf(wire.CodeInternalError, "The client cannot be asked this any more, or not that much at one time"))
	case !r.OnCancel(ir):
		ir.withdraw() // the backend is gone
	}
}

// rejectInputRequest answers a question that the client has not declared to be able to answer. The
// call fails with that, for so would the client's own server have it, and is taken
// back.
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

// cancelForCall ends the errand because the request c, which waited for it, is taken back, or
// its client is gone.
func (rc *resumableCall) cancelForCall(c *clientCall, params []byte) {
	rc.mu.Lock()
	if rc.ended || rc.call != c {
		rc.mu.Unlock()
		return
	}
	rc.cancelAndUnlock(params)
}

// abort ends the errand for a reason of ours.
func (rc *resumableCall) abort(reason string) {
	rc.mu.Lock()
	if rc.ended {
		rc.mu.Unlock()
		return
	}
	c := rc.call
	rc.cancelAndUnlock(cancelParams(reason))
	failure := wire.Errorf(wire.CodeInternalError, "backend %s: %s; outcome unknown: the call may have run", rc.route.Backend, reason)
	if c != nil && c.r.Fail(failure) {
		c.end(errorOutcome(BackendLost, failure))
	}
}

// cancelParams returns the params of a cancellation of ours.
func cancelParams(reason string) []byte {
	return wire.Encode(map[string]any{"requestId": 0, "reason": reason}) // the id is put in by the peer
}

// cancelAndUnlock ends the errand, and what the backend is doing for it. It unlocks mu.
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

// claim removes the query from those that are open, for whoever gets true.
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

// Cancelled implements peer.CancelHandler: the backend has taken the question back.
func (ir *inputRequest) HandleCancel([]byte) { ir.withdraw() }

func (ir *inputRequest) withdraw() {
	if ir.claim() {
		ir.rc.upstream.ResumeTimeout()
	}
}

// reply and refuse answer a query that was taken.
func (ir *inputRequest) reply(result []byte) {
	ir.r.Reply(result)
	ir.rc.upstream.ResumeTimeout()
}

func (ir *inputRequest) decline() {
	decline(ir.r, wire.Errorf(wire.CodeInternalError, "The client has not answered, and the call is over"))
	ir.rc.upstream.ResumeTimeout()
}

// reassign finds another errand for a query whose own is over, if it may have been another's
// all along: a connection that has one stream for everything does not tell.
func (ir *inputRequest) reassign() {
	if ir.attributed {
		ir.decline()
		return
	}
	ir.rc.upstream.ResumeTimeout()
	if rc, _ := ir.rc.client.originCall(ir.rc.route.Backend, peer.Origin{}); rc != nil && rc != ir.rc {
		rc.addInputRequest(ir.r, true) // it stays there: of many that end each would move all that were moved to it
		return
	}
	decline(ir.r, wire.Errorf(wire.CodeInternalError, "The call is over"))
}

// decline answers a question in the client's place: what a person is asked is
// cancelled, "the user dismissed without making an explicit choice" (elicitation,
// response actions); for the rest there is an error. It reports whether the question was still open.
func decline(r *peer.Request, err *wire.Error) bool {
	if r.Method() == protocol.MethodElicitationCreate {
		return r.Reply([]byte(`{"action":"cancel"}`))
	}
	return r.Fail(err)
}
