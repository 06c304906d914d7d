package catalog

import (
	"encoding/json"
	"slices"
	"testing"

	"mcpgateway/internal/wire"
)

// check checks the invariants of every catalog.
func check(t testing.TB, o Options, listings []Listing, s *Snapshot) {
	t.Helper()
	o = o.withDefaults()
	for k := range Kind(NumKinds) {
		checkList(t, o, s, k)
		if k.isNamed() {
			checkCalls(t, o, listings, s, k)
		}
	}
	for _, complete := range []bool{false, true} {
		if c := s.Capabilities(complete); !json.Valid(c) {
			t.Errorf("the capabilities are %s", c)
		}
	}
}

// checkList checks that each entry of a list is unique, leads back to its backend, and has the
// backend's bytes except for its name.
func checkList(t testing.TB, o Options, s *Snapshot, k Kind) {
	t.Helper()
	written := written(t, s, k)
	exposed := make(map[string]bool)
	listed := slices.DeleteFunc(slices.Clone(s.Entries(k)), func(e Entry) bool {
		return e.Exposed == ""
	})
	if len(listed) != len(written) {
		t.Fatalf("%d entries of kind %v are listed, not %d", len(written), k, len(listed))
	}
	for i, e := range listed {
		if exposed[e.Exposed] {
			t.Errorf("two entries of kind %v have the name %s", k, e.Exposed)
		}
		exposed[e.Exposed] = true
		if k.isNamed() && (len(e.Exposed) > o.NameLimit || !fitting.MatchString(e.Exposed)) {
			t.Errorf("%q is not a valid name", e.Exposed)
		} else if !k.isNamed() && e.Exposed != e.Item.Original {
			t.Errorf("%q has become %q", e.Item.Original, e.Exposed)
		}
		if r, ok := s.Lookup(k, e.Exposed); !ok || r.Backend != e.Backend ||
			r.Original != e.Item.Original || wire.Unquote(r.OriginalJSON) != e.Item.Original {
			t.Errorf("%s leads to %s %q, not to %s %q", e.Exposed, r.Backend, r.Original, e.Backend,
				e.Item.Original)
		}
		got := []byte(written[i])
		if k.isNamed() {
			got = rename(got, e.Item.originalLiteral())
		}
		if string(got) != string(e.Item.Raw()) {
			t.Errorf("more of %s has changed than its name: %s", e.Item.Raw(), written[i])
		}
	}
}

// checkCalls checks that each entry can be called by its original name and as backend__name, before
// and after fitName, unless such a name is listed or ambiguous, has the prefix of another backend,
// or looks like a name that another backend has.
func checkCalls(t testing.TB, o Options, listings []Listing, s *Snapshot, k Kind) {
	t.Helper()
	meanings := make(map[string]map[string]bool)
	names := slices.Clone(o.ReservedBackends)
	for _, l := range listings {
		names = append(names, l.Backend)
	}
	spaces := newPrefixTable(o.Separator, names)
	looks := make(map[string]string)
	for _, e := range s.Entries(k) {
		if e.Exposed == "" {
			continue
		}
		if other, known := looks[fold(e.Exposed)]; known && other != e.Backend {
			t.Errorf("%s of %s looks like a name of %s", e.Exposed, e.Backend, other)
		}
		looks[fold(e.Exposed)] = e.Backend
		if space := spaces.owner(e.Exposed, e.Backend); space != "" && space != e.Backend {
			t.Errorf("%s of %s is a name of %s", e.Exposed, e.Backend, space)
		}
	}
	all := func(visit func(name string, e *Entry)) {
		for _, l := range listings {
			for _, item := range l.Items[k] {
				e := &Entry{Backend: l.Backend, Item: item}
				for _, name := range []string{item.Original, l.Backend + o.Separator +
					item.Original, o.prefixedNameOf(k, e)} {
					free := true
					for _, spelled := range []string{name,
						fitName(name, k.String(), e.uniqueKey(), o.NameLimit)} {
						space := spaces.owner(spelled, e.Backend)
						other, known := looks[fold(spelled)]
						free = free && (space == "" || space == e.Backend) &&
							(!known || other == e.Backend)
						if name != item.Original {
							break
						}
					}
					if free {
						visit(name, e)
					} else if r, ok := s.Lookup(k, name); ok && r.Backend == e.Backend {
						t.Errorf("%q is not free and leads to %s", name, e.Backend)
					}
				}
			}
		}
	}
	all(func(name string, e *Entry) {
		if meanings[name] == nil {
			meanings[name] = make(map[string]bool)
		}
		meanings[name][e.uniqueKey()] = true
	})
	all(func(name string, e *Entry) {
		if _, listed := s.lists[k].routes[name]; listed {
			return
		}
		r, ok := s.Lookup(k, name)
		if alone := len(meanings[name]) == 1; ok != alone {
			t.Errorf("%q has %d meanings, and callable is %v", name, len(meanings[name]), ok)
		} else if ok && (r.Backend != e.Backend || r.Original != e.Item.Original) {
			t.Errorf("%q leads to %s %q, not to %s %q", name, r.Backend, r.Original, e.Backend,
				e.Item.Original)
		}
	})
}

// rename replaces the name of a tool or prompt by the literal.
func rename(raw, literal []byte) []byte {
	var out []byte
	wire.Members(raw, func(key string, value []byte, at int) {
		if key == "name" {
			out = append(append(append(out, raw[:at]...), literal...), raw[at+len(value):]...)
		}
	})
	return out
}

// written follows the pages of a list and returns their entries.
func written(t testing.TB, s *Snapshot, k Kind) []json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	for cursor := []byte(nil); ; {
		page, ok := s.Page(k, cursor)
		var members map[string]json.RawMessage
		if err := json.Unmarshal(page, &members); !ok || err != nil {
			t.Fatalf("the page of %s is no JSON: %v", cursor, err)
		}
		var some []json.RawMessage
		if err := json.Unmarshal(members[k.ResultMember()], &some); err != nil || some == nil {
			t.Fatalf("the page of %s has no list: %.100s", cursor, page)
		}
		all = append(all, some...)
		if cursor = members["nextCursor"]; cursor == nil {
			return all
		}
	}
}

// result returns the single page of a snapshot's tools.
func result(s *Snapshot) []byte {
	page, _ := s.Page(Tools, nil)
	return page
}
