package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"mcpgateway/internal/text"
)

// fitName converts name to a form that every client accepts: ASCII letters, digits, _ and -, a
// letter or digit first, at most limit bytes. A valid name is returned unchanged. A truncated name
// gets a hash of unique, so that the result depends only on the arguments and is the same at every
// start. base and such a hash replace a name that has no letter or digit.
func fitName(name, base, unique string, limit int) string {
	if isValidName(name, limit) {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		switch {
		case r < 0x80 && isAlnum(byte(r)):
			b.WriteByte(byte(r))
		case b.Len() == 0: // not at the start
		case r == '-':
			b.WriteByte('-')
		default:
			b.WriteByte('_')
		}
	}
	switch s := b.String(); {
	case s == "":
		return withHash(base, unique, limit)
	case len(s) > limit:
		return withHash(s, unique, limit)
	default:
		return s
	}
}

func isValidName(name string, limit int) bool {
	if name == "" || len(name) > limit || !isAlnum(name[0]) {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isAlnum(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// withHash appends a hash of unique to name. If the result would exceed limit, it truncates name
// and then, if necessary, the hash. The result keeps at least one byte of name, because it must
// begin with a letter or digit.
func withHash(name, unique string, limit int) string {
	sum := sha256.Sum256([]byte(unique))
	tail := "_" + hex.EncodeToString(sum[:4])
	head := name[:min(len(name), max(limit-len(tail), 1))]
	return head + tail[:min(len(tail), limit-len(head))]
}

// A namer assigns each exposed name to one entry.
type namer struct {
	Options
	kind     Kind
	prefixes prefixTable
	assigned map[string]*Entry // by exposed name
	// backendByKey contains, by foldKey of a name, the backend that has the name, if assigned has
	// no entry for the key: the name differs from the key, or is reserved for a backend whose list
	// is unknown.
	backendByKey map[string]string
	// originals contains, by foldKey of an original name, the entry that owns this name, although
	// the entry is exposed under another name or its list is unknown: see noteOriginal and reserve.
	originals map[string]entryRef
}

// An entryRef identifies an entry: its backend and the backend's name for it.
type entryRef struct{ backend, original string }

// backendOfKey returns the backend that has a name with this key, "" if there is none.
func (n *namer) backendOfKey(key string) string {
	if e := n.assigned[key]; e != nil {
		return e.Backend
	}
	return n.backendByKey[key]
}

// foldKey returns a key that is equal for names that clients may confuse. URIs are compared
// exactly.
func (k Kind) foldKey(name string) string {
	if k.isNamed() {
		return fold(name)
	}
	return name
}

// fold returns a name in lower case, with - replaced by _. Some clients cannot distinguish two
// names with the same result, and such names look alike to a model.
func fold(name string) string {
	at := 0
	for at < len(name) && name[at] != '-' && (name[at] < 'A' || name[at] > 'Z') {
		at++
	}
	if at == len(name) {
		return name
	}
	b := []byte(name) // of the same length: only ASCII is folded
	for i := at; i < len(b); i++ {
		switch c := b[i]; {
		case 'A' <= c && c <= 'Z':
			b[i] = c + 'a' - 'A'
		case c == '-':
			b[i] = '_'
		}
	}
	return string(b)
}

const shownNameBytes = 128 // bound of another entry's name in an issue, in bytes

// FindLookAlikes returns an issue for each tool or prompt in a backend's list whose name differs
// from the name of an earlier entry, but which some clients cannot distinguish from it. For other
// kinds it returns nil.
func FindLookAlikes(k Kind, items []Item) []Issue {
	if !k.isNamed() {
		return nil
	}
	var issues []Issue
	first := make(map[string]string, len(items))
	for i := range items {
		original := items[i].Original
		earlier, known := first[fold(original)]
		switch {
		case !known:
			first[fold(original)] = original
		case earlier != original:
			issues = append(issues, Issue{Item: original, ConflictsWith: earlier, Suspicious: true,
				Problem: "its name and " + text.Truncate(earlier, shownNameBytes) +
					" differ only in case, - and _, which some clients do not tell apart: " +
					"deny one of them"})
		}
	}
	return issues
}

// RemoveDuplicates removes entries from a backend's list that have the name or URI of an earlier
// entry. It returns an issue for each of them that differs from the earlier entry. The result uses
// the memory of items.
func RemoveDuplicates(k Kind, items []Item) ([]Item, []Issue) {
	first := make(map[string]int, len(items))
	var issues []Issue
	kept := items[:0]
	for i := range items {
		original := items[i].Original
		switch at, known := first[original]; {
		case !known:
			first[original] = len(kept)
			kept = append(kept, items[i])
		case !bytes.Equal(kept[at].raw, items[i].raw):
			issues = append(issues, Issue{Item: original,
				Problem: "it is a duplicate: an earlier entry of the list, which differs from " +
					"it, has the same " + kinds[k].key})
		}
	}
	clear(items[len(kept):])
	return kept, issues
}

// prefixTable contains the names of the backends, by their folded form. A backend owns the names
// that begin with its own name and the separator.
type prefixTable struct {
	separator string // folded
	backends  map[string][]string
}

func newPrefixTable(separator string, names []string) prefixTable {
	s := prefixTable{fold(separator), make(map[string][]string, len(names))}
	for _, name := range names {
		if f := fold(name); !slices.Contains(s.backends[f], name) {
			s.backends[f] = append(s.backends[f], name)
		}
	}
	return s
}

// owner returns the backend that owns a name because the name begins with the backend's name and
// the separator, "" if there is none. The longest backend name takes precedence. Among backends
// whose names look alike, the exact spelling takes precedence, then the backend named mine, then
// the first one.
func (s *prefixTable) owner(name, mine string) string {
	f := fold(name)
	if !strings.Contains(f, s.separator) {
		return ""
	}
	for at := len(f) - len(s.separator); at > 0; at-- {
		if f[at:at+len(s.separator)] != s.separator {
			continue
		}
		candidates := s.backends[f[:at]]
		switch {
		case len(candidates) == 0:
		case slices.Contains(candidates, name[:at]):
			return name[:at]
		case slices.Contains(candidates, mine):
			return mine
		default:
			return candidates[0]
		}
	}
	return ""
}

// respectsPrefixes reports whether a name does not have the prefix of another backend.
func (n *namer) respectsPrefixes(e *Entry, name string) bool {
	if !n.kind.isNamed() {
		return true
	}
	owner := n.prefixes.owner(name, e.Backend)
	return owner == "" || owner == e.Backend
}

// approvedOwner returns the other backend that owns a name according to Options.NameOwners, ""
// if there is none.
func (n *namer) approvedOwner(e *Entry, name string) string {
	if n.kind != Tools {
		return ""
	}
	return n.NameOwners.Owner(name, e.Backend)
}

// assignNames assigns exposed names to the entries of a backend. Entries that already have a name
// keep it. The entries are sorted by name, so that the result does not depend on the order of the
// list. Entries with valid names come first, so that no converted name takes a valid one. Bare
// names are assigned before prefixed names, so that an entry b__x keeps its name even if the
// prefixed name of an entry x is the same. For built-in entries, see NewBuiltin.
func (n *namer) assignNames(entries []Entry) {
	order := make([]*Entry, 0, len(entries))
	var converted []*Entry
	for i := range entries {
		switch e := &entries[i]; {
		case e.Item.Builtin:
			n.claim(e, n.prefixedName(e))
		case isValidName(e.Item.Original, n.NameLimit):
			order = append(order, e)
		default:
			converted = append(converted, e)
		}
	}
	byName := func(a, b *Entry) int { return strings.Compare(a.Item.Original, b.Item.Original) }
	slices.SortFunc(order, byName)
	slices.SortFunc(converted, byName)
	order = append(order, converted...)
	if n.Prefix != PrefixAlways {
		n.assign(order, n.bareIfUnclaimed)
	}
	if n.Prefix != PrefixNever {
		n.assign(order, n.prefixedName)
	}
	n.assignHashed(order)
	for _, e := range order {
		n.noteConflict(e)
	}
	for _, e := range order {
		n.noteOriginal(e)
	}
}

// noteOriginal records the entry as the owner of its original name, unless a backend has this name
// or a name that looks like it, or the bare name has the prefix of another backend or belongs to
// another backend.
func (n *namer) noteOriginal(e *Entry) {
	if e.Exposed == e.Item.Original {
		return // assigned contains it
	}
	if owner, _ := n.originalOwner(e); owner == "" && n.respectsPrefixes(e, e.bareName) &&
		n.approvedOwner(e, e.bareName) == "" {
		n.originals[n.kind.foldKey(e.Item.Original)] = entryRef{e.Backend, e.Item.Original}
	}
}

// originalOwner returns the backend that has the entry's original name or a name that looks like
// it, "" if there is none. same is true if the two names are equal.
func (n *namer) originalOwner(e *Entry) (backend string, same bool) {
	if other := n.assigned[e.Item.Original]; other != nil &&
		other.Item.Original == e.Item.Original {
		return other.Backend, true
	}
	key := n.kind.foldKey(e.Item.Original)
	if ref, known := n.originals[key]; known {
		return ref.backend, ref.original == e.Item.Original
	}
	return n.backendOfKey(key), false
}

// noteConflict sets the ConflictBackend and PrefixConflict of an entry without its bare name.
func (n *namer) noteConflict(e *Entry) {
	if n.Prefix == PrefixAlways || e.Exposed == e.bareName {
		return
	}
	if owner := n.prefixes.owner(e.bareName, e.Backend); owner != "" && owner != e.Backend {
		e.ConflictBackend, e.PrefixConflict = owner, true
		return
	}
	if owner := n.approvedOwner(e, e.bareName); owner != "" {
		e.ConflictBackend = owner
		return
	}
	e.ConflictBackend = n.backendOfKey(n.kind.foldKey(e.bareName))
	if e.ConflictBackend == "" || e.ConflictBackend == e.Backend {
		e.ConflictBackend, _ = n.originalOwner(e)
	}
	if e.ConflictBackend == e.Backend {
		e.ConflictBackend = ""
	}
}

// assign gives each entry without a name the result of the function form, unless the result is ""
// or not available.
func (n *namer) assign(entries []*Entry, form func(*Entry) string) {
	for _, e := range entries {
		if e.Exposed != "" {
			continue
		}
		if name := form(e); name != "" {
			n.claim(e, name)
		}
	}
}

// bareIfUnclaimed returns the bare name, "" if another backend has the entry's original name or one
// that looks like it. The check is necessary because truncated bare names never collide: their
// hashes differ.
func (n *namer) bareIfUnclaimed(e *Entry) string {
	if owner, _ := n.originalOwner(e); owner != "" && owner != e.Backend {
		return ""
	}
	return e.bareName
}

func (n *namer) prefixedName(e *Entry) string { return n.prefixedNameOf(n.kind, e) }

// maxHashAttempts bounds the number of hashes that are tried for each beginning of an entry's name.
const maxHashAttempts = 8

// assignHashed gives each entry without a name a unique name with a hash. With PrefixNever it skips
// entries whose original name another backend has. The name begins with the prefixed name or, with
// PrefixNever, with the bare name. If no such name is available, it begins with the name of the
// entry's backend, the noun of the kind, or x. If none of these is available, the entry stays
// without a name.
func (n *namer) assignHashed(entries []*Entry) {
	form := n.prefixedNameOf
	if n.Prefix == PrefixNever {
		form = n.bareNameOf
	}
	for _, e := range entries {
		if e.Exposed != "" {
			continue
		}
		if owner, same := n.originalOwner(e); n.Prefix == PrefixNever &&
			(same && owner != e.Backend || n.approvedOwner(e, e.Item.Original) != "") {
			continue
		}
		withBackend := fitName(e.Backend+"_"+e.Item.Original, n.kind.String(), e.uniqueKey(),
			n.NameLimit)
		for _, base := range []string{form(n.kind, e), withBackend,
			fitName(e.Backend, n.kind.String(), e.uniqueKey(), n.NameLimit), n.kind.String(), "x"} {
			unique := e.uniqueKey()
			for try := 0; try < maxHashAttempts && e.Exposed == ""; try++ {
				n.claim(e, withHash(base, unique, n.NameLimit))
				unique += "\x00"
			}
		}
	}
}

// claim gives an entry a name, unless the name has the prefix of another backend or belongs to
// another backend, another entry has the name, or another backend has a name that looks like it. It
// reports whether the entry got the name.
func (n *namer) claim(e *Entry, name string) bool {
	if n.assigned[name] != nil || !n.isAvailable(e, name) {
		return false
	}
	n.assigned[name] = e
	if key := n.kind.foldKey(name); key != name {
		n.backendByKey[key] = e.Backend
	}
	e.Exposed = name
	return true
}

// uniqueKey returns a text that identifies the entry among all entries of its kind.
func (e *Entry) uniqueKey() string { return e.Backend + "\x00" + e.Item.Original }

func (o Options) bareNameOf(k Kind, e *Entry) string {
	if isValidName(e.Item.Original, o.NameLimit) {
		return e.Item.Original
	}
	return fitName(e.Item.Original, k.String(), e.uniqueKey(), o.NameLimit)
}

func (o Options) prefixedNameOf(k Kind, e *Entry) string {
	name := e.Backend + o.Separator + e.Item.Original
	if isValidName(name, o.NameLimit) {
		return name
	}
	if strings.IndexFunc(e.Item.Original,
		func(r rune) bool { return r < 0x80 && isAlnum(byte(r)) }) < 0 {
		// the noun of the kind replaces an original name without a letter or digit
		base := fitName(e.Backend+o.Separator+k.String(), k.String(), e.uniqueKey(), o.NameLimit)
		return withHash(base, e.uniqueKey(), o.NameLimit)
	}
	return fitName(name, k.String(), e.uniqueKey(), o.NameLimit)
}
