package httpserver

import (
	"net/http"
	"strconv"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// codeSessionNotFound is what servers of the revisions with sessions commonly give.
// Clients of the time go by the status.
const codeSessionNotFound = -32001

// A refusal is what a request is answered with that does not come through.
type refusal struct {
	status int
	id     wire.ID // of the request, "" if that is not known
	err    *wire.Error
	wait   int // seconds after which it may be tried again; 0 = nothing is said
	header map[string]string
}

// refuse returns a refusal that the request's status says enough about.
func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, err: wire.Errorf(wire.CodeInvalidRequest, format, args...)}
}

func (no *refusal) code(code int) *refusal {
	no.err.Code = code
	return no
}

func (no *refusal) with(name, value string) *refusal {
	no.header = map[string]string{name: value}
	return no
}

func (no *refusal) retry(seconds int) *refusal {
	no.wait = seconds
	return no
}

// of returns the refusal with the id of what was posted.
func (no *refusal) of(p *posted) *refusal {
	if id := p.id(); id != "" {
		no.id = id
	}
	return no
}

// refuse answers a request with a refusal, and logs that.
func (d *Server) refuse(w http.ResponseWriter, r *http.Request, no *refusal) {
	d.refusals.note(r, no)
	no.send(w)
}

// refusePosted is refuse for a request of which the message was read. Session is the name of its
// session, "" if it has none.
func (d *Server) refusePosted(w http.ResponseWriter, r *http.Request, p *posted, session string, no *refusal) {
	d.record(p.m, session, no.err)
	d.refuse(w, r, no.of(p))
}

// record calls [Options.OnRejected] for each request in a message.
func (d *Server) record(m wire.Message, session string, err *wire.Error) {
	if d.o.OnRejected == nil {
		return
	}
	if m.Kind() != wire.Batch {
		d.o.OnRejected(session, m, err)
	}
	for _, text := range m.Elements() {
		if one, _ := wire.Parse(text); one.Kind() == wire.Request {
			d.o.OnRejected(session, one, err)
		}
	}
}

func (no *refusal) send(w http.ResponseWriter) {
	for name, value := range no.header {
		w.Header().Set(name, value)
	}
	if no.wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(no.wait))
	}
	switch no.status {
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout, http.StatusServiceUnavailable:
		w.Header().Set("Connection", "close") // the rest of the body is not waited for
	}
	sendJSON(w, no.status, wire.NewErrorResponse(no.id, no.err).Raw())
}

func sendJSON(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(timeFor(int64(len(text)))))
	w.WriteHeader(status)
	if _, err := w.Write(text); err == nil && control.Flush() == nil {
		_ = control.SetWriteDeadline(time.Time{})
	} // else the client is gone, or does not read
}

func wrongVerb(allow string) *refusal {
	return refuse(http.StatusMethodNotAllowed, "Method not allowed: use %s", allow).with("Allow", allow)
}

func noSession() *refusal {
	return refuse(http.StatusNotFound, "Session not found: begin again with initialize").code(codeSessionNotFound)
}

func needsSession() *refusal {
	return refuse(http.StatusBadRequest, "Server not initialized: the header Mcp-Session-Id is required").code(wire.CodeNotInitialized)
}

// checkVersion refuses a revision that is not spoken in sessions. A request that names
// none is of the session's. One that is newer reads the code, and falls back.
func checkVersion(r *http.Request) *refusal {
	asked := version(r)
	if t, known := protocol.FindRevision(asked); known && !t.Modern || asked == "" {
		return nil
	}
	return &refusal{status: http.StatusBadRequest, err: protocol.UnsupportedVersionError(asked)}
}
