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
		return // the Server has ended, and the connection is closed
	}
	defer srv.endRequest()
	// The deadline applies even if the handler does not read the body, because net/http then reads
	// the body before it sends the response. readBody resets the deadline after it has read the
	// whole body.
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	path := "/" + strings.Trim(r.URL.Path, "/") // some clients add a slash at the front or the end
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
		srv.reject(w, r, newHTTPError(http.StatusNotFound, "Not found: the MCP endpoint is /mcp"))
	}
}

// beginRequest registers an HTTP request. It returns false after the end of Run.
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
	key := r.Header.Get(protocol.HeaderSessionID)
	if r.Method != http.MethodPost &&
		headersAreModern(r, srv.findSession(key, principal, false) != nil) {
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
