package transport

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode"

	"mcpgateway/wire"
)

// A StatusError is an HTTP response that has no message of JSON-RPC's for the
// request. It shows neither headers nor the URL.
type StatusError struct {
	Code int
	Text string // how the body begins, if it is text
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP %d %s", e.Code, http.StatusText(e.Code))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return strings.TrimSpace(text)
}

// maxExcerpt is how much of a body a StatusError shows, in bytes.
const maxExcerpt = 200

// maxHead is how much of a body is looked at for that, white space and secrets
// included.
const maxHead = 16 << 10

// excerpt returns the beginning of a body on one line, "" if it is not text.
func (s *site) excerpt(resp *http.Response, body []byte) string {
	switch kind := mediaType(resp); {
	case kind == "", strings.HasPrefix(kind, "text/"), strings.HasSuffix(kind, "json"):
	default:
		return ""
	}
	text := string(bytes.ToValidUTF8(body[:min(len(body), maxHead)], nil))
	text = s.secrets.Replace(strings.Join(strings.FieldsFunc(text, isBlank), " "))
	if len(text) > maxExcerpt {
		text = strings.ToValidUTF8(text[:maxExcerpt], "") + "…"
	}
	return text
}

func isBlank(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

// mediaType returns a response's media type in lower case, without parameters.
func mediaType(resp *http.Response) string {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	}
	return strings.ToLower(strings.TrimSpace(kind))
}

// isForeign reports whether a status is one that a server gives to the first
// request of a transport that it does not have.
func isForeign(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// What the TypeScript SDK answers for a session that it does not know, and what
// the servers written after its examples do.
const (
	codeSessionNotFound = -32001
	codeServerError     = -32000
)

// isSessionLost reports whether a server's answer to a message that named a
// session says that there is none. The specification has 404 for it
// ("Session Management" 3), servers have more: 400 with one of several errors,
// or 200 with a JSON-RPC error. Failure is the error of the answer; one without
// a code stands for a body that was none.
func isSessionLost(status int, failure *wire.Error) bool {
	text := strings.ToLower(failure.Message)
	switch status {
	case http.StatusNotFound:
		return failure.Code != wire.CodeMethodNotFound
	case http.StatusBadRequest:
		switch failure.Code {
		case 0, codeServerError, codeSessionNotFound, wire.CodeInvalidRequest:
			return strings.Contains(text, "not initialized") || strings.Contains(text, "session") &&
				containsAny(text, "not found", "no valid", "invalid", "expired", "unknown", "terminated")
		}
	default:
		switch failure.Code {
		case codeSessionNotFound, wire.CodeInvalidRequest:
			return strings.Contains(text, "session not found")
		}
	}
	return false
}

func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
