package backends

// Retry has the backends be tried at once that have failed and wait for their next try, as if they
// had not failed before; so are the own lines of sessions. It returns the names of those backends, and waits for none.
func (s *Set) Retry() (names []string) {
	for _, b := range s.now().all {
		failed := false
		for _, l := range b.lines() {
			if l.isDown() {
				failed = true
				l.anew()
			}
		}
		if failed {
			names = append(names, b.cfg.Name)
		}
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
