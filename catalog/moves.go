package catalog

import "cmp"

// maxReleased bounds the number of unused names per kind whose last backend is remembered.
const maxReleased = 10_000

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

// reserve reserves a name for a backend whose list is unknown, unless an entry has the name, or the
// name has the prefix of another backend or belongs to another backend.
func (n *namer) reserve(l *list, name string, ref entryRef) {
	e := &Entry{Backend: ref.backend, Item: Item{Original: ref.original}}
	if n.assigned[name] != nil || !n.respectsPrefixes(e, name) ||
		n.approvedOwner(e, name) != "" {
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
