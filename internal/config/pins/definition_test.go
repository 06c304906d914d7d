package pins

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Two spellings of the same definition are the same: order of members, white space, escapes and
// numbers do not matter.
func TestDigestIgnoresSpelling(t *testing.T) {
	same := []string{
		`{"name":"x","a":[1,2.50,{"k":true,"l":null}],"description":"é\n/","n":100}`,
		`{"n":1e2,"description":"\u00e9\u000a\/","a":[ 1.0 , 25e-1 , { "l":null , "k":true } ],"name":"\u0078"}`,
		` { "n" : 100.00 , "a":[10e-1,2.5,{"k":true,"l":null}],"description":"é\n/","name":"y"}`,
	}
	for _, text := range same[1:] {
		if DigestOf([]byte(text)) != DigestOf([]byte(same[0])) {
			t.Errorf("%s differs from %s", text, same[0])
		}
		if got := New([]byte(same[0])).ChangedFields(New([]byte(text))); got != nil {
			t.Errorf("%s: changed %q", text, got)
		}
	}
}

// Everything that a server sends counts, except the name: the name identifies the definition.
func TestEachFieldCounts(t *testing.T) {
	const base = `{"name":"x","title":"t","description":"d","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"icons":[{"src":"a"}],"execution":{"taskSupport":"optional"},"_meta":{"ui":"a"},"x":1}`
	was := New([]byte(base))
	for from, to := range map[string]string{
		`"title":"t"`: `"title":"T"`, `"description":"d"`: `"description":"d "`,
		`"inputSchema":{"type":"object"}`:        `"inputSchema":{"type":"object","title":""}`,
		`"outputSchema":{"type":"object"}`:       `"outputSchema":{"type":["object"]}`,
		`"annotations":{"readOnlyHint":true}`:    `"annotations":{"readOnlyHint":false}`,
		`"icons":[{"src":"a"}]`:                  `"icons":[{"src":"b"}]`,
		`"execution":{"taskSupport":"optional"}`: `"execution":{}`,
		`"_meta":{"ui":"a"}`:                     `"_meta":{"ui":"b"}`,
		`"x":1`:                                  `"x":"1"`,
	} {
		field := strings.Trim(from[:strings.Index(from, ":")], `"`)
		next := strings.Replace(base, from, to, 1)
		if got := was.ChangedFields(New([]byte(next))); !slices.Equal(got, []string{field}) {
			t.Errorf("%s: changed %q", to, got)
		}
		without := strings.Replace(strings.Replace(base, ","+from, "", 1), from+",", "", 1)
		if got := was.ChangedFields(New([]byte(without))); !slices.Equal(got, []string{field}) {
			t.Errorf("without %s: changed %q", from, got)
		}
		if DigestOf([]byte(next)) == was.Digest() || DigestOf([]byte(without)) == was.Digest() {
			t.Errorf("%s: the digest is the same", to)
		}
	}
	if DigestOf([]byte(strings.Replace(base, `"name":"x"`, `"name":"y"`, 1))) != was.Digest() {
		t.Error("the name counts")
	}
}

// Members that occur twice, in the tool or in a part of it, count in their order, because clients
// read different ones.
func TestMembersThatOccurTwiceCount(t *testing.T) {
	for _, pair := range [][2]string{
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`}, {`{"a":1,"a":2}`, `{"a":2}`}, {`{"a":1,"a":2}`, `{"a":1}`},
		{`{"s":{"a":1,"a":2}}`, `{"s":{"a":2,"a":1}}`}, {`{"s":{"a":1,"a":2}}`, `{"s":{"a":2}}`},
	} {
		if DigestOf([]byte(pair[0])) == DigestOf([]byte(pair[1])) {
			t.Errorf("%s and %s are the same", pair[0], pair[1])
		}
		for _, text := range pair {
			l := lockOf(text)
			encoded, err := l.encode(maxFile)
			if err != nil {
				t.Fatal(err)
			}
			requireSame(t, l, encoded)
			requireSame(t, l, l.encodeWith(0))
		}
	}
}

// A definition with many fields, or with long names, has a bounded number of fields. All of them
// count.
func TestFieldsAreBounded(t *testing.T) {
	many := func(last string) string {
		var b strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&b, `"f%05d":%d,`, i, i)
		}
		return `{` + b.String() + `"` + strings.Repeat("n", 1000) + `":` + last + `}`
	}
	was, is := New([]byte(many("1"))), New([]byte(many("2")))
	if len(was.fields) != maxFields || was.Digest() == is.Digest() {
		t.Errorf("%d fields, the same: %v", len(was.fields), was.Digest() == is.Digest())
	}
	if got := was.ChangedFields(is); !slices.Equal(got, []string{otherFields}) {
		t.Errorf("changed: %q", got)
	}
	l := lockOf(many("1"))
	if text := l.encodeWith(0); len(text) > 16<<10 {
		t.Errorf("%d bytes", len(text))
	}
	requireSame(t, l, l.encodeWith(maxStored))
}

func TestCanonicalNumber(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "0e5": "0", "1": "1", "1.0": "1", "10e-1": "1", "-1.50": "-1.5",
		"1e2": "100", "1E+2": "100", "123456789012345678901": "123456789012345678901",
		"1234567890123456789012": "1.234567890123456789012e21", "1e21": "1e21", "10e20": "1e21",
		"0.1": "0.1", "1e-1": "0.1", "0.000001": "0.000001", "0.0000001": "1e-7", "12e-9": "1.2e-8",
		"9007199254740993": "9007199254740993", "9007199254740992.0": "9007199254740992",
		"1e9999999999": "1e9999999999", "1e99999999999999999999": "1e99999999999999999999",
		"1.7976931348623157e308": "1.7976931348623157e308",
	} {
		if got := canonicalNumber(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Differences are shown value by value, and hidden characters are visible.
func TestDiff(t *testing.T) {
	was := New([]byte(`{"description":"a","inputSchema":{"properties":{"p":{"type":"string"},"q.r":{}},"type":"object"},"annotations":{"x":1}}`))
	is := New([]byte(`{"description":"a\u200b","inputSchema":{"properties":{"p":{"type":"number","format":"f"}},"type":"object"},"title":"t","annotations":[]}`))
	want := []Difference{
		{"annotations", `{"x":1}`, `[]`},
		{"description", `"a"`, `"a\u200b"`},
		{"inputSchema.properties.p.format", "", `"f"`},
		{"inputSchema.properties.p.type", `"string"`, `"number"`},
		{`inputSchema.properties."q.r"`, `{}`, ""},
		{"title", "", `"t"`},
	}
	if got := was.Diff(is); !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if got := was.Diff(was); got != nil {
		t.Errorf("%v", got)
	}
	var none *Definition
	if got := none.Diff(New([]byte(`{"a":1}`))); !slices.Equal(got,
		[]Difference{{"a", "", "1"}}) {
		t.Errorf("new: %v", got)
	}
	if got := New([]byte(`{"a":1}`)).Diff(nil); !slices.Equal(got, []Difference{{"a", "1", ""}}) {
		t.Errorf("removed: %v", got)
	}
	// A name that occurs twice: the objects are compared as a whole.
	if got := New([]byte(`{"a":{"b":1,"b":2}}`)).Diff(New([]byte(`{"a":{"b":1}}`))); !slices.Equal(
		got, []Difference{{"a", `{"b":1,"b":2}`, `{"b":1}`}}) {
		t.Errorf("twice: %v", got)
	}
}

func TestDiffIsBounded(t *testing.T) {
	var b strings.Builder
	for i := range 2 * maxDifferences {
		fmt.Fprintf(&b, `"p%d":1,`, i)
	}
	is := New([]byte(`{"s":{` + b.String() + `"z":1}}`))
	if got := New([]byte(`{"s":{}}`)).Diff(is); len(got) != maxDifferences {
		t.Errorf("%d differences", len(got))
	}
}

// Whatever a server sends, the file can be read again, has the same definition, and contains no
// character that is not printable.
func FuzzDefinition(f *testing.F) {
	for _, text := range []string{`{}`, `{"description":"a\nb","x":{"y":[1e5]}}`,
		`{"description":["a"],"definition":1,"hashes":"\u2028\ufeff"}`, `{"a":1,"a":2,"(other fields)":3}`,
		`{"":"","description":"- |\n: #\n  \n"}`, `{"description":"\ud800"}`, `[]`, `"`} {
		f.Add(text, "tool")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		if !json.Valid([]byte(text)) || strings.ToValidUTF8(text+name, "") != text+name {
			return
		}
		l := new(Lock)
		l.Approve("b", Tools{name: New([]byte(text))}, []string{name})
		for _, most := range []int{maxStored, 30, 0} {
			encoded := l.encodeWith(most)
			requireSame(t, l, encoded)
		}
	})
}

// A lock file comes from a repository. Whatever it contains, the result is a Lock or an error.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "version: 1\n", "version: 1\nnames: {a: b}\nbackends: {b: {t: {}}}",
		"{\"version\":1}", "version: 1\nbackends:\n  b:\n    t:\n      definition: '{\"a\":1}'\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parse("gateway.lock", text)
		if (l == nil) == (err == nil) {
			t.Fatal(l, err)
		}
		if err == nil {
			requireSame(t, l, l.encodeWith(maxStored))
		}
	})
}
