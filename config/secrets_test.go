package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSecrets(t *testing.T) {
	file := `auth: { tokens: [literal-token-1234, "${TOKEN_START}-token-1234"] }
backends:
  - name: a
    command: ${HOME}/bin/x
    args: ["--key=${KEY}", "${SHORT}", --port, "${PORT}", literal-argument]
    env: { TOKEN: env-value, DEBUG: "true", PORT: "8080", LONG: "80808", LEVEL: debug, N: "" }
  - name: b
    url: https://user-name:p%40ssword@h/mcp?key=q%20uery&flag=1&=bare&plain
    headers: { Authorization: "Bearer bearer-value", X-Key: "basic  not a scheme", Proxy: "basic dXNlcg==" }
  - name: c
    url: https://only-user@h/
    enabled: false
    env: { OFF: off-value }
`
	vars := lookup(map[string]string{"HOME": "/home/u", "KEY": "key-value", "TOKEN_START": "start", "SHORT": "abc", "PORT": "8080"})
	loaded, err := load(source{path: "g.yaml", data: []byte(file)}, Options{Env: vars})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"literal-token-1234", "start-token-1234", "start",
		"basic  not a scheme", "basic dXNlcg==", "Bearer bearer-value",
		"not a scheme", "bearer-value", "dXNlcg==", "env-value", "key-value", "off-value", "p%40ssword", "p@ssword",
		"only-user", "user-name", "q%20uery", "80808", "q uery", "bare",
	}
	got := Secrets(loaded.Config)
	for i := 1; i < len(got); i++ {
		if len(got[i]) > len(got[i-1]) {
			t.Errorf("%q stands after the shorter %q", got[i], got[i-1])
		}
	}
	sorted := cmp.Transformer("set", func(all []string) map[string]bool {
		set := map[string]bool{}
		for _, one := range all {
			set[one] = true
		}
		return set
	})
	if diff := cmp.Diff(want, got, sorted); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFilterPermits(t *testing.T) {
	for _, tc := range []struct {
		tools Filter
		name  string
		want  bool
	}{
		{Filter{}, "anything", true},
		{Filter{Allow: []string{"search*", "fetch"}}, "search_all", true},
		{Filter{Allow: []string{"search*", "fetch"}}, "fetch", true},
		{Filter{Allow: []string{"search*", "fetch"}}, "fetch2", false},
		{Filter{Deny: []string{"delete_*"}}, "delete_all", false},
		{Filter{Deny: []string{"delete_*"}}, "read", true},
		{Filter{Allow: []string{"*"}, Deny: []string{"delete_*"}}, "delete_all", false},
		{Filter{Allow: []string{"user*"}}, "user/update", true},
		{Filter{Allow: []string{"user/?pdate"}}, "user/update", true},
	} {
		if got := tc.tools.Permits(tc.name); got != tc.want {
			t.Errorf("%+v permits %q: got %v", tc.tools, tc.name, got)
		}
	}
}
