package gateway

import (
	"time"

	"mcpgateway/internal/wire"
)

const (
	// maxServerRequests bounds the questions of all backends that a client has not answered yet. One
	// backend has half of the places at most, if there are others.
	maxServerRequests = 256
	// minServerRequests is how many questions each backend may have though others have taken all places.
	minServerRequests = 8
)

// openServerRequests are those that a client has to answer. They are guarded by the session's mu.
type openServerRequests struct {
	total      int
	perBackend map[string]int                 // by backend
	open       map[*serverRequest]attribution // those that were put to the client
}

// attribution is the call to which a question belongs.
type attribution struct {
	call    *clientCall // on hold until the question ends; nil if there is none
	certain bool        // the question came on the stream of the call
}

// acquireSlot takes a place for a question of a backend. If there is none it returns why.
func (s *Session) acquireSlot(backend string) *wire.Error {
	limit := maxServerRequests
	if s.g.Backends.View().HasSeveralBackends() {
		limit /= 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.serverRequests
	switch n := a.perBackend[backend]; {
	case n >= limit:
		return wire.Errorf(wire.CodeInternalError, "The client has %d questions of this server to answer; wait for that", n)
	case n >= minServerRequests && a.total >= maxServerRequests:
		return wire.Errorf(wire.CodeInternalError, "The client has %d questions to answer; wait for that", a.total)
	}
	if a.perBackend == nil {
		a.perBackend = make(map[string]int)
	}
	a.total++
	a.perBackend[backend]++
	return nil
}

// releaseSlot gives the place of a question back.
func (s *Session) releaseSlot(backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseSlotLocked(backend)
}

func (s *Session) releaseSlotLocked(backend string) {
	a := &s.serverRequests
	a.total--
	if a.perBackend[backend]--; a.perBackend[backend] == 0 {
		delete(a.perBackend, backend)
	}
}

// trackServerRequest notes that a question is put to the client, and to which call it belongs, and returns that call.
// A serverRequest that belongs to none has to be answered within inputTimeout.
func (s *Session) trackServerRequest(sr *serverRequest) *clientCall {
	origin := sr.r.Origin()
	attr := attribution{call: s.originCall(sr.backend, sr.r.Message, origin)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if attr.call != nil && !s.isInFlightLocked(attr.call) { // it has just ended
		attr.call = nil
	}
	// What names a task lasts as long as that: the call that waits for it may come again.
	attr.certain = attr.call != nil && origin.Call != nil && relatedTask(sr.r.Message) == "" && taskID(sr.r.Message) == ""
	if s.serverRequests.open == nil {
		s.serverRequests.open = make(map[*serverRequest]attribution)
	}
	s.attributeLocked(sr, attr)
	return attr.call
}

// attributeLocked makes a question belong to a call, or sets it a time limit if it belongs to none.
func (s *Session) attributeLocked(sr *serverRequest, attr attribution) {
	s.serverRequests.open[sr] = attr
	if attr.call == nil {
		sr.timer = time.AfterFunc(inputTimeout, sr.expire)
		return
	}
	attr.call.upstream.PauseTimeout()
}

// detachRequestsLocked is called when a call has ended. It returns the questions that end with the call. Those
// of which it is not certain that they belong to it go over to another call at the same backend.
func (s *Session) detachRequestsLocked(c *clientCall) (ending []*serverRequest) {
	for sr, attr := range s.serverRequests.open {
		switch {
		case attr.call != c:
		case attr.certain:
			ending = append(ending, sr)
		default:
			c.upstream.ResumeTimeout()
			s.attributeLocked(sr, attribution{call: s.newestCallLocked(sr.backend)})
		}
	}
	return ending
}

// expire takes a question back that was not answered in time.
func (sr *serverRequest) expire() {
	sr.withdraw(wire.Errorf(wire.CodeInternalError, "The client has not answered within %v", inputTimeout))
}

// withdraw ends a question, of which the client is told, and declines it.
func (sr *serverRequest) withdraw(err *wire.Error) {
	if decline(sr.r, err) {
		sr.HandleCancel(nil)
	}
}

// release is called once, when the question has come to its end.
func (sr *serverRequest) release() {
	s := sr.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseSlotLocked(sr.backend)
	if sr.timer != nil {
		sr.timer.Stop()
	}
	attr := s.serverRequests.open[sr]
	if delete(s.serverRequests.open, sr); len(s.serverRequests.open) == 0 {
		s.serverRequests.open = nil
	}
	if attr.call != nil {
		attr.call.upstream.ResumeTimeout()
	}
}
