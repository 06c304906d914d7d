//go:build unix

package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// gateway check --diff prints the effect of a reload of the running gateway, and starts nothing.
func TestCheckDiff(t *testing.T) {
	t.Parallel()
	notes := notesFile(t)
	quiet := weather("quiet", "1")
	quiet.Env[notesEnv] = notes
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}}, weather("still", "1"),
		weather("wind", "1"), quiet)
	diff := func(want int, parts ...string) {
		t.Helper()
		cmd := exec.Command(gateway(t), "check", "--diff", "-c", s.config)
		cmd.Env, cmd.Dir = s.env(), s.dir
		out, _ := combinedOutput(t, cmd)
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("exit code %d, want %d", code, want)
		}
		fields := strings.Join(strings.Fields(string(out)), " ")
		for _, p := range parts {
			if !strings.Contains(fields, p) {
				t.Errorf("no %q in\n%s", p, out)
			}
		}
	}
	diff(0, "the file is valid; no gateway has recorded")
	if readNotes(notes)[0] != "" {
		t.Error("a backend was started")
	}
	gw, _ := s.serveHTTP()
	log := gw.logReader()
	if !poll(waitTimeout, func() bool {
		all, _ := filepath.Glob(filepath.Join(s.dir, "state", "applied", "*.json"))
		return len(all) == 1
	}) {
		t.Fatal("the running configuration is not recorded")
	}
	// --listen comes from a flag, so that it is not a change.
	diff(0, fmt.Sprintf("the gateway (process %d)", gw.cmd.Process.Pid), "nothing would change")
	// Stop the gateway, so that it does not load the changed file.
	gw.cmd.Process.Signal(syscall.SIGSTOP)
	s.editConfig(func(doc map[string]any) {
		backendEntry(doc, "wind")["env"].(map[string]any)["TOKEN"] = secret(t, "env.TOKEN")
		backendEntry(doc, "still")["enabled"] = false
		s.addBackend(doc, weather("new", "1"))
		s.addBackend(doc, weather("later", "1"))
		backends := doc["backends"].([]any)
		backends[len(backends)-1] = map[string]any{"name": "later", "command": "x",
			"enabled": false}
		doc["backends"] = slices.DeleteFunc(doc["backends"].([]any),
			func(b any) bool { m, ok := b.(map[string]any); return ok && m["name"] == "quiet" })
		doc["catalog"] = map[string]any{"prefix": "always"}
		doc["limits"] = map[string]any{"sessions": 3}
	})
	diff(0, "backend new added backend later added not enabled", "backend quiet removed",
		"backend still disabled", "backend wind changed env.TOKEN; restarts it",
		"catalog.prefix changed limits.sessions changed needs a restart")
	gw.cmd.Process.Signal(syscall.SIGCONT)
	log.await(logReloaded, `added="new, later (disabled)"`, `removed="quiet, still"`,
		`changed="wind (env.TOKEN; restarted), catalog.prefix"`)
	if !poll(waitTimeout, func() bool {
		cmd := exec.Command(gateway(t), "check", "--diff", "-c", s.config)
		cmd.Env, cmd.Dir = s.env(), s.dir
		out, _ := combinedOutput(t, cmd)
		return !strings.Contains(string(out), "backend ")
	}) {
		t.Error("the loaded configuration is not recorded")
	}
	diff(0, "limits.sessions changed needs a restart")
	s.replaceConfig("backends: [{name: a, command: b, env: {TOKEN: [" +
		secret(t, "wrong env.TOKEN") + "]}}]")
	diff(2, "gateway.yaml:1: ")
	s.replaceConfig("")
	diff(2, "gateway.yaml: is empty")
}
