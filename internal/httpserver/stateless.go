package httpserver

import (
	"net/http"
	"slices"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// headerRevision returns the revision that the headers of a request name, "" if they name
// none. What names two is no revision's name.
func headerRevision(r *http.Request) string {
	values := r.Header[protocol.HeaderProtocolVersion]
	if len(values) > 1 {
		values = slices.Compact(slices.Clone(values))
	}
	return strings.Join(values, ", ")
}

// headersAreModern reports whether the headers of a request put it in the stateless era. A
// revision that is not known does not, where the request is of a session.
func headersAreModern(r *http.Request, inSession bool) bool {
	revision := headerRevision(r)
	t, _ := protocol.FindRevision(revision)
	return t.Modern || !inSession && protocol.IsModernRevision(revision)
}

// postStateless answers a POST of the stateless era. It has no session, whatever its
// headers say of one. A notification is accepted, and nothing comes of it: the only
// one that a client might send takes a request back, which here is done by hanging up.
func (srv *Server) postStateless(w http.ResponseWriter, r *http.Request, p *postedMessage, principal principalID) {
	var herr *httpError
	switch p.m.Kind() {
	case wire.Request:
		herr = srv.validateStateless(r, p.m)
		if herr == nil && p.accept == acceptJSON && p.m.Method() == protocol.MethodSubscriptionsListen {
			herr = newHTTPError(http.StatusNotAcceptable,
				"Not acceptable: a subscription is a stream: the header Accept must name text/event-stream")
		}
	case wire.Notification:
		w.WriteHeader(http.StatusAccepted)
		return
	default:
		herr = newHTTPError(http.StatusBadRequest, "Invalid request: what is posted must be one request or one notification")
	}
	if herr == nil {
		e := srv.newStatelessExchange(w, r, p, principal)
		if herr = srv.startStateless(e); herr == nil {
			if !e.respond(r.Context(), p.accept) {
				abort()
			}
			return
		}
	}
	srv.rejectPosted(w, r, p, "", herr)
}

// validateStateless refuses a request whose headers and _meta are not as they have to be. The
// order of the checks is part of what clients may rely on; what is behind those of
// here is Options.Examine's.
func (srv *Server) validateStateless(r *http.Request, m wire.Message) *httpError {
	revision := headerRevision(r)
	stamp, rpcErr := protocol.ParseClientMeta(m)
	switch claims := protocol.IsModernRevision(revision); {
	case claims && m.Method() == protocol.MethodInitialize && !protocol.IsModern(m): // it would be right without the header
		return headerMismatch()
	case claims && rpcErr != nil && rpcErr.Code == wire.CodeInvalidParams:
		return &httpError{status: http.StatusBadRequest, err: rpcErr}
	case revision != stamp.Revision:
		return headerMismatch()
	case rpcErr != nil:
		return &httpError{status: http.StatusBadRequest, err: rpcErr}
	}
	if srv.opts.ValidateHeaders == nil {
		return nil
	}
	if rpcErr := srv.opts.ValidateHeaders(m, r.Header.Values); rpcErr != nil {
		return &httpError{status: statusForCode(rpcErr.Code), err: rpcErr}
	}
	return nil
}

func headerMismatch() *httpError {
	return newHTTPError(http.StatusBadRequest, "Header mismatch: MCP-Protocol-Version must name the same revision as _meta").withCode(protocol.CodeHeaderMismatch)
}

// responseStatus returns the HTTP status of an answer that is sent alone.
func responseStatus(answer wire.Message) int {
	if failure := answer.Part(wire.PartError); failure != nil {
		return statusForCode(wire.ReadError(failure).Code)
	}
	return http.StatusOK
}

func statusForCode(code int) int {
	switch code {
	case protocol.CodeHeaderMismatch, protocol.CodeMissingCapability, protocol.CodeUnsupportedVersion:
		return http.StatusBadRequest
	case wire.CodeMethodNotFound:
		return http.StatusNotFound
	}
	return http.StatusOK
}
