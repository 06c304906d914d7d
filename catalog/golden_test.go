package catalog

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpgateway/wire"
)

var fitting = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

var update = flag.Bool("update", false, "rewrite what the files of testdata want")

// TestMergeGolden runs every testdata/*.txtar: prose, the options, the tools of
// each backend in the order of the configuration, one a line, where a string is
// short for a tool of that name; then the catalog that is wanted, and, where there
// is a file for it, the bytes of the list.
func TestMergeGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var o Options
			var listings []Listing
			for _, f := range archive.Files {
				if f.Name == "options" {
					o = options(t, string(f.Data))
				} else if name, ok := strings.CutPrefix(f.Name, "backend "); ok {
					listings = append(listings, listing(t, name, string(f.Data)))
				}
			}
			s := Merge(o, listings)
			check(t, o, listings, s)
			for i, f := range archive.Files {
				got := map[string]string{"want": picture(s), "want.json": string(result(s)) + "\n"}[f.Name]
				if got == "" || got == string(f.Data) {
					continue
				}
				archive.Files[i].Data = []byte(got)
				if !*update {
					t.Errorf("%s:\n%s\nwant\n%s", f.Name, got, f.Data)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func options(t *testing.T, text string) (o Options) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "prefix":
			o.Prefix = Prefix(value)
		case "separator":
			o.Separator = value
		case "name_limit":
			o.NameLimit, _ = strconv.Atoi(value)
		default:
			t.Fatalf("unknown option %q", key)
		}
	}
	return o
}

// listing makes a backend's listing by way of ParsePage, as a backend does.
func listing(t testing.TB, backend, lines string) Listing {
	t.Helper()
	page, err := ParsePage(Tools, pageOf(lines))
	if err != nil || len(page.Flaws) != 0 {
		t.Fatalf("backend %s: %v %v", backend, page.Flaws, err)
	}
	return Listing{Backend: backend, Items: [NumKinds][]Item{Tools: page.Items}}
}

// pageOf makes a result of tools/list of a file's lines.
func pageOf(lines string) []byte {
	var tools []string
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, `"`) {
			line = `{"name":` + line + `,"inputSchema":{"type":"object"}}`
		}
		if line != "" {
			tools = append(tools, line)
		}
	}
	return []byte(`{"tools":[` + strings.Join(tools, ",") + `]}`)
}

// named makes a listing of tools with these names.
func named(t testing.TB, backend string, names ...string) Listing {
	t.Helper()
	var lines strings.Builder
	for _, name := range names {
		lines.Write(append(wire.Quote(name), '\n'))
	}
	return listing(t, backend, lines.String())
}

// picture shows what a snapshot lists, what else can be called, and what is
// neither.
func picture(s *Snapshot) string {
	var b strings.Builder
	show := func(name string, r Route) {
		fmt.Fprintf(&b, "  %-24s %s %s\n", name, r.Backend, wire.Quote(r.Own))
	}
	b.WriteString("listed\n")
	for _, e := range s.Entries(Tools) {
		if e.Exposed != "" {
			show(e.Exposed, s.lists[Tools].routes[e.Exposed])
		}
	}
	b.WriteString("also callable\n")
	for _, name := range slices.Sorted(maps.Keys(s.lists[Tools].aliases())) {
		show(name, s.lists[Tools].aliases()[name])
	}
	for _, e := range s.Entries(Tools) {
		if e.Exposed == "" {
			fmt.Fprintf(&b, "not listed: %s of %s\n", wire.Quote(e.Item.Own), e.Backend)
		}
	}
	return b.String()
}

// check proves of a catalog what must be true of every one.
func check(t testing.TB, o Options, listings []Listing, s *Snapshot) {
	t.Helper()
	written := written(t, s, Tools)
	o = o.withDefaults()
	exposed := make(map[string]bool)
	listed := slices.DeleteFunc(slices.Clone(s.Entries(Tools)), func(e Entry) bool { return e.Exposed == "" })
	if len(listed) != len(written) {
		t.Fatalf("%d tools are listed, not %d", len(written), len(listed))
	}
	for i, e := range listed {
		if exposed[e.Exposed] {
			t.Errorf("two tools are named %s", e.Exposed)
		}
		exposed[e.Exposed] = true
		if len(e.Exposed) > o.NameLimit || !fitting.MatchString(e.Exposed) {
			t.Errorf("no client takes the name %q", e.Exposed)
		}
		if r, ok := s.Lookup(Tools, e.Exposed); !ok || r.Backend != e.Backend || r.Own != e.Item.Own || wire.Unquote(r.OwnJSON) != e.Item.Own {
			t.Errorf("%s leads to %s %q, not to %s %q", e.Exposed, r.Backend, r.Own, e.Backend, e.Item.Own)
		}
		if got := rename(written[i], e.Item.literal()); string(got) != string(e.Item.Raw()) {
			t.Errorf("more of %s has changed than its name: %s", e.Item.Raw(), written[i])
		}
	}
	checkCalls(t, o, listings, s)
}

// checkCalls proves that each tool can be called as backend__tool, and by its
// own name if no other backend has it, unless that means a listed tool, or two.
func checkCalls(t testing.TB, o Options, listings []Listing, s *Snapshot) {
	t.Helper()
	meanings := make(map[string]map[string]bool)
	all := func(visit func(name string, e *Entry)) {
		for _, l := range listings {
			for _, tool := range l.Items[Tools] {
				e := &Entry{Backend: l.Backend, Item: tool}
				visit(tool.Own, e)
				visit(l.Backend+o.Separator+tool.Own, e)
				visit(o.prefixed(Tools, e), e)
			}
		}
	}
	all(func(name string, e *Entry) {
		if meanings[name] == nil {
			meanings[name] = make(map[string]bool)
		}
		meanings[name][e.tag()] = true
	})
	all(func(name string, e *Entry) {
		if _, listed := s.lists[Tools].routes[name]; listed {
			return
		}
		r, ok := s.Lookup(Tools, name)
		if alone := len(meanings[name]) == 1; ok != alone {
			t.Errorf("%q has %d meanings, and callable is %v", name, len(meanings[name]), ok)
		} else if ok && (r.Backend != e.Backend || r.Own != e.Item.Own) {
			t.Errorf("%q leads to %s %q, not to %s %q", name, r.Backend, r.Own, e.Backend, e.Item.Own)
		}
	})
}

// rename puts the name's literal in the place of a tool's name.
func rename(raw, literal []byte) []byte {
	var out []byte
	wire.Members(raw, func(key string, value []byte, at int) {
		if key == "name" {
			out = append(append(append(out, raw[:at]...), literal...), raw[at+len(value):]...)
		}
	})
	return out
}

// written follows the pages of a list and returns the entries on them.
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
		if err := json.Unmarshal(members[k.Member()], &some); err != nil || some == nil {
			t.Fatalf("the page of %s has no list: %.100s", cursor, page)
		}
		all = append(all, some...)
		if cursor = members["nextCursor"]; cursor == nil {
			return all
		}
	}
}

// result returns the one page of a snapshot's tools.
func result(s *Snapshot) []byte {
	page, _ := s.Page(Tools, nil)
	return page
}
