package catalog

import (
	"maps"
	"slices"
)

// An Assignment is the backend that has, or last had, a name or URI. If the backend has it now and
// it is bare, that is, a URI or a name without the backend's prefix, Original is the backend's name
// or URI for the entry. With Original, a later run can reserve the bare name while the backend's
// list is unknown. Otherwise Original is "".
type Assignment struct {
	Backend  string `json:"backend"`
	Original string `json:"own,omitempty"`
}

// Assignments are the assignments of names and URIs, per kind.
type Assignments [NumKinds]map[string]Assignment

const (
	// maxAssignments bounds the size of Assignments, in bytes. Names beyond this bound are left
	// out: the next run neither compares nor reserves them.
	maxAssignments = 2 << 20
	assignmentSize = 64 // size of an assignment without its texts
)

// Assignments returns the backend of each name and URI, and the last backend of each unused name,
// up to maxAssignments. A later run passes the result to [FromAssignments].
func (s *Snapshot) Assignments() (all Assignments) {
	room := maxAssignments
	for k := range s.lists {
		l := &s.lists[k]
		all[k] = make(map[string]Assignment, len(l.entries))
		add := func(name string, o Assignment) {
			size := len(name) + len(o.Backend) + len(o.Original) + assignmentSize
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
		for _, name := range slices.Sorted(maps.Keys(l.reserved)) {
			add(name, Assignment{l.reserved[name].backend, l.reserved[name].original})
		}
		for _, name := range slices.Sorted(maps.Keys(l.released)) {
			add(name, Assignment{Backend: l.released[name]})
		}
	}
	return all
}

// FromAssignments returns a snapshot from the assignments of an earlier run. It has no entries and
// is meant only for Next.
func FromAssignments(last Assignments) *Snapshot {
	s := new(Snapshot)
	for k := range s.lists {
		l := &s.lists[k]
		l.kind = Kind(k)
		l.reserved, l.released = make(map[string]entryRef), make(map[string]string)
		for name, o := range last[k] {
			if o.Original != "" {
				l.reserved[name] = entryRef{o.Backend, o.Original}
			} else {
				l.released[name] = o.Backend
			}
		}
	}
	return s
}

// A Move is a name or URI whose backend has changed.
type Move struct {
	Kind     Kind
	Name     string // name or URI
	From, To string // backends
}

// Moves returns the names and URIs whose backend differs from their backend in the previous
// snapshot or, for names that were unused in that snapshot, from their last backend.
func (s *Snapshot) Moves() (all []Move) {
	for k := range s.lists {
		all = append(all, s.lists[k].moves...)
	}
	return all
}

// MovesSince returns the listed names and URIs whose backend differs from their backend in the
// assignments last. Names that are not in last are not returned.
func (s *Snapshot) MovesSince(last Assignments) (all []Move) {
	for k := range s.lists {
		for i := range s.lists[k].entries {
			e := &s.lists[k].entries[i]
			if was, known := last[k][e.Exposed]; known && e.Exposed != "" &&
				was.Backend != e.Backend {
				all = append(all, Move{Kind(k), e.Exposed, was.Backend, e.Backend})
			}
		}
	}
	return all
}

// A Transfer contains the moves of one kind from one backend to another.
type Transfer struct {
	Kind     Kind
	From, To string
	Names    []string
}

// Transfers groups moves by kind and backends, in the order of the first move of each group.
func Transfers(moves []Move) (all []Transfer) {
	index := make(map[Move]int) // by a Move without a name
	for _, m := range moves {
		key := Move{Kind: m.Kind, From: m.From, To: m.To}
		i, known := index[key]
		if !known {
			i = len(all)
			index[key] = i
			all = append(all, Transfer{Kind: m.Kind, From: m.From, To: m.To})
		}
		all[i].Names = append(all[i].Names, m.Name)
	}
	return all
}
