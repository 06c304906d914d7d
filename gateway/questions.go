package gateway

import (
	"time"

	"mcpgateway/internal/wire"
)

const (
	// maxQuestions bounds the questions of all backends that a client has not answered yet. One
	// backend has half of the places at most, if there are others.
	maxQuestions = 256
	// fewQuestions is how many questions each backend may have though others have taken all places.
	fewQuestions = 8
)

// questions are those that a client has to answer. They are guarded by the session's mu.
type questions struct {
	all  int
	of   map[string]int      // by backend
	open map[*question]cause // those that were put to the client
}

// cause is the call to which a question belongs.
type cause struct {
	call    *call // on hold until the question ends; nil if there is none
	certain bool  // the question came on the stream of the call
}

// mayBePut takes a place for a question of a backend. If there is none it returns why.
func (s *Session) mayBePut(backend string) *wire.Error {
	most := maxQuestions
	if s.g.Backends.View().HasSeveralBackends() {
		most /= 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.asking
	switch n := a.of[backend]; {
	case n >= most:
		return wire.Errorf(wire.CodeInternalError, "The client has %d questions of this server to answer; wait for that", n)
	case n >= fewQuestions && a.all >= maxQuestions:
		return wire.Errorf(wire.CodeInternalError, "The client has %d questions to answer; wait for that", a.all)
	}
	if a.of == nil {
		a.of = make(map[string]int)
	}
	a.all++
	a.of[backend]++
	return nil
}

// leavePlace gives the place of a question back.
func (s *Session) leavePlace(backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leavePlaceLocked(backend)
}

func (s *Session) leavePlaceLocked(backend string) {
	a := &s.asking
	a.all--
	if a.of[backend]--; a.of[backend] == 0 {
		delete(a.of, backend)
	}
}

// put notes that a question is put to the client, and to which call it belongs, and returns that call.
// A question that belongs to none has to be answered within humanTime.
func (s *Session) put(q *question) *call {
	on := q.r.Origin()
	why := cause{call: s.cause(q.backend, q.r.Message, on)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if why.call != nil && !s.isInFlightLocked(why.call) { // it has just ended
		why.call = nil
	}
	// What names a task lasts as long as that: the call that waits for it may come again.
	why.certain = why.call != nil && on.Call != nil && relatedTask(q.r.Message) == "" && taskID(q.r.Message) == ""
	if s.asking.open == nil {
		s.asking.open = make(map[*question]cause)
	}
	s.attributeLocked(q, why)
	return why.call
}

// attributeLocked makes a question belong to a call, or sets it a time limit if it belongs to none.
func (s *Session) attributeLocked(q *question, why cause) {
	s.asking.open[q] = why
	if why.call == nil {
		q.limit = time.AfterFunc(humanTime, q.expire)
		return
	}
	why.call.pending.PauseTimeout()
}

// orphanLocked is called when a call has ended. It returns the questions that end with the call. Those
// of which it is not certain that they belong to it go over to another call at the same backend.
func (s *Session) orphanLocked(c *call) (ending []*question) {
	for q, why := range s.asking.open {
		switch {
		case why.call != c:
		case why.certain:
			ending = append(ending, q)
		default:
			c.pending.ResumeTimeout()
			s.attributeLocked(q, cause{call: s.newestLocked(q.backend)})
		}
	}
	return ending
}

// expire takes a question back that was not answered in time.
func (q *question) expire() {
	q.takeBack(wire.Errorf(wire.CodeInternalError, "The client has not answered within %v", humanTime))
}

// takeBack ends a question, of which the client is told, and declines it.
func (q *question) takeBack(why *wire.Error) {
	if decline(q.r, why) {
		q.HandleCancel(nil)
	}
}

// over is called once, when the question has come to its end.
func (q *question) over() {
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leavePlaceLocked(q.backend)
	if q.limit != nil {
		q.limit.Stop()
	}
	why := s.asking.open[q]
	if delete(s.asking.open, q); len(s.asking.open) == 0 {
		s.asking.open = nil
	}
	if why.call != nil {
		why.call.pending.ResumeTimeout()
	}
}
