//go:build unix

package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// What stands at the ends of the conformance tests: the go-sdk's server with all that the scenarios ask for, the
// gateway's HTTP door, and a client that does what a client scenario expects.

// everythingServer is the go-sdk's server for the suite, built from the module that go.mod has anyway. With -http ADDR
// it listens there, at any path; else it speaks stdio.
func everythingServer(t testing.TB) string {
	t.Helper()
	path, err := buildEverythingServer()
	if err != nil {
		t.Fatalf("integration: %v", err)
	}
	return path
}

var buildEverythingServer = sync.OnceValues(func() (string, error) {
	path := filepath.Join(workDir, "bin", "everything-server")
	cmd := exec.Command("go", "build", "-o", path, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	cmd.Dir = packageDir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build everything-server: %w\n%s", err, out)
	}
	return path, nil
})

// serveEverything runs it over HTTP until the test ends, and returns its URL. It keeps sessions: without them it can
// ask its clients nothing.
func serveEverything(t testing.TB) string {
	t.Helper()
	addr := "127.0.0.1:" + freePort(t)
	exited, _ := startServer(t, []string{everythingServer(t), "-http", addr, "-stateless=false"})
	awaitListener(t, addr, exited)
	return "http://" + addr + "/mcp"
}

// listen runs the gateway on the config with its HTTP door open, and returns the door's URL. When the test ends the
// gateway gets SIGTERM and has to end in order, with all the sessions that its clients left behind.
func (s *setup) listen() string {
	s.t.Helper()
	addr := "127.0.0.1:" + freePort(s.t)
	gw := s.start("serve", "--listen", addr)
	awaitListener(s.t, addr, gw.exited)
	s.t.Cleanup(func() {
		gw.cmd.Process.Signal(syscall.SIGTERM)
		if code := gw.exitCode(20 * time.Second); code != 0 {
			s.t.Errorf("exit code %d after SIGTERM", code)
		}
	})
	return "http://" + addr + "/mcp"
}

// awaitListener waits until somebody listens at addr.
func awaitListener(t testing.TB, addr string, exited <-chan struct{}) {
	t.Helper()
	up := poll(patience, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			conn.Close()
			return true
		}
		select {
		case <-exited:
			t.Fatalf("it ended instead of listening at %s", addr)
		default:
		}
		return false
	})
	if !up {
		t.Fatalf("nobody listens at %s", addr)
	}
}

const (
	suiteConfig = "INTEGRATION_CONFIG"    // of the gateway that the client starts
	suiteURL    = "INTEGRATION_SUITE_URL" // in that config, the scenario's server
)

// clientCalls are the calls that the scenarios expect, besides the handshake and tools/list. The arguments are
// made from the tools listed.
var clientCalls = map[string]struct {
	tool string
	args func([]*gosdk.Tool) map[string]any
}{
	"initialize":                          {},
	"tools_call":                          {"add_numbers", func([]*gosdk.Tool) map[string]any { return map[string]any{"a": 5, "b": 3} }},
	"sse-retry":                           {"test_reconnection", noArguments},
	"elicitation-sep1034-client-defaults": {"test_client_elicitation_defaults", noArguments},
	"json-schema-2020-12-preservation": {"json_schema_echo", func(tools []*gosdk.Tool) map[string]any {
		i := slices.IndexFunc(tools, func(t *gosdk.Tool) bool { return t.Name == "json_schema_2020_12_tool" })
		if i < 0 {
			return nil
		}
		return map[string]any{"schema": tools[i].InputSchema}
	}},
}

func noArguments([]*gosdk.Tool) map[string]any { return map[string]any{} }

// playConformanceClient is the command that the suite runs, with its server's URL as the only argument and the
// scenario's name in the environment: the go-sdk's client, in front of a gateway that has this server as its backend.
func playConformanceClient() int {
	if err := conformanceClient(os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func conformanceClient(scenario, url string) (err error) {
	call, known := clientCalls[scenario]
	if !known {
		return fmt.Errorf("no client for the scenario %q", scenario)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gw := exec.Command(os.Getenv(gatewayEnv), "-c", os.Getenv(suiteConfig))
	gw.Env = append(os.Environ(), suiteURL+"="+url)
	gw.Stderr = os.Stderr
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"}, &gosdk.ClientOptions{
		// It fills in the schema's defaults itself.
		ElicitationHandler: func(context.Context, *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
			return &gosdk.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
	})
	session, err := client.Connect(ctx, &gosdk.CommandTransport{Command: gw, TerminateDuration: patience},
		&gosdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		if end := session.Close(); err == nil && end != nil {
			err = fmt.Errorf("close: %w", end)
		}
	}()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	if call.tool == "" {
		return nil
	}
	result, err := session.CallTool(ctx, &gosdk.CallToolParams{Name: call.tool, Arguments: call.args(list.Tools)})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", call.tool, err)
	case result.IsError:
		return fmt.Errorf("%s: %v", call.tool, result.Content)
	}
	return nil
}
