//go:build unix

package integration

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// Two gateways write one chain to one file, SIGUSR1 makes them open the file again after logrotate
// has moved it, and a reload changes the keys of the audit file in place. verify finds a change.
func TestAuditFiles_ChainSIGUSR1AndReload(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, helperBackend("mirror", "mirror", ""))
	audit := map[string]any{"file": s.audit, "chain": true, "compress": "zstd", "max_age": "24h",
		"keep": map[string]any{"age": "720h"}}
	var doc map[string]any
	text, _ := os.ReadFile(s.config)
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	doc["audit"] = audit
	write := func() {
		text, _ := yaml.Marshal(doc)
		s.replaceConfig(string(text))
	}
	write()
	gws := []*rawClient{s.start(), s.start()}
	for _, gw := range gws {
		gw.initialize("2025-11-25")
		listTools(t, gw)
	}
	calls := func() {
		for range 5 {
			for _, gw := range gws {
				callTool(gw, "request", `{}`)
			}
		}
	}
	calls()
	log := gws[0].logReader()
	moved := s.audit + "-20261201"
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(waitTimeout); countLines(s.audit) < 10; <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%d records", countLines(s.audit))
		}
	}
	if err := os.Rename(s.audit, moved); err != nil {
		t.Fatal(err)
	}
	for _, gw := range gws {
		gw.cmd.Process.Signal(syscall.SIGUSR1)
	}
	log.await("level=INFO", "audit file reopened")
	if _, err := os.Stat(s.audit); err != nil {
		t.Error(err)
	}
	audit["keep"], audit["compress"] = 3, "none"
	write()
	log.await("configuration reloaded")
	calls()
	for _, gw := range gws {
		if code := gw.finish(waitTimeout); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	verify := func(want int) string {
		cmd := exec.Command(gateway(t), "audit", "verify", s.audit, moved)
		cmd.Env, cmd.Dir = s.env(), s.dir
		out, _ := combinedOutput(t, cmd)
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("exit code %d, want %d\n%s", code, want, out)
		}
		return string(out)
	}
	if out := verify(0); !strings.Contains(out, "20 linked records in 2 files, numbers 1 to 20") {
		t.Errorf("%s", out)
	}
	all, _ := os.ReadFile(s.audit)
	changed := strings.Replace(string(all), `"outcome":"ok"`, `"outcome":"timeout"`, 1)
	if err := os.WriteFile(s.audit, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := verify(1); !strings.Contains(out, "changed: record 11") {
		t.Errorf("%s", out)
	}
}

func countLines(file string) int {
	text, _ := os.ReadFile(file)
	return strings.Count(string(text), "\n")
}
