package httpserver

import (
	"net/http"
	"strconv"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A httpError is what a request is answered with that does not come through.
type httpError struct {
	status       int
	id           wire.ID // of the request, "" if that is not known
	err          *wire.Error
	retrySeconds int // seconds after which it may be tried again; 0 = nothing is said
	header       map[string]string
}

// newHTTPError returns a refusal that the request's status says enough about.
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

// forRequest returns the refusal with the id of what was posted.
func (herr *httpError) forRequest(p *postedMessage) *httpError {
	if id := p.errorID(); id != "" {
		herr.id = id
	}
	return herr
}

// reject answers a request with a refusal, and logs that.
func (srv *Server) reject(w http.ResponseWriter, r *http.Request, herr *httpError) {
	srv.rejections.note(r, herr)
	herr.write(w)
}

// rejectPosted is refuse for a request of which the message was read. Session is the name of its
// session, "" if it has none.
func (srv *Server) rejectPosted(w http.ResponseWriter, r *http.Request, p *postedMessage, session string, herr *httpError) {
	srv.reportRejected(p.m, session, herr.err)
	srv.reject(w, r, herr.forRequest(p))
}

// reportRejected calls [Options.OnRejected] for each request in a message.
func (srv *Server) reportRejected(m wire.Message, session string, err *wire.Error) {
	if srv.opts.OnRejected == nil {
		return
	}
	if m.Kind() != wire.Batch {
		srv.opts.OnRejected(session, m, err)
	}
	for _, text := range m.Elements() {
		if one, _ := wire.Parse(text); one.Kind() == wire.Request {
			srv.opts.OnRejected(session, one, err)
		}
	}
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
		w.Header().Set("Connection", "close") // the rest of the body is not waited for
	}
	writeJSON(w, herr.status, wire.NewErrorResponse(herr.id, herr.err).Raw())
}

func writeJSON(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(transferTimeout(int64(len(text)))))
	w.WriteHeader(status)
	if _, err := w.Write(text); err == nil && control.Flush() == nil {
		_ = control.SetWriteDeadline(time.Time{})
	} // else the client is gone, or does not read
}

func methodNotAllowed(allow string) *httpError {
	return newHTTPError(http.StatusMethodNotAllowed, "Method not allowed: use %s", allow).withHeader("Allow", allow)
}

func sessionNotFound() *httpError {
	return newHTTPError(http.StatusNotFound, "Session not found: begin again with initialize").withCode(protocol.CodeSessionNotFound)
}

func sessionRequired() *httpError {
	return newHTTPError(http.StatusBadRequest, "Server not initialized: the header Mcp-Session-Id is required").withCode(wire.CodeNotInitialized)
}

// checkRevision refuses a revision that is not spoken in sessions. A request that names
// none is of the session's. One that is newer reads the code, and falls back.
func checkRevision(r *http.Request) *httpError {
	revision := headerRevision(r)
	if t, known := protocol.FindRevision(revision); known && !t.Modern || revision == "" {
		return nil
	}
	return &httpError{status: http.StatusBadRequest, err: protocol.UnsupportedVersionError(revision)}
}
