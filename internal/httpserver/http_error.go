package httpserver

import (
	"net/http"
	"strconv"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// An httpError is the response to a rejected request.
type httpError struct {
	status       int
	id           wire.ID // id of the request; "" = unknown
	err          *wire.Error
	retrySeconds int // value of Retry-After; 0 = no header
	header       map[string]string
}

// newHTTPError returns an error with the code InvalidRequest.
func newHTTPError(status int, format string, args ...any) *httpError {
	return &httpError{status: status, err: wire.Errorf(wire.CodeInvalidRequest, format, args...)}
}

func (herr *httpError) withCode(code int) *httpError {
	herr.err.Code = code
	return herr
}

func (herr *httpError) withHeader(name, value string) *httpError {
	herr.header = map[string]string{name: value}
	return herr
}

func (herr *httpError) retryAfter(seconds int) *httpError {
	herr.retrySeconds = seconds
	return herr
}

// forRequest sets the id to that of the posted request.
func (herr *httpError) forRequest(p *postedMessage) *httpError {
	if id := p.errorID(); id != "" {
		herr.id = id
	}
	return herr
}

func (herr *httpError) write(w http.ResponseWriter) {
	for name, value := range herr.header {
		w.Header().Set(name, value)
	}
	if herr.retrySeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(herr.retrySeconds))
	}
	switch herr.status {
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout, http.StatusServiceUnavailable:
		w.Header().Set("Connection", "close") // the server does not wait for the rest of the body
	}
	writeJSON(w, herr.status, wire.NewErrorResponse(herr.id, herr.err).Text())
}

// jsonContentType is shared by all responses, which do not change it.
var jsonContentType = []string{"application/json"}

func writeJSON(w http.ResponseWriter, status int, text wire.Text) {
	h := w.Header()
	h["Content-Type"] = jsonContentType
	h["Content-Length"] = []string{strconv.Itoa(text.Len())}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(transferTimeout(int64(text.Len()))))
	w.WriteHeader(status)
	for _, piece := range text {
		if _, err := w.Write(piece); err != nil {
			return // the client has disconnected or does not read
		}
	}
	if control.Flush() == nil {
		_ = control.SetWriteDeadline(time.Time{})
	}
}

func methodNotAllowed(allow string) *httpError {
	return newHTTPError(http.StatusMethodNotAllowed, "Method not allowed: use %s", allow).
		withHeader("Allow", allow)
}

func sessionNotFound() *httpError {
	return newHTTPError(http.StatusNotFound, "Session not found: begin again with initialize").
		withCode(protocol.CodeSessionNotFound)
}

func sessionRequired() *httpError {
	return newHTTPError(http.StatusBadRequest,
		"Server not initialized: the header Mcp-Session-Id is required").
		withCode(wire.CodeNotInitialized)
}

// checkRevision rejects revisions that have no sessions or are unknown. A request without the
// header has the revision of its session. Because of the error code, a newer client falls back to
// an older revision.
func checkRevision(r *http.Request) *httpError {
	revision := headerRevision(r)
	if t, known := protocol.FindRevision(revision); known && !t.Modern || revision == "" {
		return nil
	}
	return &httpError{
		status: http.StatusBadRequest, err: protocol.UnsupportedVersionError(revision),
	}
}
