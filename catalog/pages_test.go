package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

// cursors follows the pages of a list and returns the cursor of every page except the first.
func cursors(t testing.TB, s *Snapshot, k Kind) (all []string) {
	t.Helper()
	for page, ok := s.Page(k, nil); ; {
		var members struct{ NextCursor json.RawMessage }
		if err := json.Unmarshal(page, &members); !ok || err != nil {
			t.Fatalf("%s: %v %v", page, ok, err)
		}
		if members.NextCursor == nil {
			return all
		}
		all = append(all, string(members.NextCursor))
		page, ok = s.Page(k, members.NextCursor)
	}
}

func many(t testing.TB, k Kind, n int) []Listing {
	var uris []string
	for i := range n {
		uris = append(uris, fmt.Sprintf("x:%d.%s", i, strings.Repeat("x", i*7%50)))
	}
	return []Listing{having(t, "a", k, uris[:n/2]...), having(t, "b", k, uris[n/3:]...)}
}

// For any page size, all entries are listed once and in order, on pages within the size unless
// they have only one entry.
func TestPages(t *testing.T) {
	for k := range Kind(NumKinds) {
		listings := many(t, k, 60)
		whole := fmt.Sprintf("%s", written(t, Merge(Options{}, listings), k))
		for _, size := range []int{1, 100, 200, 201, 202, 203, 1000, 8000, 1 << 20} {
			o := Options{PageSize: size}
			s := Merge(o, listings)
			check(t, o, listings, s)
			if got := fmt.Sprintf("%s", written(t, s, k)); got != whole {
				t.Errorf("%s on pages of %d bytes: %s\nwant %s", k.ListMethod(), size, got, whole)
			}
			for i, page := range s.lists[k].pages().results {
				// the allocator rounds up
				if room := cap(page) - len(page); room > 2*pageEndSize && room > len(page)/5 {
					t.Errorf("page %d has %d bytes, and room for %d", i, len(page), cap(page))
				}
				if n := len(page); n > size && bytes.Count(page, []byte(`"`+kinds[k].key+`"`)) > 1 {
					t.Errorf("page %d has %d bytes, more than %d", i, n, size)
				}
			}
			if n := len(cursors(t, s, k)); (n > 0) != (size < 8000) {
				t.Errorf("pages of %d bytes: %d cursors", size, n)
			}
		}
	}
}

func TestOnlyEmptyListsHaveEmptyPages(t *testing.T) {
	s := Merge(Options{PageSize: 1, Prefix: PrefixNever}, []Listing{
		named(t, "a", "x"), named(t, "b", "x"), named(t, "c", "x", "y"), named(t, "d", "x", "y"),
	})
	if n := len(cursors(t, s, Tools)); n != 1 {
		t.Errorf("two tools are on %d pages", n+1)
	}
	for k := range Kind(NumKinds) {
		page, ok := Merge(Options{PageSize: 1}, nil).Page(k, nil)
		if want := `{"` + k.ResultMember() + `":[]}`; !ok || string(page) != want {
			t.Errorf("empty list: %s, want %s", page, want)
		}
	}
}

// A cursor is valid only while the list is the same.
func TestPAGE_GatewayCursors(t *testing.T) {
	o := Options{PageSize: 500}
	s := Merge(o, many(t, Tools, 60))
	of := cursors(t, s, Tools)
	if len(of) < 3 {
		t.Fatal(of)
	}
	seen := make(map[string]bool)
	for _, c := range of {
		if seen[c] {
			t.Errorf("%s is the cursor of two pages", c)
		}
		seen[c] = true
		if len(c) > maxCursor {
			t.Errorf("%s is longer than maxCursor", c)
		}
	}
	last := of[len(of)-1]
	first, _ := s.Page(Tools, nil)
	for _, c := range [][]byte{nil, []byte("null")} {
		if page, ok := s.Page(Tools, c); !ok || !bytes.Equal(page, first) {
			t.Errorf("%q is not the first page: %.80s", c, page)
		}
	}
	for _, c := range []string{
		`""`, `" "`, `0`, `1`, `-1`, `true`, `{}`, `[]`, `"x"`, `"null"`, "garbage",
		`"` + strings.Repeat("A", 1<<20) + `"`,
		strings.ToUpper(last), strings.Trim(last, `"`), `"` + strings.Trim(last, `"`) + `="`,
		last[:len(last)-2] + `"`, `[` + last + `]`,
	} {
		if page, ok := s.Page(Tools, []byte(c)); ok {
			t.Errorf("%.40s leads to %.40s", c, page)
		}
	}
	escaped := `"\u00` + fmt.Sprintf("%02x", last[1]) + last[2:]
	if _, ok := s.Page(Tools, []byte(escaped)); !ok {
		t.Errorf("%s does not mean %s", escaped, last)
	}
	for name, tt := range map[string]struct {
		s    *Snapshot
		kind Kind
		good bool
	}{
		"another snapshot, the same list": {Merge(o, many(t, Tools, 60)), Tools, true},
		"other lists differ": {
			Merge(o, append(many(t, Tools, 60), having(t, "c", Prompts, "p"),
				having(t, "d", Resources, "r:"))), Tools, true,
		},
		"another kind": {Merge(o, many(t, Prompts, 60)), Prompts, false},
		"one more": {Merge(o, append(many(t, Tools, 60), named(t, "c", "x"))),
			Tools, false},
		"one fewer": {Merge(o, many(t, Tools, 59)), Tools, false},
		"another size": {Merge(Options{PageSize: 700}, many(t, Tools, 60)), Tools,
			false},
		"one page": {Merge(Options{}, many(t, Tools, 60)), Tools, false},
		"none":     {Merge(o, nil), Tools, false},
		"other names": {Merge(Options{PageSize: 500, Prefix: PrefixAlways},
			many(t, Tools, 60)), Tools, false},
		"prompts of the same snapshot": {s, Prompts, false},
	} {
		for _, c := range of {
			if page, ok := tt.s.Page(tt.kind, []byte(c)); ok != tt.good {
				t.Errorf("%s: %s leads to %.40s", name, c, page)
			}
		}
		if same := s.SameList(tt.kind, tt.s); same != tt.good &&
			name != "prompts of the same snapshot" {
			t.Errorf("%s: the list is the same: %v", name, same)
		}
	}
}

// A large entry has its own page, between its neighbours.
func TestLargeEntryHasItsOwnPage(t *testing.T) {
	large := `{"uri":"l:","x":"` + strings.Repeat("x", 2000) + `"}`
	page := page(t, Resources, `{"resources":[{"uri":"a:"},`+large+`,{"uri":"b:"},{"uri":"c:"}]}`)
	s := Merge(Options{PageSize: 1000},
		[]Listing{{Backend: "a", Items: [NumKinds][]Item{Resources: page.Items}}})
	var got []string
	for _, page := range s.lists[Resources].pages().results {
		n := 0
		wire.Members(page, func(key string, value []byte, _ int) {
			if key == "resources" {
				n = len(wire.Elements(value))
			}
		})
		got = append(got, fmt.Sprint(n))
	}
	if got := strings.Join(got, " "); got != "1 1 2" {
		t.Errorf("the pages contain %s", got)
	}
}

func BenchmarkPage(b *testing.B) {
	s := Merge(Options{}, manyListings(b))
	for _, size := range []int{4 << 20, 64 << 10} {
		b.Run(fmt.Sprintf("written in pages of %d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.lists[Tools].writePages(size)
			}
		})
	}
	b.Run("asked for", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Page(Tools, nil)
		}
	})
}

// Lists are compared for each client at each change, so each list is read only once for all
// comparisons.
func TestSameList_ReadsEachListOnce(t *testing.T) {
	merged := func(names ...string) *Snapshot {
		return Merge(Options{}, []Listing{named(t, "gh", names...)})
	}
	a, same, other := merged("x", "y"), merged("x", "y"), merged("x", "z")
	if !a.SameList(Tools, same) || a.SameList(Tools, other) {
		t.Errorf("the same: %t, another: %t", a.SameList(Tools, same), a.SameList(Tools, other))
	}
	same.lists[Tools].entries[0].Exposed = "z" // reading it again would change the digest
	if !a.SameList(Tools, same) {
		t.Error("the list was read again")
	}
}

// SameList gives the same result as a comparison of the written lists.
func TestSameList_MatchesPages(t *testing.T) {
	tools := func(backend, text string) Listing {
		return Listing{Backend: backend,
			Items: [NumKinds][]Item{Tools: page(t, Tools, `{"tools":[`+text+`]}`).Items}}
	}
	const x, y = `{"name":"x","inputSchema":{"type":"object"}}`,
		`{"name":"y","inputSchema":{"type":"object"}}`
	other := tools("a", x)
	other.Items[Tools][0] = other.Items[Tools][0].WithSchema([]byte(`{"type":"object","a":1}`))
	var all []*Snapshot
	for _, o := range []Options{{}, {Prefix: PrefixAlways}, {Prefix: PrefixNever}} {
		for _, listings := range [][]Listing{
			nil, {tools("a", "")}, {tools("a", x)}, {tools("b", x)}, {tools("a", x+","+y)},
			{tools("a", y+","+x)},
			{tools("a", x), tools("b", y)}, {tools("a", x), tools("b", x)},
			{tools("a", x), tools("c", x)}, {other},
			{tools("a", `{"n\u0061me":"x","inputSchema":{"type":"object"}}`)},
			{tools("a", `{"name":"\u0078","inputSchema":{"type":"object"}}`)},
			{tools("a", `{"name":"x" ,"inputSchema":{"type":"object"}}`)},
			{tools("a", `{"name":"x","inputSchema":{}}`)},
			{tools("a", `{"inputSchema":{"type":"object"},"name":"x"}`)},
			{tools("a", `{"name":"x!","inputSchema":{"type":"object"}}`)},
			{tools("a", `{"name":"x_","inputSchema":{"type":"object"}}`)},
			{tools("", `{"name":"a__x","inputSchema":{"type":"object"}}`)},
		} {
			all = append(all, Merge(o, listings))
		}
	}
	same := 0
	for _, a := range all {
		for _, b := range all {
			written := string(a.lists[Tools].pages().results[0]) == string(
				b.lists[Tools].pages().results[0])
			if a.SameList(Tools, b) != written {
				t.Errorf("same: %v:\n%s\n%s", !written, a.lists[Tools].pages().results[0],
					b.lists[Tools].pages().results[0])
			}
			if a != b && written {
				same++
			}
		}
	}
	if same < 20 {
		t.Errorf("only %d lists are the same", same)
	}
}
