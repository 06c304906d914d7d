package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/wire"
)

// readable returns a listing of resources and templates.
func readable(t testing.TB, backend string, uris, templates []string) Listing {
	l := having(t, backend, Resources, uris...)
	l.Items[Templates] = items(t, Templates, templates...)
	return l
}

// Two backends list a resource with the same URI. It is listed once, and read from the backend
// that has the URI.
func TestRES_01(t *testing.T) {
	one := page(t, Resources, `{"resources":[{"uri":"timezone://info","name":"ours","x":1.10}]}`)
	two := page(t, Resources,
		`{"resources":[{"name":"theirs","uri":"timezone:\/\/info"},{"uri":"two://","name":"two"}]}`)
	listings := []Listing{
		{Backend: "a", Items: [NumKinds][]Item{Resources: one.Items}},
		{Backend: "b", Items: [NumKinds][]Item{Resources: two.Items}},
	}
	s := Merge(Options{}, listings)
	check(t, Options{}, listings, s)
	if got, _ := s.Page(Resources,
		nil); string(
		got) != `{"resources":[{"uri":"timezone://info","name":"ours","x":1.10},{"uri":"two://","name":"two"}]}` {
		t.Errorf("listed: %s", got)
	}
	for range 3 {
		if r, ok := s.ResolveResource("timezone://info"); !ok || r.Backend != "a" ||
			string(r.OriginalJSON) != `"timezone://info"` {
			t.Errorf("read from %v", r)
		}
	}
	if all := s.Entries(Resources); len(all) != 3 || all[1].Exposed != "" || all[1].Backend != "b" {
		t.Errorf("the omitted entry of b is not in Entries: %v", all)
	}
	slices.Reverse(listings)
	s = Merge(Options{}, listings)
	if got, _ := s.Page(Resources,
		nil); string(
		got) != `{"resources":[{"name":"theirs","uri":"timezone:\/\/info"},{"uri":"two://","name":"two"}]}` {
		t.Errorf("listed: %s", got)
	}
	if r, ok := s.ResolveResource("timezone://info"); !ok || r.Backend != "b" ||
		string(r.OriginalJSON) != `"timezone:\/\/info"` {
		t.Errorf("read from %v", r)
	}
}

func TestResources(t *testing.T) {
	has := func(l Listing, capabilities string) Listing {
		l.Capabilities = []byte(capabilities)
		return l
	}
	none := func(backend, capabilities string) Listing {
		return has(Listing{Backend: backend}, capabilities)
	}
	files := readable(t, "files", []string{"file:///a"}, []string{"file:///{+path}"})
	notes := readable(t, "notes", []string{"file:///notes/x", "note://1"},
		[]string{"file:///notes/{id}", "note://{id}"})
	for _, tt := range []struct {
		name     string
		listings []Listing
		uri      string
		want     string
	}{
		{"listed", []Listing{files, notes}, "note://1", "notes"},
		{"listed by a later backend, template of an earlier one matches", []Listing{files, notes},
			"file:///notes/x", "notes"},
		{"templates of both match", []Listing{files, notes}, "file:///notes/y", "files"},
		{"templates of both match, in the other order", []Listing{notes, files}, "file:///notes/y",
			"notes"},
		{"one template matches", []Listing{files, notes}, "note://2", "notes"},
		{"no template matches", []Listing{files, notes}, "http://x", ""},
		{"no template matches, one backend has resources",
			[]Listing{none("a", `{"tools":{}}`), notes, none("b", `{}`), {Backend: "c"}},
			"http://x", "notes"},
		{"one declares resources", []Listing{none("a", `{"tools":{}}`),
			none("b", `{"resources":{}}`), {Backend: "c"}}, "http://x", "b"},
		{"two declare resources", []Listing{none("a", `{"resources":{}}`),
			none("b", `{"resources":{"subscribe":true}}`)}, "http://x", ""},
		{"one declares resources, another lists some",
			[]Listing{none("a", `{"resources":{}}`), files}, "http://x", ""},
		{"one declares none", []Listing{none("a", `{"resources":false}`),
			none("b", `{"resources":{}}`), none("c", `{"resources":null}`)}, "x", "b"},
		{"none", []Listing{none("a", `{}`)}, "http://x", ""},
		{"no backends", nil, "http://x", ""},
		{"no URI", []Listing{files, notes}, "", ""},
		{"a URI at the bound", []Listing{files, notes},
			"file:///" + strings.Repeat("x", maxURI-len("file:///")), "files"},
		{"a URI beyond the bound", []Listing{files, notes},
			"file:///" + strings.Repeat("x", maxURI+1-len("file:///")), ""},
		{"a URI beyond the bound, one backend", []Listing{files},
			"file:///" + strings.Repeat("x", maxURI), "files"},
		{"the template itself", []Listing{files, notes}, "note://{id}", ""},
	} {
		s := Merge(Options{}, tt.listings)
		check(t, Options{}, tt.listings, s)
		r, ok := s.ResolveResource(tt.uri)
		if r.Backend != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: read from %q, want %q", tt.name, r.Backend, tt.want)
		}
		if ok && (r.Original != tt.uri || wire.Unquote(r.OriginalJSON) != tt.uri) {
			t.Errorf("%s: %q is read as %q, %s", tt.name, tt.uri, r.Original, r.OriginalJSON)
		}
	}
}

// A template of two backends is listed once. Templates are found by their text.
func TestTemplatesAreListedOnce(t *testing.T) {
	s := Merge(Options{}, []Listing{readable(t, "a", nil, []string{"a://{x}"}),
		readable(t, "b", nil, []string{"a://{x}", "b://{x}"})})
	if got, _ := s.Page(Templates,
		nil); string(
		got) != `{"resourceTemplates":[{"uriTemplate":"a://{x}","name":"a://{x}"},{"uriTemplate":"b://{x}","name":"b://{x}"}]}` {
		t.Errorf("listed: %s", got)
	}
	for text, want := range map[string]string{"a://{x}": "a", "b://{x}": "b", "b://{y}": ""} {
		if r, _ := s.Lookup(Templates, text); r.Backend != want {
			t.Errorf("%s is of %q", text, r.Backend)
		}
	}
	if r, ok := s.Lookup(Resources, "a://1"); ok {
		t.Errorf("a URI that is not listed is looked up as %v", r)
	}
}

// The number of tried templates of one backend is bounded; templates of other backends are not
// affected.
func TestManyTemplates(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	hostile := make([]string, maxPageEntries)
	for i := range hostile {
		hostile[i] = fmt.Sprintf("%s!%05d", strings.Repeat("{+a}", maxVariables-1), i)
	}
	catalog := func(templates ...string) *Snapshot {
		return Merge(Options{}, []Listing{readable(t, "a", nil, templates),
			readable(t, "b", nil, []string{"{+any}"})})
	}
	s := catalog(hostile...)
	for _, n := range []int{10, maxURI} {
		start := time.Now()
		if r, ok := s.ResolveResource(strings.Repeat("x", n)); !ok || r.Backend != "b" {
			t.Errorf("%d bytes: read from %v", n, r)
		}
		if took := time.Since(start); took > 20*time.Second { // about 0.3 s without -race and load
			t.Errorf("%d bytes: %v", n, took)
		} else {
			t.Logf("%d bytes: %v", n, took)
		}
	}
	const uri, fitting = "x:" + "1234567890", "{+a}"
	most := (maxMatchEffort - len(uri) - len(fitting)) / (len(uri) + len(hostile[0]))
	if r, _ := catalog(append(slices.Clone(hostile[:most]),
		fitting)...).ResolveResource(uri); r.Backend != "a" {
		t.Errorf("at the bound it is read from %q", r.Backend)
	}
	if r, _ := catalog(append(slices.Clone(hostile[:most+1]),
		fitting)...).ResolveResource(uri); r.Backend != "b" {
		t.Errorf("beyond the bound it is read from %q", r.Backend)
	}
	others := slices.Clone(hostile[1:])
	for i := range others {
		others[i] = "y" + others[i]
	}
	if r, _ := catalog(append(others, fitting)...).ResolveResource(uri); r.Backend != "a" {
		t.Errorf("after templates with other prefixes it is read from %q", r.Backend)
	}
}

// Prompts are named like tools, in a separate namespace.
func TestPromptsAreNamedLikeTools(t *testing.T) {
	for _, prefix := range []Prefix{PrefixOnCollision, PrefixAlways, PrefixNever} {
		names := [][]string{{"x", "a.b", strings.Repeat("n", 60)},
			{"x", "a_b", "a b", strings.Repeat("n", 60)}, {"b__x", "x", "a.b"}}
		var both []Listing
		for i, backend := range []string{"a", "b", "c"} {
			l := named(t, backend, names[i]...)
			l.Items[Prompts] = items(t, Prompts, names[i]...)
			both = append(both, l)
		}
		s := Merge(Options{Prefix: prefix}, both)
		check(t, Options{Prefix: prefix}, both, s)
		if tools, prompts := picture(s, Tools), picture(s, Prompts); tools != prompts {
			t.Errorf("tools:\n%s\nprompts:\n%s", tools, prompts)
		}
	}
	s := Merge(Options{}, []Listing{having(t, "a", Prompts, "搜索"), named(t, "b", "x")})
	if name := s.Entries(Prompts)[0].Exposed; !strings.HasPrefix(name, "prompt_") {
		t.Errorf("a prompt is named %s", name)
	}
	if r, ok := s.Lookup(Prompts, "x"); ok {
		t.Errorf("a tool has the name of a prompt: %v", r)
	}
}
