package httpserver

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"

	"mcpgateway/internal/quota"
)

// openSession registers s and creates its handler.
func (srv *Server) openSession(s *httpSession) *httpError {
	s.deliverMu.Lock() // before the session can be found
	defer s.deliverMu.Unlock()
	if herr := srv.register(s); herr != nil {
		return herr
	}
	s.handler = srv.opts.OpenSession(SessionInfo{ID: s.logID, Principal: s.principal.String()}, s)
	return nil
}

// register adds s to the table of sessions and applies the limits; unregister removes it.
func (srv *Server) register(s *httpSession) *httpError {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	switch {
	case srv.closing:
		return srv.shuttingDown()
	case !srv.access.Load().includes(s.principal):
		return invalidToken()
	}
	switch srv.sessionCounter.Acquire(s.principal, srv.opts.MaxSessions, srv.perPrincipalLimit()) {
	case quota.Total:
		return srv.refuseOverloadedLocked("too many sessions", "Too many sessions are open",
			"max", srv.opts.MaxSessions).retryAfter(30)
	case quota.PerKey:
		return srv.refuseOverloadedLocked("too many sessions",
			"Too many sessions are open under this token",
			"max", srv.perPrincipalLimit(), "principal", s.principal.String()).retryAfter(30)
	}
	srv.sessions[s.key] = s
	srv.running.Add(1)
	return nil
}

func (srv *Server) shuttingDown() *httpError {
	return newHTTPError(http.StatusServiceUnavailable, "The gateway is ending").retryAfter(2)
}

// findSession returns the session with this key; nil if the key is unknown, or belongs to a session
// of another principal or transport.
func (srv *Server) findSession(key string, principal principalID, httpSSE bool) *httpSession {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if s := srv.sessions[key]; s != nil && s.principal == principal && s.httpSSE == httpSSE {
		return s
	}
	return nil
}

// unregister removes a closed session and calls Closed of its handler on a new goroutine.
func (srv *Server) unregister(s *httpSession) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.sessions[s.key] == s {
		delete(srv.sessions, s.key)
		srv.sessionCounter.Release(s.principal)
		go func() {
			defer srv.running.Done()
			s.currentHandler().Closed(s.reason())
		}()
	}
	if s.retainerElem != nil {
		srv.retainers.Remove(s.retainerElem)
		s.retainerElem = nil
	}
}

// newSessionKey returns a new session key, <logID>-<secret>.
func newSessionKey() (key, logID string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	key = hex.EncodeToString(b[:16]) + "-" + hex.EncodeToString(b[16:])
	logID, _, _ = strings.Cut(key, "-")
	return key, logID
}

// newLogID returns a log id for a stateless exchange.
func newLogID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// openSessions returns a snapshot of the open sessions.
func (srv *Server) openSessions() []*httpSession {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return slices.Collect(maps.Values(srv.sessions))
}
