package catalog

import (
	"maps"
	"slices"
)

// An Assignment is the backend that has a name or a URI. Own is what the backend calls the entry if the
// name is bare, "" otherwise: bare names are kept for a backend while its list is not known.
type Assignment struct {
	Backend  string `json:"backend"`
	Original string `json:"own,omitempty"`
}

// Assignments are the owners of names and URIs, for each kind.
type Assignments [NumKinds]map[string]Assignment

const (
	// maxOwners bounds the bytes of what Record returns. Names for which there is no room are not
	// compared in the next run.
	maxOwners = 2 << 20
	ownerSize = 64 // what one costs beside its texts
)

// Assignments returns who has each name and URI, and who had it last if nobody has it now. It is what
// [FromAssignments] needs in a later run.
func (s *Snapshot) Assignments() (all Assignments) {
	room := maxOwners
	for k := range s.lists {
		l := &s.lists[k]
		all[k] = make(map[string]Assignment, len(l.entries))
		add := func(name string, o Assignment) {
			size := len(name) + len(o.Backend) + len(o.Original) + ownerSize
			if _, known := all[k][name]; !known && size <= room {
				all[k][name] = o
				room -= size
			}
		}
		for i := range l.entries {
			switch e := &l.entries[i]; {
			case e.Exposed == "":
			case l.isBare(e):
				add(e.Exposed, Assignment{e.Backend, e.Item.Original})
			default:
				add(e.Exposed, Assignment{Backend: e.Backend})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(l.kept)) {
			add(name, Assignment{l.kept[name].backend, l.kept[name].own})
		}
		for _, name := range slices.Sorted(maps.Keys(l.released)) {
			add(name, Assignment{Backend: l.released[name]})
		}
	}
	return all
}

// FromAssignments returns a snapshot for what was recorded in an earlier run. It lists nothing, and is there
// for Next alone.
func FromAssignments(last Assignments) *Snapshot {
	s := new(Snapshot)
	for k := range s.lists {
		l := &s.lists[k]
		l.kind = Kind(k)
		l.kept, l.released = make(map[string]holder), make(map[string]string)
		for name, o := range last[k] {
			if o.Original != "" {
				l.kept[name] = holder{o.Backend, o.Original}
			} else {
				l.released[name] = o.Backend
			}
		}
	}
	return s
}

// MovesSince returns which names and URIs belong to another backend than in a record.
func (s *Snapshot) MovesSince(last Assignments) (all []Move) {
	for k := range s.lists {
		for i := range s.lists[k].entries {
			e := &s.lists[k].entries[i]
			if was, known := last[k][e.Exposed]; known && e.Exposed != "" && was.Backend != e.Backend {
				all = append(all, Move{Kind(k), e.Exposed, was.Backend, e.Backend})
			}
		}
	}
	return all
}

// A Transfer is the moves of one kind from one backend to one other.
type Transfer struct {
	Kind     Kind
	From, To string
	Names    []string
}

// Transfers sums moves up, in their order.
func Transfers(moves []Move) (all []Transfer) {
	places := make(map[Move]int) // without a name
	for _, m := range moves {
		pair := Move{Kind: m.Kind, From: m.From, To: m.To}
		at, known := places[pair]
		if !known {
			at = len(all)
			places[pair] = at
			all = append(all, Transfer{Kind: m.Kind, From: m.From, To: m.To})
		}
		all[at].Names = append(all[at].Names, m.Name)
	}
	return all
}
