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
	call   *clientCall
	status wire.Message
}

// keepEarlyStatus keeps a status of a task that is not known until the answer to the call that makes the
// task: the call on whose stream the status came, or else the only one at the backend that asks for a
// task. If there is no such call, or no room, the status is dropped.
func (s *Session) keepEarlyStatus(backend string, m wire.Message, origin peer.Origin) {
	if origin.CallEnded || len(m.Raw()) > maxEarlySize {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var creator *clientCall
	for c := s.inFlight.newest; c != nil; c = c.older {
		switch {
		case !c.taskReserved, c.Route.Backend != backend, origin.Call != nil && origin.Call.Tag != c:
		case creator != nil:
			return
		default:
			creator = c
		}
	}
	if creator != nil && len(s.earlyStatuses) < maxEarly {
		s.earlyStatuses = append(s.earlyStatuses, earlyStatus{creator, m})
	}
}

// earlyStatuses returns what was kept for a call.
func (c *clientCall) earlyStatuses() []wire.Message {
	if !c.taskReserved {
		return nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.takeEarlyStatusesLocked(c)
}

// takeEarlyStatusesLocked returns what was kept for a call, and keeps it no longer.
func (s *Session) takeEarlyStatusesLocked(c *clientCall) (statuses []wire.Message) {
	var others []earlyStatus
	for _, one := range s.earlyStatuses {
		if one.call == c {
			statuses = append(statuses, one.status)
		} else {
			others = append(others, one)
		}
	}
	s.earlyStatuses = others
	return statuses
}
