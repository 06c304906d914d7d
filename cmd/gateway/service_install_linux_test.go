package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeServiceConfig writes a configuration for a service, and returns its path.
func writeServiceConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// The unit has the flags of the command with absolute paths, and no secret; variables of the shell
// do not count.
func TestServiceInstallPrintsTheUnit(t *testing.T) {
	t.Setenv("DOCS_TOKEN", "a-secret-of-the-shell")
	t.Setenv("OTHER_TOKEN", "another-secret")
	file := writeServiceConfig(t, "backends:\n"+
		"  - { name: docs, url: 'https://x.invalid', headers: { A: 'Bearer ${DOCS_TOKEN}' } }\n"+
		"  - { name: other, url: 'https://x.invalid', headers: { A: 'Bearer ${OTHER_TOKEN}' } }\n")
	env := filepath.Join(filepath.Dir(file), "env")
	if err := os.WriteFile(env, []byte("OTHER_TOKEN=from-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(file))
	code, unit, stderr := runCommand(t, "service", "install", "--dry-run", "--user", "-c",
		"config.yaml", "--listen", "127.0.0.1:7420", "--state", "state", "--log-level", "warn")
	want := " serve --config " + file + " --listen 127.0.0.1:7420 --state " +
		filepath.Join(filepath.Dir(file), "state") + " --log-level warn\n"
	if code != 0 || !strings.Contains(unit, want) ||
		!strings.Contains(unit, "EnvironmentFile=-"+env) {
		t.Errorf("exit code %d\n%s%s", code, unit, stderr)
	}
	if !strings.Contains(stderr, "backend docs will not start: variable DOCS_TOKEN is not set") ||
		!strings.Contains(stderr, env) || strings.Contains(stderr, "backend other") {
		t.Errorf("stderr: %s", stderr)
	}
	for _, secret := range []string{"a-secret-of-the-shell", "another-secret", "from-the-file"} {
		if strings.Contains(unit+stderr, secret) {
			t.Errorf("the output contains %s", secret)
		}
	}
}

func TestServiceInstallRefusesWhatCannotStart(t *testing.T) {
	demo := "backends: [{ name: demo, embedded: demo }]\n"
	plain := writeServiceConfig(t, demo)
	invalid := writeServiceConfig(t, "nonsense: true\n")
	token := writeServiceConfig(t, "listen: ':7420'\nauth: { tokens: ['${SHELL_TOKEN}'] }\n"+demo)
	t.Setenv("SHELL_TOKEN", "0123456789abcdef")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-c", plain}, "the configuration has no listen"},
		{[]string{"-c", invalid}, "nonsense"},
		{[]string{"-c", plain + ".none"}, "no such file"},
		{[]string{"-c", token}, "the service gets no variables of this shell"},
		{[]string{"-c", plain, "--listen", "127.0.0.1:1", "--name", "a/b"}, "cannot be the name"},
		{[]string{"-c", plain, "--listen", "127.0.0.1:1", "--run-as", "x"}, "--run-as is for"},
		{[]string{"-c", plain, "--listen", "7420"}, "listen"},
	} {
		args := append([]string{"service", "install", "--dry-run", "--user"}, test.args...)
		code, stdout, stderr := runCommand(t, args...)
		if code == 0 || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: exit code %d\n%s%s", test.args, code, stdout, stderr)
		}
	}
}

// A service of the system runs as a user without rights: it cannot read a private configuration.
func TestServiceOfTheSystemNeedsPublicFiles(t *testing.T) {
	file := writeServiceConfig(t, "backends: [{ name: demo, embedded: demo }]\n")
	args := []string{"service", "install", "--dry-run", "--system", "-c", file, "--listen",
		"127.0.0.1:7420"}
	code, _, stderr := runCommand(t, args...) // the test binary is in a temporary folder
	if code == 0 || !strings.Contains(stderr, "cannot start it") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	code, unit, stderr := runCommand(t, append(args, "--run-as", "alice")...)
	if code != 0 || !strings.Contains(unit, "User=alice\n") {
		t.Errorf("exit code %d\n%s%s", code, unit, stderr)
	}
}
