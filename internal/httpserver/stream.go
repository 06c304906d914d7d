package httpserver

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

// A stream is what one answer consists of: the messages that belong to a POST's
// requests, or to none of them. It outlives the connection that it is sent over,
// and is guarded by its session's mu.
//
// Its events are numbered from 1. Those that were sent are kept in case that they
// did not arrive.
type stream struct {
	number    int       // part of its events' ids; 0 = not yet a stream of events, or the session's own
	owed      []wire.ID // the requests that it still has to answer
	events    [][]byte
	first     int   // the number of events[0]
	sent      int   // how many of events
	kept      int   // bytes of those
	waiting   int   // bytes of the others
	body      *body // in which its requests stand; nil once it owes nothing
	done      bool
	delivered bool    // its requests were given to the holder
	answered  bool    // there is a response among its events
	jsonOnly  bool    // it is sent as JSON: it takes nothing but the response
	lost      bool    // nobody can ask for it any more: what comes for it is dropped
	known     bool    // the client has the id of one of its events, and can ask for the rest
	reader    *reader // who sends it now, nil if nobody does
}

func newStream() *stream { return &stream{first: 1} }

// What is counted for an event and a stream beside the text.
const (
	eventCost  = 64
	streamCost = 512
)

func cost(text []byte) int { return len(text) + eventCost }

// A reader is the HTTP exchange that sends a stream.
type reader struct {
	w    http.ResponseWriter
	wake chan struct{} // 1 slot

	mu      sync.Mutex
	hurried bool // it has a deadline for all that it still has to send
}

func newReader(w http.ResponseWriter) *reader {
	return &reader{w: w, wake: make(chan struct{}, 1)}
}

// call has the exchange look at its stream again.
func (x *reader) call() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// hurry sets the exchange a deadline. It must not have been detached, so that
// the ResponseWriter is still in use.
func (x *reader) hurry(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hurried = true
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(d))
}

// allow gives the client time to take size bytes, and with none as long as it likes: of HTTP/2
// a deadline ends a stream on which nothing is sent, too.
func (x *reader) allow(size int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.hurried {
		return
	}
	var until time.Time
	if size > 0 {
		until = time.Now().Add(timeFor(int64(size)))
	}
	_ = http.NewResponseController(x.w).SetWriteDeadline(until)
}

// charge counts a stream, or takes it out of the count. What changes it is done
// between charge(st, -1) and charge(st, 1).
func (s *session) charge(st *stream, sign int) {
	s.kept += sign * st.kept
	if st.reader != nil {
		s.live += sign * st.waiting
	} else {
		s.kept += sign * st.waiting
	}
}

// addLocked puts a message on a stream.
func (s *session) addLocked(st *stream, text []byte) {
	if st.lost {
		return
	}
	s.charge(st, -1)
	st.events = append(st.events, text)
	st.waiting += cost(text)
	s.charge(st, 1)
	if st.reader != nil {
		st.reader.call()
	}
}

// seekLocked makes the event behind the nth of those that are held the next one
// to be sent.
func (s *session) seekLocked(st *stream, n int) {
	s.charge(st, -1)
	for ; st.sent < n; st.sent++ {
		st.kept += cost(st.events[st.sent])
		st.waiting -= cost(st.events[st.sent])
	}
	for ; st.sent > n; st.sent-- {
		st.kept -= cost(st.events[st.sent-1])
		st.waiting += cost(st.events[st.sent-1])
	}
	s.charge(st, 1)
}

// dropLocked forgets the first n events of a stream.
func (s *session) dropLocked(st *stream, n int) {
	s.charge(st, -1)
	for i, text := range st.events[:n] {
		if i < st.sent {
			st.kept -= cost(text)
		} else {
			st.waiting -= cost(text)
		}
	}
	clear(st.events[:n])
	st.events = st.events[n:]
	st.first += n
	st.sent = max(st.sent-n, 0)
	s.charge(st, 1)
}

// attachLocked makes x the one who sends the stream. Whoever did so before ends,
// be it in the middle of an event.
func (s *session) attachLocked(st *stream, x *reader) {
	s.charge(st, -1)
	if st.reader != nil {
		st.reader.hurry(0)
		st.reader.call()
	}
	st.reader = x
	s.charge(st, 1)
}

// detachLocked ends an exchange with a stream; what it did not send waits until
// somebody asks for it, if anyone can.
func (s *session) detachLocked(st *stream, x *reader) {
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Time{}) // which hurry may have set
	if st.reader != x {
		return
	}
	s.charge(st, -1)
	st.reader = nil
	s.charge(st, 1)
	if st != s.alone && !st.known {
		s.loseLocked(st)
	}
}

// loseLocked gives a stream of requests up: nothing of it is kept. Its requests
// stay open until they are answered.
func (s *session) loseLocked(st *stream) {
	st.lost = true
	s.dropLocked(st, len(st.events))
	if i := slices.Index(s.resume, st); i >= 0 {
		s.resume = slices.Delete(s.resume, i, i+1)
		s.kept -= streamCost
	}
}

// numberLocked makes a stream of events of st, which may be resumed from now on.
func (s *session) numberLocked(st *stream) {
	s.last++
	st.number = s.last
	s.resume = append(s.resume, st)
	s.kept += streamCost
}

// evictLocked takes one piece from what the session keeps, if there is any to
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
func (s *session) evictLocked() bool {
	for _, st := range s.resume {
		if st.done && st.waiting == 0 && st.reader == nil {
			s.loseLocked(st)
			return true
		}
	}
	for _, st := range s.resume {
		if st.sent > 0 {
			s.dropLocked(st, 1)
			return true
		}
	}
	if a := s.alone; a.sent > 0 || a.reader == nil && len(a.events) > 1 {
		s.dropLocked(a, 1)
		return true
	}
	var oldest *stream
	for _, st := range s.resume {
		if st.reader != nil || st.waiting == 0 {
			continue
		}
		if oldest != nil {
			s.loseLocked(oldest)
			return true
		}
		oldest = st
	}
	return false
}

// forgetEvents drops everything that the session keeps.
func (s *session) forgetEvents() {
	s.mu.Lock()
	defer s.unlock()
	for _, st := range slices.Clone(s.resume) {
		if st.reader == nil {
			s.loseLocked(st)
		} else {
			s.dropLocked(st, st.sent)
		}
	}
	if s.alone.reader == nil {
		s.dropLocked(s.alone, len(s.alone.events))
	} else {
		s.dropLocked(s.alone, s.alone.sent)
	}
}
