package catalog

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// manyListings returns the listings of 200 backends with 25 tools each. A fifth of the names
// collide with names of another backend, and some names must be converted.
func manyListings(tb testing.TB) []Listing {
	var all []Listing
	for backend := range 200 {
		var b strings.Builder
		for tool := range 25 {
			name := fmt.Sprintf("tool_%d_of_%d", tool, backend)
			switch tool % 5 {
			case 0:
				name = fmt.Sprintf("common_%d", tool)
			case 1:
				name = fmt.Sprintf("admin.tool.%d/of %d", tool, backend)
			}
			fmt.Fprintf(&b,
				`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{"q":{"type":"string","description":%q}},"required":["q"]}}`+"\n",
				name, strings.Repeat("what it does ", 20), strings.Repeat("what it is ", 5))
		}
		all = append(all, listing(tb, fmt.Sprintf("backend%d", backend), b.String()))
	}
	return all
}

func BenchmarkMerge(b *testing.B) {
	all := manyListings(b)
	for _, n := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("%d backends of 25 tools", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Merge(Options{}, all[:n])
			}
		})
	}
}

func BenchmarkParsePage(b *testing.B) {
	page := MarshalList(Tools, manyListings(b)[0].Items[Tools])
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParsePage(Tools, page); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	s := Merge(Options{}, manyListings(b))
	for _, name := range []string{"tool_3_of_100", "backend100__common_5", "backend0__common_5",
		"no_such_tool"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Lookup(Tools, name)
			}
		})
	}
}

func TestAllocations_OfRoutes(t *testing.T) {
	s := Merge(Options{}, manyListings(t))
	for _, name := range []string{"tool_3_of_100", "backend100__common_5", "backend0__common_5",
		"admin.tool.1/of 7", "no_such_tool"} {
		if _, ok := s.Lookup(Tools, name); ok == (name == "no_such_tool") {
			t.Errorf("%s: found is %v", name, ok)
		}
		if n := testing.AllocsPerRun(100, func() { s.Lookup(Tools, name) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestAllocations_OfResources(t *testing.T) {
	s := Merge(Options{}, []Listing{readable(t, "a", []string{"file:///a"}, nil),
		readable(t, "b", []string{"file:///b"}, []string{"x:{y}"})})
	// 1 for the quoted URI
	for uri, want := range map[string]float64{"file:///b": 0, "x:1": 1, "none:": 0} {
		// the minimum of five rounds, because the race detector drops some items of regexp's pool
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(100, func() { s.ResolveResource(uri) }))
		}
		if least > want {
			t.Errorf("%s: %v allocations", uri, least)
		}
	}
}

func BenchmarkResource(b *testing.B) {
	var listings []Listing
	for i := range 200 {
		listings = append(listings, readable(b, fmt.Sprint("b", i),
			[]string{fmt.Sprintf("file:///%d", i)},
			[]string{fmt.Sprintf("%d://{x}/{y}", i), fmt.Sprintf("http://%d/{+path}", i)}))
	}
	s := Merge(Options{}, listings)
	for _, uri := range []string{"file:///150", "150://x/y", "none:"} {
		b.Run(uri, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.ResolveResource(uri)
			}
		})
	}
}

// BenchmarkMergeAfterOneChange measures the work after one of 200 backends has listed another
// tool: read its list, merge all, compare with the list of each client, and list again for one
// client.
func BenchmarkMergeAfterOneChange(b *testing.B) {
	all := manyListings(b)
	changed := [2][]byte{MarshalList(Tools, all[100].Items[Tools]),
		MarshalList(Tools, all[100].Items[Tools][1:])}
	before := Merge(Options{}, all)
	before.Page(Tools, nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		page, err := ParsePage(Tools, changed[(i+1)%2])
		if err != nil {
			b.Fatal(err)
		}
		all[100].Items[Tools] = page.Items
		now := Merge(Options{}, all)
		for k := range Kind(NumKinds) {
			if same := now.SameList(k, before); same != (k != Tools) {
				b.Fatalf("%s: the same is %v", k.ListMethod(), same)
			}
		}
		if _, ok := now.Lookup(Tools, "backend100__common_5"); !ok {
			b.Fatal("there is no such tool")
		}
		now.Page(Tools, nil)
		now.Capabilities(true)
		before = now
	}
}
