package catalog

import "mcpgateway/internal/wire"

// A Snapshot is a merged catalog. It is immutable and may be used concurrently.
type Snapshot struct {
	// Instructions are the merged instructions of the backends. InstructionsCut is the number of
	// characters that were cut from them.
	Instructions    string
	InstructionsCut int

	declarations
	lists               [NumKinds]list
	onlyResourceBackend func() string // the only backend with resources, "" if there is none
}

// A list is the part of a snapshot for one kind.
type list struct {
	kind    Kind
	entries []Entry
	routes  map[string]*Entry        // by exposed name
	aliases func() map[string]*Entry // callable names that are not listed; computed on first use
	sum     func() textDigest        // identifies the list; computed on first use
	pages   func() pages             // written on first use

	alwaysPrefixed bool                // no name is bare
	reserved       map[string]entryRef // names reserved for backends whose lists are unknown
	released       map[string]string   // last backend of each unused name
	moves          []Move
	templates      rankedTemplates
}

// A Route is the target of a call.
type Route struct {
	Backend      string
	Original     string // the backend's name or URI for the entry
	OriginalJSON []byte // Original as JSON, for Splice
	Builtin      bool   // the gateway itself serves the entry; see NewBuiltin
}

func (e *Entry) route() Route {
	return Route{Backend: e.Backend, Original: e.Item.Original,
		OriginalJSON: e.Item.originalLiteral(), Builtin: e.Item.Builtin}
}

// Lookup returns the route for a listed name or, for tools and prompts, for an alias (see
// buildAliases). The route of a name that is reserved for a backend whose list is unknown leads to
// that backend.
func (s *Snapshot) Lookup(k Kind, name string) (Route, bool) {
	l := &s.lists[k]
	if e := l.lookup(name); e != nil {
		return e.route(), true
	}
	return l.reservedRoute(name)
}

func (l *list) lookup(name string) *Entry {
	e := l.routes[name]
	if e == nil && l.kind.isNamed() {
		e = l.aliases()[name]
	}
	return e
}

// reservedRoute returns the route for a name or URI that is reserved for a backend.
func (l *list) reservedRoute(name string) (Route, bool) {
	if ref, ok := l.reserved[name]; ok {
		return Route{Backend: ref.backend, Original: ref.original,
			OriginalJSON: wire.Quote(ref.original)}, true
	}
	return Route{}, false
}

// Entries returns all entries of a kind, in the order of the list. Entries without an Exposed name
// are not listed. The slice must not be changed.
func (s *Snapshot) Entries(k Kind) []Entry { return s.lists[k].entries }

// Schema returns the inputSchema of the tool that [Snapshot.Lookup] finds by this name, nil if
// there is no such tool or the name is only reserved. The result must not be changed.
func (s *Snapshot) Schema(name string) []byte {
	if i := s.tool(name); i != nil {
		return i.Schema()
	}
	return nil
}

// Tool returns the entry, under its original name, of the tool that [Snapshot.Lookup] finds by this
// name, nil if there is no such tool or the name is only reserved. The result must not be changed.
func (s *Snapshot) Tool(name string) []byte {
	if i := s.tool(name); i != nil {
		return i.Raw()
	}
	return nil
}

func (s *Snapshot) tool(name string) *Item {
	if e := s.lists[Tools].lookup(name); e != nil {
		return &e.Item
	}
	return nil
}

// Page returns the result of a list request; it must not be changed. cursor is the JSON text of
// params.cursor; nil and null mean the first page.
//
// A cursor is valid in every snapshot with the same list. ok is false for any other cursor,
// including "".
func (s *Snapshot) Page(k Kind, cursor []byte) (result []byte, ok bool) {
	return s.lists[k].pages().find(cursor)
}

// SameList reports whether a client would see the same list in both snapshots. It compares digests,
// which are computed once per list, and does not write the pages. Lists with different page sizes
// count as different.
func (s *Snapshot) SameList(k Kind, other *Snapshot) bool {
	return s == other || s.lists[k].sum() == other.lists[k].sum()
}
