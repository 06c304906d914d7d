package backends

import (
	"log/slog"
	"slices"
	"sync/atomic"

	"mcpgateway/backends/internal/lockrank"
	"mcpgateway/catalog"
	"mcpgateway/internal/principal"
)

// A publisher holds the current table of backends, and the View that is made from their listings.
type publisher struct {
	log     *slog.Logger
	table   atomic.Pointer[backendTable] // replaced with mu held
	changes atomic.Int64                 // number of changes to publish so far
	shared  atomic.Int64                 // number of those that are not of a single instance
	// the views of clients with profiles, and what they are made from
	audiences audienceTable
	latest    atomic.Pointer[publication] // has the current View; replaced with mu held

	mu        lockrank.Mutex[publisherRank]
	published int64         // value of changes when view was made
	waitOver  bool          // lists are sent without the backends that are not settled
	changed   chan struct{} // closed when latest is replaced
	// the last snapshot whose lists clients could receive; at first, the names of the last run
	lastSnapshot *catalog.Snapshot
	// clients may have received lists in this run, so lastSnapshot is a snapshot of this run
	listsSent bool
	names     nameLog
	approved  approvedNames
}

// publish makes a View of the current listings, unless another goroutine has made one since the
// method publish was called. If two hundred backends start together, each has changes, and one
// merge serves many of them.
func (p *publisher) publish() {
	p.shared.Add(1)
	p.publishChange()
}

// publishInstance is like publish. The change concerns only the clients of one instance.
func (p *publisher) publishInstance(b *Backend) {
	b.instances.changes.Add(1)
	p.publishChange()
}

func (p *publisher) publishChange() {
	changes := p.changes.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.published < changes {
		p.publishLocked(false)
	}
}

// replaceTable makes the table next the current one, and publishes a View. The backends that are
// not in next are added to next.draining; the caller must drain them afterwards.
func (p *publisher) replaceTable(next *backendTable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.table.Load()
	next.draining = slices.Clone(t.draining)
	for b := range t.running() {
		if !next.has(b) {
			next.draining = append(next.draining, b)
		}
	}
	p.table.Store(next)
	for b := range next.running() {
		b.lists.setLock(p.approved.lock.Load()) // it may have changed since b was created
	}
	p.shared.Add(1)
	p.publishLocked(next.orderChanged)
}

// setProfiles replaces the profiles, and calls prepare before they take effect.
func (p *publisher) setProfiles(all profileTable, prepare func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	prepare()
	p.audiences.setLocked(all)
	p.shared.Add(1)
	p.publishLocked(false)
}

// addDraining adds instances that were removed to the draining backends.
func (p *publisher) addDraining(removed []*Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := *p.table.Load()
	t.draining = slices.Concat(t.draining, removed)
	p.table.Store(&t)
}

// removeDrained removes a backend that has ended from the draining ones.
func (p *publisher) removeDrained(b *Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := *p.table.Load()
	t.draining = slices.DeleteFunc(slices.Clone(t.draining),
		func(one *Backend) bool { return one == b })
	p.table.Store(&t)
}

// endWait lets lists be sent without the backends that are not settled.
func (p *publisher) endWait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitOver = true
}

// publishLocked makes a View. Names stay with the backends that have them. If reassign is set or no
// lists could have been sent yet, names are assigned in configuration order. The views of audiences
// are made when a client needs them.
func (p *publisher) publishLocked(reassign bool) {
	p.published = p.changes.Load() // before reading the listings
	previous := p.changed
	p.changed = make(chan struct{})
	next := &publication{table: p.table.Load(), waitOver: p.waitOver, changed: p.changed,
		shared: p.shared.Load()}
	next.setListings()
	next.varies = len(p.audiences.all()) > 0 || len(next.perPrincipal) > 0
	next.owners = p.approved.ownersLocked(next.table.pins)
	if last := p.latest.Load(); last != nil {
		next.reassigned = last.reassigned
	}
	if reassign {
		next.reassigned++
	}
	if last := p.latest.Load(); last != nil && last.isSame(next, nil) {
		next.view = withChanged(last.view, next)
	} else {
		next.view = p.makeViewLocked(next, reassign)
	}
	p.audiences.removeIdleLocked()
	p.latest.Store(next)
	if previous != nil {
		close(previous)
	}
}

// makeViewLocked makes and logs the view of the clients without profiles.
func (p *publisher) makeViewLocked(n *publication, reassign bool) *catalog.View {
	v := n.viewOf(nil, p.lastSnapshot, reassign || !p.listsSent)
	if v.Settled {
		p.logMoves(v.Moves())
		p.approved.logLocked(v.Snapshot, n.table.pins)
		p.lastSnapshot, p.listsSent = v.Snapshot, true
	}
	p.names.logNames(v.Snapshot, n.table.catalog.Prefix)
	if v.Complete {
		p.names.logCut(v.InstructionsCut)
	}
	return v
}

// A publication is the state of which views are made. It is immutable.
type publication struct {
	table        *backendTable
	listings     []currentListing
	perPrincipal []*currentListing // those of the listings whose backends have instances
	// of the clients without profiles; with oauth.per: principal, of those without authentication
	view       *catalog.View
	owners     *catalog.NameOwners // approved owners of names
	shared     int64               // value of publisher.shared when the listings were read
	waitOver   bool                // see publisher.waitOver
	varies     bool                // not all clients see the same
	changed    chan struct{}       // closed when there is a newer publication
	reassigned int                 // number of times that all names were reassigned so far
}

// A currentListing is the listing of a backend at one moment.
type currentListing struct {
	b        *Backend
	listing  catalog.Listing
	settled  bool
	isUnused bool // see instances.isUnused
	// lists are not sent without the backend, even after publisher.waitOver
	isAwaited bool
	changes   int64 // number of changes of an instance so far
	// listings of the instances, by principal; nil = the backend has no instances
	byPrincipal map[string]currentListing
}

// isSame reports whether nothing that an audience sees has changed from n to another publication.
func (n *publication) isSame(other *publication, a *audience) bool {
	if n.shared != other.shared || n.reassigned != other.reassigned {
		return false
	}
	if a == nil || a.principal == "" {
		return true
	}
	for i := range n.perPrincipal { // the tables are the same
		x, y := n.perPrincipal[i].of(a.principal), other.perPrincipal[i].of(a.principal)
		if x.b != y.b || x.changes != y.changes {
			return false
		}
	}
	return true
}

// withChanged returns a view that is still valid in a newer publication.
func withChanged(v *catalog.View, n *publication) *catalog.View {
	next := *v
	next.Changed = n.changed
	return &next
}

// setListings sets listings to the current listing of each backend.
func (n *publication) setListings() {
	n.listings = make([]currentListing, 0, len(n.table.all))
	for _, b := range n.table.all {
		one := newCurrentListing(b)
		if b.instances.enabled() {
			one.byPrincipal = make(map[string]currentListing)
			for key, instance := range b.instances.all() {
				one.byPrincipal[key] = newCurrentListing(instance)
			}
		}
		n.listings = append(n.listings, one)
	}
	for i := range n.listings {
		if one := &n.listings[i]; one.byPrincipal != nil {
			n.perPrincipal = append(n.perPrincipal, one)
		}
	}
}

func newCurrentListing(b *Backend) currentListing {
	one := currentListing{b: b, changes: b.instances.changes.Load(),
		isUnused: b.instances.isUnused()} // before reading the listing
	l, settled := b.lists.current()
	one.listing, one.settled = b.login.withTool(l), settled || one.isUnused
	one.isAwaited = !one.settled && b.instances.isAwaited()
	return one
}

// of returns the listing that the clients of a principal may see. A principal whose instance is not
// open gets an empty one.
func (l currentListing) of(p string) currentListing {
	if l.byPrincipal == nil || p == "" {
		return l
	}
	if own, ok := l.byPrincipal[p]; ok {
		return own
	}
	return currentListing{b: l.b, listing: catalog.Listing{Backend: l.b.cfg.Name,
		Private: allKinds, Unknown: allKinds}}
}

// viewOf returns the view of an audience; nil = of the clients without profiles. before is the last
// snapshot whose lists these clients could receive.
func (n *publication) viewOf(a *audience, before *catalog.Snapshot, reassign bool) *catalog.View {
	var missing []string
	var listings []catalog.Listing
	awaited := false
	options := n.table.catalog
	options.NameOwners = n.owners
	if a != nil {
		options = a.options(options)
	}
	for _, one := range n.listings {
		if a != nil {
			if !a.uses(one.b) {
				continue
			}
			one = one.of(a.principal)
			one.listing = a.listing(one.b, one.listing)
		}
		if n.varies { // by authorization
			one.listing.Private = allKinds
		}
		listings = append(listings, one.listing)
		if !one.settled {
			missing = append(missing, one.b.cfg.Name+n.table.catalog.Separator)
			awaited = awaited || one.isAwaited
		}
	}
	return &catalog.View{
		Snapshot:        before.Next(options, listings, reassign),
		Settled:         len(missing) == 0 || n.waitOver && !awaited,
		Complete:        len(missing) == 0,
		MissingPrefixes: missing,
		Changed:         n.changed,
		Private:         a != nil || n.varies,
	}
}

// viewFor returns the view of the audience of a principal in a publication. If it is newer than the
// last request of the audience, viewFor makes the view. The publication alone decides whether the
// view depends on the principal, so that during a reload no client gets the lists of another login.
func (p *publisher) viewFor(n *publication, who *principal.Principal) *catalog.View {
	id := audienceID{profiles: who.ProfileKey()}
	if len(n.perPrincipal) > 0 {
		id.principal = who.Key()
	}
	if id == (audienceID{}) {
		return n.view
	}
	av := p.audiences.lookup(id)
	if av == nil {
		p.mu.Lock()
		if av = p.audiences.lookup(id); av == nil {
			av = p.audiences.addLocked(id, who.Profiles())
		}
		p.mu.Unlock()
	}
	return av.viewOf(n)
}

// maxLoggedMoves bounds the log records about names that have moved to another backend. Each new
// view has its own count.
const maxLoggedMoves = 20

// logMoves logs the names that belong to another backend than in the preceding lists, of this run
// or the preceding run.
func (p *publisher) logMoves(moves []catalog.Move) {
	text := "name moved to another backend"
	if !p.listsSent {
		text = "name moved to another backend since the last run"
	}
	all := catalog.Transfers(moves)
	for _, t := range all[:min(len(all), maxLoggedMoves)] {
		p.log.Warn(text, logKey(t.Kind), firstNames(t.Names), "backend", t.To, "was", t.From)
	}
	if more := len(all) - maxLoggedMoves; more > 0 {
		p.log.Warn("further names moved to another backend", "records", more)
	}
}
