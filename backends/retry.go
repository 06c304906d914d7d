package backends

import "time"

// The connections of single sessions are opened retryStep apart, or closer together if there are
// so many that the last would wait longer than retrySpread. Many handshakes at the same moment
// would delay the calls of all backends.
const (
	retryStep   = 20 * time.Millisecond
	retrySpread = time.Second
)

// Retry ends the pauses of the backends that have failed and resets their failures. The connections
// that all sessions share are opened at once. Those of single sessions are opened one after the
// other, within retrySpread, if a call waits or arrives. Retry returns the names of these backends. It does not wait for any of them.
func (s *Set) Retry() (names []string) {
	var perSession []*line
	for _, b := range s.now().all {
		failed := false
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

// lines returns all lines of a backend. What has failed bars none of them from being started any more.
func (b *Backend) lines() []*line {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crowd = crowd{}
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
