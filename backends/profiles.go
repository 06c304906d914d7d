package backends

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/principal"
)

// An audience is the clients with the same profiles. They see the same part of the catalog, under
// names that are assigned within this part. An audience is immutable.
type audience struct {
	profiles []config.Profile // all of them apply
	// invalid is true if a profile does not exist: the audience sees nothing.
	invalid bool
}

// newAudience returns the audience of a principal's profiles, as they are defined in all.
func newAudience(names []string, all map[string]config.Profile) *audience {
	a := new(audience)
	for _, name := range names {
		profile, ok := all[name]
		a.invalid = a.invalid || !ok
		a.profiles = append(a.profiles, profile)
	}
	return a
}

// hasBackend reports whether the audience may use a backend at all.
func (a *audience) hasBackend(name string) bool {
	return !a.invalid && !slices.ContainsFunc(a.profiles, func(p config.Profile) bool {
		return p.Backends != nil && !slices.Contains(p.Backends, name)
	})
}

// permitsEntry reports whether the audience may use an entry of a backend's list.
func (a *audience) permitsEntry(b *Backend, k catalog.Kind, own string) bool {
	if !a.hasBackend(b.cfg.Name) {
		return false
	}
	for i := range a.profiles {
		p := &a.profiles[i]
		f := filtersOf(p)
		if !permitsEntry(&f, k, own) ||
			k == catalog.Tools && p.Tools.ReadOnly && !b.lists.isReadOnly(own) {
			return false
		}
	}
	return true
}

// permits reports whether the audience may send a request to a backend.
func (a *audience) permits(b *Backend, r *contract.BackendRequest) bool {
	if !a.hasBackend(b.cfg.Name) {
		return false
	}
	for i := range a.profiles {
		p := &a.profiles[i]
		f := filtersOf(p)
		if !permitsRequest(&f, r) || p.Tools.ReadOnly && callsTool(r) &&
			!b.lists.isReadOnly(ownName(r)) {
			return false
		}
	}
	return true
}

// filtersOf returns the filters of a profile.
func filtersOf(p *config.Profile) config.Filters {
	return config.Filters{Tools: p.Tools.Filter(), Prompts: p.Prompts, Resources: p.Resources}
}

// listing returns the part of a backend's listing that the audience may see.
func (a *audience) listing(b *Backend, l catalog.Listing) catalog.Listing {
	for k := range catalog.Kind(catalog.NumKinds) {
		l.Items[k] = slices.DeleteFunc(slices.Clone(l.Items[k]), func(i catalog.Item) bool {
			return !a.permitsEntry(b, k, i.Original)
		})
		l.Private[k] = true
	}
	return l
}

// An audienceView is the view of an audience.
type audienceView struct {
	names    []string // of the profiles
	audience atomic.Pointer[audience]
	view     atomic.Pointer[catalog.View]
	usedAt   atomic.Int64 // Unix time

	lastSnapshot *catalog.Snapshot // like publisher.lastSnapshot; guarded by publisher.mu
}

const (
	// maxAudiences bounds the audiences whose views are kept. The view of another audience is made
	// again when one of its clients sends the next request.
	maxAudiences = 64
	// audienceIdle is the time for which the view of an audience is kept without requests.
	audienceIdle = time.Hour
)

// An audienceTable contains the views of the audiences that were used lately, by
// principal.Principal.ProfileKey.
type audienceTable struct {
	profiles atomic.Pointer[map[string]config.Profile] // of the configuration
	views    atomic.Pointer[map[string]*audienceView]  // replaced with publisher.mu held
}

// of returns the audience of a principal with profiles.
func (t *audienceTable) of(p *principal.Principal) *audience {
	if views := t.views.Load(); views != nil {
		if av := (*views)[p.ProfileKey()]; av != nil {
			return av.audience.Load()
		}
	}
	return newAudience(p.Profiles(), t.all())
}

// all returns the profiles of the configuration.
func (t *audienceTable) all() map[string]config.Profile {
	if all := t.profiles.Load(); all != nil {
		return *all
	}
	return nil
}

// lookup returns the view of a principal's audience, nil if it is not kept.
func (t *audienceTable) lookup(p *principal.Principal) *catalog.View {
	if views := t.views.Load(); views != nil {
		if av := (*views)[p.ProfileKey()]; av != nil {
			av.usedAt.Store(time.Now().Unix())
			return av.view.Load()
		}
	}
	return nil
}

// addLocked adds the audience of a principal, and returns its audienceView without a view. At
// maxAudiences it removes the one that was used the longest time ago. publisher.mu is held.
func (t *audienceTable) addLocked(p *principal.Principal) *audienceView {
	next := make(map[string]*audienceView)
	if views := t.views.Load(); views != nil {
		maps.Copy(next, *views)
	}
	if len(next) >= maxAudiences {
		oldest := ""
		for key, av := range next {
			if oldest == "" || av.usedAt.Load() < next[oldest].usedAt.Load() {
				oldest = key
			}
		}
		delete(next, oldest)
	}
	av := &audienceView{names: p.Profiles()}
	av.audience.Store(newAudience(p.Profiles(), t.all()))
	av.usedAt.Store(time.Now().Unix())
	next[p.ProfileKey()] = av
	t.views.Store(&next)
	return av
}

// removeIdleLocked removes the audiences without requests. publisher.mu is held.
func (t *audienceTable) removeIdleLocked() {
	views := t.views.Load()
	if views == nil {
		return
	}
	since := time.Now().Add(-audienceIdle).Unix()
	isIdle := func(_ string, av *audienceView) bool { return av.usedAt.Load() < since }
	next := maps.Clone(*views)
	maps.DeleteFunc(next, isIdle)
	t.views.Store(&next)
}

// each calls f with each audienceView.
func (t *audienceTable) each(f func(*audienceView)) {
	if views := t.views.Load(); views != nil {
		for _, av := range *views {
			f(av)
		}
	}
}

// setProfiles replaces the profiles of the configuration. Requests are checked by the new profiles
// from now on; the views are made again by the next publish.
func (t *audienceTable) setProfiles(all map[string]config.Profile) {
	t.profiles.Store(&all)
	t.each(func(av *audienceView) { av.audience.Store(newAudience(av.names, all)) })
}
