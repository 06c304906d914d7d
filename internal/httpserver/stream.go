package httpserver

import (
	"net/http"
	"slices"
	"time"

	"mcpgateway/internal/wire"
)

// A sseStream is what one answer consists of: the messages that belong to a POST's
// requests, or to none of them. It outlives the connection that it is sent over,
// and is guarded by its session's mu.
//
// Its events are numbered from 1. Those that were sent are kept in case that they
// did not arrive.
type sseStream struct {
	number       int       // part of its events' ids; 0 = not yet a stream of events, or the session's own
	unanswered   []wire.ID // the requests that it still has to answer
	events       [][]byte
	firstEventNo int        // the number of events[0]
	sent         int        // how many of events
	retained     int        // bytes of those
	unsent       int        // bytes of the others
	lease        *bodyLease // in which its requests stand; nil once it owes nothing
	done         bool
	delivered    bool          // its requests were given to the holder
	hasResponse  bool          // there is a response among its events
	jsonOnly     bool          // it is sent as JSON: it takes nothing but the response
	abandoned    bool          // nobody can ask for it any more: what comes for it is dropped
	resumable    bool          // the client has the id of one of its events, and can ask for the rest
	writer       *streamWriter // who sends it now, nil if nobody does
}

func newStream() *sseStream { return &sseStream{firstEventNo: 1} }

// What is counted for an event and a stream beside the text.
const (
	eventOverhead  = 64
	streamOverhead = 512
)

func eventSize(text []byte) int { return len(text) + eventOverhead }

// accountStream counts a stream, or takes it out of the count. What changes it is done
// between charge(st, -1) and charge(st, 1).
func (s *httpSession) accountStream(st *sseStream, sign int) {
	s.retained += sign * st.retained
	if st.writer != nil {
		s.unsent += sign * st.unsent
	} else {
		s.retained += sign * st.unsent
	}
}

// appendLocked puts a message on a stream.
func (s *httpSession) appendLocked(st *sseStream, text []byte) {
	if st.abandoned {
		return
	}
	s.accountStream(st, -1)
	st.events = append(st.events, text)
	st.unsent += eventSize(text)
	s.accountStream(st, 1)
	if st.writer != nil {
		st.writer.wake()
	}
}

// seekLocked makes the event behind the nth of those that are held the next one
// to be sent.
func (s *httpSession) seekLocked(st *sseStream, n int) {
	s.accountStream(st, -1)
	for ; st.sent < n; st.sent++ {
		st.retained += eventSize(st.events[st.sent])
		st.unsent -= eventSize(st.events[st.sent])
	}
	for ; st.sent > n; st.sent-- {
		st.retained -= eventSize(st.events[st.sent-1])
		st.unsent += eventSize(st.events[st.sent-1])
	}
	s.accountStream(st, 1)
}

// dropEventsLocked forgets the first n events of a stream.
func (s *httpSession) dropEventsLocked(st *sseStream, n int) {
	s.accountStream(st, -1)
	for i, text := range st.events[:n] {
		if i < st.sent {
			st.retained -= eventSize(text)
		} else {
			st.unsent -= eventSize(text)
		}
	}
	clear(st.events[:n])
	st.events = st.events[n:]
	st.firstEventNo += n
	st.sent = max(st.sent-n, 0)
	s.accountStream(st, 1)
}

// attachLocked makes x the one who sends the stream. Whoever did so before ends,
// be it in the middle of an event.
func (s *httpSession) attachLocked(st *sseStream, sw *streamWriter) {
	s.accountStream(st, -1)
	if st.writer != nil {
		st.writer.setFinalDeadline(0)
		st.writer.wake()
	}
	st.writer = sw
	s.accountStream(st, 1)
}

// detachLocked ends an exchange with a stream; what it did not send waits until
// somebody asks for it, if anyone can.
func (s *httpSession) detachLocked(st *sseStream, sw *streamWriter) {
	_ = http.NewResponseController(sw.w).SetWriteDeadline(time.Time{}) // which hurry may have set
	if st.writer != sw {
		return
	}
	s.accountStream(st, -1)
	st.writer = nil
	s.accountStream(st, 1)
	if st != s.standalone && !st.resumable {
		s.abandonLocked(st)
	}
}

// abandonLocked gives a stream of requests up: nothing of it is kept. Its requests
// stay open until they are answered.
func (s *httpSession) abandonLocked(st *sseStream) {
	st.abandoned = true
	s.dropEventsLocked(st, len(st.events))
	if i := slices.Index(s.numberedStreams, st); i >= 0 {
		s.numberedStreams = slices.Delete(s.numberedStreams, i, i+1)
		s.retained -= streamOverhead
	}
}

// assignNumberLocked makes a stream of events of st, which may be resumed from now on.
func (s *httpSession) assignNumberLocked(st *sseStream) {
	s.lastNumber++
	st.number = s.lastNumber
	s.numberedStreams = append(s.numberedStreams, st)
	s.retained += streamOverhead
}

// evictOneLocked takes one piece from what the session keeps, if there is any to
// take. What goes first is what the client has most likely got:
//
//  1. whole streams that have ended and were sent to their end, the oldest first;
//  2. events that were sent, of the oldest of the other streams first;
//  3. messages that belong to no request and that nobody has fetched, the oldest
//     first but for the newest of them;
//  4. whole streams whose connection has broken and of which something was not
//     sent, the oldest first but for the newest of them.
//
// So the bound may be exceeded by what one answer and one message take.
func (s *httpSession) evictOneLocked() bool {
	for _, st := range s.numberedStreams {
		if st.done && st.unsent == 0 && st.writer == nil {
			s.abandonLocked(st)
			return true
		}
	}
	for _, st := range s.numberedStreams {
		if st.sent > 0 {
			s.dropEventsLocked(st, 1)
			return true
		}
	}
	if a := s.standalone; a.sent > 0 || a.writer == nil && len(a.events) > 1 {
		s.dropEventsLocked(a, 1)
		return true
	}
	var oldest *sseStream
	for _, st := range s.numberedStreams {
		if st.writer != nil || st.unsent == 0 {
			continue
		}
		if oldest != nil {
			s.abandonLocked(oldest)
			return true
		}
		oldest = st
	}
	return false
}

// dropRetained drops everything that the session keeps.
func (s *httpSession) dropRetained() {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	for _, st := range slices.Clone(s.numberedStreams) {
		if st.writer == nil {
			s.abandonLocked(st)
		} else {
			s.dropEventsLocked(st, st.sent)
		}
	}
	if s.standalone.writer == nil {
		s.dropEventsLocked(s.standalone, len(s.standalone.events))
	} else {
		s.dropEventsLocked(s.standalone, s.standalone.sent)
	}
}
