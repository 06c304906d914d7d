package catalog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

// exposed returns the backend and original name of each entry of a list, by exposed name.
func exposed(s *Snapshot, k Kind) map[string]string {
	all := make(map[string]string)
	for _, e := range s.Entries(k) {
		if e.Exposed != "" {
			all[e.Exposed] = e.Backend + " " + e.Item.Original
		}
	}
	return all
}

// Tools with the separator in their original name are found, whichever separator is used.
func TestNAME_01_SeparatorInNames(t *testing.T) {
	for _, separator := range []string{"__", "-", "_", "___"} {
		for _, prefix := range []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever} {
			o := Options{Prefix: prefix, Separator: separator, NameLimit: 50}
			listings := []Listing{
				named(t, "a", "x"+separator+"y", "x", "y", "a"+separator+"x", separator+"x"),
				named(t, "b", "x"+separator+"y", "x", "y", "a"+separator+"x", "x"+separator),
				named(t, "a"+separator+"x", "y", "x"),
			}
			check(t, o, listings, Merge(o, listings))
		}
	}
}

// A backend's name may look like a prefix, or be invalid at the start of a name.
func TestNAME_03_BackendNames(t *testing.T) {
	for _, prefix := range []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever} {
		o := Options{Prefix: prefix}
		var listings []Listing
		for _, backend := range []string{"Demo__Everything", "a_", "_a", "A", "a", "a__", "__", "é",
			"Demo"} {
			listings = append(listings, named(t, backend, "x", "_x", "Everything__x", "a__x", "搜索"))
		}
		check(t, o, listings, Merge(o, listings))
	}
}

func TestNAME_05_InvalidCharacters(t *testing.T) {
	s := Merge(Options{}, []Listing{named(t, "b", "admin.tools.list", "user/update", "Query all x",
		"búsqueda")})
	for exposed, original := range map[string]string{
		"admin_tools_list": "admin.tools.list", "user_update": "user/update",
		"Query_all_x": "Query all x", "b_squeda": "búsqueda",
	} {
		for _, name := range []string{exposed, original, "b__" + exposed, "b__" + original} {
			if r, ok := s.Lookup(Tools, name); !ok || r.Original != original ||
				string(r.OriginalJSON) != string(wire.Quote(original)) {
				t.Errorf("a call of %q arrives as %s", name, r.OriginalJSON)
			}
		}
		if !strings.Contains(string(result(s)), `"name":"`+exposed+`"`) {
			t.Errorf("%s is not listed", exposed)
		}
	}
}

func TestNAME_06_LongNames(t *testing.T) {
	long := []string{strings.Repeat("a", 60), strings.Repeat("a", 128), strings.Repeat("a", 127) +
		"b", strings.Repeat("b", 50), strings.Repeat("b", 51)}
	for _, limit := range []int{8, 9, 10, 40, 50, 64, 128} {
		o := Options{NameLimit: limit}
		alone, late := []Listing{named(t, "b", long...)},
			[]Listing{named(t, "a", "aa"), named(t, "b", long...)}
		check(t, o, alone, Merge(o, alone))
		names := exposed(Merge(o, alone), Tools)
		for name, tool := range exposed(Merge(o, late), Tools) {
			if tool != "a aa" && names[name] != tool {
				t.Errorf("limit %d: %s has the name of another tool", limit, name)
			}
		}
	}
	s := Merge(Options{}, []Listing{named(t, "b", long...)})
	if _, ok := exposed(s, Tools)[strings.Repeat("b", 50)]; !ok {
		t.Error("a name at the limit is changed")
	}
}

func TestNAME_11_NamesThatStartWithUnderscores(t *testing.T) {
	s := Merge(Options{}, []Listing{named(t, "b", "__IMPORTANT")})
	for _, name := range []string{"IMPORTANT", "__IMPORTANT", "b____IMPORTANT"} {
		if r, ok := s.Lookup(Tools, name); !ok || string(r.OriginalJSON) != `"__IMPORTANT"` {
			t.Errorf("a call of %s arrives as %s", name, r.OriginalJSON)
		}
	}
	if got := exposed(s, Tools)["IMPORTANT"]; got != "b __IMPORTANT" {
		t.Errorf("listed: %v", exposed(s, Tools))
	}
}

// The same listings, in the order of the configuration, result in the same catalog. The order in
// which a backend lists its tools changes no name.
func TestNamesDependOnlyOnListings(t *testing.T) {
	names := []string{"x", "y", "b__x", "a__x", "b__b__x", "c__y", "a.b", "a b", "a/b", "a_b", "_x",
		"__x", "b__a_b", "搜索", "検索", "", "é",
		strings.Repeat("long", 20), strings.Repeat("long", 20) + "er", strings.Repeat("long.", 20)}
	names = slices.DeleteFunc(names, func(s string) bool { return s == "" })
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 400 {
		o := Options{Prefix: []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever}[round%3],
			NameLimit: []int{8, 20, 50}[round/3%3]}
		k := Kind(round % NumKinds)
		names := names
		if k == Templates {
			// "a b" is not a valid template
			names = slices.DeleteFunc(slices.Clone(names), func(s string) bool {
				return s == "a b"
			})
		}
		var listings, permuted []Listing
		for _, backend := range []string{"a", "b", "c"} {
			some := slices.Clone(names)
			random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			some = some[:random.IntN(len(some))]
			listings = append(listings, having(t, backend, k, some...))
			random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			permuted = append(permuted, having(t, backend, k, some...))
		}
		s := Merge(o, listings)
		check(t, o, listings, s)
		if again := Merge(o, listings); picture(again, k) != picture(s, k) ||
			!s.SameList(k, again) {
			t.Fatalf("merged twice:\n%s\n%s", picture(s, k), picture(again, k))
		}
		if got, want := fmt.Sprint(exposed(Merge(o, permuted), k)),
			fmt.Sprint(exposed(s, k)); got != want {
			t.Fatalf("the order of the entries changes names:\n%s\n%s", got, want)
		}
	}
}

// Entries of later backends do not change the names of an earlier backend.
func TestEarlierBackendsKeepTheirNames(t *testing.T) {
	listings := []Listing{
		named(t, "a", "x", "a.b", "b__x"), named(t, "b", "x", "a_b", "a__x"),
		named(t, "c", "x", "a.b", "b__x", "a__x"),
	}
	for _, prefix := range []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever} {
		var before *Snapshot
		for n := range listings {
			s := Merge(Options{Prefix: prefix, ReservedBackends: []string{"a", "b", "c"}},
				listings[:n+1])
			if before != nil {
				for i, e := range before.Entries(Tools) {
					if got := s.Entries(Tools)[i].Exposed; got != e.Exposed {
						t.Errorf("%s: %s of %s was %s and became %s", prefix, e.Item.Original,
							e.Backend, e.Exposed, got)
					}
				}
			}
			before = s
		}
	}
}

func TestFirstOfDuplicateToolsStays(t *testing.T) {
	l := listing(t, "a", `{"name":"x","inputSchema":{"type":"object"},"n":1}
		{"name":"\u0078","inputSchema":{"type":"object"},"n":2}`)
	s := Merge(Options{}, []Listing{l})
	if got := string(
		result(s)); got != `{"tools":[{"name":"x","inputSchema":{"type":"object"},"n":1}]}` {
		t.Errorf("listed: %s", got)
	}
}

// The name of a tool may equal the hashed name of another tool.
func TestHashCollisions(t *testing.T) {
	o := Options{NameLimit: 20}
	first := Merge(o, []Listing{named(t, "a", strings.Repeat("n", 30))}).Entries(Tools)[0].Exposed
	listings := []Listing{named(t, "a", strings.Repeat("n", 30), first, "a__"+first)}
	s := Merge(o, listings)
	check(t, o, listings, s)
	if s.Entries(Tools)[1].Exposed != first {
		t.Errorf("%s lost its name", first)
	}
}
