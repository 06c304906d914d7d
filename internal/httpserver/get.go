package httpserver

import (
	"net/http"

	"mcpgateway/internal/protocol"
)

// sessionFromHeader returns the session in the header of a request without a body. It returns an
// error if the header is missing, the session is unknown, or the request has another generation or
// an unknown revision.
func (x *httpExchange) sessionFromHeader() (*httpSession, *httpError) {
	if x.r.Header.Get(protocol.HeaderSessionID) == "" {
		return nil, sessionRequired()
	}
	s := x.findSession()
	if s == nil {
		return nil, sessionNotFound()
	}
	return s, checkRevision(x.r)
}

// serveGet serves a GET to /mcp. It sends the standalone stream, or the rest of a broken stream.
func (x *httpExchange) serveGet() {
	if !acceptsType(x.r, "text", "event-stream") {
		x.reject(newHTTPError(http.StatusNotAcceptable,
			"Not acceptable: the client must accept text/event-stream"))
		return
	}
	s, herr := x.sessionFromHeader()
	if herr != nil {
		x.reject(herr)
		return
	}
	sw := newStreamWriter(x.w)
	defer s.endWithToken(sw, x.from)()
	st, prime, herr := s.attachStream(sw, x.r.Header.Get(protocol.HeaderLastEventID))
	if herr != nil {
		x.reject(herr)
		return
	}
	beginSSE(x.w)
	s.streamEvents(x.r.Context(), st, sw, prime)
}

// serveDelete serves a DELETE to /mcp: the client ends its session.
func (x *httpExchange) serveDelete() {
	s, herr := x.sessionFromHeader()
	if herr != nil {
		x.reject(herr)
		return
	}
	s.closeWith(nil)
	x.w.WriteHeader(http.StatusNoContent)
}
