package catalog

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/yosida95/uritemplate/v3"

	"mcpgateway/internal/wire"
)

// FuzzMerge reads any two pages and merges them: the list is valid JSON, its names are unique,
// valid for every client, and lead back to their tools.
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
			return // the configuration rejects such names
		}
		// the configuration rejects limits of more than 128
		o := Options{Prefix: []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever}[prefix%3],
			Separator: separator, NameLimit: limit % 129}
		var listings []Listing
		for backend, text := range map[string][]byte{a: one, b: two} {
			page, err := ParsePage(Tools, text)
			if err != nil {
				return
			}
			if !json.Valid(text) || !utf8.Valid(text) {
				t.Fatalf("an invalid page was accepted: %q", text)
			}
			checkPage(t, Tools, page)
			listings = append(listings, Listing{Backend: backend,
				Items: [NumKinds][]Item{Tools: page.Items}})
		}
		check(t, o, listings, Merge(o, listings))
	})
}

// FuzzParsePage reads any text as a page of any kind, and merges the result with itself.
func FuzzParsePage(f *testing.F) {
	for k := range Kind(NumKinds) {
		key := kinds[k].key
		for _, entry := range []string{
			`{"` + key + `":"x","inputSchema":{}}`,
			`{"` + key + `":"x:\u0061{/b,c*}","x":[1.10]},{"` + key + `":"x:a{/b,c*}"}`,
			`{"name":"n"},{"` + key + `":null},1,{"` + key + `":"","` + key + `":"x"},{"` +
				strings.ToUpper(key) + `":"x"}`, `{"` + key + `":"{"}`,
		} {
			f.Add(byte(k), []byte(`{"`+k.ResultMember()+`":[`+entry+`],"nextCursor":"c"}`),
				"x:a/1/2", 100)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, text []byte, uri string, size int) {
		k := Kind(kind % NumKinds)
		page, err := ParsePage(k, text)
		if err != nil {
			return
		}
		checkPage(t, k, page)
		o := Options{PageSize: size}
		listings := []Listing{{Backend: "a", Capabilities: text},
			{Backend: "b", Capabilities: []byte(`{"resources":{}}`)}}
		listings[0].Items[k], listings[1].Items[k] = page.Items, page.Items
		s := Merge(o, listings)
		check(t, o, listings, s)
		if r, ok := s.ResolveResource(uri); ok &&
			(r.Original != uri || utf8.ValidString(uri) && wire.Unquote(r.OriginalJSON) != uri) {
			t.Errorf("%q is routed as %q, %s", uri, r.Original, r.OriginalJSON)
		}
	})
}

// checkPage checks that the cursor of a page is valid, that each entry has the name or URI in
// Original, that each tool has an inputSchema of type object, and that marshalled entries are read
// back, without issues except for templates.
func checkPage(t *testing.T, k Kind, page Page) {
	t.Helper()
	if n := page.NextCursor; n != nil &&
		(!json.Valid(n) || n[0] != '"' && n[0] != '-' && (n[0] < '0' || n[0] > '9')) {
		t.Errorf("the cursor is %s", n)
	}
	for _, item := range page.Items {
		var fields, schema map[string]json.RawMessage
		if err := json.Unmarshal(item.Raw(), &fields); err != nil {
			t.Fatalf("%s: %v", item.Raw(), err)
		}
		original := fields[kinds[k].key]
		if wire.Unquote(original) != item.Original ||
			string(original) != string(item.originalLiteral()) || item.Original == "" ||
			len(item.Original) > kinds[k].longest {
			t.Errorf("%q has the literal %s", item.Original, original)
		}
		if k == Tools && (json.Unmarshal(fields["inputSchema"], &schema) != nil ||
			wire.Unquote(schema["type"]) != "object") {
			t.Errorf("its schema is %s", fields["inputSchema"])
		}
	}
	again, err := ParsePage(k, MarshalList(k, page.Items))
	if err != nil || len(again.Items) != len(page.Items) ||
		k != Templates && len(again.Issues) != 0 {
		t.Errorf("read again: %v %v", again.Issues, err)
	}
}

// FuzzTemplates expands any template with any values by the library: the template matches the
// result.
func FuzzTemplates(f *testing.F) {
	for _, text := range []string{"{a}", "x{+a,b}/é", "{/a*,b:3}", "{?a,b*}", "{;a.b}{&%41}",
		"a%20{#a}{.b*}"} {
		f.Add(text, "1", "b/ü", byte(3))
	}
	f.Fuzz(func(t *testing.T, text, a, b string, shape byte) {
		tmpl, err := uritemplate.New(text)
		if err != nil || text == "" {
			return
		}
		values := make(uritemplate.Values)
		for i, name := range tmpl.Varnames() {
			switch shape >> (i % 4 * 2) & 3 {
			case 0:
				values.Set(name, uritemplate.String(a))
			case 1:
				values.Set(name, uritemplate.List(a, b))
			case 2:
				values.Set(name, uritemplate.KV("k", a, "l", b)) // the library does not encode keys
			}
		}
		uri, err := tmpl.Expand(values)
		if p := template(t, text).uriPattern; err == nil && p != nil && !p.matches(uri) {
			t.Errorf("%q does not match %q", text, uri)
		}
	})
}

// FuzzNames fits any text into any limit.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "a", "_a", "a.b", "搜索", "é", "\xff", "-",
		strings.Repeat("a", 60)} {
		f.Add(name, 8)
		f.Add(name, 50)
	}
	f.Fuzz(func(t *testing.T, name string, limit int) {
		limit = max(limit%129, 8)
		got := fitName(name, "tool", name, limit)
		if len(got) > limit || !fitting.MatchString(got) {
			t.Errorf("fitName(%q, %d) is %q", name, limit, got)
		}
		if fits := len(name) <= limit && fitting.MatchString(name); fits != (got == name) {
			t.Errorf("%q became %q", name, got)
		}
		if again := fitName(got, "stem", "another tag", limit); again != got {
			t.Errorf("%q became %q, and that %q", name, got, again)
		}
	})
}
