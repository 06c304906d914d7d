// Package catalog merges the lists of many backends into one per [Kind]: tools, prompts, resources
// and resource templates. It maps exposed names and URIs to backends, and merges capabilities and
// instructions.
//
//	Merge, Next ─┬ names.go         assigns names to tools and prompts
//	             ├ moves.go         keeps names with their backends, reports moves
//	             ├ assignments.go   record of the names for the next run
//	             └ resource.go      URIs: first backend that lists it, then templates, then the
//	                                only backend
//	Snapshot.Page          pages.go, written on first use
//	Snapshot.Capabilities  capabilities.go, the same
//
// The package is pure: [Merge] takes listings and returns a [Snapshot], which never changes.
// Entries keep the backend's bytes except for the name and for repairs. Exposed names are never
// parsed: a table maps them to backends.
package catalog

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A Prefix determines when a tool or prompt is exposed as backend__name.
type Prefix string

const (
	// PrefixOnCollision prefixes a name if an earlier backend has the bare name.
	PrefixOnCollision Prefix = "collision"
	// PrefixAlways prefixes all names.
	PrefixAlways Prefix = "always"
	// PrefixNever prefixes no names. Of entries with the same name only the first is listed.
	PrefixNever Prefix = "never"
)

// Options determine the exposed names. The zero value prefixes on collision.
type Options struct {
	Prefix           Prefix
	ReservedBackends []string // backends without a listing whose prefixes are reserved as well
	Separator        string   // between backend and name; "" = __
	NameLimit        int      // length of exposed names, in bytes, at least 8; 0 = 50
	PageSize         int      // bytes per page of a list; 0 = 4 MiB

	Instructions        *string           // replaces the merged instructions; nil = not replaced
	BackendInstructions map[string]string // by backend: replaces its instructions, "" = none
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = PrefixOnCollision
	}
	if o.Separator == "" {
		o.Separator = "__"
	}
	if o.NameLimit == 0 {
		o.NameLimit = 50
	}
	if o.PageSize == 0 {
		o.PageSize = 4 << 20
	}
	o.NameLimit = max(o.NameLimit, 8) // a letter, _ and enough of a hash
	return o
}

// A Listing is what one backend offers.
type Listing struct {
	Backend      string
	Items        [NumKinds][]Item
	Capabilities []byte // from the handshake; nil = unknown
	Instructions string
	// Announcements counts the list_changed notifications of the backend. The list may still be
	// the same, but clients that cache its contents must be notified.
	Announcements [NumKinds]int
	// TTL is how long a list is fresh, as the backend specified; 0 = unspecified.
	TTL [NumKinds]time.Duration
	// Unknown is true if a list was not read yet: names that the backend had are reserved for it.
	Unknown [NumKinds]bool
	// Private is true if a list must not be shared between clients: the backend said so or said
	// nothing, or a filter hides a part of it.
	Private [NumKinds]bool
}

// An Entry is an item in the merged list.
type Entry struct {
	Exposed string // "" = not listed
	Backend string
	Item    Item
	// ConflictBackend is the backend because of which the entry does not have its bare name or
	// URI: it has that name, or one that looks like it. "" = none.
	ConflictBackend string
	// PrefixConflict is true if the bare name begins with ConflictBackend and the separator.
	PrefixConflict bool
	bareName       string // the name unless another backend has it, or the URI
}

// Merge returns the catalog of the listings. They must be in the order of the configuration: only
// that order decides which backend has a bare name or URI, so that the result does not depend on
// the order in which backends start. A running gateway continues with [Snapshot.Next].
func Merge(o Options, listings []Listing) *Snapshot { return merge(o, listings, nil, false) }

// Next returns the catalog that follows s. A backend keeps a bare name or URI that it has in s
// while it lists the entry or its list is unknown; new names are assigned in the order of the
// listings. If reassign is true, the names in known lists are assigned as by [Merge].
// [Snapshot.Moves] returns the names that have changed their backend.
func (s *Snapshot) Next(o Options, listings []Listing, reassign bool) *Snapshot {
	return merge(o, listings, s, reassign)
}

func merge(o Options, listings []Listing, before *Snapshot, reassign bool) *Snapshot {
	o = o.withDefaults()
	s := &Snapshot{listings: slices.Clone(listings)}
	s.Instructions, s.InstructionsCut = instructions(o, listings)
	s.byBackend = make(map[string]*Listing, len(listings))
	names := slices.Clone(o.ReservedBackends)
	for i := range s.listings {
		s.byBackend[listings[i].Backend] = &s.listings[i]
		names = append(names, listings[i].Backend)
	}
	prefixes := newPrefixTable(o.Separator, names)
	for k := range Kind(NumKinds) {
		var previous *list
		if before != nil {
			previous = &before.lists[k]
		}
		s.lists[k].merge(k, o, s, prefixes, previous, reassign)
	}
	s.onlyResourceBackend = sync.OnceValue(func() string {
		return findOnlyResourceBackend(s.listings)
	})
	for i, complete := range []bool{false, true} {
		s.capabilities[i] = sync.OnceValue(func() []byte { return s.mergedCapabilities(complete) })
	}
	return s
}

func (l *list) merge(
	k Kind, o Options, s *Snapshot, prefixes prefixTable, previous *list, reassign bool,
) {
	l.kind, l.alwaysPrefixed = k, o.Prefix == PrefixAlways && k.isNamed()
	l.pages = sync.OnceValue(func() pages { return l.writePages(o.PageSize) })
	l.sum = sync.OnceValue(func() textDigest { return l.digest(o.PageSize) })
	n := &namer{Options: o, kind: k, prefixes: prefixes}
	l.aliases = sync.OnceValue(func() map[string]*Entry { return n.buildAliases(l) })
	all := 0
	for i := range s.listings {
		all += len(s.listings[i].Items[k])
	}
	if all == 0 && previous == nil {
		return
	}
	l.entries = make([]Entry, 0, all)
	l.routes = make(map[string]*Entry, all)
	n.assigned, n.backendByKey, n.originals = l.routes, make(map[string]string),
		make(map[string]entryRef)
	seen := make(map[string]bool)
	ends := make([]int, len(s.listings))
	for i := range s.listings {
		clear(seen)
		// entries do not move, because there is enough capacity
		l.entries = appendEntries(l.entries, k, &s.listings[i], seen)
		ends[i] = len(l.entries)
	}
	for i := range l.entries {
		e := &l.entries[i]
		if e.bareName = e.Item.Original; k.isNamed() {
			e.bareName = n.bareNameOf(k, e)
		}
	}
	if previous != nil && !l.alwaysPrefixed {
		if !reassign {
			n.keepNames(l, previous)
		}
		n.reserveUnlisted(l, previous, s.byBackend)
	}
	lo := 0
	for _, hi := range ends {
		if k.isNamed() {
			n.assignNames(l.entries[lo:hi])
		} else {
			n.claimURIs(l.entries[lo:hi])
		}
		lo = hi
	}
	if previous != nil {
		l.noteMoves(previous)
	}
	if k == Templates {
		l.orderTemplates(previous, reassign, ends)
	}
}

// appendEntries appends the items of a backend in their order. Of items with the same name the
// first one counts, because the backend would call that. seen is empty.
func appendEntries(all []Entry, k Kind, l *Listing, seen map[string]bool) []Entry {
	for _, item := range l.Items[k] {
		if !seen[item.Original] {
			seen[item.Original] = true
			all = append(all, Entry{Backend: l.Backend, Item: item})
		}
	}
	return all
}

// buildAliases returns the names that are not listed but can only mean one entry: its original
// name, and backend__name in either spelling. It omits names with two meanings, names with the
// prefix of another backend, and names that look like one that another backend has, before or
// after [fitName].
func (n *namer) buildAliases(l *list) map[string]*Entry {
	aliases := make(map[string]*Entry, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		for _, name := range []string{e.Item.Original, e.Backend + n.Separator + e.Item.Original,
			n.prefixedNameOf(n.kind, e)} {
			if _, listed := l.routes[name]; listed || !n.isAvailable(e, name) ||
				name == e.Item.Original && !n.isAvailable(e, e.bareName) {
				continue
			}
			if other, dup := aliases[name]; !dup {
				aliases[name] = e
			} else if other != e {
				aliases[name] = nil // ambiguous
			}
		}
	}
	maps.DeleteFunc(aliases, func(_ string, e *Entry) bool { return e == nil })
	return aliases
}

// isAvailable reports whether a name does not have the prefix of another backend and does not look
// like a name that another backend has.
func (n *namer) isAvailable(e *Entry, name string) bool {
	backend := n.backendOfKey(n.kind.foldKey(name))
	return (backend == "" || backend == e.Backend) && n.respectsPrefixes(e, name)
}
