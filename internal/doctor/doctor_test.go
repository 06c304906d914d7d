//go:build unix

package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/clientimport"
)

// want fails unless there is a finding of this level whose text and advice contain the words.
func want(t *testing.T, all []DoctorFinding, l Level, words ...string) {
	t.Helper()
	for _, f := range all {
		found := f.Level == l
		for _, w := range words {
			found = found && strings.Contains(f.Text+" → "+f.Next, w)
		}
		if found {
			return
		}
	}
	t.Errorf("no %s with %q in %q", l, words, all)
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPlacesOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	first := write(t, filepath.Join(dir, "gateway.yaml"), "", 0o600)
	second := write(t, filepath.Join(dir, "config.yaml"), "", 0o600)
	places := []string{first, second}
	all := Places("", "", places, first)
	want(t, all, OK, first, "first that exists")
	want(t, all, Note, second, "not used", "-c "+second)
	want(t, Places("x.yaml", "--config", nil, "x.yaml"), OK, "--config names it")
	want(t, Places("", "", []string{"nowhere.yaml"}, ""), Note, "nowhere.yaml", "gateway import")
}

func TestReferencesAreChecked(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "present"), "x", 0o600)
	all := CheckReferences([]config.UsedReference{
		{Variable: "SET", Shown: "${SET}", Required: true, Backend: "a"},
		{Variable: "UNSET", Shown: "${UNSET}", Required: true, Backend: "a"},
		{Variable: "OPTIONAL", Shown: "${OPTIONAL}"},
		{Shown: "${file:present}", File: file},
		{Shown: "${file:absent}", File: file + "x"},
		{Shown: "${keyring:good}"}, {Shown: "${keyring:bad}"}, {Shown: "${command:op …}"},
	}, func(name, backend string) bool { return name == "SET" && backend == "a" },
		func(written string) string { return written },
		func(shown string) (failed, known bool) {
			return strings.Contains(shown, "bad"), strings.Contains(shown, "keyring")
		})
	want(t, all, OK, "${SET} of backend a is set")
	want(t, all, Problem, "${UNSET} of backend a is not set", "set UNSET")
	want(t, all, OK, "${OPTIONAL} of the gateway", "default")
	want(t, all, OK, "${file:present}", "can be read")
	want(t, all, Problem, "${file:absent}", "no such file")
	want(t, all, OK, "${keyring:good}")
	want(t, all, Problem, "${keyring:bad}", "gateway secret set bad")
	want(t, all, Note, "${command:op …}", "not read")
}

// Only programs that a backend needs are checked; those that are too old are named.
func TestProgramsOfBackends(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "node"), "#!/bin/sh\necho v16.3.0\n", 0o700)
	write(t, filepath.Join(dir, "npx"), "#!/bin/sh\necho 8.1.0\n", 0o700)
	write(t, filepath.Join(dir, "uvx"), "#!/bin/sh\nexit 3\n", 0o700)
	write(t, filepath.Join(dir, "python3"),
		"#!/bin/sh\necho Python 3.12.1\nhead -c 100000 /dev/zero\n", 0o700)
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	all := CheckPrograms(t.Context(), []config.Backend{
		{Name: "one", Command: "npx", Enabled: true}, {Name: "two", Command: "npx", Enabled: true},
		{Name: "py", Command: filepath.Join(dir, "python3"), Enabled: true},
		{Name: "uv", Command: "uvx", Enabled: true},
		{Name: "elsewhere", Command: "node", Env: map[string]string{"PATH": "/nowhere"}, Enabled: true},
		{Name: "rel", Command: "./node", Cwd: dir, Enabled: true},
		{Name: "gone", Command: "no-such-program", Enabled: true},
		{Name: "off", Command: "docker"},
	})
	want(t, all, OK, "npx 8.1.0 for backend one, two")
	want(t, all, Warning, "node 16.3.0 is older than 18", "one, two", "nodejs.org")
	want(t, all, OK, "python3 3.12.1")
	want(t, all, Warning, "uvx does not print its version")
	want(t, all, Problem, "node is not found", "elsewhere", "nodejs.org")
	want(t, all, Warning, filepath.Join(dir, "node")+" 16.3.0", "backend rel")
	want(t, all, Problem, "no-such-program is not found", "gone")
	for _, f := range all {
		if strings.Contains(f.Text, "docker") {
			t.Errorf("a program that no backend needs: %v", f)
		}
	}
}

func TestStateDirectoryAndAuditFile(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"), "", 0o600)
	want(t, StateDirectory(""), Note, "no state directory")
	want(t, StateDirectory(dir), OK, "is writable")
	want(t, StateDirectory(filepath.Join(dir, "a", "b")), OK, "does not exist yet")
	want(t, StateDirectory(file), Problem, "not a directory", "--state")
	want(t, AuditFile(""), OK, "no audit file")
	want(t, AuditFile(file), OK, "is writable")
	want(t, AuditFile(dir), Problem, "is a directory")
	want(t, AuditFile(filepath.Join(dir, "new.jsonl")), OK, "does not exist yet")
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	want(t, StateDirectory(open), Warning, "chmod go-w")
	if entries, err := os.ReadDir(filepath.Join(dir, "open")); err != nil || len(entries) > 0 {
		t.Errorf("the check has left %v", entries)
	}
	if os.Geteuid() == 0 {
		return // root may write everywhere
	}
	if err := os.Chmod(open, 0o500); err != nil {
		t.Fatal(err)
	}
	want(t, StateDirectory(open), Problem, "not writable", "chmod")
	want(t, StateDirectory(filepath.Join(open, "x")), Problem, "cannot be created")
	want(t, AuditFile(filepath.Join(open, "x")), Problem, "cannot be created")
}

func TestClientsWithServersTwiceAndOtherGateways(t *testing.T) {
	servers := []clientimport.SurveyedServer{
		{Client: "Cursor", File: "c.json", Name: "gateway", IsGateway: true, Command: "gateway", Program: "/other"},
		{Client: "Cursor", File: "c.json", Name: "fs", Command: "/usr/bin/npx", Args: []string{"-y", "fs"}},
		{Client: "Zed", File: "z.json", Name: "docs", URL: "https://docs.example/mcp/"},
		{Client: "Codex", File: "x.toml", Name: "gw", IsGateway: true, Command: "/gone/gateway"},
		{Client: "Gemini", File: "g.json", Name: "gw", IsGateway: true, Command: "gateway", Program: "/same"},
		{Client: "VS Code", File: "p.json", Name: "gw", IsGateway: true, Command: "gateway",
			Program: "/project", FromProject: true},
	}
	backends := []config.Backend{
		{Name: "files", Command: "npx", Args: []string{"fs"}, Enabled: true},
		{Name: "docs", URL: "https://docs.example/mcp", Enabled: true},
	}
	versionOf := func(_ context.Context, program string) string {
		if program == "/project" {
			t.Error("a program of a project was started")
		}
		return map[string]string{"/other": "0.9", "/same": "1.0"}[program]
	}
	all := CheckClients(t.Context(), servers, config.Errors{{File: "bad.json", Problem: "broken"}},
		backends, "1.0", versionOf)
	want(t, all, Warning, "Cursor has server fs twice", "remove fs from c.json")
	want(t, all, Warning, "/other", "0.9 instead of 1.0")
	want(t, all, Note, "Zed has server docs of its own", "backend docs")
	want(t, all, Note, "not in z.json")
	want(t, all, Problem, "/gone/gateway, which does not exist", "x.toml")
	want(t, all, OK, "Gemini has the gateway")
	want(t, all, Warning, "bad.json: broken")
	want(t, CheckClients(t.Context(), nil, nil, nil, "1.0", versionOf), Note, "no client")
}

func TestScrub(t *testing.T) {
	got := Scrub("https://alice:pw@h.example/x /home/me/f ghp_0123456789abcdefghijABCDEFGHIJ012345",
		"/home/me")
	if got != "https://***@h.example/x ~/f ***" {
		t.Errorf("got %q", got)
	}
}
