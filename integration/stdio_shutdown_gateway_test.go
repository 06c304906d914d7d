//go:build unix

package integration

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Not parallel: it measures time.
func TestSTART_08_ProbeStartsNoBackend(t *testing.T) {
	const copies = 3 // as many as Claude Desktop starts
	notes := notesFile(t)
	s := newSetup(t, nil, helperBackend("mirror", "mirror", notes))
	gateway(t) // build before the measurement
	began := time.Now()
	var clients [copies]*rawClient
	for i := range clients {
		clients[i] = s.start()
		clients[i].sendRequest(`"server-discover-probe-1"`, "server/discover",
			`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
				`"io.modelcontextprotocol/clientInfo":{"name":"claude-code","version":"2.1.332"},"io.modelcontextprotocol/clientCapabilities":{}}}`)
	}
	for _, c := range clients {
		if m := c.awaitResponse(`"server-discover-probe-1"`, waitTimeout); m.Result == nil &&
			m.code() != -32601 {
			t.Errorf("server/discover: %s", m.Raw)
		}
		if code := c.finish(waitTimeout); code != 0 {
			t.Errorf("exit code %d", code)
		}
		c.checkPure()
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("%d copies took %v, want less than 1 s", copies, took)
	}
	if text, err := os.ReadFile(notes); err == nil {
		t.Errorf("a backend was started:\n%s", text)
	}
}

func TestProbe_ThenInitialize(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, helperBackend("mirror", "mirror", ""))
	gw := s.start()
	gw.sendRequest(`"server-discover-probe-1"`, "server/discover",
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
			`"io.modelcontextprotocol/clientInfo":{"name":"claude-code","version":"2.1.332"},"io.modelcontextprotocol/clientCapabilities":{}}}`)
	if m := gw.awaitResponse(`"server-discover-probe-1"`, time.Second); m.Result == nil &&
		m.code() != -32601 {
		t.Errorf("server/discover: %s", m.Raw)
	}
	gw.initialize("2025-11-25")
	if tools := names(listTools(t, gw)); len(tools) != 3 {
		t.Errorf("tools: %q", tools)
	}
}

func TestPROC_05_EndOfInputStopsBackendsAndExits0(t *testing.T) {
	t.Parallel()
	notes := notesFile(t)
	s := newSetup(t, nil, helperBackend("mirror", "mirror", notes),
		helperBackend("stubborn", "stubborn", ""), stdioBackend(t, "everything", "everything", nil))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	gw.sendRequest("1", "tools/call", `{"name":"hold"}`)
	lastCallID(t, notes, "hold") // the call is in flight
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// Backends end before the gateway exits.
	if left := s.marker.processes(); len(left) > 0 {
		t.Errorf("left when the gateway exited: %v", left)
	}
	gw.checkPure()
}

func TestSignals_StopBackendsAndExit0(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, nil, helperBackend("mirror", "mirror", ""),
				stdioBackend(t, "everything", "everything", nil))
			gw := s.start()
			gw.initialize("2025-11-25")
			listTools(t, gw)
			gw.cmd.Process.Signal(sig)
			if code := gw.exitCode(20 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if left := s.marker.processes(); len(left) > 0 {
				t.Errorf("left when the gateway exited: %v", left)
			}
			gw.checkPure()
		})
	}
}

// A second SIGINT ends the gateway at once, whatever its backends do; the watchdogs of their
// groups kill them.
func TestSignals_SecondSIGINTExitsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, helperBackend("stubborn", "stubborn", ""))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	gw.cmd.Process.Signal(syscall.SIGINT)
	go func() { // two signals at the same moment are one
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if gw.cmd.Process.Signal(syscall.SIGINT) != nil {
				return
			}
		}
	}()
	if code := gw.exitCode(20 * time.Second); code == 0 {
		// An orderly shutdown would have taken 1.5 s, because of the backend stubborn.
		t.Error("the shutdown was orderly")
	}
	s.marker.requireNoProcesses(t, 3*time.Second)
}

// mcp-go's client closes the gateway's stderr before it waits for the exit, and a client that
// crashes closes all pipes at once: writing to them must not kill the gateway while it stops its
// backends.
func TestClosedPipes_OrderlyShutdown(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	notes := notesFile(t)
	s := newSetup(t, nil, helperBackend("mirror", "mirror", notes),
		helperBackend("stubborn", "stubborn", ""))
	cmd := exec.Command(gateway(t), "-c", s.config, "--log-level", "debug")
	cmd.Env, cmd.Dir = s.env(), s.dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+
		initializeParams("2025-11-25")+"}\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hold"}}`+"\n")
	lastCallID(t, notes, "hold")
	stdout.Close()
	stderr.Close()
	// Its response has no reader.
	io.WriteString(stdin, `{"jsonrpc":"2.0","id":3,"method":"ping"}`+"\n")
	stdin.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
		if cmd.ProcessState.ExitCode() < 0 {
			t.Errorf("ended by %v", cmd.ProcessState)
		}
	case <-time.After(20 * time.Second):
		t.Error("still running after 20 s")
	}
	if left := s.marker.processes(); len(left) > 0 {
		t.Errorf("left when the gateway exited: %v", left)
	}
}

func TestPROC_04_KilledGatewayLeavesNoChildren(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the processes are found through /proc")
	}
	s := newSetup(t, nil, helperBackend("mirror", "mirror", ""),
		helperBackend("stubborn", "stubborn", ""), stdioBackend(t, "everything", "everything", nil))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	if n := len(s.marker.processes()); n < 4 {
		t.Errorf("%d processes, want at least the gateway and three children: %v", n,
			s.marker.processes())
	}
	gw.cmd.Process.Kill()
	gw.exitCode(waitTimeout)
	s.marker.requireNoProcesses(t, 3*time.Second)
}

// The first error may be the write to the dead child or the read from it. Neither may hide the
// reason of its death.
func TestSTART_04_ExitErrorHasCodeAndStderr(t *testing.T) {
	t.Parallel()
	const runs = 10
	var dying []backend
	for _, name := range []string{"one", "two", "three", "four"} {
		dying = append(dying, backend{Name: name, Command: "sh",
			Args: []string{"-c", "echo boom >&2; exit 127"}})
	}
	s := newSetup(t, nil, dying...)
	for range runs {
		cmd := exec.Command(gateway(t), "check", "-c", s.config)
		cmd.Env, cmd.Dir = s.env(), s.dir
		r := runCommand(t, cmd)
		if r.code != 1 {
			t.Fatalf("check: exit code %d\n%s", r.code, r.out)
		}
		rows := 0
		for row := range strings.Lines(r.out) {
			if !strings.Contains(row, "failed") {
				continue
			}
			rows++
			if !strings.Contains(row, "exit 127") || !strings.Contains(row, "boom") {
				t.Errorf("exit code or stderr is missing: %s", row)
			}
		}
		if rows != len(dying) {
			t.Errorf("%d rows, want %d:\n%s", rows, len(dying), r.out)
		}
	}
}

func TestPROC_06_PROC_08_DeadBackendFailsCallsAndRestarts(t *testing.T) {
	t.Parallel()
	notes := notesFile(t)
	s := newSetup(t, nil, helperBackend("mirror", "mirror", notes),
		backend{Name: "demo", Embedded: "demo"})
	gw := s.start()
	gw.initialize("2025-11-25")
	before := names(listTools(t, gw))
	gw.sendRequest("1", "tools/call", `{"name":"hold"}`)
	lastCallID(t, notes, "hold")
	began := time.Now()
	gw.sendRequest("2", "tools/call", `{"name":"die"}`)
	for _, id := range []string{"1", "2"} {
		m := gw.awaitResponse(id, waitTimeout)
		if m.code() != -32603 || !strings.Contains(string(m.Error), "mirror") ||
			!strings.Contains(string(m.Error), "outcome unknown") {
			t.Errorf("%s: %s", id, m.Raw)
		}
		var e struct {
			Data struct{ Backend, Reason string }
		}
		if err := json.Unmarshal(m.Error, &e); err != nil || e.Data.Backend != "mirror" ||
			e.Data.Reason == "" {
			t.Errorf("%s: data: %s", id, m.Error)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the calls failed after %v", took)
	}
	if m := callTool(gw, "echo", `{"text":"still here"}`); m.Result == nil {
		t.Errorf("the other backend: %s", m.Raw)
	}
	// It is restarted: by itself, or by this call, which may wait for it.
	if m := callTool(gw, "request", `{}`); m.Result == nil {
		t.Errorf("after the restart: %s", m.Raw)
	}
	if after := names(listTools(t, gw)); !slices.Equal(before, after) {
		t.Errorf("tools: %q, before: %q", after, before)
	}
	gw.finish(waitTimeout)
	outcomes := map[string]int{}
	for _, r := range s.records() {
		outcomes[r.BackendTool+" "+r.Outcome]++
	}
	if outcomes["hold backend_lost"] != 1 || outcomes["die backend_lost"] != 1 ||
		outcomes["request ok"] != 1 || outcomes["echo ok"] != 1 {
		t.Errorf("audit: %v", outcomes)
	}
}
