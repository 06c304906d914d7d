package catalog

import (
	"cmp"
	"iter"
	"slices"
)

// A Move is a name or URI whose backend has changed.
type Move struct {
	Kind     Kind
	Name     string // name or URI
	From, To string // backends
}

// maxReleased bounds the number of unused names per kind whose last backend is remembered.
const maxReleased = 10_000

// Moves returns the names and URIs whose backend differs from their backend in the previous
// snapshot or, for names that were unused in that snapshot, from their last backend.
func (s *Snapshot) Moves() (all []Move) {
	for k := range s.lists {
		all = append(all, s.lists[k].moves...)
	}
	return all
}

// BareNames returns each bare name or URI listed for a kind, and its backend.
func (s *Snapshot) BareNames(k Kind) iter.Seq2[string, string] {
	return func(yield func(name, backend string) bool) {
		for i := range s.lists[k].entries {
			if e := &s.lists[k].entries[i]; s.lists[k].isBare(e) && !yield(e.Exposed, e.Backend) {
				return
			}
		}
	}
}

// keepNames gives entries the bare names and URIs that their backends had in the previous list,
// unless a name has the prefix of another backend.
func (n *namer) keepNames(l, previous *list) {
	// Entries that had the bare name themselves come first, because two entries of a backend can
	// have the same bare name.
	for _, same := range []bool{true, false} {
		for i := range l.entries {
			e := &l.entries[i]
			before := previous.bareOwner(e.bareName)
			if e.Exposed == "" && before.backend == e.Backend &&
				(before.original == e.Item.Original) == same && n.claim(e, e.bareName) {
				n.noteOriginal(e)
			}
		}
	}
}

// reserveUnlisted reserves the bare names and URIs that backends whose lists are unknown had in the
// previous list.
func (n *namer) reserveUnlisted(l, previous *list, listings map[string]*Listing) {
	isUnknown := func(backend string) bool {
		return listings[backend] != nil && listings[backend].Unknown[n.kind]
	}
	for i := range previous.entries {
		if e := &previous.entries[i]; previous.isBare(e) && isUnknown(e.Backend) {
			n.reserve(l, e.Exposed, entryRef{e.Backend, e.Item.Original})
		}
	}
	for name, ref := range previous.reserved {
		if isUnknown(ref.backend) {
			n.reserve(l, name, ref)
		}
	}
}

// reserve reserves a name for a backend whose list is unknown, unless an entry has the name or the
// name has the prefix of another backend.
func (n *namer) reserve(l *list, name string, ref entryRef) {
	e := &Entry{Backend: ref.backend, Item: Item{Original: ref.original}}
	if n.assigned[name] != nil || !n.respectsPrefixes(e, name) {
		return
	}
	if l.reserved == nil {
		l.reserved = make(map[string]entryRef)
	}
	l.reserved[name] = ref
	n.backendByKey[n.kind.foldKey(name)] = ref.backend
	n.originals[n.kind.foldKey(ref.original)] = ref
}

// isBare reports whether an entry is listed under its bare name or its URI.
func (l *list) isBare(e *Entry) bool {
	return !l.alwaysPrefixed && e.Exposed != "" && e.Exposed == e.bareName
}

// bareOwner returns the entry that has a bare name or URI, or for which it is reserved; the zero
// entryRef if there is none.
func (l *list) bareOwner(name string) entryRef {
	if e := l.routes[name]; e != nil && l.isBare(e) {
		return entryRef{e.Backend, e.Item.Original}
	}
	return l.reserved[name]
}

// backendOf returns the backend that has a name, with or without prefix, or a URI, or for which it
// is reserved; "" if there is none.
func (l *list) backendOf(name string) string {
	if e := l.routes[name]; e != nil {
		return e.Backend
	}
	return l.reserved[name].backend
}

// noteMoves records the names whose backend differs from their backend in the previous list, and
// the names that are no longer used, up to maxReleased.
func (l *list) noteMoves(previous *list) {
	last := func(name string) string {
		return cmp.Or(previous.backendOf(name), previous.released[name])
	}
	for i := range l.entries {
		if e := &l.entries[i]; e.Exposed != "" {
			if before := last(e.Exposed); before != "" && before != e.Backend {
				l.moves = append(l.moves, Move{l.kind, e.Exposed, before, e.Backend})
			}
		}
	}
	release := func(name, backend string) {
		if l.backendOf(name) != "" || len(l.released) >= maxReleased {
			return
		}
		if l.released == nil {
			l.released = make(map[string]string)
		}
		l.released[name] = backend
	}
	for i := range previous.entries {
		if e := &previous.entries[i]; e.Exposed != "" {
			release(e.Exposed, e.Backend)
		}
	}
	for name, ref := range previous.reserved {
		release(name, ref.backend)
	}
	for name, backend := range previous.released {
		release(name, backend)
	}
}

// A rankedTemplate is a template with the index of its backend among the listings.
type rankedTemplate struct {
	*Entry
	backendIndex int
}

// orderTemplates determines the order in which templates are tried for a URI: first the templates
// of the previous list in their order, then new templates, so that a new template does not take a
// URI away from its backend. If there is no previous list or reassign is set, the order is that of
// the listings.
func (l *list) orderTemplates(previous *list, reassign bool, ends []int) {
	l.templateOrder = make([]rankedTemplate, 0, len(l.entries))
	for index, end := range ends {
		for i := len(l.templateOrder); i < end; i++ {
			l.templateOrder = append(l.templateOrder, rankedTemplate{&l.entries[i], index})
		}
	}
	if previous == nil || reassign {
		return
	}
	ranks := make(map[entryRef]int, len(previous.templateOrder))
	for i, e := range previous.templateOrder {
		ranks[entryRef{e.Backend, e.Item.Original}] = i
	}
	rank := func(e rankedTemplate) int {
		if i, known := ranks[entryRef{e.Backend, e.Item.Original}]; known {
			return i
		}
		return len(ranks)
	}
	slices.SortStableFunc(l.templateOrder, func(a, b rankedTemplate) int {
		return cmp.Compare(rank(a), rank(b))
	})
}
