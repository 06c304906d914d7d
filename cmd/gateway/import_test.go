package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// runCommand executes a command line and returns its output.
func runCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
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

// import omits a running gateway at any port. It recognizes the gateway by /healthz, which needs no
// token, and sends no other request.
func TestImportOmitsRunningGateway(t *testing.T) {
	d := httpserver.New(httpserver.Options{
		ServeRequest: func(httpserver.SessionInfo, wire.Message, transport.Writer) func() {
			t.Error("a request was served")
			return nil
		},
		AccessRules: httpserver.AccessRules{Tokens: []httpserver.StaticToken{{Text: "secret"}}},
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
	code, stdout, stderr := runCommand(t, "import", file)
	if code != exitOK || strings.Contains(stdout, "name: hub") ||
		strings.Contains(stdout, "name: safe") ||
		!strings.Contains(stdout, "name: other") {
		t.Errorf("%d\n%s", code, stdout)
	}
	for _, name := range []string{"hub", "safe"} {
		if want := `server "` + name + `" is not imported: it is this gateway itself`; !strings.Contains(stderr, want) {
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
	code, stdout, stderr := runCommand(t, "import")
	want := "1 more server in project " + filepath.ToSlash(other) + ": run gateway import --project " + filepath.ToSlash(other)
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("%d %s\n%s", code, stdout, stderr)
	}
	code, stdout, stderr = runCommand(t, "import", "--project", other)
	if code != exitOK || !strings.Contains(stdout, "name: local") ||
		strings.Contains(stderr, "1 more") {
		t.Errorf("%d %s\n%s", code, stdout, stderr)
	}
}

// A missing folder is a usage error.
func TestImportOfMissingProject(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	aFile := file(t, "project", "")
	for _, dir := range []string{none, aFile, filepath.Join(aFile, "sub")} {
		code, stdout, stderr := runCommand(t, "import", "--project", dir)
		if code != exitUsage || stdout != "" ||
			!strings.Contains(stderr, "there is no folder "+dir) {
			t.Errorf("%s: exit code %d, %s\n%s", dir, code, stdout, stderr)
		}
	}
}

// If the file cannot be written, no notes about the import are printed.
func TestImportToUnwritableFile(t *testing.T) {
	servers := file(t, "mcp.json", `{ "mcpServers": { "a": { "command": "a" } } }`)
	nowhere := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(t.TempDir(), "none"), nowhere); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(nowhere, "gateway.yaml")
	code, _, stderr := runCommand(t, "import", "-o", out, servers)
	if code != exitFailed || !strings.HasPrefix(stderr, "gateway: cannot write "+out+": ") ||
		strings.Contains(stderr, "still configured in the clients") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	full, err := os.Open(servers) // not to be written to
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	errFile, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer errFile.Close()
	code = run(t.Context(), []string{"import", servers}, stdio{full, full, errFile})
	if text, err := os.ReadFile(errFile.Name()); err != nil || code != exitFailed ||
		strings.Contains(string(text), "still configured in the clients") {
		t.Errorf("exit code %d, %v\n%s", code, err, text)
	}
	code, _, stderr = runCommand(
		t, "import", "-o", filepath.Join(t.TempDir(), "gateway.yaml"), servers,
	)
	if code != exitOK || !strings.Contains(stderr, "still configured in the clients") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

// The command version and the flag print the same text.
func TestVersion(t *testing.T) {
	code, verb, _ := runCommand(t, "version")
	flagged, flag, _ := runCommand(t, "--version")
	if code != exitOK || flagged != exitOK || verb != flag ||
		!strings.HasPrefix(verb, "gateway "+version) ||
		!strings.Contains(verb, "MCP 20") {
		t.Errorf("version: %d %q, --version: %d %q", code, verb, flagged, flag)
	}
}

// import expands ~, because neither a shell (in quotes) nor a client that starts programs without a
// shell does so.
func TestImportExpandsHomeDirectory(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	if err := os.WriteFile(filepath.Join(home, "mcp.json"), []byte(`{"mcpServers":{"a":{"command":"a"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runCommand(t, "import", "~/mcp.json", "-o", "~/conf/gateway.yaml"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(home, "conf", "gateway.yaml")); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("in the working directory: %v %v", entries, err)
	}
}

// An unknown home directory is an error: no folder named ~ or ~USER is created.
func TestImportWithoutHomeDirectory(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	servers := file(t, "mcp.json", `{"mcpServers":{"a":{"command":"a"}}}`)
	for output, home := range map[string]string{"~nobody/x.yaml": t.TempDir(), "~/x.yaml": "", "~": ""} {
		t.Setenv("HOME", home)
		t.Setenv("USERPROFILE", home)
		code, _, stderr := runCommand(t, "import", servers, "-o", output)
		if code != exitUsage ||
			!strings.Contains(stderr, "the home directory in "+output+" is not known") {
			t.Errorf("%s: exit code %d, %s", output, code, stderr)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("in the working directory: %v %v", entries, err)
	}
	for _, output := range []string{"./~nobody/x.yaml", "~x.yaml"} {
		if code, _, stderr := runCommand(t, "import", servers, "-o", output); code != exitOK {
			t.Errorf("%s: exit code %d, %s", output, code, stderr)
		}
	}
}
