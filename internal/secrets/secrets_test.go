package secrets

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIsSecretName(t *testing.T) {
	for _, name := range strings.Fields(`API_KEY apiKey apikey --api-key X-Api-Key openaiKey OPENAI_API_KEY key --key token authToken
		--auth-token GITHUB_PERSONAL_ACCESS_TOKEN access_token bearerToken secret clientSecret CLIENT_SECRET JWTSecret password
		PASSWORD dbPassword passwd passphrase passcode pwd DB_PWD MYSQL_PWD USERPWD pass DB_PASS DBPASS SSHPASS pin userPin --pin pat
		GITHUB_PAT githubPAT auth --auth Authorization Proxy-Authorization Cookie Set-Cookie sessionCookie session SESSION_ID
		credential CREDENTIALS creds dsn SENTRY_DSN jwt signature X-Hub-Signature private private_key PRIVATE-KEY bearer otp
		AWS_ACCESS_KEY_ID aws_secret_access_key api_keys access_tokens tokens mnemonic -eGITHUB_TOKEN eGITHUB_PAT client_secret_value`) {
		if !IsSecretName(name) {
			t.Errorf("%s is not the name of a secret", name)
		}
	}
	for _, name := range append(strings.Fields(`MAX_TOKENS max_output_tokens TOKEN_LIMIT TOKEN_URL KEY_FILE AUTH_TYPE AUTH_MODE AUTHOR
		authors SPIN PING KEYBOARD monkey compass bypass passes DEBUG LOG_LEVEL NODE_ENV PORT HOST PATH MODEL sha username
		AUTH_ENABLED SSH_KEY_PATH SECRET_NAME PASSWORD_FILE session_timeout PUBLIC_KEY publicKey tools url Accept privateMode`), "", "-", "é") {
		if IsSecretName(name) {
			t.Errorf("%s is the name of a secret", name)
		}
	}
}

func TestIsSecretHeader(t *testing.T) {
	for name, want := range map[string]bool{
		"X-K": true, "Authorization": true, "Cookie": true, "X-Whatever": true, "api-key": true,
		"Accept": false, "Accept-Language": false, "USER-AGENT": false, "Content-Type": false, "X-Api-Version": false,
		"anthropic-version": false, "X-MCP-Toolsets": false, "X-MCP-Readonly": false,
	} {
		if IsSecretHeader(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

var publicValues = []string{
	"", "1", "true", "info", "production", "8080", "3.14", "1_000_000", "30s", "64MiB", "50%", "127.0.0.1", "127.0.0.1:8080", "::1",
	"[::1]:80", "localhost:3000", "redis:6379", "db.internal.example.com", "db.internal.example.com:5432", "https://api.example.com/v1",
	"https://api.example.com/v1?mode=fast&limit=100", "postgres://db:5432/app", "postgres://user@db/app", "/usr/local/bin",
	"/home/u/projects/a1b2c3d4e5f6a7b8c9d0e1f2/x", "~/notes", "./x", `C:\Users\u\AppData\Roaming`, "hunter2", "short1!", "ghp_x",
	"claude-sonnet-4-5-20250929", "gpt-4o-mini-2024-07-18", "meta-llama/Llama-3.3-70B-Instruct-Turbo", "@scope/pkg@1.2.3",
	"@modelcontextprotocol/server-filesystem", "mcp-server-postgres-2024-extended-edition", "ghcr.io/github/github-mcp-server:v1.2.3",
	"ghcr.io/x/y@sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
	"sha512-0f1e2d3c4b5a69788796a5b4c3d2e1f0", "123e4567-e89b-12d3-a456-426614174000", "en_US.UTF-8", "Europe/Berlin",
	"--some-very-long-flag-name-with-2-digits", "a long sentence with several words, and some punctuation: like this.", "Basic authentication",
	"bearer of news", "npm_config_registry", "secret_manager_name", "2025-11-25T10:00:00Z", "20241212T101010Z",
	"getAllTheThingsFromTheServerNow", "read_file,write_file,list_directory", "dQw4w9WgXcQ", "user@example.com",
	"git+https://github.com/owner/repo@main", "npm:left-pad@1.3.0", "mcp-server-git==2025.1.14", "python3.12", "linux/amd64",
}

func TestLooksSecret(t *testing.T) {
	for _, value := range secretValues {
		if !LooksSecret(value) {
			t.Errorf("%q is not a secret", value)
		}
	}
	for _, value := range publicValues {
		if LooksSecret(value) {
			t.Errorf("%q is a secret", value)
		}
		if parts := Find("X", value); parts != nil {
			t.Errorf("%q: found %v", value, parts)
		}
	}
}

// Test secrets are written in parts, so that secret scanners do not report them.
var secretValues = []string{
	"gh" + "p_0123456789abcdefghij", "gh" + "o_0123456789abcdefghij", "github_" + "pat_11AAAA_0123456789", "gl" + "pat-0123456789abcdef",
	"s" + "k-ant-api03-0123456789", "s" + "k-proj-abcdefghijkl", "s" + "k_live_0123456789", "r" + "k_live_0123456789", "p" + "k_live_0123456789",
	"xo" + "xb-0123456789-abc", "xo" + "xp-0123456789-abc", "AK" + "IAIOSFODNN7EXAMPLE", "AS" + "IAIOSFODNN7EXAMPLE",
	"ey" + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "np" + "m_0123456789abcdefghij", "h" + "f_AbCdEfGhIjKlMnOp", "S" + "G.abcdefgh.ijklmnop",
	"AI" + "zaSyA0123456789abcdefghij", "ya" + "29.a0AfH6SMB", "Bearer abc", "bearer 0123456789", "Basic dXNlcjpwYXNz", "Token 0123456789abcdef",
	"postgres://u:p@h/db", "https://user:hunter2@example.com/x", "-----BEGIN RSA " + "PRIVATE KEY-----\nabc",
	"0f1e2d3c4b5a69788796a5b4c3d2e1f0", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY0",
	"a8F3kd92LmQ0xZ1p", "12345678:AAF0123456789abcdefghijklmnopqrstuv", "fc" + "-0123456789abcdef", "gs" + "k_0123456789abcdef",
}

func TestIsSecret(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		want        bool
	}{
		{"API_KEY", "x", true}, {"PASSWORD", "1234", true}, {"PIN", "1234", true}, {"PASS", "0000", true}, {"API_KEY", "", false},
		{"USE_AUTH", "true", false}, {"AUTH", "https://h/auth", false}, {"AUTH", "https://u:p@h/auth", true},
		{"SSH_KEY", "/home/u/.ssh/id_ed25519", false}, {"GOOGLE_APPLICATION_CREDENTIALS", "~/cred.json", false},
		{"PWD", "/work", true}, {"MAX_TOKENS", "1000", false}, {"X", "s" + "k-proj-abcdefghijkl", true}, {"PASSWORD", "/Base64+/x", true},
	} {
		if got := IsSecret(tc.name, tc.value); got != tc.want {
			t.Errorf("%s=%s: %v", tc.name, tc.value, got)
		}
	}
}

func TestIsPlain(t *testing.T) {
	for _, text := range strings.Fields(`1 true off 8080 -1.5 30s 64MiB 127.0.0.1 127.0.0.1:8080 ::1 [::1]:80 localhost:3000 db.example.com
		https://api.example.com/v1 /usr/local/bin ~/notes ./x info debug hunter`) {
		if !IsPlain(text) {
			t.Errorf("%s is not plain", text)
		}
	}
	for _, text := range append(slices.Clone(secretValues), "hunter2", "production", "https://u:p@h/", "a b", "https://h/?token=abc") {
		if IsPlain(text) {
			t.Errorf("%s is plain", text)
		}
	}
}

// show marks the secret parts of a text.
func show(text string, parts []Secret) string {
	for _, p := range slices.Backward(parts) {
		text = text[:p.From] + "<" + p.Name + "|" + text[p.From:p.To] + ">" + text[p.To:]
	}
	return text
}

func TestFind(t *testing.T) {
	const token = "gh" + "p_0123456789abcdefghij"
	for _, tc := range []struct{ name, text, want string }{
		{"TOKEN", "abc", "<TOKEN|abc>"},
		{"TOKEN", "true", "true"},
		{"X", token, "<X|" + token + ">"},
		{"", "Bearer " + token, "Bearer <|" + token + ">"},
		{"Authorization", "Bearer x", "Bearer <Authorization|x>"},
		{"OPENAPI_MCP_HEADERS", `{"Authorization": "Bearer x", "X-K": "abc", "Accept": "a/b"}`, `{"Authorization": "Bearer <Authorization|x>", "X-K": "<X-K|abc>", "Accept": "a/b"}`},
		{"HEADERS", "x-team=abc,api-key=def", "x-team=<x-team|abc,api-key=def>"},
		{"CONFIG", `{"apiKey":"k","n":1,"nested":{"list":[{"pin":1234,"mode":"fast"}]}}`, `{"apiKey":"<apiKey|k>","n":1,"nested":{"list":[{"pin":<pin|1234>,"mode":"fast"}]}}`},
		{"CONFIG", `{"headers":{"X-K":"abc"},"tokens":["a","b"]}`, `{"headers":{"X-K":"<X-K|abc>"},"tokens":<tokens|["a","b"]>}`},
		{"CONFIG", `{"inner":"{\"apiKey\":\"k\"}"}`, `{"inner":"<apiKey|{\"apiKey\":\"k\"}>"}`},
		{"CONFIG", `["--api-key=abc"]`, `["--api-key=<--api-key|abc>"]`},
		{"CREDENTIALS", `{"a":"b"}`, `<CREDENTIALS|{"a":"b"}>`},
		{"U", "https://u:p@h/x?key=k&mode=x&config=%7B%22apiKey%22%3A%22k%22%7D#access_token=t", "https://u:<password|p>@h/x?key=<key|k>&mode=x&config=<config|%7B%22apiKey%22%3A%22k%22%7D>#access_token=<access_token|t>"},
		{"U", "https://" + token + "@h/", "https://<user|" + token + ">@h/"},
		{"U", "https://h/s/" + token + "/mcp", "https://h/s/<path|" + token + ">/mcp"},
		{"U", "https://hooks.example/token/abcdef12/x", "https://hooks.example/token/<path|abcdef12>/x"},
		{"", "--header=X-K: abc", "--header=X-K: <X-K|abc>"},
		{"--header", "Authorization: Basic eHg=", "Authorization: Basic <Authorization|eHg=>"},
		{"--header", "X-Version: 2", "X-Version: 2"},
		{"", "--api-key=k", "--api-key=<--api-key|k>"},
		{"", "-eAPI_KEY=k", "-eAPI_KEY=<API_KEY|k>"},
		{"--env", "API_KEY=k", "API_KEY=<API_KEY|k>"},
		{"--env", "DEBUG=1", "DEBUG=1"},
		{"", "--proxy=http://u:p@h:1", "--proxy=http://u:<password|p>@h:1"},
		{"", "Server=db;User Id=sa;Password=hunter2;Encrypt=yes", "Server=db;User Id=sa;Password=<Password|hunter2>;Encrypt=yes"},
		{"", "AccountName=x;AccountKey=abc+/=;EndpointSuffix=core", "AccountName=x;AccountKey=<AccountKey|abc+/=>;EndpointSuffix=core"},
		{"", "host=db user=u password=hunter2 dbname=x", "host=db user=u password=<password|hunter2> dbname=x"},
		{"", "user:hunter2@db:3306/x", "user:<password|hunter2>@db:3306/x"},
		{"", `curl -H "Authorization: Bearer abc" https://h`, `curl -H "Authorization: Bearer <Authorization|abc>" https://h`},
		{"", "npx x --api-key hunter2 --mode fast", "npx x --api-key <--api-key|hunter2> --mode fast"},
		{"", "export TOKEN=abc && npx x", "export TOKEN=<TOKEN|abc> && npx x"},
		{"-c", "TOKEN=abc npx x --api-key=k", "TOKEN=<TOKEN|abc> npx x --api-key=<--api-key|k>"},
		{"", "A=1\nTOKEN=abc\nB=2", "A=1\nTOKEN=<TOKEN|abc>\nB=2"},
		{"", "{'Authorization': 'Bearer abc'}", "{'Authorization': 'Bearer <Authorization|abc>'}"},
		{"", "see https://u:p@h/x and " + token, "see https://u:<password|p>@h/x and <|" + token + ">"},
		{"COMMIT_SHA", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"},
		{"", "github:owner/repo#0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c", "github:owner/repo#0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"},
		{"--user", "admin:hunter2", "admin:<password|hunter2>"},
		{"-u", "1000:1000", "1000:1000"},
		{"", "jdbc:sqlserver://h;user=sa;password=p;encrypt=true", "jdbc:sqlserver://h;user=sa;password=<password|p>;encrypt=true"},
		{"", "jdbc:postgresql://h/db?user=u&password=p", "jdbc:postgresql://h/db?user=u&password=<password|p>"},
		{"", "postgres://u:a/b#c@h:5432/x?y=z", "postgres://u:<password|a/b#c>@h:5432/x?y=z"},
		{"", "redis://:p@h:6379", "redis://:<password|p>@h:6379"},
		{"", "https://h:8080/@scope/x", "https://h:8080/@scope/x"},
		{"", "//registry.example/:_authToken=abc", "//registry.example/:_authToken=<_authToken|abc>"},
		{"", "[default]\naws_secret_access_key = abc\nregion = x", "[default]\naws_secret_access_key = <aws_secret_access_key|abc>\nregion = x"},
		{"CONFIG", `"{\"apiKey\":\"k\"}"`, `"<CONFIG|{\"apiKey\":\"k\"}>"`},
		{"--auth", "oauth2", "oauth2"},
		{"U", "https://hunter2:x-oauth-basic@h/a", "https://<user|hunter2>:x-oauth-basic@h/a"},
		{"U", "https://user@h/a", "https://user@h/a"},
		{"HEADERS_JSON", `{"X-Foo":"v"}`, `{"X-Foo":"<X-Foo|v>"}`},
		{"AUTH", "hunter2", "<AUTH|hunter2>"},
		{"HEADERS", "X-K: v\nX-Y: w", "X-K: <X-K|v\nX-Y: w>"},
		{"--headers", `{"X-K":"v"}`, `{"X-K":"<X-K|v>"}`},
		{"SSH_AUTH_SOCK", "/tmp/ssh-XXabc/agent.1", "/tmp/ssh-XXabc/agent.1"},
		{"NODE_OPTIONS", "--max-old-space-size=4096", "--max-old-space-size=4096"},
		{"", "uvx --from git+https://github.com/x/y@v1.2 z", "uvx --from git+https://github.com/x/y@v1.2 z"},
		{"X", ` "` + token + `" `, ` "<X|` + token + `>" `},
	} {
		parts := Find(tc.name, tc.text)
		if got := show(tc.text, parts); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

func TestFindArgument(t *testing.T) {
	for _, c := range []struct{ flag, text, want string }{
		{"-u", "anna:hunter2", "hunter2"},
		{"--user", "anna:hunter:2", "hunter:2"},
		{"--proxy-user", ":hunter2", "hunter2"},
		{"-u", "1000:1000", ""},
		{"--user", "node:node", ""},
		{"-u", "anna", ""},
		{"-u", "anna:${PASSWORD}", ""},
		{"-u", "https://host/path", ""},
		{"--name", "anna:hunter2", ""},
		{"--api-key", "hunter2hunter2", "hunter2hunter2"},
	} {
		got := ""
		for _, p := range FindArgument(c.flag, c.text) {
			got += c.text[p.From:p.To]
		}
		if got != c.want {
			t.Errorf("%s %s: found %q, want %q", c.flag, c.text, got, c.want)
		}
	}
}

func TestFindHeader(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"X-K", "abc", "<X-K|abc>"},
		{"X-K", "true", "true"},
		{"Accept", "a/b", "a/b"},
		{"Cookie", "a=b; c=d", "<Cookie|a=b; c=d>"},
		{"Authorization", "Digest username=\"u\", response=\"r\"", "Digest <Authorization|username=\"u\", response=\"r\">"},
		{"User-Agent", "x/1 key=abcdef", "x/1 key=<key|abcdef>"},
		{"X-Limit", "10", "10"},
	} {
		if got := show(tc.value, FindHeader(tc.name, tc.value)); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestWalkJSON(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{`{"a":1,"b":{"c":[true,{"d":"e"}],"f":{}},"s":{"x":1},"z":null}`, []string{"a=1", "b.c=true", "b.c.d=\"e\"", `s={"x":1}`, "z=null"}},
		{`["x",[2],{"\u0061":3}]`, []string{`="x"`, "=2", "a=3"}},
		{`"x"`, []string{`="x"`}},
		{`{"a":{"b":"cut sho`, []string{`a.b="cut sho`}},
		{`{"a":`, nil},
		{`]}]{"a":1`, []string{"a=1"}},
		{`{"s":[1`, []string{"s=[1"}},
		{`{"a":"b":"c"}`, []string{`b="c"`}},
	} {
		var got []string
		walkJSON(
			[]byte(tc.text),
			func(name string) bool { return name == "s" },
			func(path []string, from, to int) {
				got = append(got, strings.Join(path, ".")+"="+tc.text[from:to])
			},
		)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.text, diff)
		}
	}
}

// TestWalkJSONLimitsNames: deeper values are visited with the names of the outer members.
func TestWalkJSONLimitsNames(t *testing.T) {
	const deep = 3 * maxNames
	text := strings.Repeat(`{"a":`, deep) + `1` + strings.Repeat(`}`, deep)
	text = `[` + text + `,{"b":2}]`
	var got []string
	walkJSON([]byte(text), IsSecretName, func(path []string, from, to int) {
		got = append(got, fmt.Sprintf("%d %s %s", len(path), path[len(path)-1], text[from:to]))
	})
	if want := []string{fmt.Sprintf("%d a 1", maxNames-1), "1 b 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzFind: parts are in order, not empty, and within the text. JSON stays valid if each part is
// replaced by a word. A secret is found again in the rest only if it occurs in the rest.
func FuzzFind(f *testing.F) {
	for _, text := range slices.Concat(secretValues, publicValues) {
		f.Add("X", text)
		f.Add("CONFIG", `{"a":"`+text+`"}`)
	}
	f.Add("HEADERS", `{"X-K":"abc","n":[{"token":1},"a=b;password=c"]}`)
	f.Add("", "Server=db;Password=x; Authorization: Bearer y")
	f.Fuzz(func(t *testing.T, name, text string) {
		at := 0
		var out strings.Builder
		parts := Find(name, text)
		for _, p := range parts {
			if p.From < at || p.To <= p.From || p.To > len(text) {
				t.Fatalf("%v in %q", parts, text)
			}
			out.WriteString(text[at:p.From] + "0")
			at = p.To
		}
		out.WriteString(text[at:])
		if !IsSecretName(name) && json.Valid([]byte(text)) && !json.Valid([]byte(out.String())) {
			t.Errorf("%q became %q", text, out.String())
		}
		FindHeader(name, text)
		LooksSecret(text)
	})
}
