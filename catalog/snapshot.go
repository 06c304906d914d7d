package catalog

import "mcpgateway/internal/wire"

// A Snapshot is a merged catalog. It is immutable; any number of goroutines may
// use it.
type Snapshot struct {
	// Instructions are the backends' own, joined, and InstructionsCut the characters of them
	// for which there was no room.
	Instructions    string
	InstructionsCut int

	lists        [NumKinds]list
	reader       func() string // the only backend that has resources, if there is one
	listings     []Listing
	of           map[string]*Listing // by their backends
	capabilities [2]func() []byte    // complete and not; made when first asked for
}

// A list is what a snapshot has of one kind.
type list struct {
	kind    Kind
	entries []Entry
	routes  map[string]*Entry        // by the exposed names
	aliases func() map[string]*Entry // callable, not listed; made when first asked for
	sum     func() digest            // tells one list from another; likewise
	pages   func() pages             // written out when first asked for

	always   bool              // no name is bare
	kept     map[string]holder // names of entries that are not known now, kept for their backends
	released map[string]string // names that nobody has now → the backend that had it last
	moves    []Move
	order    []ranked // templates: in which order they are tried
}

// A Route says where a call goes.
type Route struct {
	Backend      string
	Original     string // what the backend knows it by
	OriginalJSON []byte // that as JSON, ready to be spliced in
}

func (e *Entry) route() Route {
	return Route{Backend: e.Backend, Original: e.Item.Original, OriginalJSON: e.Item.literal()}
}

// Lookup returns the route of what name stands for: as it is listed or, of tools
// and prompts, else one of the spellings that mean one of them alone. A name that is kept for a
// backend whose list is not known leads to that backend.
func (s *Snapshot) Lookup(k Kind, name string) (Route, bool) {
	l := &s.lists[k]
	if e := l.lookup(name); e != nil {
		return e.route(), true
	}
	return l.keptRoute(name)
}

func (l *list) lookup(name string) *Entry {
	e := l.routes[name]
	if e == nil && l.kind.named() {
		e = l.aliases()[name]
	}
	return e
}

// keptRoute returns the route of a name or URI that is kept for a backend.
func (l *list) keptRoute(name string) (Route, bool) {
	if h, ok := l.kept[name]; ok {
		return Route{Backend: h.backend, Original: h.own, OriginalJSON: wire.Quote(h.own)}, true
	}
	return Route{}, false
}

// Entries returns all entries of a kind, in the order of the list. Those without
// an Exposed name are not in it. The slice must not be changed.
func (s *Snapshot) Entries(k Kind) []Entry { return s.lists[k].entries }
