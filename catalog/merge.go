// Package catalog merges the lists of many backends into one per [Kind]: tools, prompts, resources
// and resource templates. It maps exposed names and URIs to backends, and merges capabilities and
// instructions.
//
//	Merge, Next ─┬ names.go         assigns names to tools and prompts
//	             ├ moves.go         keeps names with their backends, reports moves
//	             ├ assignments.go   record of the names for the next run
//	             └ resource.go      URIs: the first backend that lists the URI, else the first
//	                                with a matching template, else the only backend with resources
//	Snapshot.Page          pages.go, written on first use
//	Snapshot.Capabilities  capabilities.go, merged on first use
//
// The package is pure: [Merge] takes listings and returns a [Snapshot], which never changes.
// Entries keep the backend's bytes except for the name and for repairs. Calls are routed without
// parsing exposed names: a table maps them to backends.
package catalog

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A Prefix determines which tools and prompts are exposed as backend__name.
type Prefix string

const (
	// PrefixOnCollision prefixes a name if another entry has the bare name, if another backend has
	// a name that looks like it, or if the bare name begins with the prefix of another backend.
	PrefixOnCollision Prefix = "collision"
	// PrefixAlways prefixes all names.
	PrefixAlways Prefix = "always"
	// PrefixNever prefixes no names. If several backends have entries with the same name, only one
	// of these entries is listed.
	PrefixNever Prefix = "never"
)

// Options determine the exposed names. The zero value prefixes on collision.
type Options struct {
	Prefix           Prefix
	ReservedBackends []string // backends without a listing whose prefixes are reserved as well
	Separator        string   // between backend and name; "" = __
	NameLimit        int      // bound of exposed names, in bytes; 0 = 50, less than 8 = 8
	PageSize         int      // bound of a page of several entries, in bytes; 0 = 4 MiB

	NameOwners *NameOwners // restricts the names of tools

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
	o.NameLimit = max(o.NameLimit, 8) // room for a letter, _ and a part of a hash
	return o
}

// A Listing contains the lists, capabilities and instructions of one backend.
type Listing struct {
	Backend      string
	Items        [NumKinds][]Item
	Capabilities []byte // from the handshake; nil = unknown
	Instructions string
	// Announcements counts how often each list was read again because the backend had announced a
	// change. The list may still be the same, but clients that cache its contents must be notified.
	Announcements [NumKinds]int
	// TTL is the time to live of each list, as the backend specified it; 0 = unspecified.
	TTL [NumKinds]time.Duration
	// Unknown is true for each list that was not read yet: names that the backend had are reserved.
	Unknown [NumKinds]bool
	// Private is true for each list that must not be shared between clients, because the backend
	// has not marked it as public or because a filter may hide a part of it.
	Private [NumKinds]bool
}

// An Entry is an item in the merged list.
type Entry struct {
	Exposed string // "" = not listed
	Backend string
	Item    Item
	// ConflictBackend is the backend that prevents the entry from having its bare name or URI,
	// because that backend has the bare name or URI or a name that looks like it, or because the
	// bare name begins with that backend's prefix; "" = none.
	ConflictBackend string
	// PrefixConflict is true if the bare name begins with ConflictBackend and the separator.
	PrefixConflict bool
	// the preferred name, without a prefix, or the URI; "" = none, because the item is built in
	bareName string
}

// Merge returns the catalog of the listings, which must be in the order of the configuration. This
// order alone decides which backend gets a bare name or URI, so that the result does not depend on
// the order in which backends start. A running gateway continues with [Snapshot.Next].
func Merge(o Options, listings []Listing) *Snapshot { return merge(o, listings, nil, false) }

// Next returns the catalog that follows s. If a backend has a bare name or URI in s, it keeps the
// name or URI as long as it lists the entry or its list is unknown, unless o prefixes all names or
// the name has the prefix of another backend. New names are assigned in the order of the listings.
// If reassign is true, the names in known lists are assigned as in [Merge].
// [Snapshot.Moves] returns the names whose backend has changed.
func (s *Snapshot) Next(o Options, listings []Listing, reassign bool) *Snapshot {
	return merge(o, listings, s, reassign)
}

func merge(o Options, listings []Listing, before *Snapshot, reassign bool) *Snapshot {
	o = o.withDefaults()
	s := new(Snapshot)
	s.declarations.set(listings)
	s.Instructions, s.InstructionsCut = instructions(o, listings)
	names := slices.Clone(o.ReservedBackends)
	for i := range s.listings {
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
		// appending does not move the entries, because the capacity suffices
		l.entries = appendEntries(l.entries, k, &s.listings[i], seen)
		ends[i] = len(l.entries)
	}
	for i := range l.entries {
		switch e := &l.entries[i]; {
		case e.Item.Builtin:
		case k.isNamed():
			e.bareName = n.bareNameOf(k, e)
		default:
			e.bareName = e.Item.Original
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
		var before rankedTemplates
		if previous != nil && !reassign {
			before = previous.templates
		}
		l.templates = rankTemplates(l.entries, ends, before)
	}
}

// appendEntries appends the items of a backend in their order. If several items have the same name,
// only the first item is appended, because the backend would call that one. seen must be empty;
// appendEntries adds the names.
func appendEntries(all []Entry, k Kind, l *Listing, seen map[string]bool) []Entry {
	for _, item := range l.Items[k] {
		if !seen[item.Original] {
			seen[item.Original] = true
			all = append(all, Entry{Backend: l.Backend, Item: item})
		}
	}
	return all
}

// buildAliases returns names that are not listed but identify exactly one entry: the entry's
// original name, and backend__name before and after [fitName]. It omits ambiguous names, names with
// the prefix of another backend, and names that look like a name of another backend. An original
// name is also omitted if its bare name, after fitName, is unavailable. Built-in entries have no
// such names.
func (n *namer) buildAliases(l *list) map[string]*Entry {
	aliases := make(map[string]*Entry, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		if e.Item.Builtin {
			continue
		}
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

// isAvailable reports whether a name does not have the prefix of another backend, does not belong
// to another backend (Options.NameOwners), and does not look like a name that another backend has.
func (n *namer) isAvailable(e *Entry, name string) bool {
	backend := n.backendOfKey(n.kind.foldKey(name))
	return (backend == "" || backend == e.Backend) && n.respectsPrefixes(e, name) &&
		n.approvedOwner(e, name) == ""
}
