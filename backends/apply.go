package backends

import (
	"context"
	"reflect"
	"slices"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
)

// A Change is what a Set is to be from now on. See [Options] for what the fields say.
type Change struct {
	Backends    []config.Backend
	Catalog     catalog.Options
	CatalogWait time.Duration
	// OnSlowStart is told once, by Apply, if after a second new backends are neither ready nor have
	// failed: it has their names. nil = nobody wants to know.
	OnSlowStart func(names []string)
}

const (
	// applyTimeout is how long a change waits, at most, for its new backends to be ready.
	applyTimeout = 30 * time.Second
	// slowStartAfter is how long it does before it says so.
	slowStartAfter = time.Second
)

// Apply makes the backends and the catalog's options what they are in c from now on. Backends
// whose configuration is the same keep running, whatever their place in the list. New and
// changed ones are started. If all of them are ready or have failed within a second, all changes
// take effect together, and one View follows; else each takes effect when it is ready or has failed,
// after half a minute at the latest. Calls that are at a backend that was changed or removed end
// there; what waits in it goes to the new one of that name, or ends. A backend that does not start
// is changed all the same, and is tried again like any other.
//
// Backends that are removed or disabled go at once, before anything is started, and the catalog's
// options take effect. A backend whose program a new backend runs goes with the other changes: it has
// another name then, and its tools stay.
//
// Filters take effect first, before anything is started, also for a backend that is about to be
// replaced: a request that they do not permit is not sent from then on.
//
// Apply waits for the change, not for those calls. One that is called meanwhile waits for the
// one before. Ctx ends the wait for new backends, not the change. Before the backends are
// started, see Start, nothing is waited for. An error means that nothing was changed.
func (s *Set) Apply(ctx context.Context, c Change) error {
	if err := c.validate(); err != nil {
		return err
	}
	s.applying <- struct{}{}
	defer func() { <-s.applying }()
	s.setFilters(s.current(), c.Backends)
	s.removeEarly(c)
	before := s.current() // but for retired nobody else changes it
	next, newcomers := s.plan(before, c)
	for _, b := range newcomers {
		b.loadCache()
		if old := before.byName[b.cfg.Name]; old != nil {
			b.copyFrom(old)
		}
	}
	if !s.replaceBeforeStart(next) {
		s.startNew(ctx, newcomers, c.OnSlowStart, func(missing []*Backend) {
			s.replaceTable(next.withPredecessors(missing, s.current()))
			next.orderChanged = false // names were given by the new order
		})
		s.replaceTable(next)
	} else {
		s.drainRemoved(before, next)
	}
	for _, b := range newcomers {
		b.shared.sendLevel(nil) // it may have been changed since the backend was told
	}
	s.limitDraining()
	return nil
}

// removeEarly swaps to the members at hand without those that are not among the backends to come, and
// with the catalog's options to come, if that is a change and they were started.
func (s *Set) removeEarly(change Change) {
	before := s.current()
	coming := change.Backends
	var names []string
	for _, c := range coming {
		names = append(names, c.Name)
	}
	next := before.keeping(func(b *Backend) bool {
		return slices.ContainsFunc(coming, func(c config.Backend) bool {
			runs := c.Enabled && c.Misconfigured == ""
			return runs && (c.Name == b.cfg.Name || before.byName[c.Name] == nil && programID(&c) == b.programID)
		})
	}, names)
	was := next.catalog
	next.catalog = change.Catalog
	next.catalog.ReservedBackends = was.ReservedBackends
	s.mu.Lock()
	launched := !s.launchedAt.IsZero()
	s.mu.Unlock()
	if launched && (len(next.all) < len(before.all) || !reflect.DeepEqual(next.catalog, was)) {
		s.replaceTable(next)
	}
}

// replaceTable puts next in the place of the members at hand, and retires those that leave.
func (s *Set) replaceTable(next *backendTable) {
	s.mu.Lock()
	before := s.current()
	s.replaceTableLocked(next)
	s.mu.Unlock()
	s.drainRemoved(before, next)
}

// drainRemoved retires the members of before that are not in next.
func (s *Set) drainRemoved(before, next *backendTable) {
	for _, b := range before.all {
		if !next.has(b) {
			if heir := next.byName[b.cfg.Name]; heir != nil {
				heir.shared.retrySoon() // it may have failed because of b
			}
			b.drain()
		}
	}
}

// replaceBeforeStart swaps at once if no backend was started yet, and reports whether it did.
func (s *Set) replaceBeforeStart(next *backendTable) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.launchedAt.IsZero() {
		s.replaceTableLocked(next)
		return true
	}
	return false
}

// startNew starts new backends, and waits until it is known of each what it has, or that it
// fails. Ready is called with the backends that are not ready and have not failed: after a second, and
// then each time that one more is ready or has failed.
func (s *Set) startNew(ctx context.Context, newcomers []*Backend, late func(names []string), ready func(missing []*Backend)) {
	for _, b := range newcomers {
		b.start()
	}
	ctx, cancel := mergeContexts(ctx, s.life)
	defer cancel()
	over := time.After(applyTimeout)
	missing := awaitSettled(ctx, newcomers, time.After(slowStartAfter))
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
	settled := make(chan *Backend, len(missing))
	for _, b := range missing {
		go func() {
			select {
			case <-b.settled:
				settled <- b
			case <-ctx.Done():
			}
		}()
	}
	for len(missing) > 0 {
		ready(missing)
		select {
		case one := <-settled:
			missing = slices.DeleteFunc(missing, func(b *Backend) bool { return b == one })
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// awaitSettled waits until it is known of each backend what it has, or that it fails. It returns those
// of which it is not when over comes, or ctx is done.
func awaitSettled(ctx context.Context, some []*Backend, over <-chan time.Time) (missing []*Backend) {
	for _, b := range some {
		if b.needsNoStart() {
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

// replaceTableLocked puts next in the place of the members at hand. Those that leave are to be retired
// after it.
func (s *Set) replaceTableLocked(next *backendTable) {
	t := s.current()
	next.draining = t.draining
	for _, b := range t.all {
		if !next.has(b) {
			next.draining = append(next.draining[:len(next.draining):len(next.draining)], b)
		}
	}
	s.table.Store(next)
	if s.waitTimer != nil && !s.waitOver {
		s.waitTimer.Reset(next.catalogWait - time.Since(s.launchedAt))
	}
	s.publishLocked(next.orderChanged)
}
