package backends

import (
	"time"
)

// RetryFailed lets per-session connections be opened at intervals of retryStep, or at shorter
// intervals if the last connection would wait longer than retrySpread. Many handshakes at the same
// moment would delay the calls of all backends.
const (
	retryStep   = 20 * time.Millisecond
	retrySpread = time.Second
)

// RetryFailed ends the pauses of the backends that have failed, resets their failures and returns
// their names. It opens shared connections at once, and lets per-session connections be opened one
// after the other, within retrySpread, if there is demand for them. It does not wait for any
// connection.
func (s *Set) RetryFailed() (names []string) {
	var perSession []*backendConn
	for _, b := range s.current().all {
		failed := false
		b.perSession.resetBreaker()
		for _, bc := range b.conns() {
			switch {
			case !bc.isBackingOff():
				continue
			case bc.isPerSession():
				perSession = append(perSession, bc)
			default:
				bc.starts.retryWithin(0)
			}
			failed = true
		}
		if failed {
			names = append(names, b.cfg.Name)
		}
	}
	step := min(retryStep, retrySpread/time.Duration(max(len(perSession), 1)))
	for i, bc := range perSession {
		bc.starts.retryWithin(time.Duration(i) * step)
	}
	return names
}
