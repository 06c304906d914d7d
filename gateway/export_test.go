package gateway

import (
	"fmt"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/principal"
)

// FillUsedTickets fills the table of used tickets with entries that expire within the given time.
func (g *Gateway) FillUsedTickets(within time.Duration) {
	for n := 0; ; n++ {
		claim := &mrtr.RerunClaim{ID: fmt.Sprint(n), Until: time.Now().Add(within)}
		if g.usedTickets.Claim(claim) != nil {
			return
		}
	}
}

// FillTaskListeners uses up the limit of task listeners, except for the given number.
func (g *Gateway) FillTaskListeners(but int) {
	for (*principal.Principal)(nil).AcquireShare(&g.taskListeners, maxTaskListeners) {
	}
	for range but {
		g.taskListeners.Release("")
	}
}

// UseResultBytes uses up the byte budget of stored results, until release is called.
func (g *Gateway) UseResultBytes() (release func()) {
	n := maxResultBytes - g.resultBytes.Used()
	g.resultBytes.Acquire(n, maxResultBytes)
	return func() { g.resultBytes.Release(n) }
}

// SuspendedCalls returns the number of calls that were suspended at least once and have not ended.
func (g *Gateway) SuspendedCalls() int {
	g.suspended.mu.Lock()
	defer g.suspended.mu.Unlock()
	return len(g.suspended.byID)
}

// QueuedRequests returns the number of requests that wait for notifications/initialized.
func (s *Session) QueuedRequests() int {
	s.lifecycle.mu.Lock()
	defer s.lifecycle.mu.Unlock()
	return len(s.lifecycle.queued.requests) + len(s.lifecycle.queued.serverRequests)
}

// EndedTasks returns the number of tasks that may be evicted from the session's table.
func (s *Session) EndedTasks() (n int) {
	s.tasks.mu.Lock()
	defer s.tasks.mu.Unlock()
	for _, st := range s.tasks.all {
		if st.ended {
			n++
		}
	}
	return n
}

// StatelessTasks returns the number of tasks of stateless clients.
func (g *Gateway) StatelessTasks() int {
	g.statelessTasks.mu.Lock()
	defer g.statelessTasks.mu.Unlock()
	return len(g.statelessTasks.all)
}

// ConfirmationParams returns the params of the question whether a call may run.
func ConfirmationParams(backend, tool string, arguments []byte, mask func(string) string) []byte {
	return confirmationForm{backend, tool, arguments, mask}.params()
}

// MethodNames returns the names of the requests that a client of a generation may send.
func MethodNames() (legacy, modern []string) {
	for name, m := range methods {
		if m.legacy != nil {
			legacy = append(legacy, name)
		}
		if m.modern != nil {
			modern = append(modern, name)
		}
	}
	return legacy, modern
}
