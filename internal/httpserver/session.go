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

// A httpSession is one client's. What is written to it goes to the client on one of its
// streams, and what the client posts is given to its holder. Nothing runs for it while there is
// nothing to do.
type httpSession struct {
	server    *Server
	key       string
	logID     string // in logs
	principal principalID
	httpSSE   bool // HTTP+SSE: all messages go on one stream, which lasts as long as the session

	retainerElem *list.Element // guarded by door.mu

	deliverMu sync.Mutex     // of who gives the holder a message
	handler   SessionHandler // guarded by turn

	mu              sync.Mutex
	closed          bool
	closeReason     error                    // for SessionHandler.End; nil before it is over
	initializeID    wire.ID                  // of the request that opens the session
	revision        string                   // that was agreed on; "" before
	openRequests    map[wire.ID]*sseStream   // requests that are not answered, and where their answers go; nil if there are none
	leases          map[wire.ID]*bodyLease   // of HTTP+SSE, where no stream has them: in which such requests stand
	standalone      *sseStream               // for what belongs to no request
	numberedStreams []*sseStream             // other streams of events that can be resumed or are open, by number
	closingStreams  []*sseStream             // those that were still being sent when the session was over
	lastNumber      int                      // the number of the newest
	activeExchanges int                      // HTTP exchanges
	lastActive      time.Time                // when the last of them ended
	unsent          int                      // bytes that wait for clients that are connected
	retained        int                      // bytes that are kept in case a client comes back
	accounted       struct{ live, kept int } // what the door knows of these
	backlog         backlog
}

func (srv *Server) newSession(principal principalID) *httpSession {
	s := &httpSession{
		server: srv, principal: principal,
		standalone: newStream(), lastActive: time.Now(),
	}
	s.backlog.disconnect = s.disconnect
	s.key, s.logID = newSessionKey()
	return s
}

// closeIfIdle ends the session if it has been idle for long enough, and else
// returns how long it may at least go on. A request that is not answered does not
// keep it if its client is not connected any more.
func (s *httpSession) closeIfIdle() time.Duration {
	s.mu.Lock()
	left := s.server.opts.IdleTimeout - time.Since(s.lastActive)
	if s.activeExchanges > 0 {
		left = s.server.opts.IdleTimeout
	}
	if left <= 0 { // in one breath: a request that arrives now comes too late, or keeps the session
		s.closeLocked(fmt.Errorf("idle for %v: limits.session_idle", s.server.opts.IdleTimeout))
	}
	s.enforceAndUnlock()
	if left <= 0 {
		s.server.unregister(s)
	}
	return left
}

// Close implements transport.Writer: the session is over. What waits for clients
// that are connected still goes out, which Close does not wait for; clients that
// do not take it within closeDrainTimeout are cut off.
func (s *httpSession) Close() error {
	s.closeWith(nil)
	return nil
}

// closeDrainTimeout is how long a client has to take what waits for it when its session
// is over.
const closeDrainTimeout = 5 * time.Second

// closeWith ends the session, whoever wants it. After that nobody finds it. Why is for [SessionHandler.End].
func (s *httpSession) closeWith(why error) {
	s.mu.Lock()
	s.closeLocked(why)
	s.enforceAndUnlock()
	s.server.unregister(s)
}

// closeLocked is the part of end under mu: from now on the session takes nothing more.
func (s *httpSession) closeLocked(why error) {
	if s.closed {
		return
	}
	s.closed, s.closeReason = true, why
	for id, st := range s.openRequests {
		if st.number > 0 || len(st.events) > 0 || st.jsonOnly { // the others get a status, see answer
			s.appendLocked(st, wire.NewErrorResponse(id, errSessionEnded).Raw())
			st.hasResponse = true
		}
		st.releaseLease()
		s.finishStreamLocked(st)
	}
	for _, st := range append(s.numberedStreams, s.standalone) {
		s.finishStreamLocked(st)
	}
	for id := range s.leases {
		s.releaseLeaseLocked(id)
	}
	s.openRequests, s.numberedStreams = nil, nil
}

// disconnect ends the session, whose client does not read: size bytes wait for it, which is
// more than for any other. What it has not taken of a stream is dropped at once.
func (s *httpSession) disconnect(size int64) {
	s.server.logDisconnect(s.logID, size)
	s.mu.Lock()
	for _, st := range slices.Concat(slices.Collect(maps.Values(s.openRequests)), s.numberedStreams, s.closingStreams, []*sseStream{s.standalone}) {
		if st.writer != nil && st.unsent > 0 {
			s.cutStreamLocked(st)
		}
	}
	s.closeLocked(fmt.Errorf("it does not read: %d bytes are unread", size))
	s.enforceAndUnlock()
	s.server.unregister(s)
}

// reason returns why the session has ended, nil if its client or its holder has closed it.
func (s *httpSession) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeReason
}

// cutStreamLocked ends the exchange that sends a stream, and drops the stream.
func (s *httpSession) cutStreamLocked(st *sseStream) {
	s.attachLocked(st, nil)
	s.abandonLocked(st)
}

var errSessionEnded = wire.Errorf(wire.CodeInternalError, "The session has ended; outcome unknown: the call may have run")

// finishStreamLocked ends a stream of a session that is over.
func (s *httpSession) finishStreamLocked(st *sseStream) {
	st.done = true
	if st.writer != nil {
		s.closingStreams = append(s.closingStreams, st)
		st.writer.setFinalDeadline(closeDrainTimeout)
		st.writer.wake()
	}
}

// enforceAndUnlock releases mu, with what is kept brought down to its bound.
func (s *httpSession) enforceAndUnlock() {
	for s.retained > s.server.opts.RetainLimit && s.evictOneLocked() {
	}
	if s.closed {
		s.retained = 0
	}
	kept, live := s.retained-s.accounted.kept, s.unsent-s.accounted.live
	s.accounted.kept, s.accounted.live = s.retained, s.unsent
	s.mu.Unlock()
	if kept != 0 {
		s.server.accountRetained(s, kept)
	}
	s.server.backlogQuota.add(&s.backlog, live)
}

// beginExchangeLocked begins an HTTP exchange, unless the session is over.
func (s *httpSession) beginExchangeLocked() *httpError {
	switch {
	case s.closed:
		return sessionNotFound()
	case s.activeExchanges >= maxOpenRequests:
		return newHTTPError(http.StatusTooManyRequests, "Too many requests of this session are open").retryAfter(1)
	}
	s.activeExchanges++
	return nil
}

// maxOpenRequests bounds the HTTP exchanges of a session, and its requests that are not
// answered.
const maxOpenRequests = 4096

// deliver gives a message to the holder, when that has seen to the one before: then, and only
// then, is what the client sends next behind it. A panic in that ends the session. St is the stream
// for the answers, nil if there is none; the streams of requests that the message cancels end.
func (s *httpSession) deliver(ctx context.Context, p *postedMessage, st *sseStream) (err error) {
	s.deliverMu.Lock()
	defer s.deliverMu.Unlock()
	switch {
	case s.isClosed():
		return transport.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	defer func() { // net/http would recover, too, and go on with a session of which nothing is certain any more
		if bug := recover(); bug != nil {
			s.server.log.Error("session ends: panic", "session", s.logID, "err", fmt.Sprintf("%v\n%s", bug, debug.Stack()))
			s.closeWith(errPanic)
			err = transport.ErrClosed
		}
	}()
	if st != nil {
		s.mu.Lock()
		st.delivered = true
		s.mu.Unlock()
	}
	s.handler.Receive(p.m)
	s.cancelRequests(s.filterDelivered(p.cancelledIDs))
	return nil
}

// filterDelivered returns those of the requests that the holder has: of a request that is delivered after
// its cancellation, it ignores that.
func (s *httpSession) filterDelivered(ids []wire.ID) []wire.ID {
	if len(ids) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(ids, func(id wire.ID) bool {
		st := s.openRequests[id]
		return st != nil && !st.delivered
	})
}

var errPanic = errors.New("a panic in the gateway")

func (s *httpSession) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// currentHandler returns the holder, once the message that it is being given is dealt with.
func (s *httpSession) currentHandler() SessionHandler {
	s.deliverMu.Lock()
	defer s.deliverMu.Unlock()
	return s.handler
}
