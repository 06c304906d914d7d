//go:build unix

package integration

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// gateway restart waits for the call in flight, which ends at the old process; the next call goes
// to the new one. The command shows what it waits for.
func TestControl_RestartDrainsCalls(t *testing.T) {
	t.Parallel()
	b, respond := slowBackend(t, "slow")
	s := newSetup(t, nil, b)
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	gw.sendRequest("7", "tools/call", `{"name":"slow"}`)
	b.awaitCall(t)
	s.awaitStatus("a call in flight", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Backends[0].Calls.InFlight == 1 &&
			len(all[0].Sessions) == 1 && all[0].Sessions[0].InFlight == 1
	})
	restart := s.command("restart", "slow")
	out := stderrFile(t)
	restart.Stdout, restart.Stderr = out, out
	if err := restart.Start(); err != nil {
		t.Fatal(err)
	}
	shown := poll(waitTimeout, func() bool {
		text, _ := os.ReadFile(out.Name())
		return strings.Contains(string(text), "waiting for 1 calls of slow")
	})
	respond()
	err := restart.Wait()
	text, _ := os.ReadFile(out.Name())
	if !shown || err != nil ||
		!strings.Contains(string(text), "backend slow of gateway") ||
		!strings.Contains(string(text), "was restarted and is ready, with 1 tools") {
		t.Errorf("%v %s", err, text)
	}
	if m := gw.awaitResponse("7", waitTimeout); !strings.Contains(string(m.Result), "it ran") {
		t.Errorf("%s", m.Raw)
	}
	if m := callTool(gw, "slow", `{}`); !strings.Contains(string(m.Result), "it ran") {
		t.Errorf("%s", m.Raw)
	}
}

func TestControl_StopAndStart(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"},
		backend{Name: "broken", Command: "/nowhere/at/all"})
	gw := s.start()
	gw.initialize("2025-11-25")
	s.awaitStatus("ready", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Backends[0].State == "ready"
	})
	listTools(t, gw)
	s.run("stop", "demo").expect(t, 0, "backend demo of gateway", "was stopped")
	if m := callTool(gw, "echo", `{"text":"x"}`); !strings.Contains(string(m.Error),
		"gateway start demo") {
		t.Errorf("%s", m.Raw)
	}
	all := s.status()
	if b := all[0].Backends[0]; b.State != "stopped by user" || !b.Healthy {
		t.Errorf("%+v", b)
	}
	s.run("start", "demo").expect(t, 0, "was started and is ready, with 3 tools")
	if m := callTool(gw, "echo", `{"text":"x"}`); m.Error != nil {
		t.Errorf("%s", m.Raw)
	}
	s.run("start", "broken").expect(t, 1, "backend broken", "/nowhere/at/all")
	s.run("restart", "unknown").expect(t, 2, "no running gateway has a backend named unknown",
		"the backends are: broken, demo")
	s.run("restart").expect(t, 2, "name the backend")
	gw.finish(waitTimeout)
	s.run("restart", "demo").expect(t, 1, "no gateway is running")
}

// With several gateways the user chooses.
func TestControl_SeveralGateways(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	gw := s.start()
	gw.initialize("2025-11-25")
	s.serveURL()
	all := s.awaitStatus("two gateways", func(all []statusReport) bool {
		return len(all) == 2 && all[0].Backends[0].State == "ready" &&
			all[1].Backends[0].State == "ready"
	})
	s.run("restart", "demo").expect(t, 2, "several gateways match", all[0].ID, all[1].ID,
		"--gateway ID", "--all")
	s.run("restart", "demo", "--gateway", strconv.Itoa(all[0].Gateway.PID)).expect(t, 0,
		"of gateway "+all[0].ID)
	s.run("restart", "demo", "--gateway", all[1].ID).expect(t, 0, "of gateway "+all[1].ID)
	s.run("restart", "demo", "--gateway", s.config, "--all").expect(t, 0, all[0].ID, all[1].ID)
	s.run("restart", "demo", "--gateway", "nonsense").expect(t, 2,
		"no running gateway matches --gateway nonsense")
	s.run("reload", "--all").expect(t, 0, "nothing has changed", all[0].ID, all[1].ID)
}

// gateway reload prints what has changed, or the errors with file and line.
func TestControl_Reload(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	s.serveURL()
	s.awaitStatus("ready", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Backends[0].State == "ready"
	})
	s.run("reload").expect(t, 0, "nothing has changed")
	// The file watcher may apply the change before the command does.
	s.editConfig(func(doc map[string]any) {
		s.addBackend(doc, backend{Name: "broken", Command: "/nowhere/at/all",
			Env: map[string]string{"X": "1"}})
	})
	if r := s.run("reload"); r.code == 1 {
		r.expect(t, 1, "backend broken", "added", "not ready: broken")
	} else {
		r.expect(t, 0, "nothing has changed")
	}
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.replaceConfig(string(text) + "lisen: 1\n")
	s.run("reload", "--state", filepath.Join(s.dir, "state")).expect(t, 2, "gateway.yaml:",
		"lisen", "the file was refused")
}

// gateway status --watch shows each change when it happens, and ends with SIGINT.
func TestStatus_Watch(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	s.serveURL()
	s.awaitStatus("ready", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Backends[0].State == "ready"
	})
	watch := s.command("status", "--watch", "--json")
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	awaitLine := func(text string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Errorf("no line with %q", text)
	}
	awaitLine(`"state":"ready"`)
	s.run("stop", "demo").expect(t, 0)
	awaitLine(`"state":"stopped by user"`)
	s.run("start", "demo").expect(t, 0)
	awaitLine(`"state":"ready"`)
	watch.Process.Signal(syscall.SIGINT)
	for lines.Scan() {
	}
	if err := watch.Wait(); err != nil && watch.ProcessState.ExitCode() > 1 {
		t.Error(err)
	}
}
