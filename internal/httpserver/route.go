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
func (s *session) Write(m wire.Message, about wire.ID) error {
	s.mu.Lock()
	defer s.unlock()
	if s.over {
		return transport.ErrClosed
	}
	st := s.routeLocked(m, about)
	switch {
	case st == nil:
		return nil
	case st.reader != nil && s.live >= s.door.o.MessageLimit:
		return transport.ErrFull
	}
	s.answeredLocked(st, m)
	s.addLocked(st, m.Raw())
	return nil
}

// Backlogged reports whether an eighth of what may wait for the client does.
func (s *session) Backlogged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over && s.live >= s.door.o.MessageLimit/8
}

// routeLocked returns the one stream for a message, nil if there is none.
func (s *session) routeLocked(m wire.Message, about wire.ID) *stream {
	if s.legacy {
		return s.alone
	}
	switch m.Kind() {
	case wire.Response:
		return s.open[m.ID()]
	case wire.Batch:
		if st := s.open[about]; st != nil {
			return st
		}
		for _, text := range m.Elements() {
			if answer, err := wire.Parse(text); err == nil && s.open[answer.ID()] != nil {
				return s.open[answer.ID()]
			}
		}
		return nil
	}
	st := s.open[about]
	if st == nil || st.lost || st.jsonOnly || m.Kind() == wire.Request && st.reader == nil && s.alone.reader != nil {
		return s.alone // a question has to be heard: on the stream that somebody reads
	}
	return st
}

// answeredLocked notes what a message answers.
func (s *session) answeredLocked(st *stream, m wire.Message) {
	switch m.Kind() {
	case wire.Response:
		st.answered = true
		if m.ID() == s.hello {
			s.agreeLocked(m)
		}
		s.letGoLocked(m.ID())
		s.settleLocked(st, m.ID())
	case wire.Batch:
		st.answered = true
		if s.legacy { // where no stream owes anything
			for _, text := range m.Elements() {
				if answer, err := wire.Parse(text); err == nil {
					s.letGoLocked(answer.ID())
				}
			}
		}
		for _, id := range slices.Clone(st.owed) {
			s.settleLocked(st, id)
		}
	}
}

// settleLocked strikes a request from what a stream owes. When nothing is left
// the stream ends.
func (s *session) settleLocked(st *stream, id wire.ID) {
	i := slices.Index(st.owed, id)
	if i < 0 {
		return
	}
	st.owed = slices.Delete(st.owed, i, i+1)
	if delete(s.open, id); len(s.open) == 0 {
		s.open = nil // there are many sessions, in which nothing happens for hours
	}
	if st.done = len(st.owed) == 0; st.done {
		st.letGo()
	}
}

// takenBack ends the streams of requests that will not be answered, for the
// client has cancelled them or they were never read.
func (s *session) takenBack(ids []wire.ID) {
	if len(ids) == 0 {
		return
	}
	s.mu.Lock()
	defer s.unlock()
	for _, id := range ids {
		if id == s.hello {
			continue
		}
		s.letGoLocked(id)
		st := s.open[id]
		if st == nil {
			continue
		}
		s.settleLocked(st, id)
		switch {
		case st.done && st.reader != nil:
			st.reader.call()
		case st.done:
			s.rescueLocked(st)
		}
	}
}

// rescueLocked moves the questions that wait on a stream which nobody reads, and
// nobody will come back for, to the session's own: it may be another call of the
// client's that they are about, for not every backend says.
func (s *session) rescueLocked(st *stream) {
	for _, text := range st.events[st.sent:] {
		if m, err := wire.Parse(text); err == nil && m.Kind() == wire.Request {
			s.addLocked(s.alone, text)
		}
	}
	s.loseLocked(st)
}

// agreeLocked reads the revision from the answer to initialize.
func (s *session) agreeLocked(m wire.Message) {
	s.hello = ""
	wire.Members(m.Part(wire.PartResult), func(key string, value []byte, _ int) {
		if t, ok := protocol.FindRevision(wire.Unquote(value)); ok && key == "protocolVersion" {
			s.revision = t.Date
		}
	})
	if s.revision != "" {
		s.door.log.Debug("session begins", "session", s.name, "revision", s.revision)
	}
}

// traitsLocked returns those of the revision that was agreed on.
func (s *session) traitsLocked() protocol.Features {
	t, _ := protocol.FindRevision(s.revision)
	return t
}
