package text

import "testing"

func TestTruncate(t *testing.T) {
	for _, row := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aäb", 2, "a…"}, // not half of a character
		{"a\xffb", 2, "a…"},
		{"a\xff", 2, "a\xff"},
	} {
		if got := Truncate(row.text, row.limit); got != row.want {
			t.Errorf("%q, %d: %q", row.text, row.limit, got)
		}
	}
}
