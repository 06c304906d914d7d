//go:build unix

package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/oidctest"
)

// These tests run the Inspector and Claude Code in front of a gateway that requires a token, or
// that has a question.

// inspectorWith returns the options of the Inspector for a gateway that requires a token.
func inspectorWith(url, generation, token string, more ...string) []string {
	return append([]string{"--transport", "http", "--server-url", url, "--protocol-era", generation,
		"--header", "Authorization: Bearer " + token}, more...)
}

// checkLeaksNothing fails the test if the output of a client that was refused has anything of the
// configuration of newProfileSetup.
func checkLeaksNothing(t testing.TB, s *setup, output string) {
	t.Helper()
	for _, secret := range []string{"wind", "rain", "snow", "alice", "bob", "reader", "writer",
		s.dir, ".yaml", ".go:"} {
		if strings.Contains(output, secret) {
			t.Errorf("the output contains %q:\n%s", secret, output)
		}
	}
}

// checkPrincipal checks the records of the calls of wind_who by a client with the token of alice.
func checkPrincipal(t testing.TB, s *setup, client string, calls int) {
	t.Helper()
	var records []auditRecord
	poll(waitTimeout, func() bool { // records are written in the background
		records = s.records()
		return len(records) >= calls
	})
	for _, r := range records {
		if !strings.Contains(r.line, `"principal":"alice"`) || r.Tool != "wind_who" ||
			r.Outcome != "ok" || !strings.HasPrefix(r.Client, client) {
			t.Errorf("the audit record is %s", r.line)
		}
	}
	if len(records) != calls {
		t.Errorf("%d audit records, want %d", len(records), calls)
	}
}

// The Inspector with a token lists the tools of its profile, and calls one. With a wrong token it
// shows that it is not authorized, and why. (A modern Inspector shows no reason.)
func TestToken_Inspector(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test runs packages of npm")
	}
	t.Parallel()
	// The clients take tokens as arguments.
	s, readerToken, _ := newProfileSetup(t, secretArgument)
	wrongToken := secretArgument(t, "wrong token")
	_, url := s.serveHTTP()
	t.Run("clients", func(t *testing.T) { // ends when its parallel subtests have ended
		for _, generation := range []string{"legacy", "modern"} {
			t.Run(generation, func(t *testing.T) {
				t.Parallel()
				result, _ := inspectAny(t, s.marker, inspectorWith(url, generation, readerToken,
					"--method", "tools/list"))
				var list struct{ Tools []struct{ Name string } }
				if err := json.Unmarshal(result, &list); err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, tool := range list.Tools {
					names = append(names, tool.Name)
				}
				slices.Sort(names)
				if want := "rain_wait rain_who wind_wait wind_who"; strings.Join(names, " ") != want {
					t.Errorf("tools %q, want %s", names, want)
				}
				result, _ = inspectAny(t, s.marker, inspectorWith(url, generation, readerToken,
					"--method", "tools/call", "--tool-name", "wind_who"))
				if !strings.Contains(string(result), `"text":"wind 1 `) {
					t.Errorf("wind_who: %s", result)
				}
			})
		}
		t.Run("wrong token", func(t *testing.T) {
			t.Parallel()
			r := runInspector(t, s.marker, nil, inspectorWith(url, "legacy", wrongToken,
				"--method", "tools/list", "--stored-auth-only"))
			if r.err == nil || !strings.Contains(r.stderr, `"code":"auth_required"`) ||
				!strings.Contains(r.stderr, "the token in the header Authorization is not in "+
					"auth.tokens; check it, or ask the operator of the gateway for a new one") {
				t.Errorf("%v\n%s%s", r.err, r.stdout, r.stderr)
			}
			checkLeaksNothing(t, s, r.stdout+r.stderr)
		})
	})
	checkPrincipal(t, s, "inspector-cli/", 2)
}

// Claude Code with a token offers the tools of its profile to the model, and calls one. With a
// wrong token, and without one, it shows what to do.
func TestToken_ClaudeCode(t *testing.T) {
	t.Parallel()
	// The clients take tokens as arguments.
	s, readerToken, _ := newProfileSetup(t, secretArgument)
	wrongToken := secretArgument(t, "wrong token")
	_, url := s.serveHTTP()
	model := startModel(t)
	c := newClaude(t, s.marker, "ANTHROPIC_BASE_URL="+model.url)
	hasSecrets(c.dir) // Claude Code stores the tokens
	for name, token := range map[string]string{"right": readerToken, "wrong": wrongToken,
		"none": ""} {
		args := []string{"mcp", "add", "-s", "user", "--transport", "http", name, url}
		if token != "" {
			args = append(args, "-H", "Authorization: Bearer "+token)
		}
		c.run(args...)
	}
	out, _ := c.run("mcp", "list")
	for name, want := range map[string]string{
		"right": "Connected",
		"wrong": "Server rejected the configured Authorization header (HTTP 401).*the token in the " +
			"header Authorization is not in auth.tokens; check it, or ask the operator of the " +
			"gateway for a new one",
		"none": "This gateway has no OAuth. It needs a bearer token: give the client the header " +
			"Authorization: Bearer TOKEN (claude mcp add",
	} {
		line := regexp.MustCompile(`(?m)^` + name + `: .*$`).FindString(out)
		for _, part := range strings.Split(want, ".*") {
			if !strings.Contains(line, part) {
				t.Errorf("%s: mcp list does not print %q:\n%s", name, part, out)
			}
		}
		if strings.Contains(line, "Connected") != (name == "right") {
			t.Errorf("%s: mcp list prints %s", name, line)
		}
	}
	checkLeaksNothing(t, s, out)

	out, _ = c.run(c.scriptFor(map[string]any{"type": "http", "url": url,
		"headers": map[string]string{"Authorization": "Bearer " + readerToken}},
		`mcp__gw__wind_who {}`, `mcp__gw__snow_who {}`)...)
	offered, results := model.record()
	offered = slices.DeleteFunc(offered, func(tool string) bool {
		return !strings.HasPrefix(tool, "mcp__")
	})
	slices.Sort(offered)
	if want := "mcp__gw__rain_wait mcp__gw__rain_who mcp__gw__wind_wait mcp__gw__wind_who"; strings.
		Join(offered, " ") != want {
		t.Errorf("offered to the model: %q", offered)
	}
	if len(results) != 2 || !strings.HasPrefix(results[0].text, "wind 1 ") || results[0].isError ||
		!results[1].isError || !strings.Contains(results[1].text, "No such tool available") {
		t.Errorf("results: %+v; claude -p prints %q\n%s", results, out, c.mcpLogs())
	}
	checkPrincipal(t, s, "claude-code/", 1)
}

// startPageLink is the link to the gateway's start page of a login, in an error.
var startPageLink = regexp.MustCompile(`http://[^ "]+/login/[^ "]+`)

// newQuestionSetup has a tool that requires a confirmation, demo's add, and a server that requires
// a login, which was made once but has ended: its tool read.
func newQuestionSetup(t testing.TB) (s *setup, p protected) {
	t.Helper()
	p = newProtected(t, oidctest.Options{}, oidctest.ServerOptions{})
	b := demo
	b.Tools = map[string]any{"confirm": []string{"add"}}
	s = newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, b,
		p.backend("notes"))
	s.logIn("notes")
	p.provider.RevokeGrants()
	p.provider.ExpireAccessTokens()
	return s, p
}

// checkQuestions checks the errors of a call that requires a confirmation, and of one that requires
// a login: each says why, and what to do. The link leads to the start page of the login.
func checkQuestions(t testing.TB, p protected, confirm, login, why string) {
	t.Helper()
	for _, want := range []string{"call did not run",
		"the user has to confirm calls of add at backend demo (tools.confirm), and " + why} {
		if !strings.Contains(confirm, want) {
			t.Errorf("the client does not show %q:\n%s", want, confirm)
		}
	}
	for _, want := range []string{"call did not run", "gateway login notes, and " + why,
		"in a browser"} {
		if !strings.Contains(login, want) {
			t.Errorf("the client does not show %q:\n%s", want, login)
		}
	}
	if link := startPageLink.FindString(login); link == "" {
		t.Errorf("there is no link in %s", login)
	} else if res, err := http.Get(link); err != nil {
		t.Error(err)
	} else {
		defer res.Body.Close()
		if page, _ := io.ReadAll(res.Body); !strings.Contains(string(page), "<form") {
			t.Errorf("%s: %s\n%s", link, res.Status, page)
		}
	}
	if n := p.Executions("x"); n != 0 {
		t.Errorf("the call ran %d times", n)
	}
}

// The Inspector's CLI declares no elicitation, so that it cannot be asked: it shows the error.
func TestQuestions_Inspector(t *testing.T) {
	t.Parallel()
	s, p := newQuestionSetup(t)
	_, url := s.serveHTTP()
	for _, generation := range []string{"legacy", "modern"} {
		t.Run(generation, func(t *testing.T) {
			t.Parallel()
			call := func(tool, arguments string) string {
				r := runInspector(t, s.marker, nil, []string{"--transport", "http", "--server-url",
					url, "--protocol-era", generation, "--method", "tools/call", "--tool-name",
					tool, "--tool-args-json", arguments})
				if r.err == nil {
					t.Errorf("%s succeeded: %s", tool, r.stdout)
				}
				return r.stdout + r.stderr
			}
			checkQuestions(t, p, call("add", `{"a":1,"b":2}`), call("read", `{"id":"x"}`),
				"this client cannot be asked")
		})
	}
}

// Claude Code declares elicitation even if it has no user, and then dismisses each question itself:
// it shows the error to the model.
func TestQuestions_ClaudeCodeWithoutUser(t *testing.T) {
	t.Parallel()
	s, p := newQuestionSetup(t)
	_, url := s.serveHTTP()
	model := startModel(t)
	c := newClaude(t, s.marker, "ANTHROPIC_BASE_URL="+model.url)
	c.run(c.scriptFor(map[string]any{"type": "http", "url": url},
		`mcp__gw__add {"a":1,"b":2}`, `mcp__gw__read {"id":"x"}`)...)
	_, results := model.record()
	if len(results) != 2 || !results[0].isError || !results[1].isError {
		t.Fatalf("results: %+v\n%s", results, c.mcpLogs())
	}
	checkQuestions(t, p, results[0].text, results[1].text, "the user has dismissed the question")
}
