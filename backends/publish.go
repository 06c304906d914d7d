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
	view    atomic.Pointer[catalog.View]
	changes atomic.Int64 // number of changes to publish so far
	// the views of clients with profiles
	audiences audienceTable

	mu        lockrank.Mutex[publisherRank]
	published int64         // value of changes when view was made
	waitOver  bool          // lists are sent without the backends that are not settled
	changed   chan struct{} // closed when view is replaced
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
	next.draining = t.draining
	for _, b := range t.all {
		if !next.has(b) {
			next.draining = append(next.draining[:len(next.draining):len(next.draining)], b)
		}
	}
	p.table.Store(next)
	for _, b := range next.all {
		b.lists.setLock(p.approved.lock.Load()) // it may have changed since b was created
	}
	p.publishLocked(next.orderChanged)
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
// lists could have been sent yet, names are assigned in configuration order.
func (p *publisher) publishLocked(reassign bool) {
	p.published = p.changes.Load() // before reading the listings
	t := p.table.Load()
	current := t.listings()
	previous := p.changed
	p.changed = make(chan struct{})
	reassign = reassign || !p.listsSent
	v := p.viewLocked(t, current, nil, p.lastSnapshot, reassign)
	if v.Settled {
		p.logMoves(v.Moves())
		p.approved.logLocked(v.Snapshot, t.pins)
		p.lastSnapshot, p.listsSent = v.Snapshot, true
	}
	p.names.logNames(v.Snapshot, t.catalog.Prefix)
	if v.Complete {
		p.names.logCut(v.InstructionsCut)
	}
	p.view.Store(v)
	p.audiences.removeIdleLocked()
	p.audiences.each(func(av *audienceView) { p.publishForLocked(av, t, current, reassign) })
	if previous != nil {
		close(previous)
	}
}

// A currentListing is the listing of a backend at one moment.
type currentListing struct {
	b       *Backend
	listing catalog.Listing
	settled bool
}

// listings returns the current listing of each backend.
func (t *backendTable) listings() []currentListing {
	all := make([]currentListing, 0, len(t.all))
	for _, b := range t.all {
		l, settled := b.lists.current()
		all = append(all, currentListing{b, l, settled})
	}
	return all
}

// viewLocked returns the view of an audience; nil = of the clients without profiles. before is the
// last snapshot whose lists these clients could receive.
func (p *publisher) viewLocked(t *backendTable, current []currentListing, a *audience,
	before *catalog.Snapshot, reassign bool) *catalog.View {
	var missing []string
	var listings []catalog.Listing
	for _, one := range current {
		l := one.listing
		if a != nil {
			if !a.hasBackend(one.b.cfg.Name) {
				continue
			}
			l = a.listing(one.b, l)
		} else if len(p.audiences.all()) > 0 { // the lists vary by authorization
			l.Private = allKinds
		}
		listings = append(listings, l)
		if !one.settled {
			missing = append(missing, one.b.cfg.Name+t.catalog.Separator)
		}
	}
	options := t.catalog
	options.NameOwners = p.approved.ownersLocked(t.pins)
	return &catalog.View{
		Snapshot:        before.Next(options, listings, reassign),
		Settled:         len(missing) == 0 || p.waitOver,
		Complete:        len(missing) == 0,
		MissingPrefixes: missing,
		Changed:         p.changed,
		Private:         len(p.audiences.all()) > 0,
	}
}

// publishForLocked makes the view of an audience.
func (p *publisher) publishForLocked(av *audienceView, t *backendTable, current []currentListing,
	reassign bool) {
	v := p.viewLocked(t, current, av.audience.Load(), av.lastSnapshot,
		reassign || av.lastSnapshot == nil)
	if v.Settled {
		av.lastSnapshot = v.Snapshot
	}
	av.view.Store(v)
}

// viewFor returns the current view of the clients with the profiles of a principal.
func (p *publisher) viewFor(who *principal.Principal) *catalog.View {
	if who.ProfileKey() == "" {
		return p.view.Load()
	}
	if v := p.audiences.lookup(who); v != nil {
		return v
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.audiences.lookup(who); v != nil {
		return v
	}
	t := p.table.Load()
	av := p.audiences.addLocked(who)
	p.publishForLocked(av, t, t.listings(), true)
	return av.view.Load()
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
