//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/keyringtest"
	"mcpgateway/internal/mcptest/oidctest"
)

// echoErrors lets the tool fail respond with HTTP 500 and the headers of the request, at the end of
// a text of which an error shows only a part.
func echoErrors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var m struct{ Params struct{ Name string } }
		if _ = json.Unmarshal(body, &m); m.Params.Name != "fail" {
			next.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s %s", strings.Repeat("-", len(body)%150), r.Header.Get("Authorization"))
	})
}

// TestOAuth_NoTokenIsWritten uses a server and an authorization server that repeat all secrets in
// their results and errors. No token, code, code verifier or client secret may be in the log at
// debug, in the audit file with payloads, in the state directory except the private files, in the
// output of the commands, in errors for clients, or in the command line or environment of a
// process. secretSearch searches them.
func TestOAuth_NoTokenIsWritten(t *testing.T) {
	t.Parallel()
	t.Run("text, opaque tokens in files", func(t *testing.T) {
		t.Parallel()
		testNoTokenIsWritten(t, "text", true, false)
	})
	t.Run("json, JWTs in the keyring", func(t *testing.T) {
		t.Parallel()
		testNoTokenIsWritten(t, "json", false, true)
	})
}

func testNoTokenIsWritten(t *testing.T, format string, opaque, inKeyring bool) {
	p := newProtected(t, oidctest.Options{Opaque: opaque}, oidctest.ServerOptions{EchoToken: true,
		Tools: []string{"read", "fail"}, Wrap: echoErrors})
	client := p.provider.AddClient(oidctest.Client{
		RedirectURIs: []string{"http://127.0.0.1/login/callback"}})
	b := p.backend("notes")
	b.OAuth["client_id"], b.OAuth["client_secret"] = client.ID, client.Secret
	s := newSetup(t, map[string]any{
		"log":     map[string]any{"level": "debug", "format": format},
		"catalog": map[string]any{"wait": "2s"},
	}, demo, b)
	var env []string
	if inKeyring {
		env = keyringtest.Start(t).Env
	}
	run := func(args ...string) commandResult {
		cmd := s.command(append(args, "--log-level", "debug")...)
		cmd.Env = append(cmd.Env, env...)
		return runCommand(t, cmd)
	}
	known := func() []string { // not what only the resource server knows
		_, introspection := p.provider.IntrospectionClient()
		return slices.DeleteFunc(p.provider.Secrets(),
			func(secret string) bool { return secret == introspection })
	}
	run("check")
	p.provider.SetFault(oidctest.TokenEndpoint, tokenFault(known()))
	run("login", "notes").expect(t, 1, "gives no token for the code", "invalid_request")
	p.provider.ClearFaults()
	run("login", "notes").expect(t, 0, "logged in")
	run("check").expect(t, 0)
	run("tools").expect(t, 0, "read")
	run("call", "fail", `{"id":"1"}`).expect(t, 1, "HTTP 500", "***")

	cmd := s.command()
	cmd.Env = append(cmd.Env, env...)
	gw := startRaw(t, cmd)
	gw.initialize("2025-11-25")
	for range 3 {
		m := awaitCalls(t, gw, "read", `{"text":"`+strings.Repeat("x", 20)+`"}`)
		if containsSecret(m.Raw, p.provider.Secrets()) == "" {
			t.Errorf("the result repeats no token: %s", m.Raw)
		}
		for n := range 10 {
			m = callTool(gw, "fail", `{"text":"`+strings.Repeat("y", 15*n)+`"}`)
			if !strings.Contains(string(m.Error), "HTTP 500") {
				t.Errorf("fail: %s", m.Raw)
			}
		}
		p.provider.ExpireAccessTokens()
	}
	// The gateway does not know the code and the verifier, which another process has used.
	var ofLogins []string
	for _, r := range p.provider.Requests(oidctest.TokenEndpoint) {
		ofLogins = append(ofLogins, r.Form.Get("code"), r.Form.Get("code_verifier"))
	}
	p.provider.SetFault(oidctest.TokenEndpoint, tokenFault(slices.DeleteFunc(known(),
		func(secret string) bool { return slices.Contains(ofLogins, secret) })))
	m := callTool(gw, "read", `{}`)
	if !strings.Contains(string(m.Error), "invalid_request") {
		t.Errorf("while refreshes fail: %s", m.Raw)
	}
	p.provider.ClearFaults()
	awaitCalls(t, gw, "read", `{}`)
	p.provider.RevokeGrants()
	callsFail(t, gw, "read")
	run("login", "notes").expect(t, 0, "logged in")
	awaitCalls(t, gw, "read", `{}`)
	run("logout", "notes").expect(t, 0, "revoked")
	run("login", "notes").expect(t, 0, "logged in")
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	logs, err := os.ReadFile(gw.stderr)
	record, auditErr := os.ReadFile(s.audit)
	if err != nil || auditErr != nil || len(logs) == 0 || !bytes.Contains(record, []byte("***")) {
		t.Errorf("log: %d bytes, %v; audit: %d bytes, %v; nothing was masked", len(logs), err,
			len(record), auditErr)
	}
	if n := len(p.provider.Secrets()); n < 10 {
		t.Errorf("only %d secrets", n)
	}
}

// tokenFault is an error of the token endpoint that repeats secrets.
func tokenFault(secrets []string) oidctest.Fault {
	body, err := json.Marshal(map[string]string{"error": "invalid_request",
		"error_description": "do not repeat " + strings.Join(secrets, " ")})
	if err != nil {
		panic(err)
	}
	return oidctest.Fault{Status: http.StatusBadRequest, Body: string(body),
		Header: http.Header{"Content-Type": {"application/json"}}}
}
