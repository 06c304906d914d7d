package httpclient

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A StatusError describes an HTTP response that contains no JSON-RPC message for the request. It
// contains no headers of the request, and no URL except the target of a redirect, without query and
// user.
type StatusError struct {
	Code int
	Text string // beginning of a body that is text, or target of a redirect
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

// suggestsOtherTransport reports whether servers send this status in response to the first request
// of a transport that they do not support.
func suggestsOtherTransport(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// isSessionLost reports whether the response to a message that was sent in a session means that the
// session does not exist. The specification defines status 404 for this case ("Session Management"
// 3). Servers also send 400 or 410 with one of several errors, or another status with "session not
// found". failure is the error in the response; it has no code if the body is not a message. hasID
// is true if the response has the id of the request: a response with 404 is then an ordinary
// response, unless the code or the text of its error is that of an unknown session. Without this
// id, 404 is an ordinary response only with the code of an unknown method.
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

// mentionsLostSession reports whether text, an error message in lower case, mentions an unknown
// session or a missing initialization.
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
