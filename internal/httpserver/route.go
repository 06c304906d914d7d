package httpserver

import (
	"slices"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Write implements transport.Writer. A response goes to the POST that has its
// request, and so does what is about a request that is not answered; everything
// else goes to the session's own stream, where it waits until the client opens
// that. It never waits for the client: what a client that is connected leaves
// unread is bounded by Options.Limit, and what nobody is there to read by
// Options.Events.
//
// A response that nobody waits for, since the client has taken the request back
// or cannot be reached any more, is dropped.
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

// Backlogged reports whether an eighth of what may wait for the client does.
func (s *httpSession) Backlogged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.unsent >= s.server.opts.MessageLimit/8
}

// routeLocked returns the one stream for a message, nil if there is none.
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
			if answer, err := wire.Parse(text); err == nil && s.openRequests[answer.ID()] != nil {
				return s.openRequests[answer.ID()]
			}
		}
		return nil
	}
	st := s.openRequests[relatedTo]
	if st == nil || st.abandoned || st.jsonOnly || m.Kind() == wire.Request && st.writer == nil && s.standalone.writer != nil {
		return s.standalone // a question has to be heard: on the stream that somebody reads
	}
	return st
}

// noteResponseLocked notes what a message answers.
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
		if s.httpSSE { // where no stream owes anything
			for _, text := range m.Elements() {
				if answer, err := wire.Parse(text); err == nil {
					s.releaseLeaseLocked(answer.ID())
				}
			}
		}
		for _, id := range slices.Clone(st.unanswered) {
			s.markAnsweredLocked(st, id)
		}
	}
}

// markAnsweredLocked strikes a request from what a stream owes. When nothing is left
// the stream ends.
func (s *httpSession) markAnsweredLocked(st *sseStream, id wire.ID) {
	i := slices.Index(st.unanswered, id)
	if i < 0 {
		return
	}
	st.unanswered = slices.Delete(st.unanswered, i, i+1)
	if delete(s.openRequests, id); len(s.openRequests) == 0 {
		s.openRequests = nil // there are many sessions, in which nothing happens for hours
	}
	if st.done = len(st.unanswered) == 0; st.done {
		st.releaseLease()
	}
}

// cancelRequests ends the streams of requests that will not be answered, for the
// client has cancelled them or they were never read.
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

// moveServerRequestsLocked moves the questions that wait on a stream which nobody reads, and
// nobody will come back for, to the session's own: it may be another call of the
// client's that they are about, for not every backend says.
func (s *httpSession) moveServerRequestsLocked(st *sseStream) {
	for _, text := range st.events[st.sent:] {
		if m, err := wire.Parse(text); err == nil && m.Kind() == wire.Request {
			s.appendLocked(s.standalone, text)
		}
	}
	s.abandonLocked(st)
}

// setRevisionLocked reads the revision from the answer to initialize.
func (s *httpSession) setRevisionLocked(m wire.Message) {
	s.initializeID = ""
	wire.Members(m.Part(wire.PartResult), func(key string, value []byte, _ int) {
		if t, ok := protocol.FindRevision(wire.Unquote(value)); ok && key == "protocolVersion" {
			s.revision = t.Date
		}
	})
	if s.revision != "" {
		s.server.log.Debug("session begins", "session", s.logID, "revision", s.revision)
	}
}

// featuresLocked returns those of the revision that was agreed on.
func (s *httpSession) featuresLocked() protocol.Features {
	t, _ := protocol.FindRevision(s.revision)
	return t
}
