// Package catalog makes one list of tools out of those of many backends, and
// knows which backend each name stands for.
//
// It is pure: [Merge] is given listings and returns a [Snapshot], which never
// changes. A tool's bytes are the backend's own but for the name, and for a
// schema that no client could bear. The package refuses to take a name apart: the
// way back from an exposed name to a backend is a table.
package catalog

import (
	"maps"
	"strings"
	"sync"
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

// Options say how names are made. The zero value works: it prefixes on
// collision.
type Options struct {
	Prefix    Prefix
	Separator string // between backend and tool; "" = __
	NameLimit int    // longest exposed name, in bytes, at least 8; 0 = 50
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
	o.NameLimit = max(o.NameLimit, 8) // a letter, _ and enough of a hash
	return o
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
	o = o.withDefaults()
	tools := 0
	for _, l := range listings {
		tools += len(l.Tools)
	}
	n := namer{Options: o, taken: make(map[string]bool, tools), owned: make(map[string]bool, tools)}
	s := &Snapshot{Instructions: instructions(listings)}
	for _, l := range listings {
		all := entries(l)
		n.name(all)
		s.entries = append(s.entries, all...)
	}
	s.routes = make(map[string]Route, len(s.entries))
	for _, e := range s.entries {
		if e.Exposed != "" {
			s.routes[e.Exposed] = e.route()
		}
	}
	s.result = sync.OnceValue(s.list)
	s.aliases = sync.OnceValue(func() map[string]Route { return s.alias(o) })
	return s
}

// entries returns a backend's tools in its own order. Of two with one name the
// first stays: it is the one that the backend would call.
func entries(l Listing) []Entry {
	all := make([]Entry, 0, len(l.Tools))
	seen := make(map[string]bool, len(l.Tools))
	for _, t := range l.Tools {
		if !seen[t.Own] {
			seen[t.Own] = true
			all = append(all, Entry{Backend: l.Backend, Tool: t})
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

// list returns the merged list, written out.
func (s *Snapshot) list() []byte {
	size := len(`{"tools":[]}`)
	for _, e := range s.entries {
		size += len(e.Tool.raw) + len(e.Exposed) + len(`"",`)
	}
	b := append(make([]byte, 0, size), `{"tools":[`...)
	for _, e := range s.entries {
		if e.Exposed == "" {
			continue
		}
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = e.Tool.as(b, e.Exposed)
	}
	return append(b, `]}`...)
}

// alias returns the names that are not listed and yet mean one tool alone: its
// own spelling, and backend__tool in either spelling. A name that could mean two
// tools is none.
func (s *Snapshot) alias(o Options) map[string]Route {
	aliases := make(map[string]Route, len(s.entries))
	for i := range s.entries {
		e := &s.entries[i]
		for _, name := range []string{e.Tool.Own, e.Backend + o.Separator + e.Tool.Own, o.prefixed(e)} {
			if _, listed := s.routes[name]; listed {
				continue
			}
			if was, dup := aliases[name]; !dup {
				aliases[name] = e.route()
			} else if was.Backend != e.Backend || was.Own != e.Tool.Own {
				aliases[name] = Route{} // several
			}
		}
	}
	maps.DeleteFunc(aliases, func(_ string, r Route) bool { return r.Own == "" })
	return aliases
}
