package backends

import (
	"context"
	"slices"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/config"
)

// A Change is what a Set is to be from now on. See [Options] for what the fields say.
type Change struct {
	Backends []config.Backend
	Catalog  catalog.Options
	Wait     time.Duration
	// Late is told once, by Apply, if after a second new backends are neither ready nor have
	// failed: it has their names. nil = nobody wants to know.
	Late func(names []string)
}

const (
	// upWait is how long a change waits, at most, for its new backends to be ready.
	upWait = 30 * time.Second
	// lateAfter is how long it does before it says so.
	lateAfter = time.Second
)

// Apply makes the backends and the catalog's options what they are in c from now on. Backends
// whose configuration is the same keep running, whatever their place in the list. New and
// changed ones are started and given until they are ready or have failed, half a minute at most,
// and then all changes at once: what is sent from then on goes by the new ones, and one View
// follows. Calls that are at a backend that was changed or removed end there; what waits in
// it goes to the new one of that name, or ends. A backend that does not start is changed all
// the same, and is tried again like any other.
//
// Backends that are removed or disabled go at once, before anything is started. One whose program a
// new backend runs goes with the other changes: it has another name then, and its tools stay.
//
// Filters take effect first, before anything is started, also for a backend that is about to be
// replaced: a request that they do not permit is not sent from then on.
//
// Apply waits for the change, not for those calls. One that is called meanwhile waits for the
// one before. Ctx ends the wait for new backends, not the change. Before the backends are
// started, see Start, nothing is waited for. An error means that nothing was changed.
func (s *Set) Apply(ctx context.Context, c Change) error {
	if err := c.check(); err != nil {
		return err
	}
	s.applying <- struct{}{}
	defer func() { <-s.applying }()
	s.refilter(s.now(), c.Backends)
	s.removeFirst(c.Backends)
	before := s.now() // but for retired nobody else changes it
	next, newcomers := s.plan(before, c)
	for _, b := range newcomers {
		b.recall()
		if old := before.byName[b.cfg.Name]; old != nil {
			b.learn(old)
		}
	}
	if !s.swapEarly(next) {
		s.bringUp(ctx, newcomers, c.Late)
		s.mu.Lock()
		s.swapLocked(next)
		s.mu.Unlock()
	}
	s.retireAll(before, next)
	for _, b := range newcomers {
		b.shared.levelled(nil) // it may have been changed since the backend was told
	}
	s.thinOut()
	return nil
}

// removeFirst swaps to the members at hand without those that are not among the backends to come, if
// they were started.
func (s *Set) removeFirst(coming []config.Backend) {
	before := s.now()
	var names []string
	for _, c := range coming {
		names = append(names, c.Name)
	}
	next := before.only(func(b *Backend) bool {
		return slices.ContainsFunc(coming, func(c config.Backend) bool {
			runs := c.Enabled && c.Misconfigured == ""
			return runs && (c.Name == b.cfg.Name || before.byName[c.Name] == nil && programOf(&c) == b.program)
		})
	}, names)
	s.mu.Lock()
	removes := !s.launched.IsZero() && len(next.all) < len(before.all)
	if removes {
		s.swapLocked(next)
	}
	s.mu.Unlock()
	if removes {
		s.retireAll(before, next)
	}
}

// retireAll retires the members of before that are not in next.
func (s *Set) retireAll(before, next *members) {
	for _, b := range before.all {
		if !next.has(b) {
			if heir := next.byName[b.cfg.Name]; heir != nil {
				heir.shared.pardon() // it may have failed because of b
			}
			b.retire()
		}
	}
}

// swapEarly swaps at once if no backend was started yet, and reports whether it did.
func (s *Set) swapEarly(next *members) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.launched.IsZero() {
		s.swapLocked(next)
		return true
	}
	return false
}

// bringUp starts new backends, and waits until it is known of each what it has, or that it
// fails.
func (s *Set) bringUp(ctx context.Context, newcomers []*Backend, late func(names []string)) {
	for _, b := range newcomers {
		b.start()
	}
	ctx, cancel := both(ctx, s.life)
	defer cancel()
	over := time.After(upWait)
	missing := awaitSettled(ctx, newcomers, time.After(lateAfter))
	if len(missing) == 0 || ctx.Err() != nil {
		return
	}
	if late != nil {
		var names []string
		for _, b := range missing {
			names = append(names, b.cfg.Name)
		}
		late(names)
	}
	awaitSettled(ctx, missing, over)
}

// awaitSettled waits until it is known of each backend what it has, or that it fails. It returns those
// of which it is not when over comes, or ctx is done.
func awaitSettled(ctx context.Context, some []*Backend, over <-chan time.Time) (missing []*Backend) {
	for _, b := range some {
		if b.isKnown() {
			continue // it is started by the first call
		}
		select {
		case <-b.settled:
			continue
		default:
		}
		if missing != nil {
			missing = append(missing, b) // the time is up
			continue
		}
		select {
		case <-b.settled:
		case <-over:
			missing = append(missing, b)
		case <-ctx.Done():
			missing = append(missing, b)
		}
	}
	return missing
}

// swapLocked puts next in the place of the members at hand. Those that leave are to be retired
// after it.
func (s *Set) swapLocked(next *members) {
	m := s.now()
	next.retired = m.retired
	for _, b := range m.all {
		if !next.has(b) {
			next.retired = append(next.retired[:len(next.retired):len(next.retired)], b)
		}
	}
	s.members.Store(next)
	if s.wait != nil && !s.waited {
		s.wait.Reset(next.wait - time.Since(s.launched))
	}
	s.publishLocked(next.moved)
}
