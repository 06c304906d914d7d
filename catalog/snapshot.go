package catalog

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
}

// A Route says where a call goes.
type Route struct {
	Backend string
	Own     string // what the backend knows it by
	OwnJSON []byte // that as JSON, ready to be spliced in
}

func (e *Entry) route() Route {
	return Route{Backend: e.Backend, Own: e.Item.Own, OwnJSON: e.Item.literal()}
}

// Lookup returns the route of what name stands for: as it is listed or, of tools
// and prompts, else one of the spellings that mean one of them alone.
func (s *Snapshot) Lookup(k Kind, name string) (Route, bool) {
	e := s.lists[k].lookup(name)
	if e == nil {
		return Route{}, false
	}
	return e.route(), true
}

func (l *list) lookup(name string) *Entry {
	e := l.routes[name]
	if e == nil && l.kind.named() {
		e = l.aliases()[name]
	}
	return e
}

// Entries returns all entries of a kind, in the order of the list. Those without
// an Exposed name are not in it. The slice must not be changed.
func (s *Snapshot) Entries(k Kind) []Entry { return s.lists[k].entries }
