package catalog

import (
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
	kind  Kind
	taken map[string]*Entry // by their exposed names
	owned map[string]bool   // own names that earlier backends have
}

// name gives each of a backend's entries its exposed name. What an entry gets
// does not depend on the order of the list: those whose own names will do come
// first, so that none of them loses its name to one that had to be mended, and
// bare names are given before prefixed ones, so that b__x keeps its name though x
// wants it, too.
func (n *namer) name(entries []Entry) {
	order := make([]*Entry, 0, len(entries))
	var mended []*Entry
	for i := range entries {
		if e := &entries[i]; fits(e.Item.Own, n.NameLimit) {
			order = append(order, e)
		} else {
			mended = append(mended, e)
		}
	}
	byName := func(a, b *Entry) int { return strings.Compare(a.Item.Own, b.Item.Own) }
	slices.SortFunc(order, byName)
	slices.SortFunc(mended, byName)
	order = append(order, mended...)
	if n.Prefix != Always {
		n.give(order, n.bareOfNew)
	}
	if n.Prefix != Never {
		n.give(order, n.prefixedName)
	}
	n.giveHashed(order)
	for _, e := range order {
		n.owned[e.Item.Own] = true
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

// bareOfNew is bare, unless an earlier backend has the entry's own name: cut
// names do not collide of themselves, for their hashes differ.
func (n *namer) bareOfNew(e *Entry) string {
	if n.owned[e.Item.Own] {
		return ""
	}
	return n.bare(n.kind, e)
}

func (n *namer) prefixedName(e *Entry) string { return n.prefixed(n.kind, e) }

// giveHashed gives each entry that has none yet a name that nobody wants. Never
// leaves out those whose own name an earlier backend has.
func (n *namer) giveHashed(entries []*Entry) {
	form := n.prefixed
	if n.Prefix == Never {
		form = n.bare
	}
	for _, e := range entries {
		if e.Exposed != "" || n.Prefix == Never && n.owned[e.Item.Own] {
			continue
		}
		for tag := e.tag(); !n.take(e, hashed(form(n.kind, e), tag, n.NameLimit)); {
			tag += "\x00"
		}
	}
}

func (n *namer) take(e *Entry, name string) bool {
	if n.taken[name] != nil {
		return false
	}
	n.taken[name] = e
	e.Exposed = name
	return true
}

// tag tells an entry from all others of its kind.
func (e *Entry) tag() string { return e.Backend + "\x00" + e.Item.Own }

func (o Options) bare(k Kind, e *Entry) string {
	if fits(e.Item.Own, o.NameLimit) {
		return e.Item.Own
	}
	return fit(e.Item.Own, k.String(), e.tag(), o.NameLimit)
}

func (o Options) prefixed(k Kind, e *Entry) string {
	name := e.Backend + o.Separator + e.Item.Own
	if fits(name, o.NameLimit) {
		return name
	}
	if strings.IndexFunc(e.Item.Own, func(r rune) bool { return r < 0x80 && isAlnum(byte(r)) }) < 0 {
		// Not even a letter to tell it by.
		stem := fit(e.Backend+o.Separator+k.String(), k.String(), e.tag(), o.NameLimit)
		return hashed(stem, e.tag(), o.NameLimit)
	}
	return fit(name, k.String(), e.tag(), o.NameLimit)
}
