package backends

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
)

// A Change is the new state of a Set. See [Options] for the fields.
type Change struct {
	Backends    []config.Backend
	Catalog     catalog.Options
	Profiles    map[string]config.Profile
	CatalogWait time.Duration
	// called by Apply at most once, with the names of the new and changed backends that are not
	// settled after a second; nil = no call
	OnSlowStart func(names []string)
}

const (
	// applyTimeout bounds the wait of Apply for new backends.
	applyTimeout = 30 * time.Second
	// slowStartAfter is the time after which Apply calls OnSlowStart.
	slowStartAfter = time.Second
)

// Apply changes the backends and the catalog options to those in c.
//
//   - Filters, tools.pin and profiles take effect first, also for a backend that is about to be
//     replaced: from then on, a request that they do not permit is not sent.
//   - Removed, disabled and misconfigured backends are removed next, together with the change of
//     the catalog options. A backend that is renamed (a new backend has its program or URL) is
//     removed later, together with the other changes, so that its tools remain available until they
//     have their new names.
//   - Backends whose configuration is unchanged, except for the keys that take effect in place
//     (filters, tools.pin, rate and instructions), keep running, even if their position in the list
//     has changed.
//   - New and changed backends are started; a lazy backend with a known catalog starts on demand.
//     If all others are settled within a second, all of these changes take effect together, with
//     one View. Otherwise the change of each backend takes effect when that backend is settled,
//     after half a minute at the latest. A backend that has failed to start is retried like any
//     other backend.
//   - Calls in flight at a changed or removed backend complete there. Queued calls go to the new
//     backend of that name, or fail.
//   - A backend that [Control.Stop] has stopped remains stopped, unless its configuration is
//     changed in other keys than those that take effect in place.
//
// Apply waits for the change, not for calls in flight. Concurrent changes are made one after the
// other. The end of ctx ends the wait for new backends, not the change. If the backends are not
// started yet (see Start), Apply does not wait for new ones. An error means that nothing was
// changed.
func (s *Set) Apply(ctx context.Context, c Change) error {
	if err := c.validate(); err != nil {
		return err
	}
	s.applying <- struct{}{}
	defer func() { <-s.applying }()
	// concurrently, only removeDrained replaces the table
	next, newcomers := s.plan(s.current(), c)
	s.setProfiles(s.current(), next, newProfileTable(c.Profiles))
	s.setFilters(s.current(), next, c.Backends)
	s.removeEarly(next, c.Catalog)
	before := s.current()
	for _, b := range newcomers {
		b.known.load(s.IgnoreCache)
		b.logDeviations()
		old := before.byName[b.cfg.Name]
		if old != nil && old.known.serverKey == b.known.serverKey {
			b.known.copyFrom(old.known)
		}
		b.instances.keepUse(old)
	}
	if !s.replaceBeforeStart(next) {
		s.startNew(ctx, newcomers, c.OnSlowStart, func(missing []*Backend) {
			s.replaceTable(next.withPredecessors(missing, s.current()))
			next.orderChanged = false // the names were assigned again with the first table
		})
		s.replaceTable(next)
	} else {
		s.drainRemoved(before, next)
	}
	for _, b := range newcomers {
		b.shared.sendLevel(nil) // the level may have changed meanwhile
		b.logDeviations()       // and so may the lock file
	}
	s.limitDraining()
	return nil
}

// SetLock replaces the content of the lock file, for all backends at the same moment: also for
// queued calls, and for backends that are starting. The lock must not be changed afterwards.
func (s *Set) SetLock(l *pins.Lock) {
	s.publisher.setLock(l)
	for b := range s.current().withName("") {
		b.logDeviations()
	}
}

// removeEarly removes the backends that no backend in the table after replaces, and applies the new
// catalog options and values of tools.pin. It does nothing if the backends were not started yet, or
// if nothing would change.
func (s *Set) removeEarly(after *backendTable, options catalog.Options) {
	before := s.current()
	stays := make(map[*Backend]bool)
	for _, b := range after.all {
		stays[after.predecessor(b, before)] = true
	}
	next := before.keeping(func(b *Backend) bool { return stays[b] }, after.names)
	previous := next.catalog
	next.catalog = options
	next.catalog.ReservedBackends = previous.ReservedBackends
	next.pins = after.pins
	changed := len(next.all) < len(before.all) || !reflect.DeepEqual(next.catalog, previous) ||
		!maps.Equal(next.pins, before.pins)
	if changed && s.startup.launched() {
		s.replaceTable(next)
	}
}

// replaceTable makes the table next the current one, publishes a View, and drains the backends that
// are no longer in the table.
func (s *Set) replaceTable(next *backendTable) {
	s.startup.mu.Lock()
	before := s.current()
	s.startup.setWaitLocked(next.catalogWait)
	s.publisher.replaceTable(next)
	s.startup.mu.Unlock()
	s.changes.note()
	s.drainRemoved(before, next)
}

// drainRemoved drains the backends of the table before that are not in the table next. If the
// successor of such a backend has failed to start, the successor is started again soon.
func (s *Set) drainRemoved(before, next *backendTable) {
	for b := range before.running() {
		if !next.has(b) {
			if successor := next.byName[b.cfg.Name]; successor != nil {
				// its start may have failed because b was running
				successor.shared.starts.retryWithin(supervise.FirstPause)
			}
			b.drain()
		}
	}
}

// replaceBeforeStart replaces the table if the backends were not started yet, and reports
// whether it did.
func (s *Set) replaceBeforeStart(next *backendTable) bool {
	s.startup.mu.Lock()
	defer s.startup.mu.Unlock()
	if s.startup.at.IsZero() {
		s.publisher.replaceTable(next)
		return true
	}
	return false
}

// startNew starts new backends. It waits until all except those that are started on demand are
// settled, for applyTimeout at most, or until ctx is done or Run is ending. If some are not settled
// after slowStartAfter, startNew calls onSlowStart once, unless it is nil. It also calls ready with
// the backends that are not settled: first at that time, and again after each further backend that
// settles. ready is not called when all are settled.
func (s *Set) startNew(ctx context.Context, newcomers []*Backend, onSlowStart func(names []string),
	ready func(missing []*Backend)) {
	for _, b := range newcomers {
		b.start()
	}
	ctx, cancel := mergeContexts(ctx, s.workers.alive)
	defer cancel()
	timeout := time.After(applyTimeout)
	missing := awaitSettled(ctx, newcomers, time.After(slowStartAfter))
	if len(missing) == 0 || ctx.Err() != nil {
		return
	}
	if onSlowStart != nil {
		var names []string
		for _, b := range missing {
			names = append(names, b.cfg.Name)
		}
		onSlowStart(names)
	}
	settled := make(chan *Backend, len(missing))
	for _, b := range missing {
		go func() {
			select {
			case <-b.lists.settled:
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
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
}

// awaitSettled waits until all backends are settled, timeout fires, or ctx is done. It returns the
// backends that are not settled, without those that are started on demand.
func awaitSettled(ctx context.Context, some []*Backend,
	timeout <-chan time.Time) (missing []*Backend) {
	for _, b := range some {
		if b.needsNoStart() {
			continue // started on demand
		}
		select {
		case <-b.lists.settled:
			continue
		default:
		}
		if missing != nil {
			missing = append(missing, b) // timeout has fired, or ctx is done
			continue
		}
		select {
		case <-b.lists.settled:
		case <-timeout:
			missing = append(missing, b)
		case <-ctx.Done():
			missing = append(missing, b)
		}
	}
	return missing
}

// RestrictProfiles prepares a reload that changes who has which profile: until Apply, a client
// needs the permission of a profile both as it is and as it is in next. So no client sees more than
// before or after the reload, although tokens and profiles are not changed at the same moment.
func (s *Set) RestrictProfiles(next map[string]config.Profile) {
	s.applying <- struct{}{}
	defer func() { <-s.applying }()
	before := s.publisher.audiences.all()
	if both := before.and(newProfileTable(next)); !reflect.DeepEqual(both, before) {
		s.publisher.setProfiles(both, func() {})
	}
}

// setProfiles applies the profiles of a change, and publishes a View if any has changed. Backends
// that the change replaces remain visible as audience.uses says.
func (s *Set) setProfiles(before, next *backendTable, profiles profileTable) {
	old := s.publisher.audiences.all()
	if len(old) == 0 && len(profiles) == 0 {
		return
	}
	replaced := make(map[*Backend]*pendingReplacement)
	for _, b := range next.all {
		if p := next.predecessor(b, before); p != nil && p != b {
			replaced[p] = &pendingReplacement{b.cfg.Name, old}
		}
	}
	if len(replaced) == 0 && reflect.DeepEqual(profiles, old) {
		return
	}
	s.publisher.setProfiles(profiles, func() {
		for b, r := range replaced {
			b.filters.replacement.Store(r)
		}
	})
}

// setFilters applies the filters and tools.pin of a change to the current backends, and publishes a
// View if any of them has changed. A backend that is renamed gets those of its new name.
func (s *Set) setFilters(before, next *backendTable, all []config.Backend) {
	some := false
	for _, c := range all {
		old := before.byName[c.Name]
		if b := next.byName[c.Name]; b != nil {
			old = next.predecessor(b, before)
		}
		if old == nil {
			continue
		}
		if old.setFilters(c.Filters()) {
			some = true
		}
		for one := range old.instances.andSelf() {
			if one.lists.setPin(c.Tools.Pin) {
				some = true
			}
			one.logDeviations()
		}
	}
	if some {
		s.publisher.publish()
	}
}

// plan returns the table after a change, and the backends in it that are new. The field draining of
// the table is not set. A backend is kept if only its runtime keys differ. A
// misconfigured backend is logged if its problem is new.
func (s *Set) plan(t *backendTable, c Change) (next *backendTable, newcomers []*Backend) {
	next = &backendTable{byName: make(map[string]*Backend), misconfigured: make(map[string]string),
		catalog: c.Catalog, catalogWait: c.CatalogWait, pins: make(map[string]config.Pin),
		configs: make(map[string]config.Backend), stopped: make(map[string]time.Time)}
	for _, one := range c.Backends {
		next.names = append(next.names, one.Name)
		next.pins[one.Name] = one.Tools.Pin
		if !one.Enabled {
			continue
		}
		if one.Misconfigured != "" {
			if t.misconfigured[one.Name] != one.Misconfigured {
				s.Log.Warn("misconfigured backend not started", "backend", one.Name,
					"err", one.Misconfigured)
			}
			next.misconfigured[one.Name] = one.Misconfigured
			continue
		}
		next.configs[one.Name] = one
		if at := t.stopped[one.Name]; !at.IsZero() && reflect.DeepEqual(
			t.configs[one.Name].WithoutRuntimeKeys(), one.WithoutRuntimeKeys()) {
			next.stopped[one.Name] = at
			continue
		}
		b := t.byName[one.Name]
		if b == nil || !reflect.DeepEqual(b.cfg, one.WithoutRuntimeKeys()) {
			b = newBackend(s, one)
			newcomers = append(newcomers, b)
		}
		next.all = append(next.all, b)
		next.byName[one.Name] = b
	}
	next.removedNames = make(map[string]bool)
	for name := range t.byName {
		next.addRemoved(name)
	}
	for name := range t.removedNames {
		next.addRemoved(name)
	}
	next.catalog.ReservedBackends = slices.Clone(next.names)
	for name := range next.removedNames {
		next.catalog.ReservedBackends = append(next.catalog.ReservedBackends, name)
	}
	slices.Sort(next.catalog.ReservedBackends)
	next.orderChanged = orderDiffers(t.names, next.names)
	return next, newcomers
}

// removeDrained is called when nothing of a removed backend is left. If its successor has failed to
// start, the successor is started again at once, because the removed backend may have been the
// reason.
func (s *Set) removeDrained(b *Backend) {
	s.publisher.removeDrained(b)
	if b.instances.owner != nil {
		b.login.reportUnused()
	} else if next := s.current().byName[b.cfg.Name]; next != nil {
		next.shared.starts.retryWithin(0)
	}
}

// maxDraining bounds the draining backends of one name, and their instances for one principal.
const maxDraining = 4

var errTooManyReloads = errors.New("the configuration was changed too often during the call")

// limitDraining kills the oldest draining backends of each name beyond maxDraining.
func (s *Set) limitDraining() {
	type identity struct{ name, principal string }
	number := make(map[identity]int)
	for _, b := range slices.Backward(s.current().draining) {
		id := identity{b.cfg.Name, b.instances.owner.Key()}
		if number[id]++; number[id] > maxDraining {
			b.lifetime.kill(errTooManyReloads)
		}
	}
}
