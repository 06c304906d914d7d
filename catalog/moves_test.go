package catalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// routesOf returns the routes of some names, "" = none.
func routesOf(s *Snapshot, k Kind, names ...string) (all []string) {
	for _, name := range names {
		r, ok := s.Lookup(k, name)
		if k == Resources {
			r, ok = s.ResolveResource(name)
		}
		if !ok {
			all = append(all, "")
			continue
		}
		all = append(all, r.Backend+" "+r.Original)
	}
	return all
}

func wantRoutes(t *testing.T, s *Snapshot, k Kind, routes map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		if got := routesOf(s, k, name)[0]; got != routes[name] {
			t.Errorf("%v %q leads to %q, want %q", k, name, got, routes[name])
		}
	}
}

// A tool or prompt whose original name has the prefix of another backend does not get this name,
// even if the other backend lists nothing.
func TestNamesOfOtherBackends_F_SEC_3(t *testing.T) {
	for _, k := range []Kind{Tools, Prompts} {
		for _, original := range []string{"github__create_issue", "GitHub__create_issue",
			"github--create_issue", ".github__create_issue",
			"github.__x", "github__" + strings.Repeat("long", 20), "github__"} {
			for _, prefix := range []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever} {
				o := Options{Prefix: prefix, ReservedBackends: []string{"evil", "github"}}
				for name, listings := range map[string][]Listing{
					"alone": {having(t, "evil", k, original)},
					"before": {having(t, "evil", k, original),
						having(t, "github", k, "create_issue")},
					"after": {having(t, "github", k, "create_issue"),
						having(t, "evil", k, original)},
				} {
					s := Merge(o, listings)
					check(t, o, listings, s)
					for _, spelling := range []string{original, "github__create_issue",
						fitName(original, "tool", "", 50)} {
						if r, ok := s.Lookup(k, spelling); ok && r.Backend == "evil" {
							t.Errorf("%s, %s, %s: %q leads to evil", original, prefix, name,
								spelling)
						}
					}
					if got := routesOf(s, k, "evil__"+original)[0]; got != "evil "+original {
						t.Errorf("%s, %s, %s: evil's own name leads to %q", original, prefix, name,
							got)
					}
					for _, e := range s.Entries(k) {
						if e.Backend == "evil" && prefix != PrefixAlways &&
							(e.ConflictBackend != "github" || !e.PrefixConflict) {
							t.Errorf("%s, %s, %s: %+v", original, prefix, name, e)
						}
					}
				}
			}
		}
	}
}

// A backend's name may begin like another backend's name and the separator. Such names belong to
// the backend with the longer name.
func TestNestedBackendPrefixes_F_SEC_3(t *testing.T) {
	o := Options{ReservedBackends: []string{"a", "a__b", "a_"}}
	s := Merge(o, []Listing{named(t, "a", "b__c", "_x", "c"), named(t, "a__b", "c", "d")})
	wantRoutes(t, s, Tools, map[string]string{
		"a__b__c": "a__b c", "a__b__d": "a__b d", "a__b__x": "", "c": "a c", "b__c": "a b__c",
		"a__c":  "a c",
		"a___x": "", // it begins with a_ and the separator
	})
	s = Merge(o, []Listing{named(t, "a", "b__c"), {Backend: "a__b"}})
	wantRoutes(t, s, Tools, map[string]string{"a__b__c": "", "b__c": "a b__c"})
}

// Names that clients or models may confuse are not given to two backends. Within one backend they
// are allowed.
func TestNamesThatLookAlike_F_SEC_3(t *testing.T) {
	o := Options{}
	listings := []Listing{named(t, "a", "search", "Search", "get-item"),
		named(t, "b", "SEARCH", "get_item", "get.item", "other")}
	s := Merge(o, listings)
	check(t, o, listings, s)
	want := map[string]string{"search": "a search", "Search": "a Search", "get-item": "a get-item",
		"b__SEARCH": "b SEARCH", "b__get_item": "b get_item", "other": "b other"}
	got := exposed(s, Tools)
	for name, tool := range want {
		if got[name] != tool {
			t.Errorf("%s is %q, want %q", name, got[name], tool)
		}
	}
	if len(got) != 7 {
		t.Errorf("listed %v", got)
	}
	wantRoutes(t, s, Tools, map[string]string{"SEARCH": "", "get_item": "", "get.item": ""})
}

// A backend keeps a name while it lists the entry, even if a backend that precedes it in the
// configuration lists the name later.
func TestBackendsKeepTheirNames_F_SEC_3(t *testing.T) {
	for _, k := range []Kind{Tools, Prompts, Resources, Templates} {
		o := Options{}
		one, two := "x:one", "x:two"
		if k.isNamed() {
			one, two = "one", "two"
		}
		has := func(backend string, original ...string) Listing {
			return having(t, backend, k, original...)
		}
		step := func(s *Snapshot, moves string, listings ...Listing) *Snapshot {
			t.Helper()
			next := s.Next(o, listings, false)
			if got := fmt.Sprint(next.Moves()); got != moves {
				t.Errorf("%v: moves %s, want %s", k, got, moves)
			}
			return next
		}
		owner := func(s *Snapshot, want string) {
			t.Helper()
			r, _ := s.Lookup(k, one)
			if r.Backend != want {
				t.Errorf("%v: %s leads to %q, want %q", k, one, r.Backend, want)
			}
		}
		moved := func(was, now string) string { return fmt.Sprint([]Move{{k, one, was, now}}) }
		unknown := Listing{Backend: "b"}
		unknown.Unknown[k] = true

		s := Merge(o, []Listing{has("a"), has("b", one)})
		owner(s, "b")
		s = step(s, "[]", has("a", one), has("b", one)) // a adds the name
		owner(s, "b")
		s = step(s, "[]", has("a", one), has("b", two, one))
		owner(s, "b")
		// b has been replaced by another program, whose list is still unknown
		s = step(s, "[]", has("a", one), unknown)
		owner(s, "b")
		s = step(s, "[]", has("a", one), unknown)
		owner(s, "b")
		s = step(s, "[]", has("a", one), has("b", one))
		owner(s, "b")
		gone := step(s, moved("b", "a"), has("a", one), has("b", two)) // b removes the name
		owner(gone, "a")
		owner(step(gone, "[]", has("a", one), has("b", two, one)), "a")
		owner(step(s, moved("b", "a"), has("a", one)), "a") // b is removed
		s = step(s, "[]", has("a"), has("b"))               // no backend has the name
		owner(s, "")
		s = step(s, "[]", has("a"), has("b"))
		s = step(s, moved("b", "a"), has("a", one), has("b"))
		owner(s, "a")

		s = Merge(o, []Listing{has("a", one), has("b", one)})
		s = s.Next(o, []Listing{has("b", one), has("a", one)}, true)
		owner(s, "b")
		if got := fmt.Sprint(s.Moves()); got != moved("a", "b") {
			t.Errorf("%v: another order: moves %s", k, got)
		}
	}
}

// A name that is reserved for a backend whose list is unknown is not given to another backend, not
// even in another spelling.
func TestReservedNamesAreNotAssigned_F_SEC_3(t *testing.T) {
	s := Merge(Options{}, []Listing{named(t, "a"), named(t, "b", "search", "a.b")})
	unknown := Listing{Backend: "b", Unknown: [NumKinds]bool{true, true, true, true}}
	s = s.Next(Options{}, []Listing{named(t, "a", "search", "Search", "a_b", "a.b"), unknown},
		false)
	wantRoutes(t, s, Tools, map[string]string{"search": "b search", "Search": "", "a_b": "b a.b",
		"a__search": "a search", "a__Search": "a Search"})
	if r, _ := s.Lookup(Tools, "a_b"); string(r.OriginalJSON) != `"a.b"` {
		t.Errorf("it is routed as %s", r.OriginalJSON)
	}
	// A backend that was added in the meantime owns the names with its prefix.
	s = s.Next(Options{ReservedBackends: []string{"search"}},
		[]Listing{named(t, "a", "search__x"), unknown}, false)
	wantRoutes(t, s, Tools, map[string]string{"search": "b search", "search__x": ""})
}

// A new template does not take a URI away from the backend whose template matched it before.
func TestTemplatesAreTriedAsBefore_F_SEC_3(t *testing.T) {
	has := func(backend string, original ...string) Listing {
		return having(t, backend, Templates, original...)
	}
	s := Merge(Options{}, []Listing{has("a"), has("b", "x:{id}")})
	for range 3 { // the order does not change
		s = s.Next(Options{}, []Listing{has("a", "x:{+path}", "y:{id}"),
			has("b", "x:{id}", "y:{+id}")}, false)
		wantRoutes(t, s, Resources, map[string]string{"x:1": "b x:1", "y:1": "a y:1",
			"x:1/2": "a x:1/2"})
	}
}

// Whatever changes in the lists, a name leads to another backend only after a reported move.
func TestMovesAreReported_F_SEC_3(t *testing.T) {
	names := []string{"x", "X", "y", "a.b", "a_b", "a-b", "b__x", "a__x", "c__y", "_x",
		strings.Repeat("long", 20)}
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		o := Options{Prefix: []Prefix{PrefixOnCollision, PrefixNever, PrefixAlways}[round%3],
			ReservedBackends: []string{"a", "b", "c"}}
		k := Kind(round % NumKinds)
		var s *Snapshot
		for range 8 {
			var listings []Listing
			for _, backend := range []string{"a", "b", "c"} {
				some := slices.DeleteFunc(slices.Clone(names),
					func(string) bool { return random.IntN(2) == 0 })
				l := having(t, backend, k, some...)
				if random.IntN(5) == 0 {
					l = Listing{Backend: backend}
					l.Unknown[k] = true
				}
				listings = append(listings, l)
			}
			if s == nil {
				s = Merge(o, listings)
				continue
			}
			next := s.Next(o, listings, false)
			check(t, o, nil, next)
			moves := make(map[string]bool)
			for _, m := range next.Moves() {
				moves[m.Name] = true
			}
			for i := range s.lists[k].entries {
				e := &s.lists[k].entries[i]
				name, backend := e.Exposed, e.Backend
				now, ok := next.Lookup(k, name)
				if !s.lists[k].isBare(e) || !ok || now.Backend == backend {
					continue
				}
				listed := slices.ContainsFunc(next.Entries(k),
					func(e Entry) bool { return e.Backend == backend && e.bareName == name })
				if listed || !moves[name] {
					t.Fatalf("%s of %s leads to %s; %s lists it: %t, move reported: %t", name,
						backend, now.Backend, backend, listed, moves[name])
				}
			}
			s = next
		}
	}
}

func TestReleasedNamesAreBounded_F_SEC_3(t *testing.T) {
	var names []string
	for n := range maxReleased + 2 {
		names = append(names, fmt.Sprint("t", n))
	}
	has := func(backend string) Listing { // more than one page
		l := named(t, backend, names[:10]...)
		l.Items[Tools] = append(l.Items[Tools], named(t, backend, names[10:]...).Items[Tools]...)
		return l
	}
	s := Merge(Options{}, []Listing{{Backend: "a"}, has("b")})
	s = s.Next(Options{}, []Listing{{Backend: "a"}, {Backend: "b"}}, false)
	if n := len(s.lists[Tools].released); n != maxReleased {
		t.Errorf("%d released names", n)
	}
	s = s.Next(Options{}, []Listing{has("a"), {Backend: "b"}}, false)
	if n := len(s.Moves()); n != maxReleased {
		t.Errorf("%d moves", n)
	}
}

// There are so many backends with one-letter names that each possible name has the prefix of one.
func TestHashesAreBounded_F_SEC_3(t *testing.T) {
	o := Options{Separator: "_", NameLimit: 8, ReservedBackends: []string{"q", "a", "t", "x"}}
	listings := []Listing{named(t, "q", "a_x", "fine"), {Backend: "a"}}
	s := Merge(o, listings)
	check(t, o, listings, s)
	o.ReservedBackends = append(o.ReservedBackends, "quux")
	listings = []Listing{named(t, "quux", "a_long_name"), {Backend: "a"}}
	s = Merge(o, listings)
	check(t, o, listings, s)
	if e := s.Entries(Tools)[0]; e.Exposed != "" {
		t.Errorf("it is listed as %s", e.Exposed)
	}
	wantRoutes(t, s, Tools, map[string]string{"quux_a_long_name": "quux a_long_name",
		"a_long_name": ""})
}
