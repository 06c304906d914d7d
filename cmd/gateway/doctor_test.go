//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/adminapi"
)

// doctorHome makes an empty home directory the user's.
func doctorHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	for _, name := range []string{
		"XDG_CONFIG_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	t.Chdir(home)
	return home
}

// The report contains no secret, wherever the secret is, and is private.
func TestDoctorReportHasNoSecrets(t *testing.T) {
	home := doctorHome(t)
	t.Setenv("DOC_TOKEN", "zebra-env-4711")
	t.Setenv("DOC_PLAIN", "plainvalue77")
	t.Setenv("UNUSED_API_KEY", "k-unused-991177")
	secretFile := filepath.Join(home, "secretfile")
	if err := os.WriteFile(secretFile, []byte("filesecret-5522\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `
auth: {tokens: [{name: bob, token: inbound-token-0123456789abcdef}]}
backends:
- name: one
  command: /no/such/program-${DOC_PLAIN}
  args: [--token, argsecret-8844, "--api-key=argkey-3366", "${DOC_TOKEN}"]
  env: {API_KEY: envsecret-1199, F: "${file:` + secretFile + `}", C: "${command:echo cmdsecret-6655}"}
- name: two
  url: http://userinurl:passinurl-31@127.0.0.1:1/mcp?key=querysecret-77
  headers: {Authorization: Bearer headersecret-2233, X-Api-Key: otherheader-9090}
`
	path := file(t, "gateway.yaml", text)
	secrets := []string{"zebra-env", "plainvalue77", "k-unused", "filesecret", "inbound-token",
		"argsecret", "argkey", "envsecret", "cmdsecret", "userinurl", "passinurl", "querysecret",
		"headersecret", "otherheader", home + "/"}
	out := filepath.Join(t.TempDir(), "report.txt")
	for _, broken := range []string{"", "lisen: x\n"} {
		if err := os.WriteFile(path, []byte(text+broken), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := runCommand(t, "doctor", "-c", path, "--report", out, "--force")
		report, err := os.ReadFile(out)
		if err != nil || code != exitFailed {
			t.Fatalf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
		}
		for _, s := range secrets {
			if strings.Contains(string(report), s) {
				t.Errorf("%q in the report:\n%s", s, report)
			}
		}
		if !strings.Contains(string(report), "Configuration") ||
			!strings.Contains(string(report), version) {
			t.Errorf("%s", report)
		}
		if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	if code, _, stderr := runCommand(t, "doctor", "-c", path, "--report", out); code != exitFailed ||
		!strings.Contains(stderr, "exists already") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// doctor names stale sockets and busy addresses, and leaves the sockets.
func TestDoctorSocketsAndAddress(t *testing.T) {
	home := doctorHome(t)
	state := filepath.Join(home, "s")
	dir := adminapi.Dir(state)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, "old.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	path := file(t, "gateway.yaml", "listen: "+busy.Addr().String()+"\n"+demoText)
	code, out, stderr := runCommand(t, "doctor", "-c", path, "--state", state, "--offline")
	if code != exitFailed || !strings.Contains(out, "gateway old has ended") ||
		!strings.Contains(out, "another program uses "+busy.Addr().String()) {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	if _, err := os.Stat(stale); err != nil {
		t.Errorf("doctor has removed the socket: %v", err)
	}
}
