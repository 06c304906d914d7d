package httpserver

import (
	"errors"
	"net/http"
	"strings"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// legacyStream answers a GET to /sse, the HTTP+SSE transport of 2024-11-05: the
// stream is the session. Its first event says where the client has to post.
func (d *Server) legacyStream(w http.ResponseWriter, r *http.Request, who principal) {
	switch {
	case r.Method != http.MethodGet:
		d.refuse(w, r, wrongVerb("GET, OPTIONS")) // a client that tries streamable HTTP first falls back
		return
	case !acceptsType(r, "text", "event-stream"):
		d.refuse(w, r, refuse(http.StatusNotAcceptable, "Not acceptable: the client must accept text/event-stream"))
		return
	}
	s, x := d.newSession(who), newReader(w)
	s.legacy, s.alone.reader, s.busy = true, x, 1
	if no := d.open(s); no != nil {
		d.refuse(w, r, no)
		return
	}
	defer s.end(nil)
	beginEvents(w)
	if x.send([]byte("event: endpoint\ndata: "+relative(r.URL.Path)+"message?session="+s.key+"\n\n")) != nil {
		s.leave(s.alone, x)
		return
	}
	s.pump(r.Context(), s.alone, x, "")
}

// relative returns the start of a reference from path, with or without slashes at its end, to a
// sibling of it. A client that resolves the reference against its own URL stays below the prefix
// under which a proxy serves the gateway.
func relative(path string) string {
	return strings.Repeat("../", len(path)-len(strings.TrimRight(path, "/")))
}

// legacyPost answers a POST to /message: what is answered to it comes on the
// session's stream.
func (d *Server) legacyPost(w http.ResponseWriter, r *http.Request, who principal) {
	if r.Method != http.MethodPost {
		d.refuse(w, r, wrongVerb("POST, OPTIONS"))
		return
	}
	if no := checkContent(r); no != nil {
		d.refuse(w, r, no)
		return
	}
	s := d.find(r.URL.Query().Get("session"), who, true)
	p, no := d.read(w, r, s != nil, d.holderOf(who, s))
	defer p.body.release()
	switch {
	case s == nil:
		if no == nil {
			no = noSession()
		}
		d.refusePosted(w, r, p, "", no)
		return
	case no != nil:
		d.refusePosted(w, r, p, s.name, no)
		return
	case p.m.Kind() == wire.Request && protocol.IsModern(p.m):
		s.turnDown(w, r, p)
		return
	}
	if _, _, no := s.enter(w, p); no != nil {
		d.refusePosted(w, r, p, s.name, no)
		return
	}
	err := s.deliver(r.Context(), p, nil)
	if err != nil {
		s.takenBack(p.ids)
	}
	s.leave(nil, nil)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusAccepted)
	case !s.undelivered(w, r, p, err):
		abort()
	}
}

// turnDown answers a request of the stateless era, to which this transport does not
// belong: the client is to begin with initialize, as it had to when there was no other.
func (s *session) turnDown(w http.ResponseWriter, r *http.Request, p *posted) {
	no := protocol.UnsupportedLegacyVersionError(protocol.RevisionOf(p.m))
	if s.Write(wire.NewErrorResponse(p.m.ID(), no), "") != nil {
		s.end(errors.New("it does not read"))
		s.door.refusePosted(w, r, p, s.name, noSession())
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
