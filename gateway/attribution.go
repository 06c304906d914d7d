package gateway

import (
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// originCall returns the call that a backend's message to the session belongs to, by the first
// rule that applies:
//
//   - the call on whose stream it came
//   - the tasks/result request that waits for the task it names
//   - none, if it came on the stream of an ended call
//   - the newest call at the backend
//
// The call only decides the stream on which the client gets the message; the session is already
// certain. The newest is chosen because clients may have abandoned older ones without cancelling.
func (s *Session) originCall(backend string, m wire.Message, origin peer.Origin) *clientCall {
	if origin.Call != nil {
		if c, ok := origin.Call.Tag.(*clientCall); ok && c.s == s {
			return c
		}
	}
	task := relatedTask(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *clientCall
	for c := s.inFlight.newest; c != nil && (newest == nil || task != ""); c = c.older {
		switch {
		case c.Route.Backend != backend:
		case task != "" && c.isMethod(protocol.MethodTasksResult) && c.Route.Original == task:
			return c
		case newest == nil:
			newest = c
		}
	}
	if origin.CallEnded {
		return nil // the message belongs to that call
	}
	return newest
}

// newestCallLocked returns the newest call at a backend, nil if there is none.
func (s *Session) newestCallLocked(backend string) *clientCall {
	c := s.inFlight.newest
	for c != nil && c.Route.Backend != backend {
		c = c.older
	}
	return c
}

// relatedID returns the client's id of the call, "" for a nil call.
func (c *clientCall) relatedID() wire.ID {
	if c == nil {
		return ""
	}
	return c.ID
}

// originCall returns the call that a backend's message to the client belongs to: the call on
// whose stream it came, which is certain. On the stream of anything else, or of an ended call, it
// is certain that there is none, because several clients may share a statelessClient and must not
// receive each other's messages. Without a stream it is the oldest of those with the highest
// attributionScore. That the message belongs to this statelessClient is already certain.
func (sc *statelessClient) originCall(backend string,
	origin peer.Origin) (rc *resumableCall, certain bool) {
	if origin.Call != nil {
		if rc, ok := origin.Call.Tag.(*resumableCall); ok && rc.client == sc {
			return rc, true
		}
	}
	if origin.Call != nil || origin.CallEnded {
		return nil, true
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	best := 0
	for at := sc.resumable.Front(); at != nil; at = at.Next() {
		candidate := at.Value.(*resumableCall)
		if candidate.route.Backend != backend {
			continue
		}
		if rank := candidate.attributionScore(); rank > best {
			rc, best = candidate, rank
		}
	}
	return rc, false
}

// attributionScore rates how likely a message without a stream belongs to this call: 3 if a
// request waits for it and it has no input requests yet, 2 if a request waits, 1 if it is
// suspended, 0 if it has a response or has ended.
func (rc *resumableCall) attributionScore() int {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	switch {
	case rc.ended, rc.response != nil:
		return 0
	case rc.call == nil:
		return 1
	case len(rc.inputRequests) > 0:
		return 2
	}
	return 3
}
