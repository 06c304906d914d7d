//go:build unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nestedGateways is a configuration with gateways as backends, and the record of their starts:
// for each, the gateways above it.
type nestedGateways struct {
	*setup
	starts string
}

// gatewayBackend returns a backend that is a gateway with this configuration, relative to the
// directory of the gateway that starts it.
func gatewayBackend(t *testing.T, name, config, starts string) backend {
	script := fmt.Sprintf(`echo "$MCP_GATEWAY_ABOVE" >> %s; exec %s -c %s`, starts, gateway(t),
		config)
	return backend{Name: name, Command: "sh", Args: []string{"-c", script}}
}

// depths returns, for each gateway that was started as a backend, the number of gateways above
// it.
func (n *nestedGateways) depths() (all []int) {
	text, err := os.ReadFile(n.starts)
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		all = append(all, 1+strings.Count(line, ","))
	}
	return all
}

// runVerb runs a verb and returns the exit code and the output.
func (s *setup) runVerb(args ...string) (int, string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), gateway(s.t), append(args, "-c", s.config)...)
	cmd.Env, cmd.Dir = s.env(), s.dir
	out, _ := combinedOutput(s.t, cmd) // the exit code is checked instead
	return cmd.ProcessState.ExitCode(), string(out)
}

const loopError = "Loop detected: this backend is the gateway itself; remove it from the configuration"

// A gateway that is its own backend starts itself once for each attempt, and no further gateway
// below that.
func TestLoop_OwnBackend(t *testing.T) {
	t.Parallel()
	starts := filepath.Join(t.TempDir(), "starts")
	n := &nestedGateways{newSetup(t, nil, gatewayBackend(t, "me", "gateway.yaml", starts),
		backend{Name: "plain", Command: gateway(t)}, backend{Name: "demo", Embedded: "demo"}),
		starts}
	// The backend plain finds the file in its working directory.
	if code, out := n.runVerb("trust"); code != 0 {
		t.Fatalf("trust: exit code %d\n%s", code, out)
	}

	code, out := n.runVerb("check")
	if code != 1 || strings.Count(out, "\n") < 4 || strings.Count(out, loopError) < 2 ||
		!strings.Contains(out, "demo/1") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	if all := n.depths(); !slices.Equal(all, []int{1}) {
		t.Errorf("check started gateways below %v others", all)
	}
	if code, out := n.runVerb("tools"); code != 1 || !strings.Contains(out, loopError) ||
		!strings.Contains(out, "echo") {
		t.Errorf("tools: exit code %d\n%s", code, out)
	}
	if code, out := n.runVerb("call", "echo", "text=hi"); code != 0 ||
		!strings.Contains(out, "hi") {
		t.Errorf("call: exit code %d\n%s", code, out)
	}

	gw := n.start()
	gw.initialize("2025-11-25")
	if tools := names(listTools(t, gw)); len(tools) != 3 {
		t.Errorf("tools: %q", tools)
	}
	if m := callTool(gw, "me__echo", `{"text":"x"}`); !strings.Contains(string(m.Error),
		loopError) {
		t.Errorf("me__echo: %s", m.Raw)
	}
	warnings := func() (n int) {
		for line := range strings.Lines(gw.logs()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "backend=me") &&
				strings.Contains(line, loopError) {
				n++
			}
		}
		return n
	}
	// Wait for several attempts.
	poll(waitTimeout, func() bool { return warnings() > 0 && len(n.depths()) > 5 })
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := warnings(); n != 1 {
		t.Errorf("%d warnings", n)
	}
	if all := n.depths(); slices.Max(all) != 1 {
		t.Errorf("gateways were started below %v others", all)
	}
}

// The same over HTTP, with several clients.
func TestLoop_OwnBackendOverHTTP(t *testing.T) {
	t.Parallel()
	starts := filepath.Join(t.TempDir(), "starts")
	me := gatewayBackend(t, "me", "gateway.yaml", starts)
	me.Sharing = "session"
	n := &nestedGateways{newSetup(t, nil, me, backend{Name: "demo", Embedded: "demo"}), starts}
	addr := "127.0.0.1:" + freePort(t)
	gw := n.start("serve", "--listen", addr)
	awaitListener(t, addr, gw.exited)
	for range 3 {
		c := dialHTTP(t, "http://"+addr+"/mcp", "2025-11-25")
		if m := callTool(c, "me__echo", `{"text":"x"}`); !strings.Contains(string(m.Error),
			loopError) {
			t.Errorf("me__echo: %s", m.Raw)
		}
	}
	if all := n.depths(); slices.Max(all) != 1 {
		t.Errorf("gateways were started below %v others", all)
	}
	gw.cmd.Process.Signal(syscall.SIGTERM)
	if code := gw.exitCode(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A gateway below another one is a normal backend, as long as no gateway occurs twice.
func TestLoop_NestedGatewayIsAllowed(t *testing.T) {
	t.Parallel()
	starts := filepath.Join(t.TempDir(), "starts")
	c := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	b := newSetup(t, nil, gatewayBackend(t, "c", c.config, starts))
	a := &nestedGateways{newSetup(t, nil, gatewayBackend(t, "b", b.config, starts)), starts}
	if code, out := a.runVerb("check"); code != 0 {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	if all := a.depths(); !slices.Equal(all, []int{1, 2}) {
		t.Errorf("gateways were started below %v others", all)
	}
	gw := a.start()
	gw.initialize("2025-11-25")
	if m := callTool(gw, "echo", `{"text":"hi"}`); !strings.Contains(string(m.Result), `"hi"`) {
		t.Errorf("echo: %s", m.Raw)
	}
}

// Two gateways, each a backend of the other: the second start of the same one fails, and the
// other backends work.
func TestLoop_MutualBackends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	starts := filepath.Join(dir, "starts")
	link := filepath.Join(dir, "a.yaml") // a link to a's configuration, which does not exist yet
	b := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"},
		gatewayBackend(t, "a", link, starts))
	a := &nestedGateways{newSetup(t, nil, gatewayBackend(t, "b", b.config, starts)), starts}
	if err := os.Symlink(a.config, link); err != nil {
		t.Fatal(err)
	}
	gw := a.start()
	gw.initialize("2025-11-25")
	if m := callTool(gw, "echo", `{"text":"hi"}`); !strings.Contains(string(m.Result), `"hi"`) {
		t.Errorf("echo: %s", m.Raw)
	}
	if !poll(waitTimeout, func() bool {
		return strings.Contains(gw.logs(),
			"Loop detected: this backend is a gateway that has started this one indirectly")
	}) {
		t.Error("the loop is not logged")
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if all := a.depths(); slices.Max(all) != 2 {
		t.Errorf("gateways were started below %v others", all)
	}
}
