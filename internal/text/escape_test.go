package text

import "testing"

func TestEscape(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", ""},
		{`ab "\ é 中 😀`, `ab "\ é 中 😀`},
		{"a\tb\r\n\x00\x1b\x7f\u0085", `a\u0009b\u000d\u000a\u0000\u001b\u007f\u0085`},
		{"\u202ea\u2066\u200f\u061c", `\u202ea\u2066\u200f\u061c`},
		{"\u00a0\u3000\u2028\u2029\u2003", `\u00a0\u3000\u2028\u2029\u2003`},
		{"\u200b\u00ad\ufeff\u034f\u3164\u115f\uffa0\u2800\ufe0f",
			`\u200b\u00ad\ufeff\u034f\u3164\u115f\uffa0\u2800\ufe0f`},
		{"\U000e0041\U000e0100\U0010fffd", `\udb40\udc41\udb40\udd00\udbff\udffd`},
		{"a\xffb", "a\uFFFDb"},
		{"\xff\n", "\uFFFD" + `\u000a`},
	} {
		if got := Escape(row.text); got != row.want {
			t.Errorf("%q: %q, want %q", row.text, got, row.want)
		}
	}
}
