//go:build unix

package integration

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A statusReport is one gateway in the output of gateway status --json.
type statusReport struct {
	ID, Error string
	Gateway   struct {
		PID   int
		Stdio bool
		URL   string
		Admin string `json:"admin_url"`
	}
	Configuration struct {
		File, Problem string
		Differs       bool
	}
	Backends []struct {
		Name, State, Reason string
		Healthy             bool
		Restarts            int
		Lists               struct{ Tools int }
		Calls               struct {
			Calls, Errors uint64
			InFlight      int      `json:"in_flight"`
			P50           *float64 `json:"p50_ms"`
		}
	}
	Sessions []struct {
		ID, Client, Principal string
		InFlight              int `json:"in_flight"`
	}
}

// status returns the gateways that gateway status --json prints.
func (s *setup) status() []statusReport {
	s.t.Helper()
	r := s.run("status", "--json")
	var all struct{ Gateways []statusReport }
	if err := json.Unmarshal([]byte(r.out), &all); err != nil {
		s.t.Fatalf("%v in %q (%s)", err, r.out, r.err)
	}
	return all.Gateways
}

// awaitStatus waits until gateway status --json shows gateways that match.
func (s *setup) awaitStatus(what string, match func([]statusReport) bool) []statusReport {
	s.t.Helper()
	var all []statusReport
	if !poll(waitTimeout, func() bool {
		all = s.status()
		return match(all)
	}) {
		s.t.Fatalf("%s: %+v", what, all)
	}
	return all
}

// One command shows the gateway that a client has started and the one that serves HTTP: their
// backends, calls and problems. Its exit code says whether all is well.
func TestStatus_ShowsAllGateways(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"},
		backend{Name: "broken", Command: "/nowhere/at/all"})
	s.run("status").expect(t, 1, "no gateway is running", "an MCP client starts it")

	stdio := s.start()
	stdio.initialize("2025-11-25")
	callTool(stdio, "echo", `{"text":"hello"}`)
	callTool(stdio, "unknown", `{}`)
	url := s.serveURL()
	all := s.awaitStatus("two gateways with settled backends", func(all []statusReport) bool {
		return len(all) == 2 && len(all[0].Backends) == 2 && len(all[1].Backends) == 2 &&
			all[0].Backends[1].Reason != "" && all[1].Backends[1].Reason != "" &&
			all[1].Backends[0].State == "ready"
	})
	first, second := all[0], all[1]
	if first.Gateway.PID != stdio.cmd.Process.Pid || !first.Gateway.Stdio ||
		first.Gateway.URL != "" || second.Gateway.URL != url || second.Gateway.Stdio ||
		first.Configuration.File != s.config || first.ID == second.ID {
		t.Errorf("%+v\n%+v", first, second)
	}
	demo, broken := first.Backends[0], first.Backends[1]
	if demo.State != "ready" || !demo.Healthy || demo.Lists.Tools != 3 || demo.Calls.Calls != 1 ||
		demo.Calls.Errors != 0 || demo.Calls.P50 == nil {
		t.Errorf("%+v", demo)
	}
	if broken.Healthy || !strings.Contains(broken.Reason, "/nowhere/at/all") {
		t.Errorf("%+v", broken)
	}
	s.run("status").expect(t, 1, "stdin and stdout", url, s.config, "demo", "ready", "broken",
		"/nowhere/at/all")
	// The same gateways are found without the configuration, by their state directory.
	cmd := s.command("status", "--state", filepath.Join(s.dir, "state"))
	if r := runCommand(t, cmd); strings.Count(r.out, "gateway ") < 2 {
		t.Errorf("%s%s", r.out, r.err)
	}
	if code := stdio.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if all := s.status(); len(all) != 1 || all[0].ID != second.ID {
		t.Errorf("%+v", all)
	}
}

// The file, when it differs from what is in force, and why it is not in force.
func TestStatus_ComparesTheFile(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	s.serveURL()
	s.awaitStatus("ready", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Backends[0].State == "ready"
	})
	s.run("status").expect(t, 0, s.config)
	s.replaceConfig("lisen: 1\n")
	if !poll(waitTimeout, func() bool {
		r := s.run("status", "--state", filepath.Join(s.dir, "state"))
		return strings.Contains(r.out, "not in force") && strings.Contains(r.out, "gateway.yaml:1")
	}) {
		t.Error("the status does not show that the file was refused")
	}
	// the state directory in an invalid file is not known
	s.run("status").expect(t, 1, "no gateway is running", "unknown key", "--state")
}

// A gateway that was killed leaves a socket, which nobody sees: the next command removes it.
func TestStatus_KilledGateway(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}},
		backend{Name: "demo", Embedded: "demo"})
	gw := s.start()
	gw.initialize("2025-11-25")
	s.awaitStatus("one gateway", func(all []statusReport) bool { return len(all) == 1 })
	gw.cmd.Process.Signal(syscall.SIGKILL)
	gw.exitCode(waitTimeout)
	registry := filepath.Join(s.dir, "state", "gateways")
	if left, err := os.ReadDir(registry); err != nil || len(left) != 1 {
		t.Fatalf("%v %v", left, err)
	}
	s.run("status").expect(t, 1, "no gateway is running")
	if left, err := os.ReadDir(registry); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}

// A gateway that hangs delays the command by a short time only, and the others are shown.
func TestStatus_HangingGateway(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	s.serveURL()
	s.awaitStatus("ready", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Backends[0].State == "ready"
	})
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	record, _ := json.Marshal(map[string]any{"version": 1, "network": "unix",
		"address": ln.Addr().String()})
	if err := os.WriteFile(filepath.Join(s.dir, "state", "gateways", "hangs.json"), record,
		0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.run("status").expect(t, 1, "gateway hangs: does not answer", "demo", "ready")
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
}

// Other users can open neither the folder nor the socket. Without a state directory there is none.
func TestStatus_SocketIsPrivate(t *testing.T) {
	t.Parallel()
	short, err := os.MkdirTemp("", "gw") // so that the socket is in the folder itself
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	s := newSetup(t, map[string]any{"state": short}, backend{Name: "demo", Embedded: "demo"})
	gw := s.start()
	gw.initialize("2025-11-25")
	s.awaitStatus("one gateway", func(all []statusReport) bool { return len(all) == 1 })
	registry := filepath.Join(short, "gateways")
	sockets, err := os.ReadDir(registry)
	if err != nil || len(sockets) != 1 {
		t.Fatalf("%v %v", sockets, err)
	}
	for path, want := range map[string]os.FileMode{
		registry: 0o700, filepath.Join(registry, sockets[0].Name()): 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	gw.finish(waitTimeout)
	if left, _ := os.ReadDir(registry); len(left) != 0 {
		t.Errorf("left after the end: %v", left)
	}
	s.run("status", "--state", "none").expect(t, 2, "a gateway without a state directory")
}
