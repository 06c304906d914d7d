package httpserver

import (
	"net/http"
	"slices"
	"time"

	"mcpgateway/internal/wire"
)

// An sseStream contains the messages of one HTTP response, to be sent as events or JSON: the
// messages that belong to the requests of one POST or, in the standalone stream, to no request. It
// outlives the connection over which it is sent. It is guarded by the mu of the session.
//
// Events are numbered from 1. Sent events are retained, because they might not have arrived.
type sseStream struct {
	// number is the first part of the event ids; 0 = not an event stream yet, or the standalone
	// stream.
	number       int
	unanswered   []wire.ID // requests without a response so far
	events       [][]byte
	firstEventNo int        // number of events[0]
	sent         int        // number of events already sent
	retained     int        // bytes of sent events
	unsent       int        // bytes of unsent events
	lease        *bodyLease // lease for the body of the requests; nil once all are answered
	done         bool
	delivered    bool          // the requests were passed to the handler
	hasResponse  bool          // events contains a response
	jsonOnly     bool          // sent as JSON, which contains only the response
	isBatch      bool          // the requests are a batch: their responses are one array
	abandoned    bool          // not resumable: further messages are dropped
	resumable    bool          // the client has an event id and can request the rest
	writer       *streamWriter // exchange that sends the stream; nil = none
}

func newSSEStream() *sseStream { return &sseStream{firstEventNo: 1} }

// Bytes counted for an event and a stream, in addition to the text.
const (
	eventOverhead  = 64
	streamOverhead = 512
)

func eventSize(text []byte) int { return len(text) + eventOverhead }

// accountStream adds (sign = 1) or subtracts (sign = -1) the bytes of st. Every change of st is
// bracketed by a subtraction and an addition.
func (s *httpSession) accountStream(st *sseStream, sign int) {
	s.retained += sign * st.retained
	if st.writer != nil {
		s.unsent += sign * st.unsent
	} else {
		s.retained += sign * st.unsent
	}
}

// appendLocked appends a message to a stream and wakes its writer.
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

// seekLocked sets st.sent, the number of sent events in st.events, to n.
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

// dropEventsLocked drops the first n events of a stream.
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

// attachLocked makes sw the writer of a stream; nil = no writer. The previous exchange of the
// stream ends, even in the middle of an event.
func (s *httpSession) attachLocked(st *sseStream, sw *streamWriter) {
	s.accountStream(st, -1)
	if st.writer != nil {
		st.writer.setFinalDeadline(0)
		st.writer.wake()
	}
	st.writer = sw
	s.accountStream(st, 1)
}

// detachLocked ends the exchange of a stream. Unsent events are retained if the client can resume
// the stream.
func (s *httpSession) detachLocked(st *sseStream, sw *streamWriter) {
	_ = http.NewResponseController(sw.w).SetWriteDeadline(time.Time{}) // set by setFinalDeadline
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

// abandonLocked drops all events of a stream and removes the stream from the resumable streams. The
// requests of the stream stay open until they are answered.
func (s *httpSession) abandonLocked(st *sseStream) {
	st.abandoned = true
	s.dropEventsLocked(st, len(st.events))
	if i := slices.Index(s.numberedStreams, st); i >= 0 {
		s.numberedStreams = slices.Delete(s.numberedStreams, i, i+1)
		s.retained -= streamOverhead
	}
}

// assignNumberLocked makes st a numbered event stream, which can be resumed from now on.
func (s *httpSession) assignNumberLocked(st *sseStream) {
	s.lastNumber++
	st.number = s.lastNumber
	s.numberedStreams = append(s.numberedStreams, st)
	s.retained += streamOverhead
}

// evictOneLocked evicts one part of the retained data, and returns false if there is nothing to
// evict. It starts with the data that the client has most likely received:
//
//  1. complete streams that were sent completely, oldest first;
//  2. sent events of the other streams, oldest stream first;
//  3. events of the standalone stream, oldest first: sent events and, if no client reads the
//     stream, unsent events except the newest;
//  4. broken streams with unsent events, oldest first, except the newest.
//
// The limit can therefore be exceeded by the unsent events of one stream and one message of the
// standalone stream.
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

// dropRetained drops all retained events.
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
