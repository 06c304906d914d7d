package catalog

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"mcpgateway/internal/wire"
)

// pages are the results that a client gets for one list, in order. To each but
// the first leads a cursor, which the one before has as nextCursor.
type pages struct {
	results [][]byte
	cursors []string // of results[1:]
}

// Page returns the result of the request for a list, which must not be changed.
// cursor is the JSON text of params.cursor; nil and null stand for the first page.
//
// A cursor is good for as long as the list is the same, in whichever snapshot;
// any other is not ok, also "", for no page has that.
func (s *Snapshot) Page(k Kind, cursor []byte) (result []byte, ok bool) {
	p := s.lists[k].pages()
	if wire.IsNull(cursor) {
		return p.results[0], true
	}
	i := slices.Index(p.cursors, wire.Unquote(cursor))
	if i < 0 {
		return nil, false
	}
	return p.results[i+1], true
}

// SameList reports whether a client would see the same list in both. However often it is
// asked, a list is looked through once for that, and not written out.
func (s *Snapshot) SameList(k Kind, other *Snapshot) bool {
	return s == other || s.lists[k].sum() == other.lists[k].sum()
}

// digest is the same for two lists if what is written out of both is the same. Of each entry it
// takes the name, and what was made of the rest when it was read.
func (l *list) digest(size int) (d digest) {
	h := sha256.New()
	b := binary.AppendUvarint([]byte{byte(l.kind)}, uint64(size))
	for i := range l.entries {
		if e := &l.entries[i]; e.Exposed != "" {
			b = append(e.Item.name(b, e.Exposed), e.Item.sum[:]...)
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	copy(d[:], h.Sum(nil))
	return d
}

// write writes the list out, in pages of at most size bytes. A page has one
// entry at least.
func (l *list) write(size int) pages {
	var p pages
	rest := l.entries
	for first := true; first || len(rest) > 0; first = false {
		var page []byte
		page, rest = l.page(rest, size)
		p.results = append(p.results, page)
	}
	p.link(l.kind, l.sum())
	return p
}

const (
	maxCursor = 32 // bytes of a cursor of ours, at most
	margin    = len(`],"nextCursor":""}`) + maxCursor
)

// page writes what fits into one page, without an end; rest is what does not.
func (l *list) page(entries []Entry, size int) (text []byte, rest []Entry) {
	n, length := 0, len(`{"":[`)+len(l.kind.ResultMember())
	empty := true
	for ; n < len(entries); n++ {
		e := &entries[n]
		if e.Exposed == "" {
			continue
		}
		more := len(",") + e.Item.size(e.Exposed)
		if !empty && length+more+margin > size {
			break
		}
		length += more
		empty = false
	}
	b := open(make([]byte, 0, length+margin), l.kind)
	empty = true
	for i := range entries[:n] {
		if e := &entries[i]; e.Exposed != "" {
			if !empty {
				b = append(b, ',')
			}
			empty = false
			b = e.Item.as(b, e.Exposed)
		}
	}
	return b, entries[n:]
}

// link ends each page, with the cursor of the next one, if there is one.
func (p *pages) link(k Kind, sum digest) {
	stem := append([]byte{byte(k)}, sum[:12]...)
	for n := range p.results[1:] {
		p.cursors = append(p.cursors, base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(stem, uint64(n+1))))
	}
	for i := range p.results {
		end := "]}"
		if i < len(p.cursors) {
			end = `],"nextCursor":"` + p.cursors[i] + `"}`
		}
		p.results[i] = append(p.results[i], end...)
	}
}
