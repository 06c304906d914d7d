// Package catalog makes one list out of those of many backends, for each
// [Kind]: tools, prompts, resources and templates of them. It knows which backend
// each name and each URI stands for, and what all of them together are capable of.
//
//	Merge, Next ─┬ names.go      tools and prompts: who gets which name
//	             ├ owners.go     who keeps the name that it had
//	             ├ record.go     who had it in the last run
//	             └ resource.go   URIs: the first has it; else a template, else the only one
//	Snapshot.Page          pages.go, written out when first asked for
//	Snapshot.Capabilities  capabilities.go, the same
//
// It is pure: [Merge] is given listings and returns a [Snapshot], which never
// changes. An entry's bytes are the backend's own but for the name, and for a
// schema that no client could bear. The package refuses to take a name apart: the
// way back from an exposed name to a backend is a table.
package catalog

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Prefix says when a tool or a prompt appears as backend__name.
type Prefix string

const (
	// PrefixOnCollision: when an earlier backend has the bare name.
	PrefixOnCollision Prefix = "collision"
	// PrefixAlways: all of them.
	PrefixAlways Prefix = "always"
	// PrefixNever: of those with one name the first is listed, the others are not.
	PrefixNever Prefix = "never"
)

// Options say how names are made. The zero value works: it prefixes on
// collision.
type Options struct {
	Prefix           Prefix
	ReservedBackends []string // backends that are known without a listing: their names are kept for them, too
	Separator        string   // between backend and name; "" = __
	NameLimit        int      // longest exposed name, in bytes, at least 8; 0 = 50
	PageSize         int      // bytes of one page of a list; 0 = 4 MiB

	Instructions        *string           // takes the place of the merged instructions; nil = nothing does
	BackendInstructions map[string]string // backend → what takes the place of its own instructions, "" = none
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
	Capabilities []byte // as it has told them in the handshake; nil = not known
	Instructions string
	// Announcements counts how often the backend has said that a list has changed. It need not
	// have: who caches what is in it is told all the same.
	Announcements [NumKinds]int
	// TTL is for how long a list is good, as the backend has said; 0 = it has not.
	TTL [NumKinds]time.Duration
	// Unknown says that a list was not read yet: the names in it that the backend has had are
	// kept for it.
	Unknown [NumKinds]bool
	// Private says that a list may not be shown to whoever asks: the backend has
	// said so, or has not said otherwise, or not all of it is shown.
	Private [NumKinds]bool
}

// An Entry is an item as it appears in the merged list.
type Entry struct {
	Exposed string // "" = it is not listed
	Backend string
	Item    Item
	// ConflictBackend is another backend, because of which the entry does not have its bare name or its URI; ""
	// if there is none. It has the name, or one that looks like it.
	ConflictBackend string
	// PrefixConflict says that the bare name begins with the name of Rival and the separator.
	PrefixConflict bool
	bare           string // the name that the entry has unless another backend has it, or the URI
}

// Merge makes one catalog of the listings, which must be in the order of the
// configuration: that order alone decides who keeps a bare name or a URI, so that
// they are the same however the backends start. A running gateway has [Snapshot.Next] for what
// follows.
func Merge(o Options, listings []Listing) *Snapshot { return merge(o, listings, nil, false) }

// Next makes the catalog that follows s. A backend that has a bare name or a URI in s keeps it for
// as long as it lists the entry, or its list is not known; what is new is given in the order of
// the listings. With anew the names of the lists that are known are given as by [Merge]. Either way
// [Snapshot.Moves] tells which names another backend has now.
func (s *Snapshot) Next(o Options, listings []Listing, anew bool) *Snapshot {
	return merge(o, listings, s, anew)
}

func merge(o Options, listings []Listing, before *Snapshot, anew bool) *Snapshot {
	o = o.withDefaults()
	s := &Snapshot{listings: slices.Clone(listings)}
	s.Instructions, s.InstructionsCut = instructions(o, listings)
	s.of = make(map[string]*Listing, len(listings))
	names := slices.Clone(o.ReservedBackends)
	for i := range s.listings {
		s.of[listings[i].Backend] = &s.listings[i]
		names = append(names, listings[i].Backend)
	}
	spaces := newSpaces(o.Separator, names)
	for k := range Kind(NumKinds) {
		var was *list
		if before != nil {
			was = &before.lists[k]
		}
		s.lists[k].merge(k, o, s, spaces, was, anew)
	}
	s.reader = sync.OnceValue(func() string { return onlyReader(s.listings) })
	for i, complete := range []bool{false, true} {
		s.capabilities[i] = sync.OnceValue(func() []byte { return s.union(complete) })
	}
	return s
}

func (l *list) merge(k Kind, o Options, s *Snapshot, spaces spaces, was *list, anew bool) {
	l.kind, l.always = k, o.Prefix == PrefixAlways && k.named()
	l.pages = sync.OnceValue(func() pages { return l.write(o.PageSize) })
	l.sum = sync.OnceValue(func() digest { return l.digest(o.PageSize) })
	n := &namer{Options: o, kind: k, spaces: spaces}
	l.aliases = sync.OnceValue(func() map[string]*Entry { return n.alias(l) })
	all := 0
	for i := range s.listings {
		all += len(s.listings[i].Items[k])
	}
	if all == 0 && was == nil {
		return
	}
	l.entries = make([]Entry, 0, all)
	l.routes = make(map[string]*Entry, all)
	n.taken, n.holders, n.owned = l.routes, make(map[string]string), make(map[string]holder)
	seen := make(map[string]bool)
	ends := make([]int, len(s.listings))
	for i := range s.listings {
		clear(seen)
		l.entries = appendEntries(l.entries, k, &s.listings[i], seen) // they stay where they are: there is room for all
		ends[i] = len(l.entries)
	}
	for i := range l.entries {
		e := &l.entries[i]
		if e.bare = e.Item.Original; k.named() {
			e.bare = n.bare(k, e)
		}
	}
	if was != nil && !l.always {
		if !anew {
			n.keep(l, was)
		}
		n.wait(l, was, s.of)
	}
	lo := 0
	for _, hi := range ends {
		if k.named() {
			n.name(l.entries[lo:hi])
		} else {
			n.claim(l.entries[lo:hi])
		}
		lo = hi
	}
	if was != nil {
		l.compare(was)
	}
	if k == Templates {
		l.rank(was, anew, ends)
	}
}

// appendEntries appends a backend's items in its own order. Of two with one name
// the first stays: it is the one that the backend would call. Seen is empty before.
func appendEntries(all []Entry, k Kind, l *Listing, seen map[string]bool) []Entry {
	for _, item := range l.Items[k] {
		if !seen[item.Original] {
			seen[item.Original] = true
			all = append(all, Entry{Backend: l.Backend, Item: item})
		}
	}
	return all
}

// alias returns the names that are not listed and yet mean one tool alone: its
// own spelling, and backend__name in either spelling. A name that could mean two
// is none, and neither is one that belongs to another backend or looks like a name that it has,
// also once it is mended.
func (n *namer) alias(l *list) map[string]*Entry {
	aliases := make(map[string]*Entry, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		for _, name := range []string{e.Item.Original, e.Backend + n.Separator + e.Item.Original, n.prefixed(n.kind, e)} {
			if _, listed := l.routes[name]; listed || !n.free(e, name) || name == e.Item.Original && !n.free(e, e.bare) {
				continue
			}
			if was, dup := aliases[name]; !dup {
				aliases[name] = e
			} else if was != e {
				aliases[name] = nil // several
			}
		}
	}
	maps.DeleteFunc(aliases, func(_ string, e *Entry) bool { return e == nil })
	return aliases
}

// free reports whether a name neither belongs to another backend nor looks like a name that
// another backend has.
func (n *namer) free(e *Entry, name string) bool {
	backend := n.holder(n.kind.key(name))
	return (backend == "" || backend == e.Backend) && n.may(e, name)
}
