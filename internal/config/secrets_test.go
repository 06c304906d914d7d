package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	vars := lookup(map[string]string{"HOME": "/home/u", "KEY": "key-value", "TOKEN_START": "start",
		"SHORT": "abc", "PORT": "8080"})
	loaded, err := load(source{path: "g.yaml", data: []byte(file)}, Options{Env: vars})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"literal-token-1234", "start-token-1234", "start",
		"not a scheme", "bearer-value", "dXNlcg==", "env-value", "key-value", "p%40ssword",
		"p@ssword",
		"only-user", "q%20uery", "q uery",
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

// TestSecrets_F_MASK_1: values without the name or form of a secret, and values that the log always
// shows, are not masked.
func TestSecrets_F_MASK_1(t *testing.T) {
	const token, hex = "gh" + "p_0123456789abcdefghij", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
	vars := map[string]string{
		"PLAIN": "a-long-plain-value", "API_KEY": "hunter2-key", "DOCS": token,
		"TEAM": "header-value-1", "HOST": "10.1.2.3",
		"SSH_AUTH_SOCK": "/private/tmp/agent.1", "DEPLOY_PASSWORD": "inherited-pw",
		"REGION":       "eu-west-1-long",
		"DATABASE_URL": "postgres://u:pw-of-url@db/x", "OPAQUE": "abcdefgh12345678",
		"TEAM_ID": "T01ABCDEF2", "CODE": "Sek/ret+1x\"y",
	}
	for _, tc := range []struct {
		backend string
		want    []string
	}{
		{`command: x, env: { DB_HOST: 127.0.0.1, A: "127.0.0.1:7420", B: "localhost:3000", N: "80801", D: 30s, P: /srv/other,
			W: postgre, LONG: a-word-of-prose, M: claude-sonnet-4-5 }`, nil},
		// always shown in the log
		{`command: x, env: { PASSWORD: postgres, TOKEN: other, SECRET: "127.0.0.1", KEY: "7420", PIN: db.example.com, PASS: bin }`,
			nil},
		{`command: x, env: { PASSWORD: "true", TOKEN: info, SECRET: "1", AUTH: none, API_KEY: "" }`,
			nil},
		{`command: x, env: { PASSWORD: hunter2, PIN: "80801", DB_PASS: "10.9.8.7", AUTH: hunter3, DSN: hunter4, FOO: ` + token + `, BAR: ` + hex + ` }`,
			[]string{"hunter2", "80801", "10.9.8.7", "hunter3", "hunter4", token, hex}},
		{`command: x, env: { CONFIG: '{"host":"127.0.0.1","apiKey":"in\nner"}', URL: "https://u:pw-1@h/p", OPTS: "--verbose --token=opt-1" }`,
			[]string{`in\nner`, "in\nner", "pw-1", "opt-1"}},
		{`command: x, args: [--api-key, arg-key, --host, 127.0.0.1, --mode=fast, "--token=${API_KEY}", ` + token + `]`,
			[]string{"arg-key", "hunter2-key", token}},
		{`command: x, args: ["${PLAIN}", "${HOST}"], env: { A: "${PLAIN}", B: "${HOST}", C: "${REGION}" }`,
			nil},
		{`command: x, env: { A: "${API_KEY}", B: "x-${DOCS}", PASSWORD: "${PLAIN}" }`,
			[]string{"hunter2-key", token, "x-" + token, "a-long-plain-value"}},
		{`url: "https://h/mcp", headers: { X-Team: "${TEAM}", Authorization: "Custom ${PLAIN}", X-Addr: "${HOST}", User-Agent: long-agent/1, X-Region: "${REGION}" }`,
			[]string{"header-value-1", "Custom a-long-plain-value", "a-long-plain-value"}},
		{`url: "https://h/mcp", headers: { Cookie: "session=cookie-1; theme=dark" }`,
			[]string{"session=cookie-1; theme=dark", "cookie-1"}},
		// opaque values
		{`command: x, args: ["${OPAQUE}", "--code=${CODE}"], env: { A: "x-${OPAQUE}", B: "P@ss!word", MODEL: a1b2c3d4e5, TEAM_ID: "${TEAM_ID}" }, inherit_env: [OPAQUE]`,
			[]string{"abcdefgh12345678", `Sek/ret+1x"y`, "x-abcdefgh12345678", "P@ss!word"}},
		{`url: "https://h/${OPAQUE}/mcp", headers: { User-Agent: "${CODE}", Accept: "a/${OPAQUE}" }`,
			[]string{"abcdefgh12345678", `Sek/ret+1x"y`}},
		{`command: x, env: { TOK: "${PLAIN}", PW: hunter5, LLM: claude-3-5-sonnet-20241022, Z: Europe/Berlin, V: "x v1.2.3", O: "--size=4096" }`,
			[]string{"a-long-plain-value", "hunter5"}},
		{`url: "https://me:pass-1@h/mcp?region=eu&port=80801&key=k-12&x=long-query-value"`,
			[]string{"pass-1", "k-12", "long-query-value"}},
		{`command: x, inherit_env: [SSH_AUTH_SOCK, PLAIN, REGION, HOST, NOT_SET, DEPLOY_PASSWORD, DOCS, DATABASE_URL]`,
			[]string{"inherited-pw", token, "pw-of-url"}},
	} {
		file := "listen: 127.0.0.1:7420\nauth: { tokens: [postgres-token-0123] }\nbackends:\n  - { name: a, " + tc.backend + " }\n" +
			"  - { name: postgres, command: /srv/other/bin/y, args: [--dir, /srv/other] }\n  - { name: b, url: 'http://db.example.com/mcp' }\n"
		loaded, err := load(source{path: "g.yaml", data: []byte(file)}, Options{Env: lookup(vars)})
		if err != nil {
			t.Errorf("%s: %v", tc.backend, err)
			continue
		}
		got := slices.DeleteFunc(Secrets(loaded.Config),
			func(s string) bool { return s == "postgres-token-0123" })
		slices.Sort(got)
		slices.Sort(tc.want)
		if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.backend, diff)
		}
	}
}

// A secret at a known position is hidden even if it is short, or a word that is common in the
// log.
func TestHideArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-c x --password postgres --token abc", "-c x --password *** --token ***"},
		{"-u a:bc -u joe:hunter2 -u 1000:1000", "-u a:*** -u joe:*** -u 1000:1000"},
		{"--api-key=1234 --secret sh --port 8080", "--api-key=*** --secret *** --port 8080"},
		{"postgres://joe:postgres@h/db", "postgres://joe:***@h/db"},
		{"-e API_TOKEN=abc -y some-server --root /srv/data",
			"-e API_TOKEN=*** -y some-server --root /srv/data"},
	} {
		if got := strings.Join(HideArguments(strings.Fields(c.args)), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
}
