// Package catalog makes one list of tools out of those of many backends, and
// knows which backend each name stands for.
//
// It is pure: [Merge] is given listings and returns a [Snapshot], which never
// changes. A tool's bytes are the backend's own but for the name, and for a
// schema that no client could bear. The package refuses to take a name apart: the
// way back from an exposed name to a backend is a table.
package catalog

import (
	"bytes"
	"strings"
)

// Prefix says when a tool appears as backend__tool.
type Prefix string

const (
	// Collision: when an earlier backend has the bare name.
	Collision Prefix = "collision"
	// Always: all of them.
	Always Prefix = "always"
	// Never: of tools with one name the first is listed, the others are not.
	Never Prefix = "never"
)

// Options say how names are made.
type Options struct {
	Prefix    Prefix
	Separator string // between backend and tool
	NameLimit int    // longest exposed name, in bytes
}

// A Listing is what one backend offers.
type Listing struct {
	Backend      string
	Tools        []Tool
	Instructions string
}

// An Entry is a tool as it appears in the merged list.
type Entry struct {
	Exposed string // "" = it is not listed
	Backend string
	Tool    Tool
}

// Merge makes one catalog of the listings, which must be in the order of the
// configuration: that order alone decides who keeps a bare name, so that the
// names are the same however the backends start.
func Merge(o Options, listings []Listing) *Snapshot {
	n := namer{Options: o, taken: make(map[string]bool)}
	s := &Snapshot{routes: make(map[string]Route)}
	for _, l := range listings {
		s.entries = append(s.entries, n.entries(l)...)
	}
	s.list()
	s.alias(o)
	s.Instructions = instructions(listings)
	return s
}

// entries names the tools of one backend. Those whose own names will do come
// first, so that none of them loses its name to one that had to be mended.
func (n *namer) entries(l Listing) []Entry {
	all := make([]Entry, 0, len(l.Tools))
	seen := make(map[string]bool, len(l.Tools))
	for _, t := range l.Tools {
		if !seen[t.Own] { // the first of a name is the one a backend would call
			seen[t.Own] = true
			all = append(all, Entry{Backend: l.Backend, Tool: t})
		}
	}
	for _, mended := range []bool{false, true} {
		for i, e := range all {
			if own := e.Tool.Own; (fit(own, "", n.NameLimit) != own) == mended {
				all[i].Exposed = n.name(l.Backend, own)
			}
		}
	}
	return all
}

// maxInstructions bounds the text that a client is given, in bytes.
const maxInstructions = 8 << 10

// instructions joins the backends' own, each under its name.
func instructions(listings []Listing) string {
	var b strings.Builder
	for _, l := range listings {
		text := strings.TrimSpace(l.Instructions)
		if text == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString("## " + l.Backend + "\n\n" + text)
	}
	if text := b.String(); len(text) > maxInstructions {
		return strings.ToValidUTF8(text[:maxInstructions], "") + "…"
	}
	return b.String()
}

// list writes the merged list out.
func (s *Snapshot) list() {
	var b bytes.Buffer
	b.WriteString(`{"tools":[`)
	for _, e := range s.entries {
		if e.Exposed == "" {
			continue
		}
		if len(s.routes) > 0 {
			b.WriteByte(',')
		}
		b.Write(e.Tool.as(b.AvailableBuffer(), e.Exposed))
		s.routes[e.Exposed] = e.route()
	}
	b.WriteString(`]}`)
	s.result = b.Bytes()
}

// alias adds the names that are not listed and yet mean one tool alone: its
// own spelling, and backend__tool in either spelling. A name that could mean two
// tools is none.
func (s *Snapshot) alias(o Options) {
	s.aliases = make(map[string]Route)
	owner := make(map[string]int, 3*len(s.entries)) // alias → entry, -1 = several
	for i, e := range s.entries {
		own, prefixed := e.Tool.Own, e.Backend+o.Separator+e.Tool.Own
		for _, name := range []string{own, prefixed, fit(prefixed, e.Backend+"\x00"+own, o.NameLimit)} {
			if was, dup := owner[name]; dup && was != i {
				owner[name] = -1
			} else {
				owner[name] = i
			}
		}
	}
	for name, i := range owner {
		if _, listed := s.routes[name]; !listed && i >= 0 {
			s.aliases[name] = s.entries[i].route()
		}
	}
}
