package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// fit makes name one that every client takes: letters, digits, _ and -, a
// letter or digit first, of limit bytes at most. A name that is one already
// stays as it is. What is cut off is made up for by a hash of tag, so that the
// result depends on nothing else and is the same at every start. stem stands in
// for a name of which nothing is left.
func fit(name, stem, tag string, limit int) string {
	if fits(name, limit) {
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
		return hashed(stem, tag, limit)
	case len(s) > limit:
		return hashed(s, tag, limit)
	default:
		return s
	}
}

func fits(name string, limit int) bool {
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

// hashed returns name, shortened as need be, with a hash of tag behind it. At
// least one byte of the name stays, for a name begins with a letter or digit.
func hashed(name, tag string, limit int) string {
	sum := sha256.Sum256([]byte(tag))
	tail := "_" + hex.EncodeToString(sum[:4])
	head := name[:min(len(name), max(limit-len(tail), 1))]
	return head + tail[:min(len(tail), limit-len(head))]
}

// A namer gives out exposed names, each once.
type namer struct {
	Options
	kind   Kind
	spaces spaces
	taken  map[string]*Entry // by their exposed names
	// holders has, by their keys, the backends of names that are not in taken by their keys: names
	// that are spelled otherwise, and names that are kept for a backend whose list is not known.
	holders map[string]string
	owned   map[string]holder // key of an own name → who has it bare, or may have
}

// A holder is the backend that has a name, and its own name for the entry.
type holder struct{ backend, own string }

// holder returns the backend that has a name with this key; "" if none has.
func (n *namer) holder(key string) string {
	if e := n.taken[key]; e != nil {
		return e.Backend
	}
	return n.holders[key]
}

// key returns what names that clients may confuse have in common. URIs are compared as they are.
func (k Kind) key(name string) string {
	if k.named() {
		return fold(name)
	}
	return name
}

// fold returns a name in lower case and with _ in the place of -. Two names that are equal then
// can become equal in a client, and look alike to a model.
func fold(name string) string {
	at := 0
	for at < len(name) && name[at] != '-' && (name[at] < 'A' || name[at] > 'Z') {
		at++
	}
	if at == len(name) {
		return name
	}
	b := []byte(name) // of the same length, whatever it is made of
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

const shownName = 128 // bytes of a name that are shown in a flaw of another entry

// FindLookAlikes returns a flaw for each entry of a backend's list whose name some clients do not tell
// apart from that of an earlier entry.
func FindLookAlikes(k Kind, items []Item) []Issue {
	if !k.named() {
		return nil
	}
	var flaws []Issue
	first := make(map[string]string, len(items))
	for i := range items {
		own := items[i].Original
		other, known := first[fold(own)]
		switch {
		case !known:
			first[fold(own)] = own
		case other != own:
			shown := other
			if len(other) > shownName {
				shown = strings.ToValidUTF8(other[:shownName], "") + "…"
			}
			flaws = append(flaws, Issue{Item: own, ConflictsWith: other, Suspicious: true,
				Problem: "its name and " + shown + " differ only in case, - and _, which some clients do not tell apart: deny one of them"})
		}
	}
	return flaws
}

// RemoveDuplicates returns the entries of a backend's list without those whose name, or URI, an earlier
// entry has, and a flaw for each of those that differs from the earlier one.
func RemoveDuplicates(k Kind, items []Item) ([]Item, []Issue) {
	first := make(map[string]int, len(items))
	var flaws []Issue
	kept := items[:0]
	for i := range items {
		own := items[i].Original
		switch at, known := first[own]; {
		case !known:
			first[own] = len(kept)
			kept = append(kept, items[i])
		case !bytes.Equal(kept[at].raw, items[i].raw):
			flaws = append(flaws, Issue{Item: own, Problem: "it is a duplicate: an earlier entry of the list, which differs from it, has the same " + kinds[k].key})
		}
	}
	clear(items[len(kept):])
	return kept, flaws
}

// spaces are the backends by the folded beginning of their names: each backend has the names that
// begin with its own name and the separator.
type spaces struct {
	separator string // folded
	backends  map[string][]string
}

func newSpaces(separator string, names []string) spaces {
	s := spaces{fold(separator), make(map[string][]string, len(names))}
	for _, name := range names {
		if f := fold(name); !slices.Contains(s.backends[f], name) {
			s.backends[f] = append(s.backends[f], name)
		}
	}
	return s
}

// of returns the backend that a name belongs to, because it begins with that backend's name and
// the separator; "" if it begins with none. Of several backends the one with the longest name
// has it. Of backends whose names look alike it is the one that is spelled so, or else mine if
// it is among them.
func (s *spaces) of(name, mine string) string {
	f := fold(name)
	if !strings.Contains(f, s.separator) {
		return ""
	}
	for at := len(f) - len(s.separator); at > 0; at-- {
		if f[at:at+len(s.separator)] != s.separator {
			continue
		}
		some := s.backends[f[:at]]
		switch {
		case len(some) == 0:
		case slices.Contains(some, name[:at]):
			return name[:at]
		case slices.Contains(some, mine):
			return mine
		default:
			return some[0]
		}
	}
	return ""
}

// may reports whether a backend's entry may have a name: it does not belong to another backend.
func (n *namer) may(e *Entry, name string) bool {
	if !n.kind.named() {
		return true
	}
	space := n.spaces.of(name, e.Backend)
	return space == "" || space == e.Backend
}

// name gives each of a backend's entries its exposed name. What an entry gets
// does not depend on the order of the list: those whose own names will do come
// first, so that none of them loses its name to one that had to be mended, and
// bare names are given before prefixed ones, so that b__x keeps its name though x
// wants it, too. Entries that have a name already keep it.
func (n *namer) name(entries []Entry) {
	order := make([]*Entry, 0, len(entries))
	var mended []*Entry
	for i := range entries {
		if e := &entries[i]; fits(e.Item.Original, n.NameLimit) {
			order = append(order, e)
		} else {
			mended = append(mended, e)
		}
	}
	byName := func(a, b *Entry) int { return strings.Compare(a.Item.Original, b.Item.Original) }
	slices.SortFunc(order, byName)
	slices.SortFunc(mended, byName)
	order = append(order, mended...)
	if n.Prefix != PrefixAlways {
		n.give(order, n.bareOfNew)
	}
	if n.Prefix != PrefixNever {
		n.give(order, n.prefixedName)
	}
	n.giveHashed(order)
	for _, e := range order {
		n.explain(e)
	}
	for _, e := range order {
		n.own(e)
	}
}

// own notes that the entry's backend has its own name, unless another backend has.
func (n *namer) own(e *Entry) {
	if e.Exposed == e.Item.Original {
		return // taken has it
	}
	if owner, _ := n.owner(e); owner == "" && n.may(e, e.bare) {
		n.owned[n.kind.key(e.Item.Original)] = holder{e.Backend, e.Item.Original}
	}
}

// owner returns the backend that has the entry's own name, or one that looks like it; "" if none
// has. Same says that it is the very name.
func (n *namer) owner(e *Entry) (backend string, same bool) {
	if other := n.taken[e.Item.Original]; other != nil && other.Item.Original == e.Item.Original {
		return other.Backend, true
	}
	key := n.kind.key(e.Item.Original)
	if h, known := n.owned[key]; known {
		return h.backend, h.own == e.Item.Original
	}
	return n.holder(key), false
}

// explain notes which other backend is the reason that an entry does not have its bare name.
func (n *namer) explain(e *Entry) {
	if n.Prefix == PrefixAlways || e.Exposed == e.bare {
		return
	}
	if space := n.spaces.of(e.bare, e.Backend); space != "" && space != e.Backend {
		e.ConflictBackend, e.PrefixConflict = space, true
		return
	}
	e.ConflictBackend = n.holder(n.kind.key(e.bare))
	if e.ConflictBackend == "" || e.ConflictBackend == e.Backend {
		e.ConflictBackend, _ = n.owner(e)
	}
	if e.ConflictBackend == e.Backend {
		e.ConflictBackend = ""
	}
}

// give gives the name of a form, if there is one and nobody has it, to each entry
// that has none yet.
func (n *namer) give(entries []*Entry, form func(*Entry) string) {
	for _, e := range entries {
		if e.Exposed != "" {
			continue
		}
		if name := form(e); name != "" {
			n.take(e, name)
		}
	}
}

// bareOfNew is the bare name, unless another backend has the entry's own name: cut
// names do not collide of themselves, for their hashes differ.
func (n *namer) bareOfNew(e *Entry) string {
	if owner, _ := n.owner(e); owner != "" && owner != e.Backend {
		return ""
	}
	return e.bare
}

func (n *namer) prefixedName(e *Entry) string { return n.prefixed(n.kind, e) }

// maxHashed bounds how many hashes are tried for one entry and one beginning of its name.
const maxHashed = 8

// giveHashed gives each entry that has none yet a name that nobody wants. PrefixNever
// leaves out those whose own name an earlier backend has. The name begins like the entry's own, or
// with its backend if that would be another backend's name.
func (n *namer) giveHashed(entries []*Entry) {
	form := n.prefixed
	if n.Prefix == PrefixNever {
		form = n.bare
	}
	for _, e := range entries {
		if e.Exposed != "" {
			continue
		}
		if owner, same := n.owner(e); n.Prefix == PrefixNever && same && owner != e.Backend {
			continue
		}
		own := fit(e.Backend+"_"+e.Item.Original, n.kind.String(), e.tag(), n.NameLimit)
		for _, stem := range []string{form(n.kind, e), own, fit(e.Backend, n.kind.String(), e.tag(), n.NameLimit), n.kind.String(), "x"} {
			tag := e.tag()
			for try := 0; try < maxHashed && e.Exposed == ""; try++ {
				n.take(e, hashed(stem, tag, n.NameLimit))
				tag += "\x00"
			}
		}
	}
}

// take gives an entry a name, unless it belongs to another backend, another entry has it, or
// another backend has one that looks like it.
func (n *namer) take(e *Entry, name string) bool {
	if n.taken[name] != nil || !n.free(e, name) {
		return false
	}
	n.taken[name] = e
	if key := n.kind.key(name); key != name {
		n.holders[key] = e.Backend
	}
	e.Exposed = name
	return true
}

// tag tells an entry from all others of its kind.
func (e *Entry) tag() string { return e.Backend + "\x00" + e.Item.Original }

func (o Options) bare(k Kind, e *Entry) string {
	if fits(e.Item.Original, o.NameLimit) {
		return e.Item.Original
	}
	return fit(e.Item.Original, k.String(), e.tag(), o.NameLimit)
}

func (o Options) prefixed(k Kind, e *Entry) string {
	name := e.Backend + o.Separator + e.Item.Original
	if fits(name, o.NameLimit) {
		return name
	}
	if strings.IndexFunc(e.Item.Original, func(r rune) bool { return r < 0x80 && isAlnum(byte(r)) }) < 0 {
		// Not even a letter to tell it by.
		stem := fit(e.Backend+o.Separator+k.String(), k.String(), e.tag(), o.NameLimit)
		return hashed(stem, e.tag(), o.NameLimit)
	}
	return fit(name, k.String(), e.tag(), o.NameLimit)
}
