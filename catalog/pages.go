package catalog

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"mcpgateway/internal/wire"
)

// pages contains the results for one list, in order. Every result except the last has a nextCursor.
type pages struct {
	results [][]byte
	cursors []string // cursors of results[1:]
}

// find returns the page at a cursor, see [Snapshot.Page].
func (p pages) find(cursor []byte) (result []byte, ok bool) {
	if wire.IsNull(cursor) {
		return p.results[0], true
	}
	i := slices.Index(p.cursors, wire.Unquote(cursor))
	if i < 0 {
		return nil, false
	}
	return p.results[i+1], true
}

// digest returns the same value for two lists of one kind if their listed entries and page sizes
// are the same. It combines the exposed name of each entry with the digest of the rest of the
// entry, which was computed when the entry was read.
func (l *list) digest(size int) (d textDigest) {
	h := sha256.New()
	b := binary.AppendUvarint([]byte{byte(l.kind)}, uint64(size))
	for i := range l.entries {
		if e := &l.entries[i]; e.Exposed != "" {
			b = append(e.Item.appendName(b, e.Exposed), e.Item.sum[:]...)
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	copy(d[:], h.Sum(nil))
	return d
}

// writePages writes the list in pages of at most size bytes. A larger entry gets a page of its own,
// and an empty list has one empty page.
func (l *list) writePages(size int) pages {
	var p pages
	rest := l.entries
	for first := true; first || len(rest) > 0; first = false {
		var page []byte
		page, rest = l.writePage(rest, size)
		p.results = append(p.results, page)
	}
	p.addCursors(l.kind, l.sum())
	return p
}

const (
	maxCursor   = 32 // bound of a cursor, in bytes
	pageEndSize = len(`],"nextCursor":""}`) + maxCursor
)

// writePage writes the entries that fit into one page, without the end of the page. It returns the
// text and the remaining entries.
func (l *list) writePage(entries []Entry, size int) (text []byte, rest []Entry) {
	n, length := 0, len(`{"":[`)+len(l.kind.ResultMember())
	empty := true
	for ; n < len(entries); n++ {
		e := &entries[n]
		if e.Exposed == "" {
			continue
		}
		more := len(",") + e.Item.sizeAs(e.Exposed)
		if !empty && length+more+pageEndSize > size {
			break
		}
		length += more
		empty = false
	}
	b := appendListStart(make([]byte, 0, length+pageEndSize), l.kind)
	empty = true
	for i := range entries[:n] {
		if e := &entries[i]; e.Exposed != "" {
			if !empty {
				b = append(b, ',')
			}
			empty = false
			b = e.Item.appendAs(b, e.Exposed)
		}
	}
	return b, entries[n:]
}

// addCursors writes the end of each page, with the cursor of the next page if there is one.
func (p *pages) addCursors(k Kind, sum textDigest) {
	prefix := append([]byte{byte(k)}, sum[:12]...)
	for n := range p.results[1:] {
		p.cursors = append(p.cursors,
			base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(prefix, uint64(n+1))))
	}
	for i := range p.results {
		end := "]}"
		if i < len(p.cursors) {
			end = `],"nextCursor":"` + p.cursors[i] + `"}`
		}
		p.results[i] = append(p.results[i], end...)
	}
}
