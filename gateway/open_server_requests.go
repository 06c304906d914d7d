package gateway

import (
	"time"

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

// openServerRequests contains the unanswered requests to a client. It is guarded by the session's
// mu.
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

// reserveServerRequest counts one more open request of a backend to the client. It returns an
// error at a limit.
func (s *Session) reserveServerRequest(backend string) *wire.Error {
	limit := maxServerRequests
	if s.g.Backends.View().HasSeveralBackends() {
		limit /= 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	open := &s.serverRequests
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

// releaseServerRequest reverts one successful reserveServerRequest.
func (s *Session) releaseServerRequest(backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseServerRequestLocked(backend)
}

func (s *Session) releaseServerRequestLocked(backend string) {
	open := &s.serverRequests
	open.total--
	if open.perBackend[backend]--; open.perBackend[backend] == 0 {
		delete(open.perBackend, backend)
	}
}

// trackServerRequest records a request that is about to be sent to the client, and returns the
// call to which the request belongs. If there is none, the client must respond within
// inputTimeout.
func (s *Session) trackServerRequest(sr *serverRequest) *sessionCall {
	attr := attributedCall{call: s.originCall(sr.backend, sr.from, sr.r.Message)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if attr.call != nil && !s.isInFlightLocked(attr.call) { // the call has just ended
		attr.call = nil
	}
	// A request that names a task does not end with the call, because another call may wait for
	// the task's result.
	attr.certain = attr.call != nil && sr.from.Handler != nil && relatedTask(sr.r.Message) == "" &&
		taskID(sr.r.Message) == ""
	if s.serverRequests.open == nil {
		s.serverRequests.open = make(map[*serverRequest]attributedCall)
	}
	s.attributeLocked(sr, attr)
	return attr.call
}

// attributeLocked assigns a request to a call and pauses the timeout of the call. A request that
// belongs to no call gets a timeout.
func (s *Session) attributeLocked(sr *serverRequest, attr attributedCall) {
	s.serverRequests.open[sr] = attr
	if attr.call == nil {
		sr.timer = time.AfterFunc(inputTimeout, sr.expire)
		return
	}
	attr.call.pauseTimeout()
}

// detachRequestsLocked is called when a call has ended. It returns the requests that belong to the
// call with certainty and end with it. Its other requests are assigned to the newest call at the
// same backend, or get a timeout if there is none.
func (s *Session) detachRequestsLocked(c *sessionCall) (ending []*serverRequest) {
	for sr, attr := range s.serverRequests.open {
		switch {
		case attr.call != c:
		case attr.certain:
			ending = append(ending, sr)
		default:
			c.resumeTimeout()
			s.attributeLocked(sr, attributedCall{call: s.newestCallLocked(sr.backend)})
		}
	}
	return ending
}

// expire withdraws a request to which the client has not responded in time.
func (sr *serverRequest) expire() {
	sr.withdraw(wire.Errorf(wire.CodeInternalError, "The client has not answered within %v",
		inputTimeout))
}

// withdraw declines the backend's request and cancels the request to the client, if the backend's
// request is still open.
func (sr *serverRequest) withdraw(err *wire.Error) {
	if decline(sr.r, err) {
		sr.HandleCancel(nil)
	}
}

// release reverts reserveServerRequest, stops the timer of the request and resumes the timeout of
// its call. It is called once, when the request has ended.
func (sr *serverRequest) release() {
	s := sr.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseServerRequestLocked(sr.backend)
	if sr.timer != nil {
		sr.timer.Stop()
	}
	attr := s.serverRequests.open[sr]
	if delete(s.serverRequests.open, sr); len(s.serverRequests.open) == 0 {
		s.serverRequests.open = nil
	}
	if attr.call != nil {
		attr.call.resumeTimeout()
	}
}
