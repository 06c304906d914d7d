package httpserver

import (
	"net/http"
	"slices"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// headerRevision returns the revision in the headers of a request; "" = none. If the headers have
// different values, it returns them joined, which matches no revision.
func headerRevision(r *http.Request) string {
	values := r.Header[protocol.HeaderProtocolVersion]
	if len(values) > 1 {
		values = slices.Compact(slices.Clone(values))
	}
	return strings.Join(values, ", ")
}

// headersAreModern reports whether the headers of a request contain a revision of the modern
// generation. A revision that the gateway does not know counts as modern only outside of a session.
func headersAreModern(r *http.Request, inSession bool) bool {
	revision := headerRevision(r)
	t, _ := protocol.FindRevision(revision)
	return t.Modern || !inSession && protocol.IsModernRevision(revision)
}

// postStateless serves a POST of the modern generation. The POST has no session, even if a header
// contains a session id. A notification is accepted and ignored: only a cancellation would be
// useful, but in this generation clients cancel by disconnecting.
func (srv *Server) postStateless(
	w http.ResponseWriter, r *http.Request, p *postedMessage, principal principalID,
) {
	var herr *httpError
	switch p.m.Kind() {
	case wire.Request:
		herr = srv.validateStateless(r, p.m)
		if herr == nil && p.accept == acceptJSON &&
			p.m.Method() == protocol.MethodSubscriptionsListen {
			herr = newHTTPError(http.StatusNotAcceptable,
				"Not acceptable: a subscription is a stream: "+
					"the header Accept must name text/event-stream")
		}
	case wire.Notification:
		w.WriteHeader(http.StatusAccepted)
		return
	default:
		herr = newHTTPError(http.StatusBadRequest,
			"Invalid request: the body must be one request or one notification")
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

// validateStateless checks that the headers and _meta of a request are consistent. Clients may rely
// on the order of the checks. Options.ValidateHeaders comes last.
func (srv *Server) validateStateless(r *http.Request, m wire.Message) *httpError {
	revision := headerRevision(r)
	client, rpcErr := protocol.ParseClientMeta(m)
	switch modern := protocol.IsModernRevision(revision); {
	// The request would be valid without the header.
	case modern && m.Method() == protocol.MethodInitialize && !protocol.IsModern(m):
		return headerMismatch()
	case modern && rpcErr != nil && rpcErr.Code == wire.CodeInvalidParams:
		return &httpError{status: http.StatusBadRequest, err: rpcErr}
	case revision != client.Revision:
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
	return newHTTPError(http.StatusBadRequest,
		"Header mismatch: MCP-Protocol-Version must name the same revision as _meta").
		withCode(protocol.CodeHeaderMismatch)
}

// responseStatus returns the HTTP status of a response that is sent as JSON.
func responseStatus(response wire.Message) int {
	if failure := response.Part(wire.PartError); failure != nil {
		return statusForCode(wire.ReadError(failure).Code)
	}
	return http.StatusOK
}

func statusForCode(code int) int {
	switch code {
	case protocol.CodeHeaderMismatch, protocol.CodeMissingCapability,
		protocol.CodeUnsupportedVersion:
		return http.StatusBadRequest
	case wire.CodeMethodNotFound:
		return http.StatusNotFound
	}
	return http.StatusOK
}
