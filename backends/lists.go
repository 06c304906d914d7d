package backends

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/backends/internal/catalogcache"
	"mcpgateway/backends/internal/lockrank"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/wire"
)

// lists contains the lists of a backend as they were last read, and which of them must be read
// again. listReader reads them. All methods may be called concurrently, except as stated.
type lists struct {
	filters *filterSet
	pins    *toolPins
	// names the client sessions that are open; the others get no notification
	sessions *clientSessions
	wake     func()        // starts the shared connection, if it is stopped, so that lists are read
	signal   chan struct{} // capacity 1: some lists must be read again
	settled  chan struct{} // closed when isSettled becomes true
	// replaced with mu held; read without, because calls are checked with other locks held
	toolIndex atomic.Pointer[toolIndex]

	mu        lockrank.Mutex[stateRank]
	list      [catalog.NumKinds]knownList
	listing   catalog.Listing // entries that the filters permit; Unknown is not set
	unmatched []string        // see Status.Unmatched
	// session → lists whose change the session's own connection has announced; after they are read
	// again, the session is notified
	announcedTo map[string]*[catalog.NumKinds]bool
	isSettled   bool // see Status.Settled
	// everSettled is true if the catalog of the backend is known, from a listing of this run or
	// from the cache, or the backend has failed once. Unlike isSettled it includes the cache.
	everSettled bool
	startupTime time.Duration // see Status.StartupTime
}

// A toolIndex is what calls need to know about the tools of a backend, by name. It is immutable.
type toolIndex struct {
	headerSchemas map[string][]byte      // see headerSchemas
	readOnly      func() map[string]bool // see readOnlyTools; computed on first use
}

// A knownList is one list of a backend as it was last read.
type knownList struct {
	raw        []byte         // before filtering (MarshalList); nil = not read
	items      []catalog.Item // entries of raw, including entries that the filters do not permit
	public     bool           // the backend marks the list as public
	expiresAt  time.Time      // zero = never
	err        error          // of the last listing; nil = it succeeded
	omitted    []catalog.Issue
	repaired   []catalog.Issue
	suspicious []catalog.Issue
	fresh      bool // raw was read in this run
	stale      bool // it must be read again
	announced  bool // the backend has announced a change, or refreshAll treats it as changed
}

func newLists(backend string, f *filterSet, p *toolPins, sessions *clientSessions,
	wake func()) *lists {
	return &lists{
		filters: f, pins: p, sessions: sessions, wake: wake,
		signal: make(chan struct{}, 1), settled: make(chan struct{}),
		listing: catalog.Listing{Backend: backend, Private: allKinds},
	}
}

// current returns the known listing, and everSettled.
func (l *lists) current() (catalog.Listing, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	listing := l.listing
	for k := range listing.Unknown {
		listing.Unknown[k] = l.list[k].raw == nil
	}
	return listing, l.everSettled
}

// fill sets the fields of a status that describe the lists.
func (l *lists) fill(s *Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Settled, s.StartupTime, s.Unmatched = l.isSettled, l.startupTime, l.unmatched
	s.Pins = l.pins.status()
	for k := range catalog.Kind(catalog.NumKinds) {
		one := &l.list[k]
		s.Counts[k] = len(l.listing.Items[k])
		s.Listed = s.Listed || one.raw != nil
		s.Omitted = append(s.Omitted, one.omitted...)
		s.Repaired = append(s.Repaired, one.repaired...)
		for _, i := range one.suspicious {
			if l.filters.permitsIssue(k, i) {
				s.Suspicious = append(s.Suspicious, i)
			}
		}
	}
}

// raw returns the lists before filtering; nil = not read.
func (l *lists) raw() (all [catalog.NumKinds][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range all {
		all[k] = l.list[k].raw
	}
	return all
}

// tools returns all tools that the backend lists; known is false if they were never read.
func (l *lists) tools() (items []catalog.Item, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.list[catalog.Tools]
	return t.items, t.raw != nil
}

// errs returns the error of the last listing of each list.
func (l *lists) errs() (all [catalog.NumKinds]error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range all {
		all[k] = l.list[k].err
	}
	return all
}

// wasListed reports whether the backend has been listed or has failed in this run.
func (l *lists) wasListed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isSettled
}

// hasUnread reports whether the tools were never listed, or changed lists were not read yet.
func (l *lists) hasUnread() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[catalog.Tools].raw == nil ||
		slices.ContainsFunc(l.list[:], func(one knownList) bool { return one.stale })
}

// denies reports whether the backend lists an entry and its filters deny it.
func (l *lists) denies(k catalog.Kind, own string) bool {
	if l.filters.of(k).IsZero() || l.filters.permitsEntry(k, own) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.list[k].items,
		func(i catalog.Item) bool { return i.Original == own })
}

// isReadOnly reports whether the backend lists a tool with the annotation readOnlyHint: true.
func (l *lists) isReadOnly(tool string) bool {
	index := l.toolIndex.Load()
	return index != nil && index.readOnly()[tool]
}

// readOnlyTools returns the names of the tools with the annotation readOnlyHint: true.
func readOnlyTools(items []catalog.Item) map[string]bool {
	all := make(map[string]bool)
	for _, i := range items {
		if hint, _ := wire.Lookup(i.Raw(), "annotations", "readOnlyHint"); string(hint) == "true" {
			all[i.Original] = true
		}
	}
	return all
}

// headerSchema returns the schema of a tool, if it names headers.
func (l *lists) headerSchema(tool string) []byte {
	if index := l.toolIndex.Load(); index != nil {
		return index.headerSchemas[tool]
	}
	return nil
}

// settle notes that the backend has failed. It reports whether there is anything to publish.
func (l *lists) settle(startupTime time.Duration) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settleLocked(startupTime, true)
}

// settleLocked notes that the backend has listed its catalog or failed. If counts is false, the
// backend does not become settled.
func (l *lists) settleLocked(startupTime time.Duration, counts bool) (changed bool) {
	if counts && !l.isSettled {
		l.isSettled = true
		close(l.settled)
	}
	l.startupTime = startupTime
	changed = counts && !l.everSettled
	l.everSettled = l.everSettled || counts
	return changed
}

// store stores the lists that were read, and the errors of the others. It settles like
// settleLocked. It reports whether there is anything to publish, and returns texts about new globs
// without a match; see updateUnmatchedLocked.
func (l *lists) store(read []*listRead, s serverInfo, startupTime time.Duration,
	counts bool) (changed bool, unmatched []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = l.settleLocked(startupTime, counts)
	for _, r := range read {
		one := &l.list[r.kind]
		changed = l.setTTLLocked(r, s) || changed
		if one.err = r.err; r.err != nil {
			continue
		}
		one.fresh = true
		one.omitted, one.suspicious, one.repaired = r.omitted, r.suspicious, r.repaired
		if string(r.raw) != string(one.raw) {
			one.raw = r.raw
			l.setItemsLocked(r.kind, r.items)
			changed = true
		}
		if one.announced {
			one.announced = false
			l.listing.Announcements[r.kind]++
			changed = true
		}
	}
	changed = changed || s.instructions() != l.listing.Instructions ||
		string(s.Capabilities) != string(l.listing.Capabilities)
	unmatched = l.updateUnmatchedLocked()
	l.listing.Instructions, l.listing.Capabilities = s.instructions(), s.Capabilities
	return changed, unmatched
}

// matches reports whether a content of the cache has these lists and declarations.
func (l *lists) matches(c *catalogcache.Content) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.list {
		if string(c.Raw[k]) != string(l.list[k].raw) {
			return false
		}
	}
	return l.listing.Instructions == c.Instructions &&
		string(l.listing.Capabilities) == string(c.Capabilities)
}

// load stores the complete lists of a former run or of a predecessor.
func (l *lists) load(c *catalogcache.Content) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listing.Instructions, l.listing.Capabilities = c.Instructions, c.Capabilities
	for k := range catalog.Kind(catalog.NumKinds) {
		l.list[k].raw = c.Raw[k]
		l.setItemsLocked(k, c.Items[k])
	}
	l.everSettled = true
}

// content returns all lists and declarations, if the catalog is known.
func (l *lists) content() (c catalogcache.Content, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Instructions, c.Capabilities = l.listing.Instructions, l.listing.Capabilities
	for k := range l.list {
		c.Raw[k], c.Items[k] = l.list[k].raw, l.list[k].items
	}
	return c, l.everSettled
}

// setItemsLocked stores all entries of a kind that the backend lists, and puts those that its
// filters permit, and that are not hidden because they are not approved, into the field listing.
func (l *lists) setItemsLocked(k catalog.Kind, items []catalog.Item) {
	l.list[k].items = items
	permitted := items
	if !l.filters.of(k).IsZero() {
		permitted = slices.DeleteFunc(slices.Clone(items),
			func(i catalog.Item) bool { return !l.filters.permitsEntry(k, i.Original) })
	}
	if k == catalog.Tools {
		l.toolIndex.Store(&toolIndex{headerSchemas(items),
			sync.OnceValue(func() map[string]bool { return readOnlyTools(items) })})
		permitted = l.pins.updateLocked(permitted)
	}
	l.listing.Items[k] = permitted
}

// setFilters replaces the filters, and updates the listing to the entries that the new filters
// permit. It returns texts about new globs without a match; see updateUnmatchedLocked.
func (l *lists) setFilters(f config.Filters) (unmatched []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.filters.inForce.Store(&f)
	for k := range catalog.Kind(catalog.NumKinds) {
		l.setItemsLocked(k, l.list[k].items)
		l.listing.Private[k] = !l.list[k].public || l.mayHideLocked(k)
	}
	return l.updateUnmatchedLocked()
}

// mayHideLocked reports whether entries of a list may be hidden from clients.
func (l *lists) mayHideLocked(k catalog.Kind) bool {
	return !l.filters.of(k).IsZero() || k == catalog.Tools && l.pins.blocks()
}

// setPin replaces the value of tools.pin, and reports whether it has changed.
func (l *lists) setPin(mode config.Pin) bool {
	return l.setPins(func(s *pinState) { s.mode = mode })
}

// setLock replaces the content of the lock file.
func (l *lists) setLock(lock *pins.Lock) { l.setPins(func(s *pinState) { s.lock = lock }) }

// setPins changes the mode or the lock of the pins, and updates the listing. It reports whether
// anything has changed.
func (l *lists) setPins(change func(*pinState)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.pins.inForce.Load()
	next := *was
	if change(&next); next.mode == was.mode && next.lock == was.lock {
		return false
	}
	l.pins.inForce.Store(&next)
	l.setItemsLocked(catalog.Tools, l.list[catalog.Tools].items)
	l.listing.Private[catalog.Tools] = !l.list[catalog.Tools].public ||
		l.mayHideLocked(catalog.Tools)
	return true
}

// freshTools returns the tools that the backend has listed in this run and its filters permit;
// known is false if it has not listed them yet.
func (l *lists) freshTools() (tools []catalog.Item, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.list[catalog.Tools]
	for _, item := range t.items {
		if l.filters.permitsEntry(catalog.Tools, item.Original) {
			tools = append(tools, item)
		}
	}
	return tools, t.fresh
}

// updateUnmatchedLocked notes which globs of the filters match nothing that the backend lists. It
// returns a text for each kind with a new unmatched glob, for the log. A list that was never read
// is skipped. Resources are also skipped if there are templates, because a glob may be meant for
// URIs that the templates expand to.
func (l *lists) updateUnmatchedLocked() (texts []string) {
	known := l.unmatched
	l.unmatched = nil
	f := l.filters.inForce.Load()
	for _, of := range []struct {
		kind   catalog.Kind
		key    string
		filter config.Filter
	}{{catalog.Tools, "tools", f.Tools}, {catalog.Prompts, "prompts", f.Prompts},
		{catalog.Resources, "resources", f.Resources}} {
		if l.list[of.kind].raw == nil ||
			of.kind == catalog.Resources && len(l.list[catalog.Templates].items) > 0 {
			continue
		}
		var names []string
		for _, item := range l.list[of.kind].items {
			names = append(names, item.Original)
		}
		globs := of.filter.Unmatched(of.key, names)
		if of.kind == catalog.Tools {
			globs = append(globs, config.Unmatched("tools.confirm", f.Confirm, names)...)
		}
		if slices.ContainsFunc(globs,
			func(glob string) bool { return !slices.Contains(known, glob) }) {
			texts = append(texts, strings.Join(globs, ", "))
		}
		l.unmatched = append(l.unmatched, globs...)
	}
	return texts
}
