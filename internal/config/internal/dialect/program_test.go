package dialect

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// A program is the gateway if it is the executable of this process under any name, or if it has the
// gateway's name and is built from the gateway's module. Any other program with this name is an
// ordinary server.
func TestIsGateway(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable() // of this module
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	exe := ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	at := func(folder string) string { return filepath.Join(dir, folder, "gateway"+exe) }
	for path, content := range map[string][]byte{
		at("ours"): content, at("other"): []byte("#!/bin/sh\n"),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "other", "mcp"+exe)
	if err := os.Link(self, link); err != nil {
		if err := os.Symlink(self, link); err != nil {
			t.Fatal(err)
		}
	}
	ours, other, missing := filepath.Join(dir, "ours"), filepath.Join(dir, "other"),
		filepath.Join(dir, "missing", "mcp-gateway")
	t.Setenv("PATH", other)
	t.Setenv("GATEWAY_TEST_DIR", dir)
	for _, c := range []struct {
		p    Program
		want bool
	}{
		{Program{Command: at("ours")}, true},
		{Program{Command: at("other")}, false},
		{Program{Command: at("other"), Args: []string{"serve"}}, false},
		{Program{Command: "${GATEWAY_TEST_DIR}/ours/gateway"}, true},
		{Program{Command: "${GATEWAY_TEST_DIR}/other/gateway"}, false},
		{Program{Command: self}, true},
		{Program{Command: link}, true},
		{Program{Command: "mcp"}, true},
		{Program{Command: "gateway"}, false},
		{Program{Command: "gateway", Path: ours + string(os.PathListSeparator) + other}, true},
		{Program{Command: "gateway",
			Path: "$${x}" + string(os.PathListSeparator) + "${GATEWAY_TEST_DIR}/other"}, false},
		{Program{Command: "./gateway", Cwd: ours}, true},
		{Program{Command: "./gateway", Cwd: other}, false},
		{Program{Command: missing}, true},
		{Program{Command: missing, Args: []string{"--config=x.yaml"}}, true},
		{Program{Command: missing, Args: []string{"run", "--profile", "x"}}, false},
		{Program{Command: `C:\none\Gateway.exe`}, true},
		{Program{Command: "sh"}, false},
		{Program{}, false},
	} {
		if got := c.p.IsGateway(); got != c.want {
			t.Errorf("%+v: %t", c.p, got)
		}
	}
}
