package httpserver

import (
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

// An httpSession is the transport side of one client session. Messages written to it go to the
// client on one of its streams; messages that the client posts go to its handler. An idle session
// has no goroutine.
type httpSession struct {
	server    *Server
	key       string // Mcp-Session-Id, secret
	logID     string // id in logs
	principal principalID
	httpSSE   bool // transport HTTP+SSE: one stream, which lasts as long as the session

	deliverMu sync.Mutex     // held while handler receives a message
	handler   SessionHandler // guarded by deliverMu

	mu           sync.Mutex
	closed       bool
	closeReason  error   // argument of SessionHandler.Closed
	initializeID wire.ID // id of the initialize request; "" once it has a response
	revision     string  // negotiated revision; "" = not negotiated yet
	// openRequests contains the unanswered requests and their streams; nil = none.
	openRequests map[wire.ID]*sseStream
	// leases contains the leases for the bodies of unanswered requests, with HTTP+SSE only; with
	// streamable HTTP each stream has its lease.
	leases          map[wire.ID]*bodyLease
	standalone      *sseStream   // for messages that belong to no request
	numberedStreams []*sseStream // further open or resumable event streams, by number
	closingStreams  []*sseStream // streams being sent after the session was closed
	lastNumber      int          // highest number of a stream
	activeExchanges int          // open HTTP exchanges
	lastActive      time.Time    // end of the last HTTP exchange
	unsent          int          // bytes of unsent messages for connected clients
	retained        int          // bytes retained for clients that may reconnect

	backlog  backlog
	retainer retainer
}

func newSession(srv *Server, principal principalID) *httpSession {
	s := &httpSession{
		server: srv, principal: principal,
		standalone: newSSEStream(), lastActive: time.Now(),
	}
	s.key, s.logID = newSessionKey()
	s.backlog.disconnect, s.backlog.logID = s.disconnect, s.logID
	s.retainer.drop = s.dropRetained
	return s
}

// closeIfIdle closes the session if it has been idle for IdleTimeout. Otherwise it returns the
// minimum time until the session has been idle for IdleTimeout. An unanswered request keeps the
// session open only while the client is connected.
func (s *httpSession) closeIfIdle() time.Duration {
	s.mu.Lock()
	left := s.server.opts.IdleTimeout - time.Since(s.lastActive)
	if s.activeExchanges > 0 {
		left = s.server.opts.IdleTimeout
	}
	// The check and closeLocked share one critical section, so a concurrent request either comes
	// too late or keeps the session open.
	if left <= 0 {
		s.closeLocked(fmt.Errorf("idle for %v: limits.session_idle", s.server.opts.IdleTimeout))
	}
	s.enforceAndUnlock()
	if left <= 0 {
		s.unregister()
	}
	return left
}

// Close implements transport.Writer. Pending messages are still sent to connected clients, but
// Close does not wait for them. Clients that do not read the messages within closeDrainTimeout are
// disconnected.
func (s *httpSession) Close() error {
	s.closeWith(nil)
	return nil
}

// closeDrainTimeout is the time that a client has to read pending messages after the end of its
// session or request.
const closeDrainTimeout = 5 * time.Second

// closeWith closes the session and unregisters it. reason is the argument of
// [SessionHandler.Closed].
func (s *httpSession) closeWith(reason error) {
	s.mu.Lock()
	s.closeLocked(reason)
	s.enforceAndUnlock()
	s.unregister()
}

// unregister removes a closed session from the tables of the Server.
func (s *httpSession) unregister() {
	s.server.sessions.unregister(s)
	s.server.retention.remove(&s.retainer)
}

// closeLocked closes the session. The caller unregisters it afterwards.
func (s *httpSession) closeLocked(reason error) {
	if s.closed {
		return
	}
	s.closed, s.closeReason = true, reason
	for _, st := range s.openRequests {
		if !st.done { // a batch has several entries
			s.failUnansweredLocked(st)
		}
	}
	for _, st := range append(s.numberedStreams, s.standalone) {
		s.finishStreamLocked(st)
	}
	for id := range s.leases {
		s.releaseLeaseLocked(id)
	}
	s.openRequests, s.numberedStreams = nil, nil
}

// failUnansweredLocked ends the unanswered requests of a stream with an error. Requests that were
// not delivered get an HTTP status instead; see finishUndelivered.
func (s *httpSession) failUnansweredLocked(st *sseStream) {
	if st.delivered {
		var all []wire.Message
		for _, id := range st.unanswered {
			all = append(all, wire.NewErrorResponse(id, errSessionEnded))
		}
		response := all[0]
		if st.isBatch {
			response = wire.NewBatch(all)
		}
		s.appendLocked(st, response.Raw())
		st.hasResponse = true
	}
	st.releaseLease()
	s.finishStreamLocked(st)
}

// disconnect closes the session because its client does not read, and has the largest backlog (size
// bytes) of all clients. Unsent messages are dropped at once.
func (s *httpSession) disconnect(size int64) {
	s.mu.Lock()
	for _, st := range slices.Concat(slices.Collect(maps.Values(s.openRequests)),
		s.numberedStreams, s.closingStreams, []*sseStream{s.standalone}) {
		if st.writer != nil && st.unsent > 0 {
			s.cutStreamLocked(st)
		}
	}
	s.closeLocked(fmt.Errorf("the client does not read: %d bytes are unread", size))
	s.enforceAndUnlock()
	s.unregister()
}

// reason returns the reason for the end of the session; nil = closed by the client or the handler.
func (s *httpSession) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeReason
}

// cutStreamLocked ends the exchange that sends st and abandons st.
func (s *httpSession) cutStreamLocked(st *sseStream) {
	s.attachLocked(st, nil)
	s.abandonLocked(st)
}

var errSessionEnded = wire.Errorf(wire.CodeInternalError,
	"The session has ended; outcome unknown: the call may have run")

// finishStreamLocked ends a stream of a closed session.
func (s *httpSession) finishStreamLocked(st *sseStream) {
	st.done = true
	if st.writer != nil {
		s.closingStreams = append(s.closingStreams, st)
		st.writer.setFinalDeadline(closeDrainTimeout)
		st.writer.wake()
	}
}

// enforceAndUnlock enforces RetainLimit, releases mu and updates the server's accounts.
func (s *httpSession) enforceAndUnlock() {
	for s.retained > s.server.opts.RetainLimit && s.evictOneLocked() {
	}
	if s.closed {
		s.retained = 0
	}
	retained, unsent := s.retainer.change(s.retained), s.backlog.change(s.unsent)
	s.mu.Unlock()
	s.server.retention.add(&s.retainer, retained)
	s.server.backlogQuota.add(&s.backlog, unsent)
}

// beginExchangeLocked begins an HTTP exchange, unless the session is closed or has maxOpenRequests
// exchanges.
func (s *httpSession) beginExchangeLocked() *httpError {
	switch {
	case s.closed:
		return sessionNotFound()
	case s.activeExchanges >= maxOpenRequests:
		return newHTTPError(http.StatusTooManyRequests,
			"Too many requests of this session are open").retryAfter(1)
	}
	s.activeExchanges++
	return nil
}

// maxOpenRequests is the maximum number of HTTP exchanges of a session, and of its unanswered
// requests.
const maxOpenRequests = 4096

// deliver passes a message to the handler, and ends the streams of requests that the message
// cancels. Messages are delivered one at a time, in order. st is the stream for the responses;
// nil = none. An error means that the handler did not get the message: the session is closed
// (ErrClosed), or ctx is done. A panic of the handler closes the session, but is no error, because
// the handler may have executed the message.
func (s *httpSession) deliver(ctx context.Context, p *postedMessage, st *sseStream) error {
	s.deliverMu.Lock()
	defer s.deliverMu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !s.markDelivered(st):
		return transport.ErrClosed
	}
	defer func() { // otherwise net/http recovers, and the session stays in an unknown state
		if panicValue := recover(); panicValue != nil {
			s.server.log.Error("session closed after a panic", "session", s.logID,
				"err", fmt.Sprintf("%v\n%s", panicValue, debug.Stack()))
			s.closeWith(errPanic)
		}
	}()
	s.handler.Receive(p.m)
	s.cancelRequests(s.filterDelivered(p.cancelledIDs))
	return nil
}

// markDelivered marks the requests of st as delivered. It returns false, and marks nothing, if the
// session is closed. st is nil for a message without requests.
func (s *httpSession) markDelivered(st *sseStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if st != nil {
		st.delivered = true
	}
	return true
}

// filterDelivered removes from ids the requests that were not passed to the handler yet, because
// the handler ignores a cancellation that precedes its request.
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

// currentHandler returns the handler, after waiting for a message that is being delivered.
func (s *httpSession) currentHandler() SessionHandler {
	s.deliverMu.Lock()
	defer s.deliverMu.Unlock()
	return s.handler
}
