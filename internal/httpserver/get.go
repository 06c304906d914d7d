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

// attachStream attaches sw to the stream that contains the event lastSeen, so that sending
// continues after that event; or to the standalone stream if lastSeen is "". prime is the id of the
// priming event to send; "" = none.
func (s *httpSession) attachStream(
	sw *streamWriter, lastSeen string,
) (st *sseStream, prime string, herr *httpError) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	if herr := s.beginExchangeLocked(); herr != nil {
		return nil, "", herr
	}
	if lastSeen == "" {
		st, prime = s.attachStandaloneLocked(sw)
	} else {
		st, herr = s.resumeLocked(sw, lastSeen)
	}
	if herr != nil {
		s.activeExchanges--
	}
	return st, prime, herr
}

// resumeLocked attaches sw to the rest of a stream, even if the broken connection still seems to be
// open. It returns an error if lastSeen is not an event of the session, or if the events after it
// are not retained.
func (s *httpSession) resumeLocked(sw *streamWriter, lastSeen string) (*sseStream, *httpError) {
	number, event, ok := parseEventID(lastSeen)
	if !ok || number > s.lastNumber {
		return nil, newHTTPError(http.StatusBadRequest,
			"Invalid Last-Event-ID: no event of this session has it")
	}
	st := s.streamByNumberLocked(number)
	switch {
	case st == nil || event < st.firstEventNo-1:
		return nil, newHTTPError(http.StatusGone,
			"The events after this Last-Event-ID are no longer available")
	case event >= st.firstEventNo+len(st.events):
		return nil, newHTTPError(http.StatusBadRequest,
			"Invalid Last-Event-ID: no event of this session has it")
	}
	s.attachLocked(st, sw)
	s.seekLocked(st, event-(st.firstEventNo-1))
	return st, nil
}

// attachStandaloneLocked attaches sw to the standalone stream. If another exchange sends the
// stream, that exchange ends, because its connection may be broken without any sign.
func (s *httpSession) attachStandaloneLocked(sw *streamWriter) (st *sseStream, prime string) {
	st = s.standalone
	if st.writer != nil {
		s.server.log.Debug("standalone stream replaced by a newer one", "session", s.logID)
	}
	s.attachLocked(st, sw)
	if s.featuresLocked().PrimingEvents {
		prime = eventID(0, st.firstEventNo+st.sent-1)
	}
	return st, prime
}

// streamByNumberLocked returns the stream with this number; nil = not retained.
func (s *httpSession) streamByNumberLocked(number int) *sseStream {
	if number == 0 {
		return s.standalone
	}
	for _, st := range s.numberedStreams {
		if st.number == number {
			return st
		}
	}
	return nil
}
