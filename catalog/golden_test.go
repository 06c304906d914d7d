package catalog

import (
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

	"mcpgateway/internal/wire"
)

var fitting = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

var update = flag.Bool("update", false, "rewrite the expected results in the files of testdata")

// TestMergeGolden runs every testdata/*.txtar. Each contains a description; the options; the tools
// of each backend, one per line, in the order of the configuration (a string represents a tool with
// this name); the expected catalog; and possibly the expected bytes of the list.
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
				got := map[string]string{"want": picture(s, Tools), "want.json": string(result(s)) +
					"\n"}[f.Name]
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

// listing returns a backend's listing, read by ParsePage.
func listing(t testing.TB, backend, lines string) Listing {
	t.Helper()
	page, err := ParsePage(Tools, pageOf(lines))
	if err != nil || len(page.Issues) != 0 {
		t.Fatalf("backend %s: %v %v", backend, page.Issues, err)
	}
	return Listing{Backend: backend, Items: [NumKinds][]Item{Tools: page.Items}}
}

// pageOf returns a result of tools/list with the lines of a file.
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

// named returns a listing of tools with these names.
func named(t testing.TB, backend string, names ...string) Listing {
	t.Helper()
	return having(t, backend, Tools, names...)
}

// having returns a listing of entries of one kind with these names or URIs.
func having(t testing.TB, backend string, k Kind, originals ...string) Listing {
	t.Helper()
	l := Listing{Backend: backend}
	l.Items[k] = items(t, k, originals...)
	return l
}

// page parses a valid page.
func page(t testing.TB, k Kind, text string) Page {
	t.Helper()
	p, err := ParsePage(k, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func items(t testing.TB, k Kind, originals ...string) []Item {
	t.Helper()
	var entries []string
	for _, name := range originals {
		entry := `{"` + kinds[k].key + `":` + string(wire.Quote(name))
		if k == Tools {
			entry += `,"inputSchema":{"type":"object"}`
		}
		entries = append(entries, entry+`}`)
	}
	p := page(t, k, `{"`+k.ResultMember()+`":[`+strings.Join(entries, ",")+`]}`)
	if len(p.Items) != len(originals) {
		t.Fatal(p.Issues)
	}
	return p.Items
}

// picture describes the listed entries of a kind, the unlisted names that can be called, and the
// omitted entries.
func picture(s *Snapshot, k Kind) string {
	l := &s.lists[k]
	var b strings.Builder
	show := func(name string, e *Entry) {
		fmt.Fprintf(&b, "  %-24s %s %s\n", name, e.Backend, wire.Quote(e.Item.Original))
	}
	b.WriteString("listed\n")
	for _, e := range l.entries {
		if e.Exposed != "" {
			show(e.Exposed, l.routes[e.Exposed])
		}
	}
	b.WriteString("also callable\n")
	for _, name := range slices.Sorted(maps.Keys(l.aliases())) {
		show(name, l.aliases()[name])
	}
	for _, e := range l.entries {
		if e.Exposed == "" {
			fmt.Fprintf(&b, "not listed: %s of %s\n", wire.Quote(e.Item.Original), e.Backend)
		}
	}
	return b.String()
}
