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
func (x *httpExchange) servePost() {
	accepted, herr := checkMediaTypes(x.r)
	if herr != nil {
		x.reject(herr)
		return
	}
	key, s := x.r.Header.Get(protocol.HeaderSessionID), x.findSession()
	modern := headersAreModern(x.r, s != nil)
	p, herr := x.readPost(s, s != nil || modern)
	defer p.lease.release()
	p.accept = accepted
	switch {
	case herr != nil:
	case modern || protocol.IsModern(p.m):
		x.srv.stateless.servePost(x, p)
		return
	case p.isInitialize && key == "":
		x.serveInitialize(p)
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
		if herr = checkRevision(x.r); herr == nil {
			if !x.postToSession(s, p, sseDelay) {
				abort()
			}
			return
		}
	}
	logID := ""
	if s != nil {
		logID = s.logID
	}
	x.rejectPosted(p, logID, herr)
}

// readPost reads the posted message; see [postReader.read]. s is the session of the message; nil =
// none.
func (x *httpExchange) readPost(s *httpSession, anyMessage bool) (*postedMessage, *httpError) {
	key := x.srv.access.policy.Load().quotaKeyFor(x.from, s)
	return x.srv.posts.read(x.w, x.r, anyMessage, key)
}

// serveInitialize serves an initialize request that opens a session. The session is closed if the
// response is an error or cannot be sent.
func (x *httpExchange) serveInitialize(p *postedMessage) {
	s := newSession(x, false)
	if herr := x.srv.sessions.open(s); herr != nil {
		x.rejectPosted(p, "", herr)
		return
	}
	x.w.Header().Set(protocol.HeaderSessionID, s.key)
	sent := x.postToSession(s, p, keepAliveInterval)
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

// sseDelay is the time after which an event stream is opened for a pending response.
const sseDelay = 200 * time.Millisecond

// postToSession delivers a posted message and writes the response. timeout is the time after which
// an event stream is opened. postToSession returns false if the client did not get the complete
// response; then the caller must call abort.
func (x *httpExchange) postToSession(
	s *httpSession, p *postedMessage, timeout time.Duration,
) bool {
	st, sw, herr := s.registerPost(x.w, p)
	if herr != nil {
		if p.isInitialize {
			x.w.Header().Del(protocol.HeaderSessionID)
		}
		x.rejectPosted(p, s.logID, herr)
		return true
	}
	if err := s.deliver(x.r.Context(), p, st); err != nil {
		s.cancelRequests(p.requestIDs)
		s.endExchange(st, sw)
		return x.finishUndelivered(s, p, err)
	}
	if st == nil {
		s.endExchange(nil, nil)
		x.w.WriteHeader(http.StatusAccepted)
		return true
	}
	return x.writeResponse(s, p, st, sw, timeout)
}

// finishUndelivered responds to a message that could not be delivered because the session was
// closed. If the client has disconnected, finishUndelivered only reports the rejection, and returns
// false.
func (x *httpExchange) finishUndelivered(s *httpSession, p *postedMessage, err error) bool {
	if err != transport.ErrClosed {
		x.srv.rejections.report(p.m, s.info(), errClientGone)
		return false
	}
	herr := sessionNotFound()
	if x.srv.ctx.Err() != nil {
		herr = shuttingDown()
	}
	x.w.Header().Del(protocol.HeaderSessionID)
	x.rejectPosted(p, s.logID, herr)
	return true
}

// errClientGone is recorded for a request whose client disconnected before delivery.
var errClientGone = wire.Errorf(wire.CodeInternalError,
	"The client has closed the connection; the request did not run")

// writeResponse waits for the response and writes it. It writes the HTTP header only when the
// format is known: a single response is sent as JSON unless the client prefers events. timeout and
// the result are those of postToSession.
func (x *httpExchange) writeResponse(
	s *httpSession, p *postedMessage, st *sseStream, sw *streamWriter, timeout time.Duration,
) bool {
	for wait := true; wait; wait = st.jsonOnly && !s.isDone(st) {
		if !sw.waitForWake(x.r.Context(), timeout) && !s.isDone(st) {
			s.endExchange(st, sw)
			return false
		}
		timeout = keepAliveInterval
	}
	text, prime, form := s.chooseFormat(st, p.accept == acceptSSE)
	if p.isInitialize && s.isDone(st) && !s.hasRevision() { // the response is an error
		x.w.Header().Del(protocol.HeaderSessionID)
	}
	switch form {
	case formAccepted:
		x.w.WriteHeader(http.StatusAccepted)
		s.endExchange(st, sw)
	case formJSON:
		writeJSON(x.w, http.StatusOK, text)
		s.endExchange(st, sw)
	case formSSE:
		beginSSE(x.w)
		return s.streamEvents(x.r.Context(), st, sw, prime)
	}
	return true
}
