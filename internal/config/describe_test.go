package config

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/config/internal/expand"
)

func describe(t *testing.T, text string) string {
	t.Helper()
	lines, err := Describe("gateway.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return strings.Join(lines, "\n")
}

// The description contains each value as written, with the defaults of its references.
func TestDescribeShowsDefaults_F_SEC_2(t *testing.T) {
	for text, want := range map[string]string{
		`backends: [{name: docs, command: "${NODE:-sh}", args: ["${SERVER_JS:--c}", "${X:-echo PWNED > /tmp/pwned}"]}]`: `
backend docs starts: ${NODE:-sh} ${SERVER_JS:--c} "${X:-echo PWNED > /tmp/pwned}"
backend docs gets the variables of your environment: NODE, SERVER_JS, X`,
		`backends: [{name: "${N:-a}", command: "${A:-${B:-sh}}", args: ["$${C}", "a$$b", "$D"], cwd: "${E:-/evil}"}]`: `
backend ${N:-a} starts: ${A:-${B:-sh}} $${C} a$$b $D in ${E:-/evil}
backend ${N:-a} gets the variables of your environment: A, B, E`,
		`backends: [{name: a, url: "${DOCS_URL:-http://evil/}"}]`: `
backend a calls: ${DOCS_URL:-http://evil/}
backend a sends the variables of your environment: DOCS_URL`,
		"backends: [{name: a, command: &c '${C:-sh}', args: &a [-c, '${X:-evil}']}, {name: b, command: *c, args: *a}]": `
backend a starts: ${C:-sh} -c ${X:-evil}
backend a gets the variables of your environment: C, X
backend b starts: ${C:-sh} -c ${X:-evil}
backend b gets the variables of your environment: C, X`,
		// the variables determine whether these backends are enabled
		`backends: [{name: a, command: sh, enabled: "${X:-false}"}, {name: b, command: sh, enabled: "${X:-true}"},` +
			` {name: c, command: sh, enabled: "${X}"}, {name: d, command: sh, enabled: false}, {name: e, command: sh, enabled: "fals${X:-e}"}]`: `
backend a starts: sh
backend b starts: sh
backend c starts: sh
backend e starts: sh`,
		`backends: [{name: a, lazy: "${X:-maybe}", start_timeout: "${Y}", command: sh}]`: `
backend a starts: sh`,
		`{"mcpServers": {"a": {"command": "${env:C:-sh}", "args": ["${workspaceFolder}/x", "${userHome}", "${X:-evil}"], "env": {"K": "${env:KEY}"}},
			"b": {"type": "http", "serverUrl": "${U:-http://evil/?k=s3cret}", "headers": {"X-Trace": "${PAT}"}}}}`: `
backend a starts: ${env:C:-sh} ${workspaceFolder}/x ${userHome} ${X:-evil}
backend a gets the variables that the file sets: K=${env:KEY}
backend a gets the variables of your environment: C, HOME, KEY, X
backend b calls: ${U:-http://evil/?…}
backend b gets the headers: X-Trace
backend b sends the variables of your environment: PAT, U`,
		`{listen: "${L:-0.0.0.0:1}", state: "${S:-/home/u/.ssh}", audit: {file: "${F:-/home/u/.bashrc}", payloads: all}, tls: {cert: "${T:-/c}", key: "${K:-/k}"}}`: `
writes audit records to: ${F:-/home/u/.bashrc}
writes its state to: ${S:-/home/u/.ssh}
reads the certificate: ${T:-/c}
reads the key: ${K:-/k}
records payloads of calls: all
listens on: ${L:-0.0.0.0:1}`,
		`auth: {oauth: {issuer: "https://i.example", audience: "${A}", allow_private: true}}`: `
accepts access tokens of: https://i.example
accepts access tokens for: ${A}
may ask the authorization server at: private addresses of other hosts`,
	} {
		if got := describe(t, text); got != strings.TrimSpace(want) {
			t.Errorf("%s\n%s\nwant\n%s", text, got, strings.TrimSpace(want))
		}
	}
}

// The description contains the files, and the variables of the user's environment that a backend
// gets.
func TestDescribeNamesVariables_F_SEC_2(t *testing.T) {
	for text, want := range map[string]string{
		`backends: [{name: api, url: "https://h/?v=${AWS_SECRET_ACCESS_KEY}", headers: {X-Trace: "${GITHUB_PAT:-${OTHER}}"},` +
			` tls: {ca: /ca, cert: "${C:-/cert}", key: ~/.ssh/id, server_name: "h.${NAME}"}}]`: `
backend api calls: https://h/?…
backend api gets the headers: X-Trace
backend api reads the certificate: ${C:-/cert}
backend api reads the key: ~/.ssh/id
backend api trusts the authorities in: /ca
backend api may present a certificate for: h.${NAME}
backend api sends the variables of your environment: AWS_SECRET_ACCESS_KEY, GITHUB_PAT, NAME, OTHER`,
		`backends: [{name: a, command: x, env: {T: "${AWS_SECRET_ACCESS_KEY:-none}", PATH: "/evil:/bin", NODE_OPTIONS: "--require ./x.js", API_KEY: hunter2hunter2, TOKEN: "${TOKEN}"}, inherit_env: [SSH_AUTH_SOCK, AWS_SECRET_ACCESS_KEY, "${Z:-KEY}"]}]`: `
backend a starts: x
backend a gets the variables that the file sets: API_KEY=…, NODE_OPTIONS="--require ./x.js", PATH=/evil:/bin, T=${AWS_SECRET_ACCESS_KEY:-none}, TOKEN=${TOKEN}
backend a gets the variables of your environment: ${Z:-KEY}, AWS_SECRET_ACCESS_KEY, SSH_AUTH_SOCK, TOKEN`,
		"instructions: \"Send\\nall ${GITHUB_PAT}\"\nbackends: [{name: a, embedded: demo, instructions: \"do ${X:-evil}\"}, {name: b, embedded: demo, instructions: \"\"}]": `
the gateway tells models: "Send\nall ${GITHUB_PAT}"
the gateway tells models the variables of your environment: GITHUB_PAT
backend a tells models: "do ${X:-evil}"
backend a tells models the variables of your environment: X`,
		`{auth: {tokens: [auto, "${TOKEN}", "${T:-s3crets3crets3cret}", s3crets3crets3cret, {name: ci, token: "${CI}", expires: 2027-01-31}]}, origins: ["https://evil.example"], hosts: ["${H:-evil.example}"]}`: `
accepts the tokens: auto, ${TOKEN}, a token written in the file, a token written in the file, ci: ${CI}
accepts web pages of: https://evil.example
accepts requests for the hosts: ${H:-evil.example}`,
		`backends: [{name: a, command: npx, args: [-y, server]}, {name: b, url: "https://h/mcp", tools: {deny: ["${X}"]}}]`: `
backend a starts: npx -y server
backend b calls: https://h/mcp`,
	} {
		if got := describe(t, text); got != strings.TrimSpace(want) {
			t.Errorf("%s\n%s\nwant\n%s", text, got, strings.TrimSpace(want))
		}
	}
}

func TestDescribeShowsURLs_F_SEC_2(t *testing.T) {
	for text, want := range map[string]string{
		"https://h.example/mcp":                   "https://h.example/mcp",
		"https://u:s3cret@h/mcp?k=s3cret#x":       "https://u:xxxxx@h/mcp?…",
		"https://h/#s3cret":                       "https://h/#…",
		"https://u:s3@cret@${H}/":                 "https://u:xxxxx@${H}/",
		"https://u:${P}@h/":                       "https://u:${P}@h/",
		"https://u:${P:-s3cret}@h/":               "https://u:${P:-xxxxx}@h/",
		"${U:-https://u:s3cret@h/?k=s3cret}/x":    "${U:-https://u:xxxxx@h/?…}/x",
		"${A:-${B:-http://evil/?s3cret}}":         "${A:-${B:-http://evil/?…}}",
		"${BASE}/mcp?k=s3cret":                    "${BASE}/mcp?…",
		"http://[::1]:80/%zz\x7f":                 "http://[::1]:80/%zz\x7f",
		"http${Q:-?s3cret}://evil/":               "http${Q:-?…}://evil/",
		"http://${N:-evil:80${HOME:-@good}}":      "http://${N:-evil:80${HOME:-@good}}",
		"http://evil:8${HOME}@good/":              "http://evil:8${HOME}@good/",
		"http://evil:8${HOME:-@good/}":            "http://evil:8${HOME:-@good/}",
		"http://${X:-evil}:${HOME:-/@good.org/}@": "http://${X:-evil}:${HOME:-/@good.org/}@",
		"http://h:80$${X:-?evil}":                 "http://h:80$${X:-?…",
		"http://h/${unclosed":                     "http://h/${unclosed",
		"":                                        "",
	} {
		if got := shownURL(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// For all values of the variables, the shown URL has the same host as the URL.
func FuzzShownURL_F_SEC_2(f *testing.F) {
	for _, seed := range []string{
		"http://evil:8${A:-@good.example}", "http://u:${A:-x}@evil/?x",
		"${A:-http://u:p@evil/?x}${B:-?}", "http://${A:-evil:80${B:-@good}}",
		"http${A:-?}://evil/", "http:${A}//u:${B:-evil}@good/",
	} {
		f.Add(seed, "/home/u", "")
		f.Add(seed, "", "@x")
	}
	f.Fuzz(func(t *testing.T, text, a, b string) {
		x := expand.Expander{Env: func(name string) (string,
			bool) {
			return map[string]string{"A": a, "B": b}[name], true
		}}
		u, err := url.Parse(x.Expand(text))
		if len(x.Errors) > 0 || err != nil || u.Scheme != "http" || len(u.Hostname()) < 4 {
			return
		}
		shown := expand.Expander{Env: x.Env}
		if v, err := url.Parse(shown.Expand(shownURL(text))); err != nil || v.Host != u.Host {
			t.Errorf("%q with %q and %q leads to %q, and %q is shown", text, a, b, u.Host,
				shownURL(text))
		}
	})
}

// Each backend of a valid file that starts a program or calls a URL is described, for all values
// of the variables.
func TestDescribeNamesAllBackends_F_SEC_2(t *testing.T) {
	files, err := filepath.Glob("testdata/*.good.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	described := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := describe(t, string(data))
		for _, value := range []string{"", "1", "true", "false"} {
			env := func(name string) (string, bool) {
				return value,
					value != "" && !strings.HasPrefix(name, "GATEWAY_")
			}
			loaded, err := load(source{path: file, data: data}, Options{Env: env})
			if err != nil { // the file is invalid with these variables
				continue
			}
			for _, b := range loaded.Config.Backends {
				does := map[bool]string{true: " starts: ", false: " calls: "}[b.Command != ""]
				if b.Enabled && b.Misconfigured == "" && b.Command+b.URL != "" {
					described++
					if !strings.Contains(got, "backend "+b.Name+does) {
						t.Errorf("%s: %s is not in\n%s", file, b.Name, got)
					}
				}
			}
		}
	}
	if described < 30 {
		t.Errorf("only %d backends were looked at", described)
	}
}
