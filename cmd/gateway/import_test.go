package main

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/door"
	"mcpgateway/transport"
)

// gatewayRun carries out a command line and returns what it wrote.
func gatewayRun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	read := func(f *os.File) string {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	io := stdio{open("in"), open("out"), open("err")}
	code = run(t.Context(), args, io)
	return code, read(io.out), read(io.err)
}

// A gateway at any port is not put behind itself: it says who it is, whatever its
// token, and is asked for nothing but that.
func TestImportLeavesOutARunningGateway(t *testing.T) {
	d := door.New(door.Options{
		Serve:  func(context.Context, door.Visit, transport.Conn) { t.Error("a session was opened") },
		Tokens: []string{"secret"},
	})
	plain, secure, other := httptest.NewServer(d), httptest.NewTLSServer(d), httptest.NewServer(nil)
	for _, s := range []*httptest.Server{plain, secure, other} {
		defer s.Close()
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	text := `{ "mcpServers": {
		"hub": { "url": "` + plain.URL + `/mcp" },
		"safe": { "url": "` + secure.URL + `/mcp" },
		"other": { "url": "` + other.URL + `/mcp" } } }`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := gatewayRun(t, "import", file)
	if code != exitOK || strings.Contains(stdout, "name: hub") || strings.Contains(stdout, "name: safe") || !strings.Contains(stdout, "name: other") {
		t.Errorf("%d\n%s", code, stdout)
	}
	for _, name := range []string{"hub", "safe"} {
		if want := `"` + name + `" left out: it is this gateway itself`; !strings.Contains(stderr, want) {
			t.Errorf("stderr has no %s:\n%s", want, stderr)
		}
	}
}

func TestImportProject_F_CLI_12(t *testing.T) {
	home, work, other := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Chdir(work)
	text := `{ "projects": { "` + filepath.ToSlash(other) + `": { "mcpServers": { "local": { "command": "local" } } } } }`
	if err := os.WriteFile(filepath.Join(home, ".claude.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := gatewayRun(t, "import")
	want := "1 more server in project " + filepath.ToSlash(other) + ": run gateway import --project " + filepath.ToSlash(other)
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("%d %s\n%s", code, stdout, stderr)
	}
	code, stdout, stderr = gatewayRun(t, "import", "--project", other)
	if code != exitOK || !strings.Contains(stdout, "name: local") || strings.Contains(stderr, "1 more") {
		t.Errorf("%d %s\n%s", code, stdout, stderr)
	}
}
