package httpserver

import (
	"errors"
	"net/http"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// serveHTTPSSE serves a GET to /sse (HTTP+SSE, 2024-11-05). The stream lasts as long as the
// session. Its first event contains the endpoint for POSTs.
func (x *httpExchange) serveHTTPSSE() {
	switch {
	case x.r.Method != http.MethodGet:
		// A client that tries streamable HTTP first sends a POST, and after this error falls back
		// to HTTP+SSE.
		x.reject(methodNotAllowed("GET, OPTIONS"))
		return
	case !acceptsType(x.r, "text", "event-stream"):
		x.reject(newHTTPError(http.StatusNotAcceptable,
			"Not acceptable: the client must accept text/event-stream"))
		return
	}
	s, sw := newSession(x, true), newStreamWriter(x.w)
	st := s.streams.standalone
	st.writer, s.activity.exchanges = sw, 1
	if herr := x.srv.sessions.open(s); herr != nil {
		x.reject(herr)
		return
	}
	defer s.endWithToken(sw, x.from)()
	defer func() { s.closeWith(s.endReason()) }()
	beginSSE(x.w)
	endpoint := relativePrefix(x.r.URL.Path) + "message?session=" + s.key
	if sw.writeAndFlush([]byte("event: endpoint\ndata: "+endpoint+"\n\n")) != nil {
		s.endExchange(st, sw)
		return
	}
	s.streamEvents(x.r.Context(), st, sw, "")
}

// relativePrefix returns the prefix of a relative reference from path, which may end in slashes, to
// a sibling of path. A relative reference keeps the path prefix that a proxy in front of the
// gateway adds.
func relativePrefix(path string) string {
	return strings.Repeat("../", len(path)-len(strings.TrimRight(path, "/")))
}

// postHTTPSSE serves a POST to /message or /messages. Responses are sent on the session's stream.
func (x *httpExchange) postHTTPSSE() {
	if x.r.Method != http.MethodPost {
		x.reject(methodNotAllowed("POST, OPTIONS"))
		return
	}
	if herr := checkContentType(x.r); herr != nil {
		x.reject(herr)
		return
	}
	s := x.srv.sessions.findHTTPSSE(x.r.URL.Query().Get("session"), x.from)
	p, herr := x.readPost(s, s != nil)
	defer p.lease.release()
	switch {
	case s == nil:
		if herr == nil {
			herr = sessionNotFound()
		}
		x.rejectPosted(p, "", herr)
		return
	case herr != nil:
		x.rejectPosted(p, s.logID, herr)
		return
	case p.m.Kind() == wire.Request && protocol.IsModern(p.m):
		x.rejectStateless(s, p)
		return
	}
	if _, _, herr := s.registerPost(x.w, p); herr != nil {
		x.rejectPosted(p, s.logID, herr)
		return
	}
	err := s.deliver(x.r.Context(), p, nil)
	if err != nil {
		s.cancelRequests(p.requestIDs)
	}
	s.endExchange(nil, nil)
	switch {
	case err == nil:
		x.w.WriteHeader(http.StatusAccepted)
	case !x.finishUndelivered(s, p, err):
		abort()
	}
}

// rejectStateless responds to a modern request, which HTTP+SSE does not support. The error makes
// the client start with initialize.
func (x *httpExchange) rejectStateless(s *httpSession, p *postedMessage) {
	rpcErr := protocol.UnsupportedLegacyVersionError(protocol.RevisionOf(p.m))
	if s.Write(wire.NewErrorResponse(p.m.ID(), rpcErr), "") != nil {
		s.closeWith(errors.New("the client does not read"))
		x.rejectPosted(p, s.logID, sessionNotFound())
		return
	}
	x.w.WriteHeader(http.StatusAccepted)
}
