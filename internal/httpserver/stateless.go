package httpserver

import (
	"net/http"
	"slices"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const versionHeader = "Mcp-Protocol-Version"

// version returns the revision that the headers of a request name, "" if they name
// none. What names two is no revision's name.
func version(r *http.Request) string {
	named := r.Header[versionHeader]
	if len(named) > 1 {
		named = slices.Compact(slices.Clone(named))
	}
	return strings.Join(named, ", ")
}

// asStateless reports whether the headers of a request put it in the stateless era. A
// revision that is not known does not, where the request is of a session.
func asStateless(r *http.Request, inSession bool) bool {
	asked := version(r)
	t, _ := protocol.FindRevision(asked)
	return t.Modern || !inSession && protocol.IsModernRevision(asked)
}

// stateless answers a POST of the stateless era. It has no session, whatever its
// headers say of one. A notification is accepted, and nothing comes of it: the only
// one that a client might send takes a request back, which here is done by hanging up.
func (d *Server) stateless(w http.ResponseWriter, r *http.Request, p *posted, who principal) {
	var no *refusal
	switch p.m.Kind() {
	case wire.Request:
		no = d.examine(r, p.m)
		if no == nil && p.takes == takesJSON && p.m.Method() == methodListen {
			no = refuse(http.StatusNotAcceptable,
				"Not acceptable: a subscription is a stream: the header Accept must name text/event-stream")
		}
	case wire.Notification:
		w.WriteHeader(http.StatusAccepted)
		return
	default:
		no = refuse(http.StatusBadRequest, "Invalid request: what is posted must be one request or one notification")
	}
	if no == nil {
		e := d.newVisit(w, r, p, who)
		if no = d.receive(e); no == nil {
			if !e.exchange(r.Context(), p.takes) {
				abort()
			}
			return
		}
	}
	d.refusePosted(w, r, p, "", no)
}

// examine refuses a request whose headers and _meta are not as they have to be. The
// order of the checks is part of what clients may rely on; what is behind those of
// here is Options.Examine's.
func (d *Server) examine(r *http.Request, m wire.Message) *refusal {
	asked := version(r)
	stamp, wrong := protocol.ParseClientMeta(m)
	switch claims := protocol.IsModernRevision(asked); {
	case claims && m.Method() == "initialize" && !protocol.IsModern(m): // it would be right without the header
		return mismatch()
	case claims && wrong != nil && wrong.Code == wire.CodeInvalidParams:
		return &refusal{status: http.StatusBadRequest, err: wrong}
	case asked != stamp.Revision:
		return mismatch()
	case wrong != nil:
		return &refusal{status: http.StatusBadRequest, err: wrong}
	}
	if d.o.ValidateHeaders == nil {
		return nil
	}
	if wrong := d.o.ValidateHeaders(m, r.Header.Values); wrong != nil {
		return &refusal{status: statusOfCode(wrong.Code), err: wrong}
	}
	return nil
}

func mismatch() *refusal {
	return refuse(http.StatusBadRequest, "Header mismatch: MCP-Protocol-Version must name the same revision as _meta").code(protocol.CodeHeaderMismatch)
}

// statusOf returns the HTTP status of an answer that is sent alone.
func statusOf(answer wire.Message) int {
	if failure := answer.Part(wire.PartError); failure != nil {
		return statusOfCode(wire.ReadError(failure).Code)
	}
	return http.StatusOK
}

func statusOfCode(code int) int {
	switch code {
	case protocol.CodeHeaderMismatch, protocol.CodeMissingCapability, protocol.CodeUnsupportedVersion:
		return http.StatusBadRequest
	case wire.CodeMethodNotFound:
		return http.StatusNotFound
	}
	return http.StatusOK
}
