package catalog

import (
	"cmp"
	"iter"
	"slices"
)

// A Move says that a name or a URI belongs to another backend than it did.
type Move struct {
	Kind     Kind
	Name     string // or URI
	From, To string // backends
}

// maxReleased bounds the names of one kind of which the last backend is remembered when nobody
// has them any longer.
const maxReleased = 10_000

// Moves returns which names belong to another backend than in the snapshot that s follows. Names
// that nobody had in between count, too.
func (s *Snapshot) Moves() (all []Move) {
	for k := range s.lists {
		all = append(all, s.lists[k].moves...)
	}
	return all
}

// Assignments returns each listed bare name of a kind, with the backend that has it.
func (s *Snapshot) BareNames(k Kind) iter.Seq2[string, string] {
	return func(yield func(name, backend string) bool) {
		for i := range s.lists[k].entries {
			if e := &s.lists[k].entries[i]; s.lists[k].isBare(e) && !yield(e.Exposed, e.Backend) {
				return
			}
		}
	}
}

// keep gives entries the bare names and URIs that they had in was.
func (n *namer) keep(l, was *list) {
	for _, same := range []bool{true, false} { // another entry of the backend may need the name, too
		for i := range l.entries {
			e := &l.entries[i]
			before := was.owner(e.bare)
			if e.Exposed == "" && before.backend == e.Backend && (before.own == e.Item.Original) == same && n.take(e, e.bare) {
				n.own(e)
			}
		}
	}
}

// wait keeps the bare names and URIs of backends whose lists are not known for these.
func (n *namer) wait(l, was *list, of map[string]*Listing) {
	waits := func(backend string) bool { return of[backend] != nil && of[backend].Unknown[n.kind] }
	for i := range was.entries {
		if e := &was.entries[i]; was.isBare(e) && waits(e.Backend) {
			n.hold(l, e.Exposed, holder{e.Backend, e.Item.Original})
		}
	}
	for name, h := range was.kept {
		if waits(h.backend) {
			n.hold(l, name, h)
		}
	}
}

// hold keeps a name for a backend that does not list it now.
func (n *namer) hold(l *list, name string, h holder) {
	e := &Entry{Backend: h.backend, Item: Item{Original: h.own}}
	if n.taken[name] != nil || !n.may(e, name) {
		return
	}
	if l.kept == nil {
		l.kept = make(map[string]holder)
	}
	l.kept[name] = h
	n.holders[n.kind.key(name)] = h.backend
	n.owned[n.kind.key(h.own)] = h
}

// isBare reports whether an entry is listed under its bare name or its URI.
func (l *list) isBare(e *Entry) bool { return !l.always && e.Exposed != "" && e.Exposed == e.bare }

// owner returns who has a bare name or a URI; the zero holder if nobody has.
func (l *list) owner(name string) holder {
	if e := l.routes[name]; e != nil && l.isBare(e) {
		return holder{e.Backend, e.Item.Original}
	}
	return l.kept[name]
}

// backend returns who has a name, bare or not, or a URI; "" if nobody has.
func (l *list) backend(name string) string {
	if e := l.routes[name]; e != nil {
		return e.Backend
	}
	return l.kept[name].backend
}

// compare notes which names belong to another backend than they did in was, and which belong to
// nobody any longer.
func (l *list) compare(was *list) {
	last := func(name string) string { return cmp.Or(was.backend(name), was.released[name]) }
	for i := range l.entries {
		if e := &l.entries[i]; e.Exposed != "" {
			if before := last(e.Exposed); before != "" && before != e.Backend {
				l.moves = append(l.moves, Move{l.kind, e.Exposed, before, e.Backend})
			}
		}
	}
	release := func(name, backend string) {
		if l.backend(name) != "" || len(l.released) >= maxReleased {
			return
		}
		if l.released == nil {
			l.released = make(map[string]string)
		}
		l.released[name] = backend
	}
	for i := range was.entries {
		if e := &was.entries[i]; e.Exposed != "" {
			release(e.Exposed, e.Backend)
		}
	}
	for name, h := range was.kept {
		release(name, h.backend)
	}
	for name, backend := range was.released {
		release(name, backend)
	}
}

// A ranked template is one with the place of its backend among the listings.
type ranked struct {
	*Entry
	place int
}

// rank puts templates into the order in which they are tried for a URI: as before, and what is new
// behind it, so that a new template takes no URI from the backend that had it.
func (l *list) rank(was *list, anew bool, ends []int) {
	l.order = make([]ranked, 0, len(l.entries))
	for place, end := range ends {
		for i := len(l.order); i < end; i++ {
			l.order = append(l.order, ranked{&l.entries[i], place})
		}
	}
	if was == nil || anew {
		return
	}
	places := make(map[holder]int, len(was.order))
	for i, e := range was.order {
		places[holder{e.Backend, e.Item.Original}] = i
	}
	place := func(e ranked) int {
		if i, known := places[holder{e.Backend, e.Item.Original}]; known {
			return i
		}
		return len(places)
	}
	slices.SortStableFunc(l.order, func(a, b ranked) int { return cmp.Compare(place(a), place(b)) })
}
