package main

import (
	"slices"
	"testing"
)

func TestCompletionOfArguments(t *testing.T) {
	schema := []byte(`{"properties": {"q": {"type": "string"}, "deep": {"type": "boolean"},
		"sort": {"enum": ["new", "old", 3]}}}`)
	for _, test := range []struct {
		schema []byte
		given  []string
		typed  string
		want   []string
		isKey  bool
	}{
		{schema, nil, "", []string{"deep=", "q=", "sort="}, true},
		{schema, []string{"q=1"}, "", []string{"deep=", "sort="}, true},
		{schema, nil, "sort=", []string{"sort=new", "sort=old", "sort=3"}, false},
		{schema, nil, "deep=t", []string{"deep=true", "deep=false"}, false},
		{schema, nil, "q=", nil, false},
		{schema, nil, "other=", nil, false},
		{[]byte(`{"properties": {"x": true}}`), nil, "", nil, false},
		{nil, nil, "", nil, false},
	} {
		got, isKey := argumentWords(test.schema, test.given, test.typed)
		if !slices.Equal(got, test.want) || isKey != test.isKey {
			t.Errorf("%q after %q: %q, %t", test.typed, test.given, got, isKey)
		}
	}
}

// A backend chooses the names of its tools: no shell may interpret them.
func TestCompletionOmitsWordsThatShellsInterpret(t *testing.T) {
	got := completionWords([]string{"a_b-c.d/e:f=1", "x y", "$(id)", "`id`", "a\tb", "a\nb", "ü", "",
		"a;b", "\x1b[1m"})
	if !slices.Equal(got, []string{"a_b-c.d/e:f=1"}) {
		t.Errorf("%q", got)
	}
}
