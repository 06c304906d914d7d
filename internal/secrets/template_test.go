package secrets

import (
	"strings"
	"testing"
)

func TestQueryStart(t *testing.T) {
	for _, c := range []struct{ uri, query string }{
		{"https://h/p", ""}, {"https://h/p?", ""}, {"https://h/?a=b#c", "a=b#c"}, {"https://h/?a", "a"}, {"h?a=", "a="},
		{"odd://t/{+path}{?q}", ""}, {"https://h{?q,n*,m:3}", ""}, {"https://h/?q={q}&n={n}#{f}", ""}, {"https://h/?{q}", ""},
		{"https://h/{?q}?a=b", "a=b"}, {"https://h/?key=hunter2{&q}", "key=hunter2{&q}"}, {"https://h/?k=a{q}", "k=a{q}"},
		{"https://h/?{hunter 2}", "{hunter 2}"}, {"https://h/{?", ""}, {"https://h/{?a=b", "a=b"}, {"https://h/?flag&q={q}", "flag&q={q}"},
		{"https://h/?{" + strings.Repeat("x", maxExpression) + "}", "{" + strings.Repeat("x", maxExpression) + "}"},
	} {
		got := ""
		if i := QueryStart(c.uri); i >= 0 {
			got = c.uri[i:]
		}
		if got != c.query {
			t.Errorf("%s: %q, want %q", c.uri, got, c.query)
		}
	}
	for info, want := range map[string]bool{"{user}": false, "{user}:{password}": false, "u": true, "u{x}": true, ":hunter2": true, "{user}:hunter2": true} {
		if IsSecretUserInfo(info) != want {
			t.Errorf("%s: %v", info, !want)
		}
	}
}
