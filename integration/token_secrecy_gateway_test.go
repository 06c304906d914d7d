//go:build linux

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/keyringtest"
	"mcpgateway/internal/mcptest/oidctest"
)

// A processSampler reads the command lines and environments of all processes again and again.
type processSampler struct {
	stop    context.CancelFunc
	done    sync.WaitGroup
	seen    map[string]bool // contents
	samples int
}

func startProcessSampler() *processSampler {
	ctx, cancel := context.WithCancel(context.Background())
	p := &processSampler{stop: cancel, seen: make(map[string]bool)}
	p.done.Go(func() {
		for ; ctx.Err() == nil; p.samples++ {
			files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range files {
				for _, file := range []string{path, filepath.Join(filepath.Dir(path), "environ")} {
					if text, err := os.ReadFile(file); err == nil {
						p.seen[string(text)] = true
					}
				}
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return p
}

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
// process.
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
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	s := newSetup(t, map[string]any{
		"log":     map[string]any{"level": "debug", "format": format},
		"audit":   map[string]any{"file": audit, "payloads": "all"},
		"catalog": map[string]any{"wait": "2s"},
	}, demo, b)
	var env []string
	if inKeyring {
		env = keyringtest.Start(t).Env
	}
	sampler := startProcessSampler()
	texts := map[string]string{}
	run := func(args ...string) commandResult {
		cmd := s.command(append(args, "--log-level", "debug")...)
		cmd.Env = append(cmd.Env, env...)
		r := runCommand(t, cmd)
		texts[strings.Join(args, " ")+itoa(int64(len(texts)))] = r.out + r.err
		return r
	}
	run("check")
	p.provider.SetFault(oidctest.TokenEndpoint, tokenFault(p.provider.Secrets()))
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
	p.provider.SetFault(oidctest.TokenEndpoint, tokenFault(slices.DeleteFunc(p.provider.Secrets(),
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
	sampler.stop()
	sampler.done.Wait()

	for i, line := range gw.received() {
		if m, err := parseMessage(line); err == nil && refusal(m) != "" {
			texts[fmt.Sprint("error ", i, " for the client")] = string(line)
		}
	}
	logs, err := os.ReadFile(gw.stderr)
	texts["the log"] = string(logs)
	for text := range sampler.seen {
		texts["process "+strings.ReplaceAll(text, "\x00", " ")] = text
	}
	record, auditErr := os.ReadFile(audit)
	texts["the audit file"] = string(record)
	if err != nil || auditErr != nil || len(logs) == 0 || !bytes.Contains(record, []byte("***")) {
		t.Errorf("log: %d bytes, %v; audit: %d bytes, %v; nothing was masked", len(logs), err,
			len(record), auditErr)
	}
	files := 0
	_ = filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		private := filepath.Base(filepath.Dir(path)) == "logins" && !inKeyring
		if err == nil && d.Type().IsRegular() && !private && path != s.config {
			text, _ := os.ReadFile(path)
			texts[path] = string(text)
			files++
		}
		return nil
	})
	secrets := slices.DeleteFunc(p.provider.Secrets(), func(secret string) bool {
		_, introspector := p.provider.IntrospectionClient()
		return secret == introspector
	})
	if len(secrets) < 10 || files < 3 || sampler.samples < 10 {
		t.Errorf("%d secrets, %d files, %d samples of processes", len(secrets), files,
			sampler.samples)
	}
	for where, text := range texts {
		if secret := containsSecret([]byte(text), secrets); secret != "" {
			at := strings.Index(text, secret)
			t.Errorf("%.200s: …%s…", where, text[max(0, at-200):min(len(text), at+len(secret)+20)])
		}
		// a long part of a secret is not shown either
		for _, secret := range secrets {
			if len(secret) > 24 && strings.Contains(text, secret[len(secret)-20:]) {
				t.Errorf("%.200s: the end of a secret", where)
			}
		}
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
