package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file of --env-file that cannot be extended is an error, and nothing is written.
func TestImportEnvFileErrors(t *testing.T) {
	servers := file(t, "mcp.json", `{"mcpServers": {"a": {"command": "a", "env": {"API_KEY": "k1"}}}}`)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	out := filepath.Join(dir, "gateway.yaml")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--env-file", write("large.env", strings.Repeat("#", maxEnvFileText+1))}, exitFailed,
			"large.env: it is too large"},
		{[]string{"--env-file", write("bad.env", "A=1\nsecret-text\n")}, exitFailed,
			"bad.env:2: is not a line of the form NAME=value"},
		{[]string{"--env-file", dir}, exitFailed, "it is not a regular file"},
		{[]string{"--env-file", out}, exitUsage, "--env-file and --output name the same file"},
		{[]string{"--env-file", filepath.Join(write("x", ""), "y.env")}, exitFailed, "not a directory"},
		{[]string{"--env-file", "a.env", "--keyring"}, exitUsage, "cannot be combined"},
	} {
		args := append([]string{"import", "-o", out, servers}, c.args...)
		code, stdout, stderr := runCommand(t, args...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) ||
			strings.Contains(stderr, "secret-text") {
			t.Errorf("%q: %d %s\n%s", c.args, code, stdout, stderr)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%q: the configuration was written", c.args)
		}
	}
}

// The path of env_file is relative if the file is in the folder of the configuration.
func TestImportEnvFileReference(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ output, envFile, want string }{
		{dir + "/gateway.yaml", dir + "/secrets.env", "secrets.env"},
		{dir + "/gateway.yaml", dir + "/sub/x.env", "sub/x.env"},
		{dir + "/conf/gateway.yaml", dir + "/x.env", dir + "/x.env"},
		{"", dir + "/x.env", dir + "/x.env"},
	} {
		d := envFileDestination{path: filepath.FromSlash(c.envFile), outputPath: c.output}
		if got := d.reference(); got != filepath.FromSlash(c.want) && got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
