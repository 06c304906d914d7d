package gateway

import (
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/wire"
)

const (
	// maxServerRequests bounds the unanswered requests of all backends to one client. If there are
	// several backends, each may have at most half.
	maxServerRequests = 256
	// minServerRequests is the number of unanswered requests that each backend may have even if
	// the total then exceeds maxServerRequests.
	minServerRequests = 8
)

// openServerRequests contains the unanswered requests to a client. It is guarded by
// callTracker.mu.
type openServerRequests struct {
	total      int
	perBackend map[string]int
	open       map[*serverRequest]attributedCall // sent to the client
}

// An attributedCall is the call to which a backend's request belongs.
type attributedCall struct {
	call    *sessionCall // its timeout is paused until the request ends; nil if there is none
	certain bool         // the request arrived on the call's stream and names no task
}

// reserveRequest counts one more open request of a backend to the client. It returns an error at a
// limit.
func (t *callTracker) reserveRequest(backend string, v *catalog.View) *wire.Error {
	limit := maxServerRequests
	if v.HasSeveralBackends() {
		limit /= 2
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	open := &t.serverRequests
	switch n := open.perBackend[backend]; {
	case n >= limit:
		return wire.Errorf(wire.CodeInternalError,
			"The client has %d unanswered requests of this server; wait until some are answered", n)
	case n >= minServerRequests && open.total >= maxServerRequests:
		return wire.Errorf(wire.CodeInternalError,
			"The client has %d unanswered requests; wait until some are answered", open.total)
	}
	if open.perBackend == nil {
		open.perBackend = make(map[string]int)
	}
	open.total++
	open.perBackend[backend]++
	return nil
}

// releaseRequest reverts one successful reserveRequest.
func (t *callTracker) releaseRequest(backend string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseRequestLocked(backend)
}

func (t *callTracker) releaseRequestLocked(backend string) {
	open := &t.serverRequests
	open.total--
	if open.perBackend[backend]--; open.perBackend[backend] == 0 {
		delete(open.perBackend, backend)
	}
}

// track records a request that is about to be sent to the client, and returns the call to which
// the request belongs. If there is none, the client must respond within inputTimeout.
func (t *callTracker) track(sr *serverRequest) *sessionCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	attr := attributedCall{call: t.originLocked(sr.backend, sr.from, sr.r.Message)}
	if attr.call != nil && !t.inFlight.contains(attr.call) { // the call has just ended
		attr.call = nil
	}
	// A request on the stream of another call, such as one of package backends, does not end with
	// this call. Neither does a request that names a task, because another call may wait for the
	// task's result.
	attr.certain = attr.call != nil && handlerCall(sr.from.Handler) == attr.call &&
		relatedTask(sr.r.Message) == "" && taskID(sr.r.Message) == ""
	if t.serverRequests.open == nil {
		t.serverRequests.open = make(map[*serverRequest]attributedCall)
	}
	t.attributeLocked(sr, attr)
	return attr.call
}

// attributeLocked assigns a request to a call and pauses the timeout of the call. A request that
// belongs to no call gets a timeout.
func (t *callTracker) attributeLocked(sr *serverRequest, attr attributedCall) {
	t.serverRequests.open[sr] = attr
	if attr.call == nil {
		sr.timer = time.AfterFunc(inputTimeout, sr.expire)
		return
	}
	attr.call.pauseTimeout()
}

// detachRequestsLocked is called when a call has ended. It returns the requests that belong to the
// call with certainty and end with it. Its other requests are assigned to the newest call at the
// same backend, or get a timeout if there is none.
func (t *callTracker) detachRequestsLocked(c *sessionCall) (ending []*serverRequest) {
	for sr, attr := range t.serverRequests.open {
		switch {
		case attr.call != c:
		case attr.certain:
			ending = append(ending, sr)
		default:
			c.resumeTimeout()
			t.attributeLocked(sr, attributedCall{call: t.inFlight.newestAt(sr.backend)})
		}
	}
	return ending
}

// untrack reverts reserveRequest, and track if it was called: it stops the timer of the request and
// resumes the timeout of its call. It is called once, when the request has ended.
func (t *callTracker) untrack(sr *serverRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseRequestLocked(sr.backend)
	if sr.timer != nil {
		sr.timer.Stop()
	}
	attr := t.serverRequests.open[sr]
	if delete(t.serverRequests.open, sr); len(t.serverRequests.open) == 0 {
		t.serverRequests.open = nil
	}
	if attr.call != nil {
		attr.call.resumeTimeout()
	}
}
