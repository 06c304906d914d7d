package httpserver

import (
	"net/http"
)

// session returns the session that a request without a body names.
func (d *Server) session(r *http.Request, who principal) (*session, *refusal) {
	key := r.Header.Get(sessionHeader)
	if key == "" {
		return nil, needsSession()
	}
	s := d.find(key, who, false)
	if s == nil {
		return nil, noSession()
	}
	return s, checkVersion(r)
}

// listen answers a GET to /mcp: with the stream of what belongs to no request,
// or with the rest of any stream that has broken.
func (d *Server) listen(w http.ResponseWriter, r *http.Request, who principal) {
	if !acceptsType(r, "text", "event-stream") {
		d.refuse(w, r, refuse(http.StatusNotAcceptable, "Not acceptable: the client must accept text/event-stream"))
		return
	}
	s, no := d.session(r, who)
	if no != nil {
		d.refuse(w, r, no)
		return
	}
	x := newReader(w)
	st, prime, no := s.attach(x, r.Header.Get("Last-Event-ID"))
	if no != nil {
		d.refuse(w, r, no)
		return
	}
	beginEvents(w)
	s.pump(r.Context(), st, x, prime)
}

// attach gives x the stream that the client asks for: the one whose event it has
// seen last, from the next one on, or the session's own.
func (s *session) attach(x *reader, lastSeen string) (st *stream, prime string, no *refusal) {
	s.mu.Lock()
	defer s.unlock()
	if no := s.arriveLocked(); no != nil {
		return nil, "", no
	}
	if lastSeen == "" {
		st, prime = s.attachAloneLocked(x)
	} else {
		st, no = s.resumeLocked(x, lastSeen)
	}
	if no != nil {
		s.busy--
	}
	return st, prime, no
}

// resumeLocked gives x the rest of a stream, even if it seems that the
// connection on which it broke is still open.
func (s *session) resumeLocked(x *reader, lastSeen string) (*stream, *refusal) {
	number, event, ok := parseEventID(lastSeen)
	if !ok || number > s.last {
		return nil, refuse(http.StatusBadRequest, "Invalid Last-Event-ID: no event of this session has it")
	}
	st := s.streamLocked(number)
	switch {
	case st == nil || event < st.first-1:
		return nil, refuse(http.StatusGone, "The events after this Last-Event-ID are not kept any more")
	case event >= st.first+len(st.events):
		return nil, refuse(http.StatusBadRequest, "Invalid Last-Event-ID: no event of this session has it")
	}
	s.attachLocked(st, x)
	s.seekLocked(st, event-(st.first-1))
	return st, nil
}

// attachAloneLocked gives x the session's own stream. There is one at a time: an exchange that sends
// it already ends, for its connection may be broken without anybody knowing.
func (s *session) attachAloneLocked(x *reader) (st *stream, prime string) {
	st = s.alone
	if st.reader != nil {
		s.door.log.Debug("a newer stream of the session takes over", "session", s.name)
	}
	s.attachLocked(st, x)
	if s.traitsLocked().PrimingEvents {
		prime = eventID(0, st.first+st.sent-1)
	}
	return st, prime
}

// streamLocked returns the stream of that number, nil if it is not kept.
func (s *session) streamLocked(number int) *stream {
	if number == 0 {
		return s.alone
	}
	for _, st := range s.resume {
		if st.number == number {
			return st
		}
	}
	return nil
}

// delete answers a DELETE to /mcp: the client ends its session.
func (d *Server) delete(w http.ResponseWriter, r *http.Request, who principal) {
	s, no := d.session(r, who)
	if no != nil {
		d.refuse(w, r, no)
		return
	}
	s.end(nil)
	w.WriteHeader(http.StatusNoContent)
}
