package catalog

import "testing"

// withLogin returns the listing of a backend whose list of tools is unknown, with a built-in tool.
func withLogin(backend string) Listing {
	l := Listing{Backend: backend}
	l.Unknown[Tools] = true
	l.Items[Tools] = []Item{NewBuiltin(Tools,
		[]byte(`{"name":"login","title":"Log in to `+backend+`","inputSchema":{"type":"object"}}`))}
	return l
}

// A built-in tool has the prefix of its backend with every catalog.prefix, and no other name, so
// that no tool of a server loses its name to it, in whatever order the lists arrive.
func TestBuiltin_TakesNoNameOfAnotherBackend(t *testing.T) {
	for _, prefix := range []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever} {
		o := Options{Prefix: prefix}
		listed := "login"
		if prefix == PrefixAlways {
			listed = "c__login"
		}
		first := Merge(o, []Listing{withLogin("a"), withLogin("b"), {Backend: "c"}})
		wantRoutes(t, first, Tools, map[string]string{"a__login": "a login",
			"b__login": "b login", "login": ""})
		all := []Listing{withLogin("a"), withLogin("b"), named(t, "c", "login")}
		for _, s := range []*Snapshot{Merge(o, all), first.Next(o, all, false),
			FromAssignments(first.Assignments()).Next(o, all, true)} {
			wantRoutes(t, s, Tools, map[string]string{"a__login": "a login",
				"b__login": "b login", "login": "c login", "c__login": "c login"})
			if n := len(s.Moves()); n != 0 {
				t.Errorf("%s: %d moves", prefix, n)
			}
			for _, e := range s.Entries(Tools) {
				if e.Backend == "c" && e.Exposed != listed {
					t.Errorf("%s: the tool of c is listed as %s", prefix, e.Exposed)
				}
				if e.ConflictBackend != "" {
					t.Errorf("%s: conflict of %s", prefix, e.Exposed)
				}
				if r, _ := s.Lookup(Tools, e.Exposed); r.Builtin != (e.Backend != "c") {
					t.Errorf("%s: %s is routed as %+v", prefix, e.Exposed, r)
				}
			}
		}
	}
}

// The tools of the server follow the built-in tool, also one of the same name. Names that they had
// in an earlier run stay reserved until then.
func TestBuiltin_GivesWayToTheList(t *testing.T) {
	earlier := Merge(Options{}, []Listing{named(t, "a", "login", "read"), named(t, "b", "x")})
	s := FromAssignments(earlier.Assignments())
	other := named(t, "b", "login", "read", "x")
	s = s.Next(Options{}, []Listing{withLogin("a"), other}, true)
	wantRoutes(t, s, Tools, map[string]string{"a__login": "a login", "login": "a login",
		"read": "a read", "b__login": "b login", "b__read": "b read"})
	if r, _ := s.Lookup(Tools, "login"); r.Builtin {
		t.Error("the reserved name leads to the built-in tool")
	}
	s = s.Next(Options{}, []Listing{named(t, "a", "login", "read"), other}, false)
	wantRoutes(t, s, Tools, map[string]string{"a__login": "a login", "login": "a login",
		"read": "a read", "b__login": "b login"})
	for _, name := range []string{"login", "a__login"} {
		if r, _ := s.Lookup(Tools, name); r.Builtin {
			t.Errorf("%s still leads to the built-in tool", name)
		}
	}
	if n := len(s.Moves()); n != 0 {
		t.Errorf("%d moves", n)
	}
}

// A name that is approved for another backend is not given to a built-in tool: it is not listed.
func TestBuiltin_RespectsApprovedOwners(t *testing.T) {
	o := Options{NameOwners: NewNameOwners(map[string]string{"a__login": "b"},
		map[string]bool{"b": true})}
	s := Merge(o, []Listing{withLogin("a"), named(t, "b", "x")})
	wantRoutes(t, s, Tools, map[string]string{"a__login": "", "x": "b x"})
}
