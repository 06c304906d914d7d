package backends

import (
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"mcpgateway/backends/internal/lockrank"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
)

// An audience is the clients with the same profiles and, if there are backends with a login for
// each principal, with the same principal. They see the same part of the catalog, under names that
// are assigned within this part. An audience is immutable.
type audience struct {
	principal string        // key; "" = any, or clients without authentication
	names     []string      // of the profiles
	profiles  []profileRule // all of them apply
	// invalid is true if a profile does not exist: the audience sees nothing.
	invalid bool
}

// A profileRule is a profile in the form in which requests are checked.
type profileRule struct {
	backends map[string]bool // nil = all
	filters  config.Filters
	readOnly bool // of the tools, only those with readOnlyHint: true
}

// newAudience returns the audience of a principal's profiles, as they are defined in all.
func newAudience(names []string, all profileTable) *audience {
	a := &audience{names: names}
	for _, name := range names {
		rules := all[name]
		a.invalid = a.invalid || len(rules) == 0
		a.profiles = append(a.profiles, rules...)
	}
	return a
}

// A profileTable contains the profiles by name. Of a profile with several rules all apply; see
// Set.RestrictProfiles.
type profileTable map[string][]profileRule

func newProfileTable(all map[string]config.Profile) profileTable {
	t := make(profileTable)
	for name, p := range all {
		rule := profileRule{readOnly: p.Tools.ReadOnly, filters: config.Filters{
			Tools: p.Tools.Filter(), Prompts: p.Prompts, Resources: p.Resources}}
		if p.Backends != nil {
			rule.backends = make(map[string]bool)
			for _, b := range p.Backends {
				rule.backends[b] = true
			}
		}
		t[name] = []profileRule{rule}
	}
	return t
}

// and returns the profiles in which both a profile of t and the one of the same name in other
// apply. A profile that only one of them has is unchanged.
func (t profileTable) and(other profileTable) profileTable {
	both := maps.Clone(t)
	for name, rules := range other {
		if !reflect.DeepEqual(rules, t[name]) {
			both[name] = slices.Concat(t[name], rules)
		}
	}
	return both
}

// hasBackend reports whether the audience may use the backend with this name in the configuration.
func (a *audience) hasBackend(name string) bool {
	return !a.invalid && !slices.ContainsFunc(a.profiles, func(p profileRule) bool {
		return p.backends != nil && !p.backends[name]
	})
}

// uses reports whether the audience may use a backend at all. While a reload replaces the backend,
// the profiles before the reload must permit the backend, and those after it the successor. So a
// renamed backend remains available, and a backend that loses its name to another one is not shown
// to clients that may only use the other one.
func (a *audience) uses(b *Backend) bool {
	if next := b.filters.replacement.Load(); next != nil {
		return a.hasBackend(next.name) &&
			newAudience(a.names, next.profilesBefore).hasBackend(b.cfg.Name)
	}
	return a.hasBackend(b.cfg.Name)
}

// rulesFor returns the rules for the entries of a backend: while a reload replaces the backend,
// also the rules before the reload.
func (a *audience) rulesFor(b *Backend) []profileRule {
	if next := b.filters.replacement.Load(); next != nil {
		return slices.Concat(a.profiles, newAudience(a.names, next.profilesBefore).profiles)
	}
	return a.profiles
}

// permitsEntry reports whether the audience may use an entry of a backend's list.
func (a *audience) permitsEntry(b *Backend, k catalog.Kind, own string) bool {
	return a.uses(b) && selects(a.rulesFor(b), b, k, own)
}

// selects reports whether all rules permit an entry of a backend's list.
func selects(rules []profileRule, b *Backend, k catalog.Kind, own string) bool {
	for i := range rules {
		if !permitsEntry(&rules[i].filters, k, own) ||
			k == catalog.Tools && rules[i].readOnly && !b.lists.isReadOnly(own) {
			return false
		}
	}
	return true
}

// permits reports whether the audience may send a request to a backend. Unlike filters, profiles
// also decide about requests that end a subscription, so that the response does not reveal that a
// hidden resource exists. The cancellation of a task is permitted, because the gateway also cancels
// tasks that no client gets; the gateway checks whether a client may know the task.
func (a *audience) permits(b *Backend, r *contract.BackendRequest) bool {
	method := r.Message.Method()
	if method == protocol.MethodTasksCancel {
		return true
	}
	if !a.uses(b) {
		return false
	}
	rules := a.rulesFor(b)
	for i := range rules {
		p := &rules[i]
		if !permitsRequest(&p.filters, r) ||
			p.readOnly && callsTool(r) && !b.lists.isReadOnly(ownName(r)) {
			return false
		}
	}
	return method != protocol.MethodResourcesUnsubscribe ||
		selects(rules, b, catalog.Resources, uriParam(r.Message))
}

// listing returns the part of a backend's listing that the audience may see. Changes that were
// announced to clients with profiles do not count: such clients are notified if what they see has
// changed, not if something hidden has.
func (a *audience) listing(b *Backend, l catalog.Listing) catalog.Listing {
	rules := a.rulesFor(b)
	if len(a.names) == 0 {
		return l
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		l.Items[k] = slices.DeleteFunc(slices.Clone(l.Items[k]), func(i catalog.Item) bool {
			if i.Builtin {
				return !permitLoginTool(rules)
			}
			return !selects(rules, b, k, i.Original)
		})
		l.Private[k] = true
	}
	l.Announcements = [catalog.NumKinds]int{}
	return l
}

// options returns the options of the audience's catalog: the prefixes and the approved names of
// hidden backends are not reserved.
func (a *audience) options(o catalog.Options) catalog.Options {
	o.NameOwners = o.NameOwners.Of(a.hasBackend)
	o.ReservedBackends = slices.DeleteFunc(slices.Clone(o.ReservedBackends),
		func(name string) bool { return !a.hasBackend(name) })
	return o
}

// An audienceView is the view of an audience.
type audienceView struct {
	audience atomic.Pointer[audience]
	usedAt   atomic.Int64 // Unix time
	current  atomic.Pointer[publishedView]

	mu           lockrank.Mutex[audienceRank] // held while the view is made
	lastSnapshot *catalog.Snapshot            // like publisher.lastSnapshot
}

// A publishedView is a view, and the publication and the audience that it was made for.
type publishedView struct {
	*catalog.View
	of       *publication
	audience *audience
}

// viewOf returns the view of a publication.
func (av *audienceView) viewOf(n *publication) *catalog.View {
	if v := av.current.Load(); v != nil && v.of == n && v.audience == av.audience.Load() {
		return v.View
	}
	av.mu.Lock()
	defer av.mu.Unlock()
	a, last := av.audience.Load(), av.current.Load()
	if last != nil && last.of == n && last.audience == a {
		return last.View
	}
	var v *catalog.View
	if last != nil && last.audience == a && last.of.isSame(n, a) {
		v = withChanged(last.View, n)
	} else {
		v = n.viewOf(a, av.lastSnapshot,
			av.lastSnapshot == nil || last != nil && last.of.reassigned != n.reassigned)
	}
	if v.Settled {
		av.lastSnapshot = v.Snapshot
	}
	av.current.Store(&publishedView{v, n, a})
	return v
}

const (
	// maxAudiences bounds the audiences whose views are kept. The view of another audience is made
	// again when one of its clients sends the next request.
	maxAudiences = 256
	// audienceIdle is the time for which the view of an audience is kept without requests.
	audienceIdle = time.Hour
)

// An audienceID identifies an audience.
type audienceID struct {
	profiles  string // principal.Principal.ProfileKey
	principal string // see audience.principal
}

// An audienceTable contains the views of the audiences that were used lately.
type audienceTable struct {
	profiles atomic.Pointer[profileTable]                 // replaced with publisher.mu held
	views    atomic.Pointer[map[audienceID]*audienceView] // replaced with publisher.mu held
}

// of returns an audience with the profiles of a principal, for the check of requests.
func (t *audienceTable) of(p *principal.Principal) *audience {
	if views := t.views.Load(); views != nil {
		for _, id := range []audienceID{{p.ProfileKey(), ""}, {p.ProfileKey(), p.Key()}} {
			if av := (*views)[id]; av != nil {
				return av.audience.Load()
			}
		}
	}
	return newAudience(p.Profiles(), t.all())
}

// all returns the profiles in force.
func (t *audienceTable) all() profileTable {
	if all := t.profiles.Load(); all != nil {
		return *all
	}
	return nil
}

// lookup returns an audienceView, nil if it is not kept.
func (t *audienceTable) lookup(id audienceID) *audienceView {
	if views := t.views.Load(); views != nil {
		if av := (*views)[id]; av != nil {
			av.usedAt.Store(time.Now().Unix())
			return av
		}
	}
	return nil
}

// addLocked adds the audience with some profiles, and returns its audienceView. At maxAudiences it
// removes the one that was used the longest time ago. publisher.mu is held.
func (t *audienceTable) addLocked(id audienceID, profiles []string) *audienceView {
	next := make(map[audienceID]*audienceView)
	if views := t.views.Load(); views != nil {
		maps.Copy(next, *views)
	}
	if len(next) >= maxAudiences {
		var oldest audienceID
		for key, av := range next {
			if oldest == (audienceID{}) || av.usedAt.Load() < next[oldest].usedAt.Load() {
				oldest = key
			}
		}
		delete(next, oldest)
	}
	av := new(audienceView)
	a := newAudience(profiles, t.all())
	a.principal = id.principal
	av.audience.Store(a)
	av.usedAt.Store(time.Now().Unix())
	next[id] = av
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
	isIdle := func(_ audienceID, av *audienceView) bool { return av.usedAt.Load() < since }
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

// setLocked replaces the profiles: requests are checked by the new ones from now on. publisher.mu
// is held, so that no audience with the previous profiles is added meanwhile.
func (t *audienceTable) setLocked(all profileTable) {
	t.profiles.Store(&all)
	t.each(func(av *audienceView) {
		last := av.audience.Load()
		next := newAudience(last.names, all)
		next.principal = last.principal
		av.audience.Store(next)
	})
}
