package gateway

import (
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// Some servers send the status of a task before the response that creates it. Until the response
// the client does not know the task, and the gateway does not know its session.

const (
	// maxEarly bounds the statuses that a session keeps until responses name their tasks.
	maxEarly = 64
	// maxEarlySize bounds one of them, in bytes.
	maxEarlySize = 8 << 10
)

// An earlyStatus is a notifications/tasks/status for a task that the response of call may name.
type earlyStatus struct {
	call   *clientCall
	status wire.Message
}

// keepEarlyStatus keeps the status of an unknown task until the response of the call that creates
// it: the call on whose stream the status came, or else the only one at the backend that asks for
// a task. Without such a call, or at the limit, the status is dropped.
func (s *Session) keepEarlyStatus(backend string, m wire.Message, origin peer.Origin) {
	if origin.CallEnded || len(m.Raw()) > maxEarlySize {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var creator *clientCall
	for c := s.inFlight.newest; c != nil; c = c.older {
		switch {
		case !c.taskReserved, c.Route.Backend != backend,
			origin.Call != nil && origin.Call.Tag != c:
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

// earlyStatuses removes and returns the statuses kept for a call.
func (c *clientCall) earlyStatuses() []wire.Message {
	if !c.taskReserved {
		return nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.takeEarlyStatusesLocked(c)
}

// takeEarlyStatusesLocked removes and returns the statuses kept for a call.
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
