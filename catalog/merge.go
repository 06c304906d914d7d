// Package catalog makes one list out of those of many backends, for each
// [Kind]: tools, prompts, resources and templates of them. It knows which backend
// each name and each URI stands for, and what all of them together are capable of.
//
//	Merge ─┬ names.go      tools and prompts: who gets which name
//	       └ resource.go   URIs: the first has it; else a template, else the only one
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
	// Collision: when an earlier backend has the bare name.
	Collision Prefix = "collision"
	// Always: all of them.
	Always Prefix = "always"
	// Never: of those with one name the first is listed, the others are not.
	Never Prefix = "never"
)

// Options say how names are made. The zero value works: it prefixes on
// collision.
type Options struct {
	Prefix    Prefix
	Separator string // between backend and name; "" = __
	NameLimit int    // longest exposed name, in bytes, at least 8; 0 = 50
	PageSize  int    // bytes of one page of a list; 0 = 4 MiB

	Instructions   *string           // takes the place of the merged instructions; nil = nothing does
	InstructionsOf map[string]string // backend → what takes the place of its own instructions, "" = none
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = Collision
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
	// Announced counts how often the backend has said that a list has changed. It need not
	// have: who caches what is in it is told all the same.
	Announced [NumKinds]int
	// TTL is for how long a list is good, as the backend has said; 0 = it has not.
	TTL [NumKinds]time.Duration
	// Private says that a list may not be shown to whoever asks: the backend has
	// said so, or has not said otherwise, or not all of it is shown.
	Private [NumKinds]bool
}

// An Entry is an item as it appears in the merged list.
type Entry struct {
	Exposed string // "" = it is not listed
	Backend string
	Item    Item
}

// Merge makes one catalog of the listings, which must be in the order of the
// configuration: that order alone decides who keeps a bare name or a URI, so that
// they are the same however the backends start.
func Merge(o Options, listings []Listing) *Snapshot {
	o = o.withDefaults()
	s := &Snapshot{listings: slices.Clone(listings)}
	s.Instructions, s.InstructionsCut = instructions(o, listings)
	s.of = make(map[string]*Listing, len(listings))
	for i := range s.listings {
		s.of[listings[i].Backend] = &s.listings[i]
	}
	for k := range Kind(NumKinds) {
		s.lists[k].merge(k, o, listings)
	}
	s.reader = sync.OnceValue(func() string { return onlyReader(s.listings) })
	for i, complete := range []bool{false, true} {
		s.capabilities[i] = sync.OnceValue(func() []byte { return s.union(complete) })
	}
	return s
}

func (l *list) merge(k Kind, o Options, listings []Listing) {
	l.kind = k
	l.pages = sync.OnceValue(func() pages { return l.write(o.PageSize) })
	l.sum = sync.OnceValue(func() digest { return l.digest(o.PageSize) })
	l.aliases = sync.OnceValue(func() map[string]*Entry { return l.alias(o) })
	all := 0
	for i := range listings {
		all += len(listings[i].Items[k])
	}
	if all == 0 {
		return
	}
	l.entries = make([]Entry, 0, all)
	l.routes = make(map[string]*Entry, all)
	n := namer{Options: o, kind: k, taken: l.routes, owned: make(map[string]bool, all)}
	seen := make(map[string]bool)
	for i := range listings {
		lo := len(l.entries)
		clear(seen)
		l.entries = appendEntries(l.entries, k, &listings[i], seen) // they stay where they are: there is room for all
		if k.named() {
			n.name(l.entries[lo:])
		} else {
			n.claim(l.entries[lo:])
		}
	}
}

// appendEntries appends a backend's items in its own order. Of two with one name
// the first stays: it is the one that the backend would call. Seen is empty before.
func appendEntries(all []Entry, k Kind, l *Listing, seen map[string]bool) []Entry {
	for _, item := range l.Items[k] {
		if !seen[item.Own] {
			seen[item.Own] = true
			all = append(all, Entry{Backend: l.Backend, Item: item})
		}
	}
	return all
}

// alias returns the names that are not listed and yet mean one tool alone: its
// own spelling, and backend__name in either spelling. A name that could mean two
// is none.
func (l *list) alias(o Options) map[string]*Entry {
	aliases := make(map[string]*Entry, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		for _, name := range []string{e.Item.Own, e.Backend + o.Separator + e.Item.Own, o.prefixed(l.kind, e)} {
			if _, listed := l.routes[name]; listed {
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
