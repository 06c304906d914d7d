package backends

import (
	"context"
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

// instances describe the relation between a backend in the table and its instances.
type instances struct {
	// Of an instance:
	owner    *principal.Principal // nil = the Backend is no instance
	openedAt time.Time
	changes  atomic.Int64 // see publisher.publishInstance
	usedAt   time.Time    // when the principal was last known to have a session; startup.mu is held

	// Of the backend in the table:
	byKey     atomic.Pointer[map[string]*Backend] // by principal; replaced with startup.mu held
	ownWanted atomic.Bool                         // there was a client without authentication
}

// isPerPrincipal reports whether the backend in the table has instances.
func (b *Backend) isPerPrincipal() bool { return b.cfg.OAuth.Per == config.PerPrincipal }

// instanceOf returns the instance of the principal with a key, nil if there is none.
func (b *Backend) instanceOf(key string) *Backend {
	if all := b.instances.byKey.Load(); all != nil {
		return (*all)[key]
	}
	return nil
}

// withInstances returns the backend and its instances.
func (b *Backend) withInstances() []*Backend {
	some := []*Backend{b}
	if all := b.instances.byKey.Load(); all != nil {
		for _, one := range *all {
			some = append(some, one)
		}
	}
	return some
}

// serves reports whether the backend serves the clients of a principal. b may be an instance.
func (b *Backend) serves(key string) bool {
	return !b.isPerPrincipal() || b.instances.owner.Key() == key
}

// waitsForLists reports whether lists are not sent yet, because the instance was opened less than
// catalogWait ago.
func (b *Backend) waitsForLists() bool {
	return b.instances.owner != nil &&
		time.Since(b.instances.openedAt) < b.set.current().catalogWait
}

// backend returns the backend that serves the clients of a principal: with oauth.per: principal,
// the instance of the principal, which is opened if there is none. If there is no backend of this
// name, the error says why.
func (s *Set) backend(name string, p *principal.Principal) (*Backend, error) {
	t := s.current()
	b := t.byName[name]
	switch {
	case b == nil:
		return nil, t.whyAbsent(name)
	case !b.isPerPrincipal():
		return b, nil
	case p.Key() == "":
		if b.instances.ownWanted.CompareAndSwap(false, true) {
			b.shared.wake()
		}
		return b, nil
	}
	if one := b.instanceOf(p.Key()); one != nil {
		return one, nil
	}
	return s.openInstance(name, p)
}

// backendOf returns the backend that serves a session; see the method backend. The session must be
// open if the backend has instances: without its principal, the request could get the access of
// another one.
func (s *Set) backendOf(name, session string) (*Backend, error) {
	b := s.current().byName[name]
	if b != nil && !b.isPerPrincipal() {
		return b, nil
	}
	who, open := s.sessions.identity(session)
	if b != nil && !open {
		return nil, notSent("%w", errSessionOver)
	}
	return s.backend(name, who)
}

// openInstances opens the missing instances of a principal.
func (s *Set) openInstances(p *principal.Principal) {
	for _, b := range s.current().perPrincipal {
		_, _ = s.backend(b.cfg.Name, p) // calls get the error
	}
}

// openInstance opens the instance of a principal, unless another goroutine has opened it.
func (s *Set) openInstance(name string, p *principal.Principal) (*Backend, error) {
	s.startup.mu.Lock()
	t := s.current()
	b := t.byName[name]
	if b == nil || !b.isPerPrincipal() || b.instanceOf(p.Key()) != nil {
		s.startup.mu.Unlock()
		return s.backend(name, p) // a reload, or another goroutine, was faster
	}
	var ended []*Backend
	if all := b.instances.byKey.Load(); all != nil && len(*all) >= maxInstances {
		if ended = s.removeIdleLocked(b, 0, 1); len(ended) == 0 {
			s.startup.mu.Unlock()
			return nil, errTooManyInstances
		}
	}
	one := newInstance(b, p)
	next := map[string]*Backend{p.Key(): one}
	if all := b.instances.byKey.Load(); all != nil {
		maps.Copy(next, *all)
	}
	b.instances.byKey.Store(&next)
	launched := !s.startup.at.IsZero()
	s.startup.mu.Unlock()

	one.lists.setLock(s.publisher.approved.lock.Load()) // it may have changed meanwhile
	s.end(ended)
	if launched {
		one.start()
	}
	s.publisher.publishInstance(one)
	return one, nil
}

// removeIdleLocked removes instances of principals that have been without sessions for a time, at
// most limit of them, those that were used the longest time ago first. The caller must end them.
// startup.mu is held.
func (s *Set) removeIdleLocked(b *Backend, idle time.Duration, limit int) (removed []*Backend) {
	all, now := b.instances.byKey.Load(), time.Now()
	if all == nil {
		return nil
	}
	next, open := maps.Clone(*all), s.sessions.principals()
	for key, one := range next {
		if open[key] {
			one.instances.usedAt = now
		}
	}
	for len(removed) < limit {
		oldest := ""
		for key, one := range next {
			if !open[key] && now.Sub(one.instances.usedAt) >= idle && (oldest == "" ||
				one.instances.usedAt.Before(next[oldest].instances.usedAt)) {
				oldest = key
			}
		}
		if oldest == "" {
			break
		}
		removed = append(removed, next[oldest])
		delete(next, oldest)
	}
	b.instances.byKey.Store(&next)
	return removed
}

// end drains instances that were removed.
func (s *Set) end(removed []*Backend) {
	if len(removed) == 0 {
		return
	}
	s.publisher.addDraining(removed)
	for _, one := range removed {
		one.log.Info("connections of the principal ended: it has no session")
		one.drain()
	}
}

// endIdleInstances ends the instances of a backend in the table that are idle, until ctx is done.
func (b *Backend) endIdleInstances(ctx context.Context) {
	tick := time.NewTicker(instanceIdle / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s := b.set
		s.startup.mu.Lock()
		removed := s.removeIdleLocked(b, instanceIdle, maxInstances)
		s.startup.mu.Unlock()
		s.end(removed)
	}
}

// endWait lets lists be sent without the instance if it is not settled after catalogWait.
func (b *Backend) endWait(ctx context.Context) {
	select {
	case <-time.After(b.set.current().catalogWait):
		b.publish()
	case <-b.lists.settled:
	case <-ctx.Done():
	}
}

// newInstance returns the instance of a backend for a principal.
func newInstance(of *Backend, p *principal.Principal) *Backend {
	b := &Backend{set: of.set, cfg: of.cfg, log: of.log.With(p.LogAttrs()...),
		limiter: of.limiter, receiveQuota: of.receiveQuota, filters: of.filters}
	now := time.Now()
	b.instances.owner, b.instances.openedAt, b.instances.usedAt = p, now, now
	b.init(of.known.detection, of.lists.pins.inForce.Load().mode)
	return b
}

// isUnused reports whether only instances of the backend were used so far.
func (b *Backend) isUnused() bool {
	return b.isPerPrincipal() && b.instances.owner == nil && !b.instances.ownWanted.Load()
}
