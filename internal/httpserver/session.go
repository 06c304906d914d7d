package httpserver

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A session is one client's. What is written to it goes to the client on one of its
// streams, and what the client posts is given to its holder. Nothing runs for it while there is
// nothing to do.
type session struct {
	door   *Server
	key    string
	name   string // in logs
	who    principal
	legacy bool // HTTP+SSE: all messages go on one stream, which lasts as long as the session

	keeper *list.Element // guarded by door.mu

	turn   sync.Mutex     // of who gives the holder a message
	holder SessionHandler // guarded by turn

	mu       sync.Mutex
	over     bool
	why      error                    // for SessionHandler.End; nil before it is over
	hello    wire.ID                  // of the request that opens the session
	revision string                   // that was agreed on; "" before
	open     map[wire.ID]*stream      // requests that are not answered, and where their answers go; nil if there are none
	bodies   map[wire.ID]*body        // of HTTP+SSE, where no stream has them: in which such requests stand
	alone    *stream                  // for what belongs to no request
	resume   []*stream                // other streams of events that can be resumed or are open, by number
	ending   []*stream                // those that were still being sent when the session was over
	last     int                      // the number of the newest
	busy     int                      // HTTP exchanges
	since    time.Time                // when the last of them ended
	live     int                      // bytes that wait for clients that are connected
	kept     int                      // bytes that are kept in case a client comes back
	told     struct{ live, kept int } // what the door knows of these
	pile     pile
}

func (d *Server) newSession(who principal) *session {
	s := &session{
		door: d, who: who,
		alone: newStream(), since: time.Now(),
	}
	s.pile.hangUp = s.hangUp
	s.key, s.name = newKey()
	return s
}

// endIfIdle ends the session if it has been idle for long enough, and else
// returns how long it may at least go on. A request that is not answered does not
// keep it if its client is not connected any more.
func (s *session) endIfIdle() time.Duration {
	s.mu.Lock()
	left := s.door.o.IdleTimeout - time.Since(s.since)
	if s.busy > 0 {
		left = s.door.o.IdleTimeout
	}
	if left <= 0 { // in one breath: a request that arrives now comes too late, or keeps the session
		s.endLocked(fmt.Errorf("idle for %v: limits.session_idle", s.door.o.IdleTimeout))
	}
	s.unlock()
	if left <= 0 {
		s.door.forget(s)
	}
	return left
}

// Close implements transport.Writer: the session is over. What waits for clients
// that are connected still goes out, which Close does not wait for; clients that
// do not take it within lastWords are cut off.
func (s *session) Close() error {
	s.end(nil)
	return nil
}

// lastWords is how long a client has to take what waits for it when its session
// is over.
const lastWords = 5 * time.Second

// end ends the session, whoever wants it. After that nobody finds it. Why is for [SessionHandler.End].
func (s *session) end(why error) {
	s.mu.Lock()
	s.endLocked(why)
	s.unlock()
	s.door.forget(s)
}

// endLocked is the part of end under mu: from now on the session takes nothing more.
func (s *session) endLocked(why error) {
	if s.over {
		return
	}
	s.over, s.why = true, why
	for id, st := range s.open {
		if st.number > 0 || len(st.events) > 0 || st.jsonOnly { // the others get a status, see answer
			s.addLocked(st, wire.NewErrorResponse(id, sessionEnded).Raw())
			st.answered = true
		}
		st.letGo()
		s.finishLocked(st)
	}
	for _, st := range append(s.resume, s.alone) {
		s.finishLocked(st)
	}
	for id := range s.bodies {
		s.letGoLocked(id)
	}
	s.open, s.resume = nil, nil
}

// hangUp ends the session, whose client does not read: size bytes wait for it, which is
// more than for any other. What it has not taken of a stream is dropped at once.
func (s *session) hangUp(size int64) {
	s.door.tellHangUp(s.name, size)
	s.mu.Lock()
	for _, st := range slices.Concat(slices.Collect(maps.Values(s.open)), s.resume, s.ending, []*stream{s.alone}) {
		if st.reader != nil && st.waiting > 0 {
			s.cutLocked(st)
		}
	}
	s.endLocked(fmt.Errorf("it does not read: %d bytes are unread", size))
	s.unlock()
	s.door.forget(s)
}

// reason returns why the session has ended, nil if its client or its holder has closed it.
func (s *session) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// cutLocked ends the exchange that sends a stream, and drops the stream.
func (s *session) cutLocked(st *stream) {
	s.attachLocked(st, nil)
	s.loseLocked(st)
}

var sessionEnded = wire.Errorf(wire.CodeInternalError, "The session has ended; outcome unknown: the call may have run")

// finishLocked ends a stream of a session that is over.
func (s *session) finishLocked(st *stream) {
	st.done = true
	if st.reader != nil {
		s.ending = append(s.ending, st)
		st.reader.hurry(lastWords)
		st.reader.call()
	}
}

// unlock releases mu, with what is kept brought down to its bound.
func (s *session) unlock() {
	for s.kept > s.door.o.RetainLimit && s.evictLocked() {
	}
	if s.over {
		s.kept = 0
	}
	kept, live := s.kept-s.told.kept, s.live-s.told.live
	s.told.kept, s.told.live = s.kept, s.live
	s.mu.Unlock()
	if kept != 0 {
		s.door.account(s, kept)
	}
	s.door.outbox.add(&s.pile, live)
}

// arriveLocked begins an HTTP exchange, unless the session is over.
func (s *session) arriveLocked() *refusal {
	switch {
	case s.over:
		return noSession()
	case s.busy >= maxOpen:
		return refuse(http.StatusTooManyRequests, "Too many requests of this session are open").retry(1)
	}
	s.busy++
	return nil
}

// maxOpen bounds the HTTP exchanges of a session, and its requests that are not
// answered.
const maxOpen = 4096

// deliver gives a message to the holder, when that has seen to the one before: then, and only
// then, is what the client sends next behind it. A panic in that ends the session. St is the stream
// for the answers, nil if there is none; the streams of requests that the message cancels end.
func (s *session) deliver(ctx context.Context, p *posted, st *stream) (err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	switch {
	case s.isOver():
		return transport.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	defer func() { // net/http would recover, too, and go on with a session of which nothing is certain any more
		if bug := recover(); bug != nil {
			s.door.log.Error("session ends: panic", "session", s.name, "err", fmt.Sprintf("%v\n%s", bug, debug.Stack()))
			s.end(errPanic)
			err = transport.ErrClosed
		}
	}()
	if st != nil {
		s.mu.Lock()
		st.delivered = true
		s.mu.Unlock()
	}
	s.holder.Receive(p.m)
	s.takenBack(s.delivered(p.cancels))
	return nil
}

// delivered returns those of the requests that the holder has: of a request that is delivered after
// its cancellation, it ignores that.
func (s *session) delivered(ids []wire.ID) []wire.ID {
	if len(ids) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(ids, func(id wire.ID) bool {
		st := s.open[id]
		return st != nil && !st.delivered
	})
}

var errPanic = errors.New("a panic in the gateway")

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// held returns the holder, once the message that it is being given is dealt with.
func (s *session) held() SessionHandler {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.holder
}
