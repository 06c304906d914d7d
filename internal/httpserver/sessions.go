package httpserver

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// openSession has a new session held, if there is room for it.
func (srv *Server) openSession(s *httpSession) *httpError {
	s.deliverMu.Lock() // before it can be found
	defer s.deliverMu.Unlock()
	if herr := srv.register(s); herr != nil {
		return herr
	}
	s.handler = srv.opts.OpenSession(SessionInfo{ID: s.logID, Principal: s.principal.String()}, s)
	return nil
}

// register makes a session one of ours. Forget is the end of that.
func (srv *Server) register(s *httpSession) *httpError {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	switch {
	case srv.closing:
		return srv.shuttingDown()
	case !srv.access.Load().includes(s.principal):
		return invalidToken()
	case len(srv.sessions) >= srv.opts.MaxSessions:
		return srv.refuseOverloadedLocked("session", "Too many sessions are open", "max", srv.opts.MaxSessions).retryAfter(30)
	case srv.sessionsBy[s.principal] >= srv.perPrincipalLimit():
		return srv.refuseOverloadedLocked("session", "Too many sessions are open under this token", "max", srv.perPrincipalLimit(), "principal", s.principal.String()).retryAfter(30)
	}
	srv.sessions[s.key] = s
	srv.sessionsBy[s.principal]++
	srv.running.Add(1)
	return nil
}

func (srv *Server) shuttingDown() *httpError {
	return newHTTPError(http.StatusServiceUnavailable, "The gateway is ending").retryAfter(2)
}

// findSession returns the session of that key, nil if there is none, or none that was
// opened by that principal in that way.
func (srv *Server) findSession(key string, principal principalID, legacy bool) *httpSession {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if s := srv.sessions[key]; s != nil && s.principal == principal && s.httpSSE == legacy {
		return s
	}
	return nil
}

// unregister takes an ended session out of the tables, and tells its holder, which may take its time.
func (srv *Server) unregister(s *httpSession) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.sessions[s.key] == s {
		delete(srv.sessions, s.key)
		if srv.sessionsBy[s.principal]--; srv.sessionsBy[s.principal] == 0 {
			delete(srv.sessionsBy, s.principal)
		}
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

// newSessionKey returns a session's key, <name>-<secret>. The name is for logs.
func newSessionKey() (key, name string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	key = hex.EncodeToString(b[:16]) + "-" + hex.EncodeToString(b[16:])
	name, _, _ = strings.Cut(key, "-")
	return key, name
}

// newLogID returns a name alone, for what nobody has to find.
func newLogID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// openSessions returns the sessions that are open.
func (srv *Server) openSessions() []*httpSession {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return slices.Collect(maps.Values(srv.sessions))
}
