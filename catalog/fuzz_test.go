package catalog

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpgateway/wire"
)

// FuzzMerge reads two pages as they might come from any backend and merges what
// they hold: the list is always JSON, its names are unique, fit every client and
// lead back to their tools.
func FuzzMerge(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var pages [][]byte
		for _, file := range archive.Files {
			if strings.HasPrefix(file.Name, "backend ") {
				pages = append(pages, pageOf(string(file.Data)))
			}
		}
		f.Add(pages[0], pages[1], "a", "b", "__", byte(0), 50)
		f.Add(pages[0], pages[0], "a", "a_", "-", byte(1), 8)
	}
	for _, page := range []string{
		`{"tools":[{"name":"a","inputSchema":null},{"inputSchema":{},"name":"\ud800"},{"name":"a","NAME":"b"},1],"nextCursor":""}`,
		`{"nextCursor":"x","tools":[{"name":"_","inputSchema":{"type":"object","type":1}},{"name":"","inputSchema":[]}]}`,
	} {
		f.Add([]byte(page), []byte(page), "é", "_", "", byte(2), 0)
	}
	f.Fuzz(func(t *testing.T, one, two []byte, a, b, separator string, prefix byte, limit int) {
		if a == b || strings.ContainsRune(a+b, 0) {
			return // the configuration refuses them, as it does a limit of more than 128
		}
		o := Options{Prefix: []Prefix{Collision, Always, Never}[prefix%3], Separator: separator, NameLimit: limit % 129}
		var listings []Listing
		for backend, text := range map[string][]byte{a: one, b: two} {
			page, err := ParsePage(Tools, text)
			if err != nil {
				return
			}
			if !json.Valid(text) || !utf8.Valid(text) {
				t.Fatalf("a page was read that is no JSON: %q", text)
			}
			checkPage(t, page)
			listings = append(listings, Listing{Backend: backend, Items: [NumKinds][]Item{Tools: page.Items}})
		}
		check(t, o, listings, Merge(o, listings))
	})
}

// checkPage proves that each tool of a page has one name and an input schema
// that clients take, and that what is kept of it is read as the same again.
func checkPage(t *testing.T, page Page) {
	t.Helper()
	if n := page.Next; n != nil && (!json.Valid(n) || n[0] != '"' && n[0] != '-' && (n[0] < '0' || n[0] > '9')) {
		t.Errorf("the cursor is %s", n)
	}
	for _, tool := range page.Items {
		var fields, schema map[string]json.RawMessage
		if err := json.Unmarshal(tool.Raw(), &fields); err != nil {
			t.Fatalf("%s: %v", tool.Raw(), err)
		}
		if wire.Unquote(fields["name"]) != tool.Own || string(fields["name"]) != string(tool.literal()) || tool.Own == "" || len(tool.Own) > maxName {
			t.Errorf("%q is named %s", tool.Own, fields["name"])
		}
		if json.Unmarshal(fields["inputSchema"], &schema) != nil || wire.Unquote(schema["type"]) != "object" {
			t.Errorf("its schema is %s", fields["inputSchema"])
		}
	}
	again, err := ParsePage(Tools, Marshal(Tools, page.Items))
	if err != nil || len(again.Flaws) != 0 || len(again.Items) != len(page.Items) {
		t.Errorf("read again: %v %v", again.Flaws, err)
	}
}

// FuzzNames makes names of any text, at any limit.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "a", "_a", "a.b", "搜索", "é", "\xff", "-", strings.Repeat("a", 60)} {
		f.Add(name, 8)
		f.Add(name, 50)
	}
	f.Fuzz(func(t *testing.T, name string, limit int) {
		limit = max(limit%129, 8)
		got := fit(name, "tool", name, limit)
		if len(got) > limit || !fitting.MatchString(got) {
			t.Errorf("fit(%q, %d) is %q", name, limit, got)
		}
		if fits := len(name) <= limit && fitting.MatchString(name); fits != (got == name) {
			t.Errorf("%q became %q", name, got)
		}
		if again := fit(got, "stem", "another tag", limit); again != got {
			t.Errorf("%q became %q, and that %q", name, got, again)
		}
	})
}
