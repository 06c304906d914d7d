package gateway

import (
	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// flights are a session's calls that were sent and have not ended, the oldest
// first. There are no more of them than requests may be in flight.
type flights struct{ oldest, newest *call }

// depart enters a call.
func (s *Session) depart(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.older = s.flights.newest
	if c.older == nil {
		s.flights.oldest = c
	} else {
		c.older.newer = c
	}
	s.flights.newest = c
}

// arrive takes a call out, if it was ever entered, and ends the questions that belong to it.
func (s *Session) arrive(c *call) {
	s.mu.Lock()
	s.arriveLocked(c)
	var ending []*question
	if len(s.asking.open) > 0 {
		ending = s.orphanLocked(c)
	}
	s.mu.Unlock()
	for _, q := range ending {
		q.takeBack(errCallOver)
	}
}

func (s *Session) isInFlightLocked(c *call) bool { return c.older != nil || s.flights.oldest == c }

func (s *Session) arriveLocked(c *call) {
	if len(s.early) > 0 {
		s.takeEarlyLocked(c)
	}
	switch {
	case c.older != nil:
		c.older.newer = c.newer
	case s.flights.oldest == c:
		s.flights.oldest = c.newer
	default:
		return
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		s.flights.newest = c.older
	}
	c.older, c.newer = nil, nil
}

// cause returns the call to which something belongs that a backend says to the
// session: the one on whose stream it came, else the one that waits for the task
// it is about, else the newest that the backend is at, else nil, as it is on the stream of a
// call that is over. Which call it is
// decides on what stream the client hears of it; that it is this client's is
// certain already. The newest, for on older ones the client may have hung up: some
// do when they give a call up, and say nothing.
func (s *Session) cause(backend string, m wire.Message, on peer.Origin) *call {
	if on.Call != nil {
		if c, ok := on.Call.Tag.(*call); ok && c.s == s {
			return c
		}
	}
	task := relatedTask(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *call
	for c := s.flights.newest; c != nil && (newest == nil || task != ""); c = c.older {
		switch {
		case c.Route.Backend != backend:
		case task != "" && c.is(mcp.MethodTasksResult) && c.Route.Original == task:
			return c
		case newest == nil:
			newest = c
		}
	}
	if on.CallEnded {
		return nil // it is that call's, and none of these
	}
	return newest
}

// newestLocked returns the newest call that a backend is at, nil if there is none.
func (s *Session) newestLocked(backend string) *call {
	c := s.flights.newest
	for c != nil && c.Route.Backend != backend {
		c = c.older
	}
	return c
}

// on returns the client's id of the call that is the cause of something, "" if
// there is none.
func (c *call) on() wire.ID {
	if c == nil {
		return ""
	}
	return c.ID
}
