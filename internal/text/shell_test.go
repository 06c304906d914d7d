package text

import "testing"

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"": "''", "/a/b-c_1.yaml": "/a/b-c_1.yaml", "a b": "'a b'", "it's": `'it'\''s'`,
		"~/x": "'~/x'", "$HOME": "'$HOME'", "a\nb": "'a\nb'",
	} {
		if got := ShellWord(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := QuotedWord("/a"); got != "'/a'" {
		t.Error(got)
	}
}
