package backends

import (
	"context"
	"iter"
	"maps"
	"sync/atomic"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/principal"
)

// With oauth.per: principal, each principal has a login of its own at a backend, and therefore
// connections and lists of its own: an instance of the backend, which is a Backend too. An instance
// shares with the backend in the table what does not depend on the login: filters, limits, and what
// was detected of the server. The backend in the table itself serves the clients without
// authentication; it starts when there is such a client.

const (
	// maxInstances bounds the instances of a backend. Beyond it, the instance whose principal has
	// been without sessions for the longest time ends; if all principals have sessions, the backend
	// is not available to further principals.
	maxInstances = 256
	// instanceIdle is the time for which an instance is kept while its principal has no session.
	instanceIdle = 10 * time.Minute
)

var errTooManyInstances = notSent("it has connections for %d principals already", maxInstances)

// instances is what relates a Backend in the table and its instances.
type instances struct {
	b *Backend // whose field the instances are

	// when b was opened as an instance, or the first client without authentication needed the
	// backend in the table; nil = none has needed it
	neededSince atomic.Pointer[time.Time]

	// Of an instance:
	owner   *principal.Principal      // nil = b is no instance
	of      *Backend                  // the backend that was in the table then
	changes atomic.Int64              // see publisher.publishInstance
	usedAt  atomic.Pointer[time.Time] // when the principal was last known to have a session

	// Of the backend in the table:
	byKey atomic.Pointer[map[string]*Backend] // by principal; replaced with startup.mu held
}

// newInstance returns the instance of a backend for a principal.
func newInstance(of *Backend, p *principal.Principal) *Backend {
	b := &Backend{set: of.set, cfg: of.cfg, log: of.log.With(p.LogAttrs()...),
		limiter: of.limiter, receiveQuota: of.receiveQuota, filters: of.filters}
	now := time.Now()
	b.instances.owner, b.instances.of = p, of
	b.instances.neededSince.Store(&now)
	b.instances.usedAt.Store(&now)
	b.init(of.known.detection, of.lists.pins.inForce.Load().mode)
	return b
}

// enabled reports whether the backend has instances, or is one.
func (in *instances) enabled() bool { return in.b.cfg.OAuth.Per == config.PerPrincipal }

// serves reports whether b serves the clients of the principal with a key.
func (in *instances) serves(key string) bool { return !in.enabled() || in.owner.Key() == key }

// isUnused reports whether only the instances of b were used so far.
func (in *instances) isUnused() bool {
	return in.enabled() && in.neededSince.Load() == nil
}

// sessionEnded notes that a session of the principal with a key has just ended.
func (in *instances) sessionEnded(key string) {
	if in.owner != nil && in.owner.Key() == key {
		now := time.Now()
		in.usedAt.Store(&now)
	}
}

// isAwaited reports whether lists are not sent without b, because it was needed for the first time
// less than catalogWait ago.
func (in *instances) isAwaited() bool {
	since := in.neededSince.Load()
	return since != nil && time.Since(*since) < in.b.set.current().catalogWait
}

// get returns the instance of the principal with a key, nil if there is none.
func (in *instances) get(key string) *Backend { return in.all()[key] }

// all returns the instances by principal.
func (in *instances) all() map[string]*Backend {
	if all := in.byKey.Load(); all != nil {
		return *all
	}
	return nil
}

// andSelf returns b and its instances: b first, and then the instances that exist after b was
// visited. So an instance that is opened during a change of b is visited, or has copied the changed
// state of b.
func (in *instances) andSelf() iter.Seq[*Backend] {
	return func(yield func(*Backend) bool) {
		if !yield(in.b) {
			return
		}
		for _, one := range in.all() {
			if !yield(one) {
				return
			}
		}
	}
}

// useSelf starts b for clients without authentication, whose lists wait for it from now on.
func (in *instances) useSelf() {
	now := time.Now()
	if in.neededSince.Load() != nil || !in.neededSince.CompareAndSwap(nil, &now) {
		return
	}
	in.b.shared.wake()
	if in.b.set.startup.launched() {
		in.b.lifetime.goWorker(in.endWait)
	}
}

// keepUse starts b, like any other changed backend, before it replaces the backend old: if clients
// without authentication use old, or may use it. old may be nil.
func (in *instances) keepUse(old *Backend) {
	if !in.enabled() || old == nil {
		return
	}
	used := in.b.set.sessions.principals()[""]
	if old.instances.enabled() {
		used = !old.instances.isUnused()
	}
	if used {
		now := time.Now()
		in.neededSince.Store(&now)
	}
}

// open returns the instance of a principal, which it opens if there is none. It returns nil and no
// error if b is no longer in the table.
func (in *instances) open(p *principal.Principal) (*Backend, error) {
	s := in.b.set
	s.startup.mu.Lock()
	if one := in.get(p.Key()); one != nil || !s.current().has(in.b) {
		s.startup.mu.Unlock()
		return one, nil
	}
	var removed []*Backend
	if len(in.all()) >= maxInstances {
		if removed = in.removeIdleLocked(0, 1); len(removed) == 0 {
			s.startup.mu.Unlock()
			return nil, errTooManyInstances
		}
	}
	one := newInstance(in.b, p)
	next := map[string]*Backend{p.Key(): one}
	maps.Copy(next, in.all())
	in.byKey.Store(&next)
	launched := !s.startup.at.IsZero()
	s.startup.mu.Unlock()

	// They may have changed meanwhile. They are read with the lock of the lists held: if they
	// change now, one is changed afterwards.
	one.lists.setPins(func(p *pinState) {
		p.lock, p.mode = s.publisher.approved.lock.Load(), in.b.lists.pins.inForce.Load().mode
	})
	in.end(removed)
	if launched {
		one.start()
	}
	s.publisher.publishInstance(one)
	return one, nil
}

// renew opens an instance for each principal that has one of the backend old, which b is about to
// replace. It returns the new instances. startup.mu is held.
func (in *instances) renew(old *Backend) (all []*Backend) {
	next := make(map[string]*Backend)
	for key, one := range old.instances.all() {
		next[key] = newInstance(in.b, one.instances.owner)
		next[key].known.copyFrom(one.known)
		all = append(all, next[key])
	}
	if len(next) > 0 {
		in.byKey.Store(&next)
	}
	return all
}

// removeIdleLocked removes instances whose principals have been without sessions for a time, at
// most limit of them, those that were used the longest time ago first. The caller must end them.
// startup.mu is held.
func (in *instances) removeIdleLocked(idle time.Duration, limit int) (removed []*Backend) {
	open, now := in.b.set.sessions.principals(), time.Now()
	next := maps.Clone(in.all())
	for key, one := range next {
		if open[key] {
			one.instances.usedAt.Store(&now)
		}
	}
	for len(removed) < limit {
		oldest := ""
		for key, one := range next {
			used := one.instances.usedAt.Load()
			if !open[key] && now.Sub(*used) >= idle &&
				(oldest == "" || used.Before(*next[oldest].instances.usedAt.Load())) {
				oldest = key
			}
		}
		if oldest == "" {
			break
		}
		removed = append(removed, next[oldest])
		delete(next, oldest)
	}
	in.byKey.Store(&next)
	return removed
}

// end drains instances that were removed.
func (in *instances) end(removed []*Backend) {
	if len(removed) == 0 {
		return
	}
	in.b.set.publisher.addDraining(removed)
	for _, one := range removed {
		one.log.Info("connections of the principal ended: it has no session")
		one.drain()
	}
}

// endIdle ends the instances that are idle, until ctx is done.
func (in *instances) endIdle(ctx context.Context) {
	tick := time.NewTicker(instanceIdle / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		in.b.set.startup.mu.Lock()
		removed := in.removeIdleLocked(instanceIdle, maxInstances)
		in.b.set.startup.mu.Unlock()
		in.end(removed)
	}
}

// endWait lets lists be sent without the instance b if it is not settled after catalogWait.
func (in *instances) endWait(ctx context.Context) {
	select {
	case <-time.After(in.b.set.current().catalogWait):
		in.b.publish()
	case <-in.b.lists.settled:
	case <-ctx.Done():
	}
}
