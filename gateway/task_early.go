package gateway

import (
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// Some servers tell the status of a task before they answer the call that makes it. Until the answer
// the client does not know the task, and the gateway does not know whose it is.

const (
	// maxEarly bounds the statuses that a session keeps until answers name their tasks.
	maxEarly = 64
	// maxEarlySize bounds one of them, in bytes.
	maxEarlySize = 8 << 10
)

// earlyStatus is a notifications/tasks/status of a task that the answer to a call may name.
type earlyStatus struct {
	call   *call
	status wire.Message
}

// keepStatus keeps a status of a task that is not known until the answer to the call that makes the
// task: the call on whose stream the status came, or else the only one at the backend that asks for a
// task. If there is no such call, or no room, the status is dropped.
func (s *Session) keepStatus(backend string, m wire.Message, on peer.Origin) {
	if on.CallEnded || len(m.Raw()) > maxEarlySize {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var maker *call
	for c := s.flights.newest; c != nil; c = c.older {
		switch {
		case !c.task, c.Route.Backend != backend, on.Call != nil && on.Call.Tag != c:
		case maker != nil:
			return
		default:
			maker = c
		}
	}
	if maker != nil && len(s.early) < maxEarly {
		s.early = append(s.early, earlyStatus{maker, m})
	}
}

// earlyStatuses returns what was kept for a call.
func (c *call) earlyStatuses() []wire.Message {
	if !c.task {
		return nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.takeEarlyLocked(c)
}

// takeEarlyLocked returns what was kept for a call, and keeps it no longer.
func (s *Session) takeEarlyLocked(c *call) (statuses []wire.Message) {
	var others []earlyStatus
	for _, one := range s.early {
		if one.call == c {
			statuses = append(statuses, one.status)
		} else {
			others = append(others, one)
		}
	}
	s.early = others
	return statuses
}
