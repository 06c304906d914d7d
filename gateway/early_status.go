package gateway

import (
	"slices"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// Some servers send the status of a task before the response that creates the task. Before that
// response, neither the client nor the session's task table knows the task.

const (
	// maxEarly bounds the early statuses of a session.
	maxEarly = 64
	// maxEarlySize bounds the size of one early status, in bytes.
	maxEarlySize = 8 << 10
)

// An earlyStatus is a notifications/tasks/status for the task that the response to call may
// create.
type earlyStatus struct {
	call   *sessionCall
	status wire.Message
}

// keepEarlyStatus stores the status of an unknown task until the response to the call that creates
// the task. That call is the one on whose stream the status arrived or, if the status arrived on no
// call's stream, the only call at the backend that asks for a task. If there is no such call, or at
// a limit, the status is dropped.
func (t *callTracker) keepEarlyStatus(backend string, from contract.Attribution, m wire.Message) {
	if from.StreamEnded || len(m.Raw()) > maxEarlySize {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var creator *sessionCall
	for c := t.inFlight.newest; c != nil; c = c.older {
		switch {
		case !c.asksForTask, c.Route.Backend != backend,
			from.Handler != nil && handlerCall(from.Handler) != c:
		case creator != nil:
			return
		default:
			creator = c
		}
	}
	if creator != nil && len(t.earlyStatuses) < maxEarly {
		t.earlyStatuses = append(t.earlyStatuses, earlyStatus{creator, m.Clone()})
	}
}

// takeEarlyStatuses removes and returns the stored statuses for a call.
func (t *callTracker) takeEarlyStatuses(c *sessionCall) []wire.Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeEarlyStatusesLocked(c)
}

func (t *callTracker) takeEarlyStatusesLocked(c *sessionCall) (statuses []wire.Message) {
	t.earlyStatuses = slices.DeleteFunc(t.earlyStatuses, func(one earlyStatus) bool {
		if one.call == c {
			statuses = append(statuses, one.status)
		}
		return one.call == c
	})
	return statuses
}
