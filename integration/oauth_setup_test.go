//go:build unix

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/oidctest"
)

// A protected is an MCP server that requires a login, and its authorization server.
type protected struct {
	*oidctest.ProtectedServer
	provider *oidctest.Provider
}

// newProtected starts both. Its refresh tokens rotate.
func newProtected(t testing.TB, p oidctest.Options, o oidctest.ServerOptions) protected {
	t.Helper()
	p.AlwaysRefresh = true
	provider := newProvider(t, p)
	return protected{oidctest.NewServer(t, provider, o), provider}
}

// backend returns the server as a backend of the gateway.
func (p protected) backend(name string) backend {
	return backend{Name: name, URL: p.URL(), OAuth: map[string]any{"allow_private": true}}
}

// demo is a backend that needs no login.
var demo = backend{Name: "demo", Embedded: "demo"}

// A commandResult is the outcome of a command that has ended.
type commandResult struct {
	out, err string
	code     int
}

// command returns a command of the gateway on the configuration, with this binary as the browser.
func (s *setup) command(args ...string) *exec.Cmd {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, gateway(s.t), append([]string{"-c", s.config}, args...)...)
	cmd.Env, cmd.Dir = s.env("BROWSER="+exe, helperEnv+"=helper-browser"), s.dir
	return cmd
}

// run runs a command of the gateway to its end.
func (s *setup) run(args ...string) commandResult {
	s.t.Helper()
	return runCommand(s.t, s.command(args...))
}

// runCommand runs a command of the gateway, whose output must not contain a secret.
func runCommand(t testing.TB, cmd *exec.Cmd) (r commandResult) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	place := "the output of " + strings.Join(cmd.Args, " ")
	searchText(t, place, out.Bytes())
	searchText(t, place, errOut.Bytes())
	return commandResult{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// combinedOutput runs a command of the gateway and returns its stdout and stderr, which must not
// contain a secret.
func combinedOutput(t testing.TB, cmd *exec.Cmd) ([]byte, error) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	searchText(t, "the output of "+strings.Join(cmd.Args, " "), out)
	return out, err
}

// logIn runs gateway login, which must succeed.
func (s *setup) logIn(name string) commandResult {
	s.t.Helper()
	r := s.run("login", name)
	if r.code != 0 {
		s.t.Fatalf("login: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	return r
}

// expect fails the test unless the exit code and the output are as expected.
func (r commandResult) expect(t testing.TB, code int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("the output does not contain %q", text)
		}
	}
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if t.Failed() {
		t.Logf("output:\n%s%s", r.out, r.err)
	}
}

// loginFiles returns the files with stored logins, by name.
func (s *setup) loginFiles() map[string]os.FileInfo {
	files := map[string]os.FileInfo{}
	all, _ := filepath.Glob(filepath.Join(s.dir, "state", "logins", "*.json"))
	for _, path := range all {
		if info, err := os.Stat(path); err == nil {
			files[path] = info
		}
	}
	return files
}

// A pastedLogin is a running gateway login --no-browser.
type pastedLogin struct {
	t     testing.TB
	stdin io.WriteCloser
	url   string // of the login page
	raw   *rawClient
}

var loginURL = regexp.MustCompile(`(?m)^https?://\S+$`)

// startPasted starts gateway login --no-browser and waits until it has printed the link.
func (s *setup) startPasted(name string) *pastedLogin {
	s.t.Helper()
	l := &pastedLogin{t: s.t, raw: startRaw(s.t, s.command("login", name, "--no-browser"))}
	l.stdin = l.raw.stdin
	l.awaitOutput("Then paste the address")
	l.url = loginURL.FindString(l.raw.logs())
	return l
}

// awaitOutput waits until the command has written a text to stderr.
func (l *pastedLogin) awaitOutput(text string) {
	l.t.Helper()
	if !poll(waitTimeout, func() bool { return strings.Contains(l.raw.logs(), text) }) {
		l.t.Fatalf("stderr does not contain %q:\n%s", text, l.raw.logs())
	}
}

// paste writes a line to stdin.
func (l *pastedLogin) paste(line string) {
	l.t.Helper()
	if _, err := io.WriteString(l.stdin, line+"\n"); err != nil {
		l.t.Fatal(err)
	}
}

// end waits for the end, and returns the outcome.
func (l *pastedLogin) end() commandResult {
	l.t.Helper()
	code := l.raw.exitCode(waitTimeout)
	<-l.raw.drained
	return commandResult{string(bytes.Join(l.raw.received(), []byte("\n"))), l.raw.logs(), code}
}

// refusal returns the error of a call; "" = it succeeded. A call for which somebody has to log in
// has a result with isError, because models show the text of a result to their user.
func refusal(m message) string {
	if m.Error != nil {
		var e struct{ Message string }
		_ = json.Unmarshal(m.Error, &e)
		return e.Message
	}
	var r struct {
		IsError bool
		Content []struct{ Text string }
	}
	if json.Unmarshal(m.Result, &r) == nil && r.IsError && len(r.Content) > 0 {
		return r.Content[0].Text
	}
	return ""
}
