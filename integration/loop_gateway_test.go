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

// A nest is configurations that start gateways on one another, and the list of those starts: for each the number of
// gateways that stood above it.
type nest struct {
	*setup
	starts string
}

// gatewayOn is a backend that is a gateway with this configuration, seen from where the gateway was started.
func gatewayOn(t *testing.T, name, config, starts string) backend {
	script := fmt.Sprintf(`echo "$MCP_GATEWAY_ABOVE" >> %s; exec %s -c %s`, starts, gateway(t), config)
	return backend{Name: name, Command: "sh", Args: []string{"-c", script}}
}

// depths are how many gateways stood above each that was started as a backend.
func (n *nest) depths() (all []int) {
	text, err := os.ReadFile(n.starts)
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		all = append(all, 1+strings.Count(line, ","))
	}
	return all
}

// say runs a verb and returns the exit code and all that it prints.
func (s *setup) say(args ...string) (int, string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), gateway(s.t), append(args, "-c", s.config)...)
	cmd.Env, cmd.Dir = s.env(), s.dir
	out, _ := cmd.CombinedOutput() // the exit code tells
	return cmd.ProcessState.ExitCode(), string(out)
}

const isItself = "Loop detected: this backend is the gateway itself; remove it from the configuration"

// A gateway that is its own backend starts itself once for each try, and not beneath that.
func TestAGatewayThatIsItsOwnBackend(t *testing.T) {
	t.Parallel()
	starts := filepath.Join(t.TempDir(), "starts")
	n := &nest{newSetup(t, nil, gatewayOn(t, "me", "gateway.yaml", starts),
		backend{Name: "plain", Command: gateway(t)}, backend{Name: "demo", Embedded: "demo"}), starts}
	if code, out := n.say("trust"); code != 0 { // the backend plain finds the file in its working directory
		t.Fatalf("trust: exit code %d\n%s", code, out)
	}

	code, out := n.say("check")
	if code != 1 || strings.Count(out, "\n") < 4 || strings.Count(out, isItself) < 2 || !strings.Contains(out, "demo/1") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	if all := n.depths(); !slices.Equal(all, []int{1}) {
		t.Errorf("check started gateways beneath %v others", all)
	}
	if code, out := n.say("tools"); code != 1 || !strings.Contains(out, isItself) || !strings.Contains(out, "echo") {
		t.Errorf("tools: exit code %d\n%s", code, out)
	}
	if code, out := n.say("call", "echo", "text=hi"); code != 0 || !strings.Contains(out, "hi") {
		t.Errorf("call: exit code %d\n%s", code, out)
	}

	gw := n.start()
	gw.greet("2025-11-25")
	if tools := names(listTools(t, gw)); len(tools) != 3 {
		t.Errorf("tools: %q", tools)
	}
	if m := callTool(gw, "me__echo", `{"text":"x"}`); !strings.Contains(string(m.Error), isItself) {
		t.Errorf("me__echo: %s", m.Raw)
	}
	warnings := func() (n int) {
		for line := range strings.Lines(gw.logs()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "backend=me") && strings.Contains(line, isItself) {
				n++
			}
		}
		return n
	}
	poll(patience, func() bool { return warnings() > 0 && len(n.depths()) > 5 }) // several tries
	if code := gw.finish(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := warnings(); n != 1 {
		t.Errorf("%d warnings", n)
	}
	if all := n.depths(); slices.Max(all) != 1 {
		t.Errorf("gateways were started beneath %v others", all)
	}
}

// Over HTTP, too, and while clients come and go.
func TestAListeningGatewayThatIsItsOwnBackend(t *testing.T) {
	t.Parallel()
	starts := filepath.Join(t.TempDir(), "starts")
	me := gatewayOn(t, "me", "gateway.yaml", starts)
	me.Sharing = "session"
	n := &nest{newSetup(t, nil, me, backend{Name: "demo", Embedded: "demo"}), starts}
	addr := "127.0.0.1:" + freePort(t)
	gw := n.start("serve", "--listen", addr)
	awaitListener(t, addr, gw.exited)
	for range 3 {
		c := dialHTTP(t, "http://"+addr+"/mcp", "2025-11-25")
		if m := callTool(c, "me__echo", `{"text":"x"}`); !strings.Contains(string(m.Error), isItself) {
			t.Errorf("me__echo: %s", m.Raw)
		}
	}
	if all := n.depths(); slices.Max(all) != 1 {
		t.Errorf("gateways were started beneath %v others", all)
	}
	gw.cmd.Process.Signal(syscall.SIGTERM)
	if code := gw.exitCode(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A gateway beneath another one is a backend like any other, as long as none of them is there twice.
func TestAGatewayBeneathAnother(t *testing.T) {
	t.Parallel()
	starts := filepath.Join(t.TempDir(), "starts")
	c := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	b := newSetup(t, nil, gatewayOn(t, "c", c.config, starts))
	a := &nest{newSetup(t, nil, gatewayOn(t, "b", b.config, starts)), starts}
	if code, out := a.say("check"); code != 0 {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	if all := a.depths(); !slices.Equal(all, []int{1, 2}) {
		t.Errorf("gateways were started beneath %v others", all)
	}
	gw := a.start()
	gw.greet("2025-11-25")
	if m := callTool(gw, "echo", `{"text":"hi"}`); !strings.Contains(string(m.Result), `"hi"`) {
		t.Errorf("echo: %s", m.Raw)
	}
}

// Two gateways, each a backend of the other: the second time one is started it refuses, and what else they have works.
func TestGatewaysThatAreBackendsOfEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	starts := filepath.Join(dir, "starts")
	link := filepath.Join(dir, "a.yaml") // to a's configuration, which is not yet
	b := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"}, gatewayOn(t, "a", link, starts))
	a := &nest{newSetup(t, nil, gatewayOn(t, "b", b.config, starts)), starts}
	if err := os.Symlink(a.config, link); err != nil {
		t.Fatal(err)
	}
	gw := a.start()
	gw.greet("2025-11-25")
	if m := callTool(gw, "echo", `{"text":"hi"}`); !strings.Contains(string(m.Result), `"hi"`) {
		t.Errorf("echo: %s", m.Raw)
	}
	if !poll(patience, func() bool {
		return strings.Contains(gw.logs(), "Loop detected: this backend is a gateway that has started this one indirectly")
	}) {
		t.Error("the log does not say so")
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if all := a.depths(); slices.Max(all) != 2 {
		t.Errorf("gateways were started beneath %v others", all)
	}
}
