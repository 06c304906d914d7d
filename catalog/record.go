package catalog

import (
	"maps"
	"slices"
)

// An Owner is the backend that has a name or a URI. Own is what the backend calls the entry if the
// name is bare, "" otherwise: bare names are kept for a backend while its list is not known.
type Owner struct {
	Backend string `json:"backend"`
	Own     string `json:"own,omitempty"`
}

// Owners are the owners of names and URIs, for each kind.
type Owners [NumKinds]map[string]Owner

const (
	// maxOwners bounds the bytes of what Record returns. Names for which there is no room are not
	// compared in the next run.
	maxOwners = 2 << 20
	ownerSize = 64 // what one costs beside its texts
)

// Record returns who has each name and URI, and who had it last if nobody has it now. It is what
// [Recall] needs in a later run.
func (s *Snapshot) Record() (all Owners) {
	room := maxOwners
	for k := range s.lists {
		l := &s.lists[k]
		all[k] = make(map[string]Owner, len(l.entries))
		add := func(name string, o Owner) {
			size := len(name) + len(o.Backend) + len(o.Own) + ownerSize
			if _, known := all[k][name]; !known && size <= room {
				all[k][name] = o
				room -= size
			}
		}
		for i := range l.entries {
			switch e := &l.entries[i]; {
			case e.Exposed == "":
			case l.isBare(e):
				add(e.Exposed, Owner{e.Backend, e.Item.Own})
			default:
				add(e.Exposed, Owner{Backend: e.Backend})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(l.kept)) {
			add(name, Owner{l.kept[name].backend, l.kept[name].own})
		}
		for _, name := range slices.Sorted(maps.Keys(l.released)) {
			add(name, Owner{Backend: l.released[name]})
		}
	}
	return all
}

// Recall returns a snapshot for what was recorded in an earlier run. It lists nothing, and is there
// for Next alone.
func Recall(last Owners) *Snapshot {
	s := new(Snapshot)
	for k := range s.lists {
		l := &s.lists[k]
		l.kind = Kind(k)
		l.kept, l.released = make(map[string]holder), make(map[string]string)
		for name, o := range last[k] {
			if o.Own != "" {
				l.kept[name] = holder{o.Backend, o.Own}
			} else {
				l.released[name] = o.Backend
			}
		}
	}
	return s
}

// Since returns which names and URIs belong to another backend than in a record.
func (s *Snapshot) Since(last Owners) (all []Move) {
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
	Was, Now string
	Names    []string
}

// Transfers sums moves up, in their order.
func Transfers(moves []Move) (all []Transfer) {
	places := make(map[Move]int) // without a name
	for _, m := range moves {
		pair := Move{Kind: m.Kind, Was: m.Was, Now: m.Now}
		at, known := places[pair]
		if !known {
			at = len(all)
			places[pair] = at
			all = append(all, Transfer{Kind: m.Kind, Was: m.Was, Now: m.Now})
		}
		all[at].Names = append(all[at].Names, m.Name)
	}
	return all
}
