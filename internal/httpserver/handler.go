package httpserver

import (
	"net/http"
	"strings"
	"time"

	"mcpgateway/internal/protocol"
)

// ServeHTTP implements http.Handler.
func (srv *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !srv.beginRequest() {
		return // the connection is gone, too
	}
	defer srv.endRequest()
	// A body has to come in time even if it is not looked at: net/http waits for it
	// before it answers. Only who reads it to its end takes the deadline back.
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	path := "/" + strings.Trim(r.URL.Path, "/") // some clients put one too many in front, or behind
	switch path {
	case "/healthz":
		srv.writeHealth(w, r, nil)
		return
	case "/readyz":
		srv.serveReadiness(w, r)
		return
	}
	if !srv.admit(w, r) {
		return
	}
	if isOAuthPath(path) {
		srv.rejectOAuth(w, r)
		return
	}
	principal, ok := srv.authenticate(w, r)
	if !ok {
		return
	}
	switch path {
	case "/mcp":
		srv.serveMCP(w, r, principal)
	case "/sse":
		srv.serveHTTPSSE(w, r, principal)
	case "/message", "/messages":
		srv.postHTTPSSE(w, r, principal)
	default:
		srv.reject(w, r, newHTTPError(http.StatusNotFound, "Not found: MCP is spoken at /mcp"))
	}
}

// beginRequest begins an exchange, unless Run has ended.
func (srv *Server) beginRequest() bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if !srv.runEnded {
		srv.activeRequests++
	}
	return !srv.runEnded
}

func (srv *Server) endRequest() {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.activeRequests--; srv.activeRequests == 0 {
		srv.noRequests.Broadcast()
	}
}

func (srv *Server) serveMCP(w http.ResponseWriter, r *http.Request, principal principalID) {
	if r.Method != http.MethodPost && headersAreModern(r, srv.findSession(r.Header.Get(protocol.HeaderSessionID), principal, false) != nil) {
		srv.reject(w, r, methodNotAllowed(http.MethodPost))
		return
	}
	switch r.Method {
	case http.MethodPost:
		srv.servePost(w, r, principal)
	case http.MethodGet:
		srv.serveGet(w, r, principal)
	case http.MethodDelete:
		srv.serveDelete(w, r, principal)
	default:
		srv.reject(w, r, methodNotAllowed("GET, POST, DELETE, OPTIONS"))
	}
}
