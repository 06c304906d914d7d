package httpserver

import (
	"net/http"
	"strings"

	"mcpgateway/internal/wire"
)

// isOAuthPath reports whether path is one at which clients look for OAuth: the path of metadata
// (RFC 8414, RFC 9728), or of an endpoint that MCP 2025-03-26 assumes if there is no metadata. path
// has no trailing slash.
func isOAuthPath(path string) bool {
	switch path {
	case "/register", "/authorize", "/token":
		return true
	}
	return strings.Contains(path, "/.well-known/")
}

const (
	noOAuthUseToken = "This gateway has no OAuth. It needs a bearer token: " +
		"give the client the header Authorization: Bearer TOKEN " +
		"(claude mcp add --transport http NAME URL -H 'Authorization: Bearer TOKEN'; " +
		"in a file: \"headers\" beside \"url\")"
	noOAuthNoToken = "This gateway has no OAuth, and it needs no token: connect without one"
)

// rejectOAuth rejects the request of a client that looks for OAuth, and describes how to connect.
// It uses the error format of OAuth (RFC 6749 §5.2), because clients show the description. The
// request needs no token.
func (srv *Server) rejectOAuth(w http.ResponseWriter, r *http.Request) {
	text := noOAuthNoToken
	if len(srv.access.Load().tokens) > 0 {
		text = noOAuthUseToken
	}
	srv.rejections.note(r, newHTTPError(http.StatusNotFound, "%s", text))
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusNotFound, wire.Encode(struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{"invalid_request", text}))
}
