package httpserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Write implements transport.Writer. It chooses the stream of m:
//
//   - a response: the stream of its POST;
//   - a message related to an unanswered request: the stream of that request, unless the stream is
//     abandoned or sent as JSON. A server request goes to the standalone stream if only the
//     standalone stream has a reader;
//   - any other message: the standalone stream, which keeps the message until the client opens the
//     stream.
//
// With HTTP+SSE the session has only the standalone stream.
//
// A response is dropped if it has no stream, because the client has cancelled the request or can no
// longer be reached. Write never waits for the client. Options.MessageLimit limits the unsent
// messages of a connected client. Options.RetainLimit limits the unsent messages of a disconnected
// client.
func (s *httpSession) Write(m wire.Message, relatedTo wire.ID) error {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	if s.end != nil {
		return transport.ErrClosed
	}
	st := s.streams.route(m, relatedTo)
	switch {
	case st == nil:
		return nil
	case st.writer != nil && s.streams.unsent >= s.server.opts.MessageLimit:
		return transport.ErrFull
	}
	if s.handshake.noteResponse(m) {
		s.logger().Debug("session opened", "revision", s.handshake.revision)
	}
	s.leases.noteResponse(m)
	s.streams.write(st, m)
	return nil
}

// Backlogged reports whether the unsent messages reach an eighth of MessageLimit.
func (s *httpSession) Backlogged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end == nil && s.streams.unsent >= s.server.opts.MessageLimit/8
}

func (s *httpSession) hasRevision() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handshake.revision != ""
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
		return nil, nil, shuttingDown()
	}
	if p.m.Kind() == wire.Batch && !s.handshake.features().Batches {
		return nil, nil, newHTTPError(http.StatusBadRequest, "Batch requests not supported")
	}
	open := s.streams.openRequests
	for _, id := range p.requestIDs {
		if open[id] != nil {
			return nil, nil, newHTTPError(http.StatusBadRequest,
				"Invalid request: a request with this id is in flight")
		}
	}
	if len(p.requestIDs) > 0 && len(open)+len(p.requestIDs) > maxOpenRequests {
		return nil, nil, newHTTPError(http.StatusTooManyRequests,
			"Too many requests of this session are open").retryAfter(1)
	}
	if herr := s.beginExchangeLocked(); herr != nil {
		return nil, nil, herr
	}
	if p.isInitialize {
		s.handshake.begin(p.m.ID())
	}
	if s.isHTTPSSE() {
		for _, id := range p.requestIDs {
			s.leases.retain(id, p.lease)
		}
		return nil, nil, nil
	}
	if len(p.requestIDs) == 0 {
		return nil, nil, nil
	}
	sw := newStreamWriter(w)
	return s.streams.open(p, sw), sw, nil
}

// cancelRequests ends the streams of requests that will not get a response, because the client has
// cancelled the requests or they were not delivered. It ignores the initialize request.
func (s *httpSession) cancelRequests(ids []wire.ID) {
	if len(ids) == 0 {
		return
	}
	s.mu.Lock()
	defer s.enforceAndUnlock()
	for _, id := range ids {
		if id != s.handshake.requestID {
			s.leases.release(id)
			s.streams.cancel(id)
		}
	}
}

// attachStream attaches sw to the stream that contains the event lastSeen, so that sending
// continues after that event; or to the standalone stream if lastSeen is "". Another exchange that
// sends the stream ends, because its connection may be broken without any sign. prime is the id of
// the priming event to send; "" = none.
func (s *httpSession) attachStream(
	sw *streamWriter, lastSeen string,
) (st *sseStream, prime string, herr *httpError) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	if herr := s.beginExchangeLocked(); herr != nil {
		return nil, "", herr
	}
	if lastSeen != "" {
		if st, herr = s.streams.resume(sw, lastSeen); herr != nil {
			s.activity.exchanges--
		}
		return st, "", herr
	}
	st = s.streams.standalone
	if st.writer != nil {
		s.logger().Debug("standalone stream replaced by a newer one")
	}
	s.streams.attach(st, sw)
	if s.handshake.features().PrimingEvents {
		prime = eventID(0, st.dropped+st.sent)
	}
	return st, prime, nil
}

// beginExchangeLocked begins an HTTP exchange, unless the session is closed or has too many.
func (s *httpSession) beginExchangeLocked() *httpError {
	if s.end != nil {
		return sessionNotFound()
	}
	return s.activity.begin()
}

// endExchange ends an HTTP exchange and detaches it from st; nil = no stream.
func (s *httpSession) endExchange(st *sseStream, sw *streamWriter) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	s.activity.end()
	if st != nil {
		sw.removeFinalDeadline()
		s.streams.detach(st, sw)
	}
}

// streamEvents sends the events of st until st is complete, another exchange takes over, or the
// client disconnects. Then it ends the exchange. prime is the id of the priming event; "" = no
// priming event. streamEvents returns false if the client disconnected or was disconnected
// before the end.
func (s *httpSession) streamEvents(
	ctx context.Context, st *sseStream, sw *streamWriter, prime string,
) bool {
	defer s.endExchange(st, sw)
	var head []byte
	if prime != "" {
		head = primingEvent(prime)
	}
	complete := sw.sendEvents(ctx, head, s.streams.idPrefix(st),
		func(previous []wire.Text) (batch []wire.Text, first int, more bool) {
			s.mu.Lock()
			defer s.enforceAndUnlock()
			batch, first, more = s.streams.next(st, sw, previous)
			if sw.endsWithToken && !s.activity.isAuthorized() {
				return nil, 0, false // the client resumes the stream with a new token
			}
			return batch, first, more
		})
	s.mu.Lock()
	defer s.mu.Unlock()
	return complete && !st.cutOff
}

// renew records the expiry of the access token of a request in the session.
func (s *httpSession) renew(from sender) {
	if from.expires.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.expires.After(s.activity.authorizedUntil) {
		s.activity.authorizedUntil = from.expires
	}
}

// endWithToken makes the exchange sw end when no access token of the client is valid any more. If
// the client renews its token meanwhile, the exchange ends up to keepAliveInterval later. The
// caller must call stop at the end of the exchange.
func (s *httpSession) endWithToken(sw *streamWriter, from sender) (stop func() bool) {
	if from.expires.IsZero() {
		return func() bool { return false }
	}
	sw.endsWithToken = true
	return time.AfterFunc(time.Until(from.expires), sw.wake).Stop
}

// errTokenExpired is the reason for the end of an HTTP+SSE session whose stream has ended.
var errTokenExpired = errors.New("the access token of the client has expired")

// endReason returns the reason for the end of an HTTP+SSE session whose stream has ended.
func (s *httpSession) endReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.activity.isAuthorized() {
		return nil
	}
	return errTokenExpired
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
) (text wire.Text, prime string, format responseFormat) {
	s.mu.Lock()
	defer s.enforceAndUnlock()
	switch {
	case len(st.events) == 1 && st.done && st.hasResponse && !events:
		return st.events[0], "", formJSON
	case st.jsonOnly:
		return wire.Text{}, "", formAccepted
	}
	if s.end != nil { // the stream gets no number and cannot be resumed
		return wire.Text{}, "", formSSE
	}
	s.streams.assignNumber(st)
	if s.handshake.features().PrimingEvents && (!st.done || len(st.events) > 0) {
		st.resumption = resumable
		prime = eventID(st.number, 0)
	}
	return wire.Text{}, prime, formSSE
}
