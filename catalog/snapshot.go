package catalog

import (
	"bytes"
)

// A Snapshot is a merged catalog. It is immutable; any number of goroutines may
// use it.
type Snapshot struct {
	// Instructions are the backends' own, joined.
	Instructions string

	entries []Entry
	routes  map[string]Route        // exposed name → where it leads
	aliases func() map[string]Route // callable, not listed; made when first asked for
	result  func() []byte           // the list, written out when first asked for
}

// A Route says where a call goes.
type Route struct {
	Backend string
	Own     string // the tool's own name
	OwnJSON []byte // that name as the backend writes it, ready to be spliced in
}

func (e *Entry) route() Route {
	return Route{Backend: e.Backend, Own: e.Tool.Own, OwnJSON: e.Tool.name}
}

// Tool returns the route of the tool that name stands for: as it is listed, or
// else one of the spellings that mean one tool alone.
func (s *Snapshot) Tool(name string) (Route, bool) {
	r, ok := s.routes[name]
	if !ok {
		r, ok = s.aliases()[name]
	}
	return r, ok
}

// Entries returns all tools, in the order of the list. Those without an Exposed
// name are not in it. The slice must not be changed.
func (s *Snapshot) Entries() []Entry { return s.entries }

// Result returns the result of tools/list, which must not be changed.
func (s *Snapshot) Result() []byte { return s.result() }

// SameList reports whether a client would see the same list in both.
func (s *Snapshot) SameList(other *Snapshot) bool {
	return s == other || bytes.Equal(s.result(), other.result())
}

// Marshal returns the tools of a listing as the result of a tools/list, for
// [ParsePage] to read again.
func Marshal(tools []Tool) []byte {
	b := []byte(`{"tools":[`)
	for i, t := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, t.raw...)
	}
	return append(b, `]}`...)
}
