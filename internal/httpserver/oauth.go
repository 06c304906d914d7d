package httpserver

import (
	"strings"

	"mcpgateway/internal/resourceserver"
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
	noOAuthNoToken    = "This gateway has no OAuth, and it needs no token: connect without one"
	elsewhereMetadata = "This gateway is no authorization server; " +
		"its authorization server is in the metadata at " + resourceserver.MetadataPath
)
