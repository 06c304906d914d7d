//go:build unix

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// doctor runs gateway doctor in a folder that is also the home directory.
func (s *setup) doctor(args ...string) commandResult {
	s.t.Helper()
	cmd := exec.Command(gateway(s.t), append([]string{"doctor"}, args...)...)
	cmd.Env = s.env()
	cmd.Dir = filepath.Join(s.dir, "home")
	return runCommand(s.t, cmd)
}

func TestDoctor_EmptyHome(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil)
	s.doctor().expect(t, 0, "no configuration", "gateway import -o gateway.yaml", "no client",
		"problems: 0")
	if entries, err := os.ReadDir(filepath.Join(s.dir, "home")); err != nil || len(entries) > 0 {
		t.Errorf("doctor has written %v", entries)
	}
}

func TestDoctor_ClientsAndServersTwice(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"},
		backend{Name: "files", Command: "sh", Args: []string{"-c", "exit 3"}})
	s.env()
	for name, text := range map[string]string{
		".claude.json": `{"mcpServers": {"gateway": {"command": "` + gateway(t) + `"},
			"fs": {"command": "sh", "args": ["-c", "exit 3"]}}}`,
		".cursor/mcp.json": `{"mcpServers": {"gateway": {"command": "/nowhere/gateway"}}}`,
	} {
		path := filepath.Join(s.dir, "home", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.doctor("-c", s.config, "-v").expect(t, 1, "Claude Code has the gateway", "has server fs twice",
		"/nowhere/gateway, which does not exist", "demo works", "files failed", "--log-level debug")
}

// A broken configuration does not stop the other checks.
func TestDoctor_BrokenConfiguration(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil)
	if err := os.WriteFile(s.config, []byte("lisen: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.doctor("-c", s.config).expect(t, 1, "gateway.yaml:1", "lisen", "state", "no client")
	r := s.doctor("-c", s.config, "--json")
	var all struct {
		Findings []struct{ Subject, Level, Text string }
		Problems int
	}
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || all.Problems != 1 ||
		len(all.Findings) < 4 {
		t.Errorf("%v in %s", err, r.out)
	}
}

func TestDoctor_MissingProgram(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "gone", Command: "no-such-program"})
	s.doctor("-c", s.config, "--offline").expect(t, 1, "no-such-program is not found", "gone")
	if r := s.doctor("-c", s.config, "--offline", "--report", "-"); !strings.Contains(r.out, "Findings") ||
		!strings.Contains(r.out, "backend gone starts: no-such-program") {
		t.Errorf("%s", r.out)
	}
}
