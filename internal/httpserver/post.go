package httpserver

import (
	"errors"
	"net/http"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// servePost serves a POST to /mcp. The generation is determined for each message.
func (srv *Server) servePost(w http.ResponseWriter, r *http.Request, principal principalID) {
	accepted, herr := checkMediaTypes(r)
	if herr != nil {
		srv.reject(w, r, herr)
		return
	}
	key := r.Header.Get(protocol.HeaderSessionID)
	s := srv.findSession(key, principal, false)
	modern := headersAreModern(r, s != nil)
	p, herr := srv.readPost(w, r, s != nil || modern, srv.quotaKeyFor(principal, s))
	defer p.lease.release()
	p.accept = accepted
	switch {
	case herr != nil:
	case modern || protocol.IsModern(p.m):
		srv.postStateless(w, r, p, principal)
		return
	case p.isInitialize && key == "":
		srv.serveInitialize(w, r, p, principal)
		return
	case p.m.Method() == protocol.MethodServerDiscover && key == "":
		// After this error, a modern client whose header was lost falls back to initialize.
		herr = newHTTPError(http.StatusNotFound, "Method not found: server/discover").
			withCode(wire.CodeMethodNotFound)
	case key == "":
		herr = sessionRequired()
	case s == nil:
		herr = sessionNotFound()
	default:
		if herr = checkRevision(r); herr == nil {
			if !s.handlePost(w, r, p, sseDelay) {
				abort()
			}
			return
		}
	}
	logID := ""
	if s != nil {
		logID = s.logID
	}
	srv.rejectPosted(w, r, p, logID, herr)
}

// serveInitialize serves an initialize request that opens a session. The session is closed if the
// response is an error or cannot be sent.
func (srv *Server) serveInitialize(
	w http.ResponseWriter, r *http.Request, p *postedMessage, principal principalID,
) {
	s := srv.newSession(principal)
	if herr := srv.openSession(s); herr != nil {
		srv.rejectPosted(w, r, p, "", herr)
		return
	}
	w.Header().Set(protocol.HeaderSessionID, s.key)
	sent := s.handlePost(w, r, p, keepAliveInterval)
	if !sent || !s.hasRevision() {
		s.closeWith(errInitializeNotSent)
	}
	if !sent {
		abort()
	}
}

var errInitializeNotSent = errors.New("the client did not receive the initialize response")

// abort closes the connection of an exchange whose response cannot be sent completely. After a
// normal return, net/http would send an empty response with status 200, or end a stream as if it
// was complete. A client that has only closed its sending side would take that for the response.
func abort() { panic(http.ErrAbortHandler) }

func (s *httpSession) hasRevision() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision != ""
}

// sseDelay is the time after which an event stream is opened for a pending response.
const sseDelay = 200 * time.Millisecond

// handlePost delivers a posted message and writes the response. timeout is the time after which an
// event stream is opened. handlePost returns false if the client did not get the complete response;
// then the caller must call abort.
func (s *httpSession) handlePost(
	w http.ResponseWriter, r *http.Request, p *postedMessage, timeout time.Duration,
) bool {
	st, sw, herr := s.registerPost(w, p)
	if herr != nil {
		if p.isInitialize {
			w.Header().Del(protocol.HeaderSessionID)
		}
		s.server.rejectPosted(w, r, p, s.logID, herr)
		return true
	}
	if err := s.deliver(r.Context(), p, st); err != nil {
		s.cancelRequests(p.requestIDs)
		s.endExchange(st, sw)
		return s.finishUndelivered(w, r, p, err)
	}
	if st == nil {
		s.endExchange(nil, nil)
		w.WriteHeader(http.StatusAccepted)
		return true
	}
	return s.writeResponse(w, r, p, st, sw, timeout)
}

// registerPost begins the HTTP exchange of a posted message and registers its requests. It returns
// the stream for the responses and the writer of the stream; nil = none needed. It returns an error
// if the session is closed, the Server shuts down, the message is not allowed in the session, or a
// limit is reached. Otherwise the caller must end the exchange with endExchange.
func (s *httpSession) registerPost(
	w http.ResponseWriter, p *postedMessage,
) (*sseStream, *streamWriter, *httpError) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	if s.server.ctx.Err() != nil && len(p.requestIDs) > 0 {
		return nil, nil, s.server.shuttingDown()
	}
	if p.m.Kind() == wire.Batch && !s.featuresLocked().Batches {
		return nil, nil, newHTTPError(http.StatusBadRequest, "Batch requests not supported")
	}
	for _, id := range p.requestIDs {
		if s.openRequests[id] != nil {
			return nil, nil, newHTTPError(http.StatusBadRequest,
				"Invalid request: a request with this id is in flight")
		}
	}
	if len(p.requestIDs) > 0 && len(s.openRequests)+len(p.requestIDs) > maxOpenRequests {
		return nil, nil, newHTTPError(http.StatusTooManyRequests,
			"Too many requests of this session are open").retryAfter(1)
	}
	if herr := s.beginExchangeLocked(); herr != nil {
		return nil, nil, herr
	}
	if p.isInitialize && s.revision == "" {
		s.initializeID = p.m.ID()
	}
	if s.httpSSE {
		for _, id := range p.requestIDs {
			s.retainLeaseLocked(id, p.lease)
		}
	}
	if len(p.requestIDs) == 0 || s.httpSSE {
		return nil, nil, nil
	}
	st, sw := newSSEStream(), newStreamWriter(w)
	st.unanswered = p.requestIDs
	st.jsonOnly, st.isBatch = p.accept == acceptJSON, p.m.Kind() == wire.Batch
	st.writer = sw
	st.lease = p.lease
	st.lease.retain()
	if s.openRequests == nil {
		s.openRequests = make(map[wire.ID]*sseStream)
	}
	for _, id := range p.requestIDs {
		s.openRequests[id] = st
	}
	return st, sw, nil
}

// endExchange ends an HTTP exchange and detaches it from st; nil = no stream.
func (s *httpSession) endExchange(st *sseStream, sw *streamWriter) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	s.activeExchanges--
	s.lastActive = time.Now()
	if st != nil {
		s.detachLocked(st, sw)
	}
}

// finishUndelivered responds to a message that could not be delivered because the session was
// closed. If the client has disconnected, finishUndelivered only reports the rejection, and returns
// false.
func (s *httpSession) finishUndelivered(
	w http.ResponseWriter, r *http.Request, p *postedMessage, err error,
) bool {
	if err != transport.ErrClosed {
		s.server.reportRejected(p.m, s.logID, errClientGone)
		return false
	}
	herr := sessionNotFound()
	if s.server.ctx.Err() != nil {
		herr = s.server.shuttingDown()
	}
	w.Header().Del(protocol.HeaderSessionID)
	s.server.rejectPosted(w, r, p, s.logID, herr)
	return true
}

// errClientGone is recorded for a request whose client disconnected before delivery.
var errClientGone = wire.Errorf(wire.CodeInternalError,
	"The client has closed the connection; the request did not run")

// writeResponse waits for the response and writes it. It writes the HTTP header only when the
// format is known: a single response is sent as JSON unless the client prefers events. timeout and
// the result are those of handlePost.
func (s *httpSession) writeResponse(
	w http.ResponseWriter, r *http.Request, p *postedMessage,
	st *sseStream, sw *streamWriter, timeout time.Duration,
) bool {
	for wait := true; wait; wait = st.jsonOnly && !s.isDone(st) {
		if !sw.waitForWake(r.Context(), timeout) && !s.isDone(st) {
			s.endExchange(st, sw)
			return false
		}
		timeout = keepAliveInterval
	}
	text, prime, form := s.chooseFormat(st, p.accept == acceptSSE)
	if p.isInitialize && s.isDone(st) && !s.hasRevision() { // the response is an error
		w.Header().Del(protocol.HeaderSessionID)
	}
	switch form {
	case formAccepted:
		w.WriteHeader(http.StatusAccepted)
		s.endExchange(st, sw)
	case formJSON:
		writeJSON(w, http.StatusOK, text)
		s.endExchange(st, sw)
	case formSSE:
		beginSSE(w)
		return s.streamEvents(r.Context(), st, sw, prime)
	}
	return true
}

// isDone reports whether st is complete.
func (s *httpSession) isDone(st *sseStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.done
}

type responseFormat int

const (
	formAccepted responseFormat = iota // cancelled request of a client that does not accept events
	formJSON
	formSSE
)

// chooseFormat chooses the format of the response to a POST, and assigns a number to an event
// stream. events is true if the client prefers events. prime is the id of the priming event; "" =
// no priming event. text is the response for formJSON.
func (s *httpSession) chooseFormat(
	st *sseStream, events bool,
) (text []byte, prime string, format responseFormat) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	switch {
	case len(st.events) == 1 && st.done && st.hasResponse && !events:
		return st.events[0], "", formJSON
	case st.jsonOnly:
		return nil, "", formAccepted
	}
	if s.closed { // the stream gets no number and cannot be resumed
		return nil, "", formSSE
	}
	s.assignNumberLocked(st)
	if s.featuresLocked().PrimingEvents && (!st.done || len(st.events) > 0) {
		st.resumable = true
		prime = eventID(st.number, 0)
	}
	return nil, prime, formSSE
}
