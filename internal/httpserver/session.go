package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	server *Server
	key    string // Mcp-Session-Id, secret
	logID  string // id in logs
	from   sender // of the initialize request

	deliverMu sync.Mutex     // held while handler receives a message
	handler   SessionHandler // guarded by deliverMu

	mu        sync.Mutex
	end       *sessionEnd // nil = the session is open
	handshake handshake
	leases    leaseTable // with HTTP+SSE only; with streamable HTTP each stream has its lease
	streams   streamSet
	activity  sessionActivity
	backlog   backlog
	retainer  retainer
}

// A sessionEnd describes the end of a session.
type sessionEnd struct{ reason error } // argument of SessionHandler.Closed

// newSession returns a session of the client of x that is not registered. httpSSE is the transport.
func newSession(x *httpExchange, httpSSE bool) *httpSession {
	s := &httpSession{
		server: x.srv, from: x.from, streams: newStreamSet(httpSSE),
		activity: sessionActivity{lastActive: time.Now(), authorizedUntil: x.from.expires},
	}
	s.key, s.logID = newSessionKey()
	s.backlog.disconnect, s.backlog.client = s.disconnect, s.info()
	s.retainer.drop = s.dropRetained
	return s
}

func (s *httpSession) info() SessionInfo {
	i := sessionInfo(s.logID, s.from.Principal, s.from.profile)
	i.HTTPSSE = s.isHTTPSSE()
	return i
}

// logger returns the logger of the session. It is created on demand, because most sessions log
// little.
func (s *httpSession) logger() *slog.Logger { return s.info().logger(s.server.log) }

// isHTTPSSE reports whether the transport is HTTP+SSE: the session has one stream, and lasts as
// long as the stream.
func (s *httpSession) isHTTPSSE() bool { return s.streams.single }

// sessionActivity records the HTTP exchanges of a session.
type sessionActivity struct {
	exchanges  int       // open HTTP exchanges
	lastActive time.Time // end of the last HTTP exchange
	// authorizedUntil is the latest expiry of the access tokens that the client has sent; zero =
	// it sends no access tokens.
	authorizedUntil time.Time
}

// isAuthorized reports whether streams of the session may stay open.
func (a *sessionActivity) isAuthorized() bool {
	return a.authorizedUntil.IsZero() || time.Now().Before(a.authorizedUntil)
}

// begin begins an HTTP exchange, unless there are maxOpenRequests.
func (a *sessionActivity) begin() *httpError {
	if a.exchanges >= maxOpenRequests {
		return newHTTPError(http.StatusTooManyRequests,
			"Too many requests of this session are open").retryAfter(1)
	}
	a.exchanges++
	return nil
}

// end ends an HTTP exchange.
func (a *sessionActivity) end() {
	a.exchanges--
	a.lastActive = time.Now()
}

// maxOpenRequests is the maximum number of HTTP exchanges of a session, and of its unanswered
// requests.
const maxOpenRequests = 4096

// closeIfIdle closes the session if it has been idle for IdleTimeout. Otherwise it returns the
// minimum time until the session has been idle for IdleTimeout. An unanswered request keeps the
// session open only while the client is connected.
func (s *httpSession) closeIfIdle() time.Duration {
	s.mu.Lock()
	left := s.server.opts.IdleTimeout - time.Since(s.activity.lastActive)
	if s.activity.exchanges > 0 {
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
	if s.end != nil {
		return
	}
	s.end = &sessionEnd{reason}
	s.streams.close()
	for id := range s.leases {
		s.leases.release(id)
	}
}

// disconnect closes the session because its client does not read, and has the largest backlog (size
// bytes) of all clients. Unsent messages are dropped at once.
func (s *httpSession) disconnect(size int64) {
	s.mu.Lock()
	s.streams.disconnect()
	s.closeLocked(fmt.Errorf("the client does not read: %d bytes are unread", size))
	s.enforceAndUnlock()
	s.unregister()
}

// dropRetained drops all retained events.
func (s *httpSession) dropRetained() {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	s.streams.dropRetained()
}

// reason returns the reason for the end of the session; nil = closed by the client or the handler.
func (s *httpSession) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end.reason
}

// enforceAndUnlock enforces RetainLimit, releases mu and updates the server's accounts.
func (s *httpSession) enforceAndUnlock() {
	s.streams.evict(s.server.opts.RetainLimit)
	retained := s.retainer.reported.change(s.streams.retained)
	unsent := s.backlog.reported.change(s.streams.unsent)
	s.mu.Unlock()
	s.server.retention.add(&s.retainer, retained)
	s.server.backlogQuota.add(&s.backlog, unsent)
}

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
			s.logger().Error("session closed after a panic",
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
	if s.end != nil {
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
		st := s.streams.openRequests[id]
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
