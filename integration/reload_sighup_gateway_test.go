//go:build unix

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// If there was no file, SIGHUP looks for one.
func TestSIGHUP_LoadsNewConfigFile(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil)
	if err := os.Remove(s.config); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gateway(t), "--state", "none", "--log-level", "debug")
	cmd.Env, cmd.Dir = s.env(), s.dir
	gw := startRaw(t, cmd)
	log := gw.logReader()
	gw.initialize("2025-11-25")
	if m := callTool(gw, "add", `{"a":1,"b":2}`); m.Result == nil {
		t.Fatalf("%s", m.Raw)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`level=INFO msg="configuration unchanged"`)
	b := weather("still", "1")
	b.Env[markerEnv] = string(s.marker)
	text, _ := yaml.Marshal(map[string]any{"backends": []backend{b}})
	s.replaceConfig(string(text))
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await("level=ERROR", "is not approved", "gateway trust ") // F-SEC-2
	trust := func() {
		t.Helper()
		cmd := exec.Command(gateway(t), "trust")
		cmd.Env, cmd.Dir = s.env(), s.dir
		if out, err := combinedOutput(t, cmd); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	trust()
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(logReloaded, "file=gateway.yaml", "added=still", "removed=demo")
	if m := callTool(gw, "still_who", `{}`); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	s.editConfig(
		func(doc map[string]any) {
			backendEntry(doc, "still")["env"].(map[string]any)["WEATHER_VERSION"] = "2"
		})
	log.await("level=ERROR", "is not approved") // now the file is watched
	trust()
	log.await(logReloaded, "changed=") // the approvals are also watched
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A new server that hangs is logged, and delays neither its correction nor a reload by SIGHUP;
// the reload then logs that the server is down.
func TestReload_HangingServerDoesNotBlock(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil, weather("still", "1"))
	gw := s.start()
	log := gw.logReader()
	gw.initialize("2025-11-25")
	poll(waitTimeout, func() bool { return len(listTools(t, gw)) == 2 })
	hang := func(doc map[string]any) {
		b := backendEntry(doc, "hang")
		b["command"], b["args"] = "sleep", []any{"600"}
	}
	began := time.Now()
	s.editConfig(func(doc map[string]any) {
		s.addBackend(doc, backend{Name: "hang", Command: "sleep", Args: []string{"600"},
			Env: map[string]string{}})
	})
	log.await("level=INFO", "reload waiting for backends", "backend=hang")
	fixed := weather("hang", "1")
	s.editConfig(func(doc map[string]any) {
		b := backendEntry(doc, "hang")
		b["command"], b["args"] = fixed.Command, fixed.Args
		for key, value := range fixed.Env {
			b["env"].(map[string]any)[key] = value
		}
	})
	log.await(logReloaded, `down="hang (starting)"`, "added=hang")
	if line := log.await(logReloaded, `changed="hang (`); strings.Contains(line, "down=") {
		t.Error(line)
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("it took %v", took)
	}
	if m := callTool(gw, "hang_who", `{}`); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	began = time.Now()
	s.editConfig(hang)
	log.await("level=INFO", "reload waiting for backends", "backend=hang")
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(logReloaded, `down="hang (starting)"`)
	log.await("level=INFO", "configuration unchanged")
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("after SIGHUP it took %v", took)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// SIGHUP retries failed backends at once, even if the file is unchanged.
func TestSIGHUP_RetriesFailedBackends(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil, weather("still", "1"))
	program := filepath.Join(s.dir, "server")
	s.editConfig(func(doc map[string]any) {
		b := weather("broken", "1")
		b.Command = program
		s.addBackend(doc, b)
	})
	gw := s.start()
	log := gw.logReader()
	gw.initialize("2025-11-25")
	// The next attempt is half a minute away.
	log.await("backend failed repeatedly", "backend=broken")
	if err := os.Symlink(weather("broken", "1").Command, program); err != nil {
		t.Fatal(err)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`level=INFO msg="configuration unchanged"`)
	log.await("level=INFO", "failed backends retried at once", "backend=broken")
	if !poll(waitTimeout, func() bool { return len(listTools(t, gw)) == 4 }) {
		t.Errorf("tools: %v", names(listTools(t, gw)))
	}
	if m := callTool(gw, "broken_who", `{}`); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
