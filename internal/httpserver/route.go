package httpserver

import (
	"slices"

	"mcpgateway/internal/protocol"
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
	if s.closed {
		return transport.ErrClosed
	}
	st := s.routeLocked(m, relatedTo)
	switch {
	case st == nil:
		return nil
	case st.writer != nil && s.unsent >= s.server.opts.MessageLimit:
		return transport.ErrFull
	}
	s.noteResponseLocked(st, m)
	s.appendLocked(st, m.Raw())
	return nil
}

// Backlogged reports whether the unsent messages reach an eighth of MessageLimit.
func (s *httpSession) Backlogged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.unsent >= s.server.opts.MessageLimit/8
}

// routeLocked returns the stream for a message; nil = none.
func (s *httpSession) routeLocked(m wire.Message, relatedTo wire.ID) *sseStream {
	if s.httpSSE {
		return s.standalone
	}
	switch m.Kind() {
	case wire.Response:
		return s.openRequests[m.ID()]
	case wire.Batch:
		if st := s.openRequests[relatedTo]; st != nil {
			return st
		}
		for _, text := range m.Elements() {
			response, err := wire.Parse(text)
			if err == nil && s.openRequests[response.ID()] != nil {
				return s.openRequests[response.ID()]
			}
		}
		return nil
	}
	st := s.openRequests[relatedTo]
	if st == nil || st.abandoned || st.jsonOnly ||
		m.Kind() == wire.Request && st.writer == nil && s.standalone.writer != nil {
		// A server request needs a reader, so it goes to the standalone stream if only the
		// standalone stream has a reader.
		return s.standalone
	}
	return st
}

// noteResponseLocked marks the requests to which m responds as answered.
func (s *httpSession) noteResponseLocked(st *sseStream, m wire.Message) {
	switch m.Kind() {
	case wire.Response:
		st.hasResponse = true
		if m.ID() == s.initializeID {
			s.setRevisionLocked(m)
		}
		s.releaseLeaseLocked(m.ID())
		s.markAnsweredLocked(st, m.ID())
	case wire.Batch:
		st.hasResponse = true
		if s.httpSSE { // st.unanswered is empty
			for _, text := range m.Elements() {
				if response, err := wire.Parse(text); err == nil {
					s.releaseLeaseLocked(response.ID())
				}
			}
		}
		for _, id := range slices.Clone(st.unanswered) {
			s.markAnsweredLocked(st, id)
		}
	}
}

// markAnsweredLocked removes a request from the unanswered requests of st. The stream is done when
// no unanswered request is left.
func (s *httpSession) markAnsweredLocked(st *sseStream, id wire.ID) {
	i := slices.Index(st.unanswered, id)
	if i < 0 {
		return
	}
	st.unanswered = slices.Delete(st.unanswered, i, i+1)
	if delete(s.openRequests, id); len(s.openRequests) == 0 {
		s.openRequests = nil // saves memory: many sessions are idle for hours
	}
	if st.done = len(st.unanswered) == 0; st.done {
		st.releaseLease()
	}
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
		if id == s.initializeID {
			continue
		}
		s.releaseLeaseLocked(id)
		st := s.openRequests[id]
		if st == nil {
			continue
		}
		s.markAnsweredLocked(st, id)
		switch {
		case st.done && st.writer != nil:
			st.writer.wake()
		case st.done:
			s.moveServerRequestsLocked(st)
		}
	}
}

// moveServerRequestsLocked abandons a stream that the client neither reads nor will resume. It
// moves the pending server requests of the stream to the standalone stream, because they may belong
// to another call of the client: not every backend identifies the call.
func (s *httpSession) moveServerRequestsLocked(st *sseStream) {
	for _, text := range st.events[st.sent:] {
		if m, err := wire.Parse(text); err == nil && m.Kind() == wire.Request {
			s.appendLocked(s.standalone, text)
		}
	}
	s.abandonLocked(st)
}

// setRevisionLocked reads the negotiated revision from the response to initialize.
func (s *httpSession) setRevisionLocked(m wire.Message) {
	s.initializeID = ""
	wire.Members(m.Part(wire.PartResult), func(key string, value []byte, _ int) {
		if t, ok := protocol.FindRevision(wire.Unquote(value)); ok && key == "protocolVersion" {
			s.revision = t.Date
		}
	})
	if s.revision != "" {
		s.server.log.Debug("session opened", "session", s.logID, "revision", s.revision)
	}
}

// featuresLocked returns the features of the negotiated revision.
func (s *httpSession) featuresLocked() protocol.Features {
	t, _ := protocol.FindRevision(s.revision)
	return t
}
