package catalog

import (
	"maps"
	"strings"
	"testing"
)

// strict returns the set of these backends.
func strict(backends ...string) map[string]bool {
	all := make(map[string]bool)
	for _, name := range backends {
		all[name] = true
	}
	return all
}

// A name belongs to its approved backend if this backend or the other one is strict, in any order
// of the configuration and with any prefix, whether or not the owner lists the tool.
func TestApprovedOwnersOfNames(t *testing.T) {
	owners := map[string]string{"search": "docs", "evil__fetch": "docs"}
	for _, strictOnes := range [][]string{{"docs"}, {"evil"}, {"docs", "evil"}} {
		for _, prefix := range []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever} {
			o := Options{Prefix: prefix, NameOwners: NewNameOwners(owners, strict(strictOnes...))}
			for name, listings := range map[string][]Listing{
				"owner gone":  {named(t, "evil", "search", "Search", "fetch", "other")},
				"owner empty": {named(t, "evil", "search", "Search", "fetch", "other"), named(t, "docs")},
				"owner last": {named(t, "evil", "search", "Search", "fetch", "other"),
					named(t, "docs", "search")},
				"owner first": {named(t, "docs", "search"),
					named(t, "evil", "search", "Search", "fetch", "other")},
			} {
				s := Merge(o, listings)
				for _, spelling := range []string{"search", "Search", "SEARCH", "evil__fetch"} {
					if r, ok := s.Lookup(Tools, spelling); ok && r.Backend == "evil" {
						t.Errorf("%v, %s, %s: %q leads to evil", strictOnes, prefix, name, spelling)
					}
				}
				got := exposed(s, Tools)
				if strings.HasPrefix(name, "owner ") && len(listings) == 2 &&
					len(listings[0].Items[Tools])+len(listings[1].Items[Tools]) == 5 &&
					prefix != PrefixAlways && got["search"] != "docs search" {
					t.Errorf("%v, %s, %s: %v", strictOnes, prefix, name, got)
				}
				if prefix == PrefixOnCollision && got["evil__search"] != "evil search" {
					t.Errorf("%v, %s, %s: the tool of the other backend is not listed: %v",
						strictOnes, prefix, name, got)
				}
				if prefix == PrefixNever && got["other"] != "evil other" {
					t.Errorf("%v, %s, %s: %v", strictOnes, prefix, name, got)
				}
			}
		}
	}
}

// A running gateway takes a name away from a backend when the name is approved for another one.
func TestApprovedOwnerTakesNameOver(t *testing.T) {
	listings := []Listing{named(t, "evil", "search"), named(t, "docs", "search")}
	before := Merge(Options{}, listings)
	if got := exposed(before, Tools); got["search"] != "evil search" {
		t.Fatal(got)
	}
	o := Options{NameOwners: NewNameOwners(map[string]string{"search": "docs"}, strict("docs"))}
	after := before.Next(o, listings, false)
	want := map[string]string{"search": "docs search", "evil__search": "evil search"}
	if got := exposed(after, Tools); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for _, e := range after.Entries(Tools) {
		if e.Backend == "evil" && e.ConflictBackend != "docs" {
			t.Errorf("the conflict is with %q", e.ConflictBackend)
		}
	}
}

// While the list of a backend is unknown, no name is reserved for it that is approved for another
// backend.
func TestNameOfAnotherOwnerIsNotReserved(t *testing.T) {
	unknown := named(t, "evil")
	unknown.Unknown[Tools] = true
	last := FromAssignments(Assignments{Tools: {"search": {"evil", "search"},
		"fetch": {"evil", "fetch"}}})
	o := Options{NameOwners: NewNameOwners(map[string]string{"search": "docs"}, strict("docs"))}
	s := last.Next(o, []Listing{unknown, named(t, "docs", "search")}, true)
	wantRoutes(t, s, Tools, map[string]string{"search": "docs search", "fetch": "evil fetch"})
	s = last.Next(o, []Listing{unknown, named(t, "docs")}, true)
	wantRoutes(t, s, Tools, map[string]string{"search": "", "fetch": "evil fetch"})
}

// Without a strict backend, and for prompts, names are assigned as ever.
func TestNamesWithoutStrictBackend(t *testing.T) {
	owners := map[string]string{"search": "docs"}
	if NewNameOwners(owners, nil) != nil || NewNameOwners(nil, strict("docs")) != nil {
		t.Error("owners without an effect")
	}
	o := Options{NameOwners: NewNameOwners(owners, strict("other"))}
	if got := exposed(Merge(o, []Listing{named(t, "evil", "search")}), Tools); got["search"] == "" {
		t.Errorf("%v", got)
	}
	o.NameOwners = NewNameOwners(owners, strict("docs"))
	s := Merge(o, []Listing{having(t, "evil", Prompts, "search")})
	if got := exposed(s, Prompts); got["search"] == "" {
		t.Errorf("a prompt: %v", got)
	}
}
