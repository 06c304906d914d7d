package backends

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// SEC-06: a child inherits only the variables that it needs to run, and the configured variables,
// from the gateway's environment.
func TestSEC06_ChildEnvironment(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the names are those of Unix")
	}
	for name, value := range map[string]string{
		"SECRET_X": "hunter2", "SECRET_Y": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter2",
		"ANTHROPIC_API_KEY": "hunter2", "GITHUB_TOKEN": "hunter2",
		"SSH_AUTH_SOCK": "/tmp/agent", "PATH": "/bin:/usr/bin", "HOME": "/home/u",
		"LANG": "C.UTF-8", "GATEWAY_CONFIG": "hunter2",
		"EMPTY": "", "NODE_OPTIONS": "--require=hunter2", "TZ": "Europe/Paris",
	} {
		t.Setenv(name, value)
	}
	got := childEnv([]string{"SSH_AUTH_SOCK", "EMPTY", "NOT_SET_ANYWHERE", "TZ", "SECRET_Y"},
		map[string]string{"SECRET_Y": "told", "DEBUG": "1"},
		map[string]string{"DEBUG": "0", "TZ": "UTC", "ODD": "a=b\nc"})
	for _, want := range []string{"SSH_AUTH_SOCK=/tmp/agent", "EMPTY=", "PATH=/bin:/usr/bin",
		"HOME=/home/u", "LANG=C.UTF-8", "SECRET_Y=told", "DEBUG=0", "TZ=UTC", "ODD=a=b\nc"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	names := make(map[string]bool)
	for _, entry := range got {
		name, _, _ := strings.Cut(entry, "=")
		if names[name] {
			t.Errorf("%s is in the environment twice", name)
		}
		names[name] = true
		if strings.Contains(entry, "hunter2") || name == "NOT_SET_ANYWHERE" ||
			name == "GATEWAY_CONFIG" {
			t.Errorf("the child gets %s", entry)
		}
	}
}
