package httpclient

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A StatusError is an HTTP response that contains no JSON-RPC message for the request. It shows
// neither headers nor the URL.
type StatusError struct {
	Code int
	Text string // beginning of the body, if it is text, or target of a redirect
	Hint string // advice; "" = none
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP %d %s", e.Code, http.StatusText(e.Code))
	if e.Text != "" {
		text += ": " + e.Text
	}
	text = strings.TrimSpace(text)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// mediaType returns the media type of a response in lower case, without parameters.
func mediaType(resp *http.Response) string {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	}
	return strings.ToLower(strings.TrimSpace(kind))
}

// suggestsOtherTransport reports whether a server sends this status to the first request of a
// transport that it does not support.
func suggestsOtherTransport(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// isSessionLost reports whether the response to a message that was sent in a session tells that
// the session does not exist. The specification defines 404 for it ("Session Management" 3).
// Servers also send 400 or 410 with one of several errors, or another status with "session not
// found". failure is the error in the response; for a body that is not a message it has no code.
// hasID is true if the response has the id of the request: with 404 it is then an ordinary
// response, unless it mentions the session.
func isSessionLost(status int, failure *wire.Error, hasID bool) bool {
	text := strings.ToLower(failure.Message)
	switch status {
	case http.StatusNotFound:
		if hasID {
			return failure.Code == protocol.CodeSessionNotFound || mentionsLostSession(text)
		}
		return failure.Code != wire.CodeMethodNotFound
	case http.StatusBadRequest, http.StatusGone:
		switch failure.Code {
		case 0, protocol.CodeServerError, protocol.CodeSessionNotFound, wire.CodeInvalidRequest:
			return mentionsLostSession(text)
		}
	case http.StatusUnauthorized, http.StatusForbidden: // the session may be a login session
		return failure.Code == protocol.CodeSessionNotFound &&
			strings.Contains(text, "session not found")
	default:
		switch failure.Code {
		case 0, protocol.CodeSessionNotFound, wire.CodeInvalidRequest:
			return containsAny(text, "session not found", "no active sse connection")
		}
	}
	return false
}

// mentionsLostSession reports whether an error text, in lower case, reports an unknown session.
func mentionsLostSession(text string) bool {
	return strings.Contains(text, "not initialized") || strings.Contains(text, "session") &&
		containsAny(text, "not found", "no valid", "invalid", "expired", "unknown", "terminated",
			"not exist", "no longer", "no transport", "no active", "could not find")
}

// containsAny reports whether text contains one of parts.
func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
