package backends

import "time"

// The connections of single sessions are opened retryStep apart, or closer together if there are
// so many that the last would wait longer than retrySpread. Many handshakes at the same moment
// would delay the calls of all backends.
const (
	retryStep   = 20 * time.Millisecond
	retrySpread = time.Second
)

// RetryFailed ends the pauses of the backends that have failed, resets their failures and returns their
// names. It opens the connections that all sessions share at once. It lets those of single sessions
// be opened one after the other, within retrySpread, if a call waits or arrives. It does not wait
// for any of them.
func (s *Set) RetryFailed() (names []string) {
	var perSession []*line
	for _, b := range s.now().all {
		failed := false
		b.forgetFailedSessions()
		for _, l := range b.lines() {
			switch {
			case !l.isDown():
				continue
			case l.own():
				perSession = append(perSession, l)
			default:
				l.anew()
			}
			failed = true
		}
		if failed {
			names = append(names, b.cfg.Name)
		}
	}
	step := min(retryStep, retrySpread/time.Duration(max(len(perSession), 1)))
	for i, l := range perSession {
		l.retry(time.Duration(i) * step)
	}
	return names
}

// forgetFailedSessions lets connections of single sessions be opened although those of other
// sessions have failed.
func (b *Backend) forgetFailedSessions() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crowd = crowd{}
}

// lines returns the connection that all sessions share, and those of single sessions.
func (b *Backend) lines() []*line {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []*line{b.shared}
	for _, l := range b.own {
		all = append(all, l)
	}
	return all
}

// isDown reports whether the line has failed and waits for the next try.
func (l *line) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.sup.due().IsZero()
}
