package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const always = `"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}`

func capable(all ...string) *Snapshot {
	var listings []Listing
	for i, c := range all {
		l := Listing{Backend: string(rune('a' + i))}
		if c != "" {
			l.Capabilities = []byte(c)
		}
		listings = append(listings, l)
	}
	return Merge(Options{}, listings)
}

func TestCapabilities(t *testing.T) {
	for _, tt := range []struct {
		name string
		of   []string
		want string
	}{
		{"none", nil, `{` + always + `}`},
		{"unknown", []string{"", ""}, `{` + always + `}`},
		{"nothing", []string{`{}`}, `{` + always + `}`},
		{"capabilities of the gateway stay",
			[]string{`{"tools":{"listChanged":false},"prompts":false,"resources":{"listChanged":"no"}}`}, `{` + always + `}`},
		{"additions of a backend", []string{`{"resources":{"subscribe":true,"x":{ "y" : 1e400 }}}`},
			`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true,"x":{ "y" : 1e400 }}}`},
		{"true before false, in either order",
			[]string{`{"resources":{"subscribe":false},"tasks":{"list":true}}`,
				`{"resources":{"subscribe":true},"tasks":{"list":false}}`},
			`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tasks":{"list":true}}`},
		{"false if all are false", []string{`{"resources":{"subscribe":false}}`},
			`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":false}}`},
		{"VERSION-05: unknown members", []string{`{"extensions":{"foo":{"a":[ 1 ]}}}`,
			`{"logging":{}}`,
			`{"experimental":{"bar":{}},"extensions":{"foo":{"b":"<é>"},"baz":{}}}`},
			`{` + always +
				`,"extensions":{"foo":{"a":[ 1 ],"b":"<é>"},"baz":{}},"logging":{},"experimental":{"bar":{}}}`},
		{"a single value stays as sent",
			[]string{`{ "x" : { "b" : 1.10 , "b" : 2, "\u0061":"\/" } }`, `{"y":{}}`},
			`{` + always + `,"x":{ "b" : 1.10 , "b" : 2, "\u0061":"\/" },"y":{}}`},
		{"keys with escapes", []string{`{"lo\u0067ging":{"a":1}}`, `{"logging":{"b":2}}`},
			`{` + always + `,"logging":{"a":1,"b":2}}`},
		{"the first counts", []string{`{"x":{"a":"1","o":{"z":1},"p":5}}`,
			`{"x":{"a":"2","o":7,"p":{"z":2}}}`},
			`{` + always + `,"x":{"a":"1","o":{"z":1},"p":5}}`},
		{"any value before null", []string{`{"x":{"a":null,"b":null},"logging":null}`,
			`{"x":{"a":2},"logging":{}}`}, `{` + always + `,"x":{"a":2,"b":null},"logging":{}}`},
		{"of duplicates the first", []string{`{"x":{"a":1},"x":{"a":2}}`},
			`{` + always + `,"x":{"a":1}}`},
		{"not objects", []string{`{"logging":true,"completions":"yes","x":[{}],"y":1}`,
			`{"completions":{}}`}, `{` + always + `,"completions":{}}`},
		{"not an object at all", []string{`[]`, `null`, `"x"`, `{"x":{}`, "{\"y\":\"\xff\"}"},
			`{` + always + `}`},
		{"too large", []string{`{"x":{"a":"` + strings.Repeat("a", maxCapabilities) + `"}}`,
			`{"y":{}}`}, `{` + always + `,"y":{}}`},
	} {
		s := capable(tt.of...)
		if got := string(s.Capabilities(true)); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
		if got := string(capable(tt.of...).Capabilities(true)); got != tt.want {
			t.Errorf("%s: the second time %s", tt.name, got)
		}
	}
}

// A capability cannot be declared to a client later.
func TestIncompleteCapabilities(t *testing.T) {
	const first = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true`
	for of, want := range map[string]string{
		``: first +
			`},"logging":{},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`,
		`{"resources":{"subscribe":false}}`: first +
			`},"logging":{},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`,
		`{"x":{},"logging":{"y":1}}`: first +
			`},"logging":{"y":1},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"x":{}}`,
	} {
		if got := string(capable(of, "").Capabilities(false)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", of, got, want)
		}
	}
}

// The capabilities of a backend may be deep, or have many members.
func TestCapabilitiesAreBounded(t *testing.T) {
	nested := func(n int, inside string) string {
		return strings.Repeat(`{"x":`, n) + inside + strings.Repeat(`}`, n)
	}
	for n, want := range map[int]string{
		1:                 `{"a":1,"b":2}`,
		maxMergeDepth - 1: `{"a":1,"b":2}`,
		maxMergeDepth:     `{"a":1}`,
		900:               `{"a":1}`,
	} {
		got := string(capable(nested(n, `{"a":1}`), nested(n, `{"b":2}`)).Capabilities(true))
		if !json.Valid([]byte(got)) || !strings.Contains(got, want) {
			t.Errorf("%d deep: %s", n, got)
		}
	}
	var wide []string
	for b := range 20 {
		var members []string
		for i := range 4000 {
			members = append(members, fmt.Sprintf(`"%d":{}`, i*(b+1)))
		}
		wide = append(wide, `{`+strings.Join(members, ",")+`}`)
	}
	if got := capable(wide...).Capabilities(true); !json.Valid(got) ||
		!strings.Contains(string(got), `"79980":{}`) {
		t.Errorf("wide: %.100s", got)
	}
}

func TestBackendsWith(t *testing.T) {
	s := capable(
		`{"logging":{},"tasks":{"list":{},"requests":{"tools":{"call":{}}}},"resources":{"subscribe":true}}`,
		``,
		`{"lo\u0067ging":{},"logging":false,"tasks":{"list":false},"resources":{"subscribe":false}}`,
		`{"logging":null,"tasks":[{"list":{}}],"resources":{}}`,
		`{"logging":true,"Tasks":{"list":{}}}`,
		`{"logging":{},"x":"`+strings.Repeat("a", maxCapabilities)+`"}`,
		`{"logging":{}`,
	)
	for _, tt := range []struct{ path, want string }{
		{"logging", "a e"}, {"tasks", "a c d"}, {"tasks list", "a"},
		{"tasks requests tools call", "a"}, {"tasks requests tools call x", ""},
		{"resources", "a c d"}, {"resources subscribe", "a"}, {"x", ""}, {"", "a c d e"},
	} {
		path := strings.Fields(tt.path)
		if got := strings.Join(s.BackendsWith(path...), " "); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.path, got, tt.want)
		}
		for _, backend := range strings.Fields("a b c d e f g h") {
			if got, want := s.HasCapability(backend, path...),
				strings.Contains(tt.want, backend); got != want {
				t.Errorf("%s has %q: %v", backend, tt.path, got)
			}
		}
	}
}

func BenchmarkCapabilities(b *testing.B) {
	s := capable(`{"logging":{},"resources":{"subscribe":true},"tools":{"listChanged":true}}`,
		`{"tools":{}}`)
	b.Run("Has", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.HasCapability("a", "resources", "subscribe")
		}
	})
	b.Run("union", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.mergedCapabilities(true)
		}
	})
}
