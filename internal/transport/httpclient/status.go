package httpclient

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A StatusError is an HTTP response that has no message of JSON-RPC's for the
// request. It shows neither headers nor the URL.
type StatusError struct {
	Code int
	Text string // the beginning of the body, if it is text; the target of a redirect
	Hint string // what to do about it, "" if that is not known
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

// mediaType returns a response's media type in lower case, without parameters.
func mediaType(resp *http.Response) string {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	}
	return strings.ToLower(strings.TrimSpace(kind))
}

// suggestsOtherTransport reports whether a status is one that a server gives to the first
// request of a transport that it does not have.
func suggestsOtherTransport(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// isSessionLost reports whether a server's answer to a message that named a
// session says that there is none. The specification has 404 for it
// ("Session Management" 3), servers have more: 400 and 410 with one of several errors,
// or another status that says "session not found". Failure is the error of the answer;
// one without a code stands for a body that is not a message. Own says that the answer
// has the id of the request: with 404 it is an answer like any other then, unless it
// tells of the session.
func isSessionLost(status int, failure *wire.Error, own bool) bool {
	text := strings.ToLower(failure.Message)
	switch status {
	case http.StatusNotFound:
		if own {
			return failure.Code == protocol.CodeSessionNotFound || mentionsLostSession(text)
		}
		return failure.Code != wire.CodeMethodNotFound
	case http.StatusBadRequest, http.StatusGone:
		switch failure.Code {
		case 0, protocol.CodeServerError, protocol.CodeSessionNotFound, wire.CodeInvalidRequest:
			return mentionsLostSession(text)
		}
	case http.StatusUnauthorized, http.StatusForbidden: // it may be the session of a user
		return failure.Code == protocol.CodeSessionNotFound && strings.Contains(text, "session not found")
	default:
		switch failure.Code {
		case 0, protocol.CodeSessionNotFound, wire.CodeInvalidRequest:
			return containsAny(text, "session not found", "no active sse connection")
		}
	}
	return false
}

func mentionsLostSession(text string) bool {
	return strings.Contains(text, "not initialized") || strings.Contains(text, "session") &&
		containsAny(text, "not found", "no valid", "invalid", "expired", "unknown", "terminated",
			"not exist", "no longer", "no transport", "no active", "could not find")
}

func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
