package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestEditObject(t *testing.T) {
	drop := func(key string) bool { return key == "x" || strings.HasPrefix(key, "é") }
	put := func(pairs ...string) (all []Member) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, Member{pairs[i], []byte(pairs[i+1])})
		}
		return all
	}
	for _, tt := range []struct {
		object string
		put    []Member
		want   string
	}{
		{`{}`, nil, `{}`},
		{``, nil, `{}`},
		{`null`, put("a", "1"), `{"a":1}`},
		{`[1]`, put("a", "1"), `{"a":1}`},
		{`"{"`, nil, `{}`},
		{` { "a" : 1.0 , "b":[ 1 ] } `, nil, `{"a" : 1.0,"b":[ 1 ]}`},
		{`{"x":1}`, nil, `{}`},
		{`{"x":1,"a":2,"x":{"x":3},"b":{"x":4}}`, nil, `{"a":2,"b":{"x":4}}`},
		{`{"\u0078":1,"\u00e91":2,"X":"\u003c"}`, nil, `{"X":"\u003c"}`},
		{`{"a":1,"b":2,"\u0061":3}`, put("a", `"\u00e9"`, `"`, "{}"),
			`{"a":"\u00e9","\"":{},"b":2}`},
		{`{"b":1}`, put("x", "7"), `{"x":7,"b":1}`}, // added members are not dropped
		{`{"a":1,"b":`, put("c", "7"), `{"c":7,"a":1}`},
		{`{"a":1]`, nil, `{"a":1}`},
	} {
		if got := EditObject([]byte(tt.object), drop, tt.put...); string(got) != tt.want {
			t.Errorf("%s with %s: %s, want %s", tt.object, tt.put, got, tt.want)
		}
	}
	if got := EditObject([]byte(`{"x":1}`), nil); string(got) != `{"x":1}` {
		t.Errorf("without a drop: %s", got)
	}
}

// FuzzEditObject compares EditObject with encoding/json: the result is JSON with the added members
// and each remaining member in order, byte for byte.
func FuzzEditObject(f *testing.F) {
	seed(func(text string) { f.Add([]byte(text), "method", []byte(`[1]`), "id") })
	f.Add([]byte(`{ "a":1.0, "\u0061":{"a":2}, "b":"\u003c", "":null }`), "a", []byte(`{"c":7}`),
		"b")
	f.Fuzz(func(t *testing.T, object []byte, key string, text []byte, dropped string) {
		if !json.Valid(text) || !utf8.Valid(text) || !utf8.ValidString(key) || depth(text) > 900 {
			return
		}
		got := EditObject(object, func(key string) bool { return key == dropped },
			Member{key, text})
		if !json.Valid(object) || !utf8.Valid(object) || depth(object) > maxComposedDepth {
			if utf8.Valid(object) && !json.Valid(got) {
				t.Fatalf("of %q: %s", object, got)
			}
			return
		}
		want := []pair{{key, slices.Clip(text)}}
		for _, p := range pairs(object) {
			if p.key != key && p.key != dropped {
				want = append(want, p)
			}
		}
		all := pairs(got)
		if len(all) != len(want) || !json.Valid(got) {
			t.Fatalf("%s became %s", object, got)
		}
		for i := range want {
			if all[i].key != want[i].key ||
				strings.TrimSpace(string(all[i].value)) != strings.TrimSpace(
					string(want[i].value)) {
				t.Fatalf("%s became %s: member %d is %s, not %s", object, got, i, all[i].value,
					want[i].value)
			}
		}
		if depth(text) < 900 && depth(object) < 900 {
			checkEditResult(t, NewResult("1", object),
				func(key string) bool { return key == dropped }, Member{key, text})
		}
	})
}

// checkEditResult compares EditResult, which does not parse its result, with Splice, which does.
func checkEditResult(t testing.TB, m Message, drop func(string) bool, put ...Member) {
	t.Helper()
	got := m.EditResult(drop, put...)
	want := m.Splice(Edit{PartResult, EditObject(m.Part(PartResult), drop, put...)})
	if string(got.Raw()) != string(want.Raw()) || want.multiline && !got.multiline {
		t.Fatalf("%s\nbecomes %s\nand by Splice %s", m.Raw(), got.Raw(), want.Raw())
	}
	if got.HasStructuredContent() != want.HasStructuredContent() {
		t.Fatalf("%s\nhas structured content: %t", got.Raw(), got.HasStructuredContent())
	}
	for p := range numParts { // white space around a value may have been added with the value
		if strings.TrimSpace(string(got.Part(p))) != strings.TrimSpace(string(want.Part(p))) {
			t.Fatalf("%s\npart %d is %s, not %s", got.Raw(), p, got.Part(p), want.Part(p))
		}
	}
}

func TestWithoutNulls_F_DOOR_9(t *testing.T) {
	for object, want := range map[string]string{
		`{}`:                               `{}`,
		`{"a":{"b":1.0}}`:                  `{"a":{"b":1.0}}`,
		`{"a":null}`:                       `{}`,
		`{"a": null , "b" : 1.0,"c":null}`: `{"b" : 1.0}`,
		`{"a":{"b":null,"c":{"d":null}}}`:  `{"a":{"c":{}}}`,
		`{"a":"null","null":[null]}`:       `{"a":"null","null":[null]}`,
		`{"a":null,"a":{},"\u0061":null}`:  `{"a":{}}`,
	} {
		if got := WithoutNulls([]byte(object)); string(got) != want {
			t.Errorf("%s: %s, want %s", object, got, want)
		}
	}
}

// The time of WithoutNulls grows with the length of an object, not with its nesting.
func TestWithoutNullsCostIsLinear(t *testing.T) {
	cost := func(depth int) (fastest time.Duration) {
		object := []byte(strings.Repeat(`{"a":`, depth) + `{"x":null` +
			strings.Repeat(`,"a":1`, 100_000) + `}` + strings.Repeat(`}`, depth))
		for range 5 {
			began := time.Now()
			WithoutNulls(object)
			if took := time.Since(began); fastest == 0 || took < fastest {
				fastest = took
			}
		}
		return fastest
	}
	if flat, nested := cost(1), cost(900); nested > 20*flat {
		t.Errorf("900 levels take %v, one level %v", nested, flat)
	}
}

// FuzzWithoutNulls compares WithoutNulls with encoding/json.
func FuzzWithoutNulls(f *testing.F) {
	for _, object := range []string{`{"a":{"b":null,"c":[null]},"d" : null , "e":1}`,
		`{"a":null}`, `{ "b" : { } , "c":{"d":{"e":null}}}`, `{"a":{"b":null}`, `{"a":null,}`} {
		f.Add([]byte(object))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		got := WithoutNulls(object)
		if !json.Valid(object) || !utf8.Valid(object) || depth(object) > maxDepth ||
			!IsObject(object) {
			return
		}
		if want := rebuild(object, true); !json.Valid(got) || rebuild(got, false) != want {
			t.Fatalf("%s became %s, want %s", object, got, want)
		}
	})
}

// rebuild writes an object in the form of encoding/json, without white space between members. If
// dropNulls is set, it leaves out members as WithoutNulls does.
func rebuild(object []byte, dropNulls bool) string {
	var members []string
	for _, p := range pairs(object) {
		value := string(p.value)
		switch {
		case value == "null" && dropNulls:
			continue
		case IsObject(p.value):
			value = rebuild(p.value, dropNulls)
		}
		members = append(members, string(Quote(p.key))+":"+value)
	}
	return "{" + strings.Join(members, ",") + "}"
}
