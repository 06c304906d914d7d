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
func (srv *Server) serveHTTPSSE(w http.ResponseWriter, r *http.Request, principal principalID) {
	switch {
	case r.Method != http.MethodGet:
		// A client that tries streamable HTTP first sends a POST, and after this error falls back
		// to HTTP+SSE.
		srv.reject(w, r, methodNotAllowed("GET, OPTIONS"))
		return
	case !acceptsType(r, "text", "event-stream"):
		srv.reject(w, r, newHTTPError(http.StatusNotAcceptable,
			"Not acceptable: the client must accept text/event-stream"))
		return
	}
	s, sw := srv.newSession(principal), newStreamWriter(w)
	s.httpSSE, s.standalone.writer, s.activeExchanges = true, sw, 1
	if herr := srv.openSession(s); herr != nil {
		srv.reject(w, r, herr)
		return
	}
	defer s.closeWith(nil)
	beginSSE(w)
	endpoint := relativePrefix(r.URL.Path) + "message?session=" + s.key
	if sw.writeAndFlush([]byte("event: endpoint\ndata: "+endpoint+"\n\n")) != nil {
		s.endExchange(s.standalone, sw)
		return
	}
	s.streamEvents(r.Context(), s.standalone, sw, "")
}

// relativePrefix returns the prefix of a relative reference from path, which may end in slashes, to
// a sibling of path. A relative reference keeps the path prefix that a proxy in front of the
// gateway adds.
func relativePrefix(path string) string {
	return strings.Repeat("../", len(path)-len(strings.TrimRight(path, "/")))
}

// postHTTPSSE serves a POST to /message or /messages. Responses are sent on the session's stream.
func (srv *Server) postHTTPSSE(w http.ResponseWriter, r *http.Request, principal principalID) {
	if r.Method != http.MethodPost {
		srv.reject(w, r, methodNotAllowed("POST, OPTIONS"))
		return
	}
	if herr := checkContentType(r); herr != nil {
		srv.reject(w, r, herr)
		return
	}
	s := srv.findSession(r.URL.Query().Get("session"), principal, true)
	p, herr := srv.readPost(w, r, s != nil, srv.quotaKeyFor(principal, s))
	defer p.lease.release()
	switch {
	case s == nil:
		if herr == nil {
			herr = sessionNotFound()
		}
		srv.rejectPosted(w, r, p, "", herr)
		return
	case herr != nil:
		srv.rejectPosted(w, r, p, s.logID, herr)
		return
	case p.m.Kind() == wire.Request && protocol.IsModern(p.m):
		s.rejectStateless(w, r, p)
		return
	}
	if _, _, herr := s.registerPost(w, p); herr != nil {
		srv.rejectPosted(w, r, p, s.logID, herr)
		return
	}
	err := s.deliver(r.Context(), p, nil)
	if err != nil {
		s.cancelRequests(p.requestIDs)
	}
	s.endExchange(nil, nil)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusAccepted)
	case !s.finishUndelivered(w, r, p, err):
		abort()
	}
}

// rejectStateless responds to a modern request, which HTTP+SSE does not support. The error makes
// the client start with initialize.
func (s *httpSession) rejectStateless(w http.ResponseWriter, r *http.Request, p *postedMessage) {
	rpcErr := protocol.UnsupportedLegacyVersionError(protocol.RevisionOf(p.m))
	if s.Write(wire.NewErrorResponse(p.m.ID(), rpcErr), "") != nil {
		s.closeWith(errors.New("the client does not read"))
		s.server.rejectPosted(w, r, p, s.logID, sessionNotFound())
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
