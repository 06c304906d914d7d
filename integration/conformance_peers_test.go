//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"errors"
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

// Peers of the conformance suites: the go-sdk's server with everything that the scenarios
// require, the gateway's HTTP server, and a client that does what a client scenario expects.

// everythingServer returns the path of the go-sdk's server for the suite, built from the module
// that is in go.mod anyway. With -http ADDR it serves HTTP there, at any path; otherwise stdio.
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
	cmd := exec.Command("go", "build", "-o", path,
		"github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	cmd.Dir = packageDir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build everything-server: %w\n%s", err, out)
	}
	return path, nil
})

// serveEverything runs this server over HTTP until the test ends, and returns its URL. With
// -stateless=false it has sessions and rejects 2026-07-28; with -stateless=true it cannot send
// requests to legacy clients.
func serveEverything(t testing.TB, form string) string {
	t.Helper()
	addr := "127.0.0.1:" + freePort(t)
	exited, _ := startServer(t, []string{everythingServer(t), "-http", addr, form})
	awaitListener(t, addr, exited)
	return "http://" + addr + "/mcp"
}

// serveURL runs the gateway on the configuration as an HTTP server, and returns its URL. When
// the test ends, the gateway gets SIGTERM and must exit with 0, with all the sessions that its
// clients have left open.
func (s *setup) serveURL() string {
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

// awaitListener waits until addr accepts connections.
func awaitListener(t testing.TB, addr string, exited <-chan struct{}) {
	t.Helper()
	up := poll(waitTimeout, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			conn.Close()
			return true
		}
		select {
		case <-exited:
			t.Fatalf("the process exited instead of listening at %s", addr)
		default:
		}
		return false
	})
	if !up {
		t.Fatalf("no listener at %s", addr)
	}
}

const (
	// Configuration of the gateway that the client starts; unset = no gateway.
	suiteConfigEnv = "INTEGRATION_CONFIG"
	// URL of the scenario's server, used in that configuration
	suiteURLEnv      = "INTEGRATION_SUITE_URL"
	suiteRevisionEnv = "INTEGRATION_REVISION" // revision of the client
)

// scenarioClients has what the scenarios expect of a client after the handshake.
var scenarioClients = map[string]func(context.Context, *gosdk.ClientSession) error{
	"initialize":                          listsTools,
	"request-metadata":                    listsTools,
	"json-schema-ref-no-deref":            listsTools,
	"tools_call":                          calls("add_numbers", `{"a":5,"b":3}`),
	"sse-retry":                           calls("test_reconnection", `{}`),
	"elicitation-sep1034-client-defaults": calls("test_client_elicitation_defaults", `{}`),
	"json-schema-2020-12-preservation":    echoesSchema,
	"sep-2322-client-request-state":       callsAllTools,
	"http-invalid-tool-headers":           callsAllTools,
	"http-custom-headers":                 callsFromContext,
	"http-standard-headers":               readsAll,
}

func listsTools(ctx context.Context, session *gosdk.ClientSession) error {
	_, err := session.ListTools(ctx, nil)
	return err
}

func calls(tool, arguments string) func(context.Context, *gosdk.ClientSession) error {
	return func(ctx context.Context, session *gosdk.ClientSession) error {
		if err := listsTools(ctx, session); err != nil {
			return err
		}
		return callSucceeds(ctx, session, tool, json.RawMessage(arguments))
	}
}

// callSucceeds calls a tool, and returns an error if the result has isError.
func callSucceeds(
	ctx context.Context, session *gosdk.ClientSession, tool string, arguments any,
) error {
	result, err := session.CallTool(ctx, &gosdk.CallToolParams{Name: tool, Arguments: arguments})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", tool, err)
	case result.IsError:
		return fmt.Errorf("%s: %v", tool, result.Content)
	}
	return nil
}

// callsAllTools calls each listed tool, with an argument that the valid tool of one scenario
// requires.
func callsAllTools(ctx context.Context, session *gosdk.ClientSession) error {
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	for _, tool := range list.Tools {
		if err := callSucceeds(ctx, session, tool.Name,
			map[string]any{"region": "us-west1"}); err != nil {
			return err
		}
	}
	return nil
}

// callsFromContext makes the calls of the suite's context, with unchanged arguments.
func callsFromContext(ctx context.Context, session *gosdk.ClientSession) error {
	if err := listsTools(ctx, session); err != nil {
		return err
	}
	var suiteContext struct {
		ToolCalls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")),
		&suiteContext); err != nil || len(suiteContext.ToolCalls) == 0 {
		return fmt.Errorf("the suite's context has no calls: %w", err)
	}
	for _, call := range suiteContext.ToolCalls {
		if err := callSucceeds(ctx, session, call.Name, call.Arguments); err != nil {
			return err
		}
	}
	return nil
}

// echoesSchema passes the schema of one tool, as listed, to another tool.
func echoesSchema(ctx context.Context, session *gosdk.ClientSession) error {
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list.Tools,
		func(t *gosdk.Tool) bool { return t.Name == "json_schema_2020_12_tool" })
	if i < 0 {
		return errors.New("json_schema_2020_12_tool is not listed")
	}
	return callSucceeds(ctx, session, "json_schema_echo",
		map[string]any{"schema": list.Tools[i].InputSchema})
}

// readsAll calls every tool, reads every resource and gets every prompt.
func readsAll(ctx context.Context, session *gosdk.ClientSession) error {
	if err := callsAllTools(ctx, session); err != nil {
		return err
	}
	resources, err := session.ListResources(ctx, nil)
	if err != nil {
		return err
	}
	for _, r := range resources.Resources {
		if _, err := session.ReadResource(ctx, &gosdk.ReadResourceParams{URI: r.URI}); err != nil {
			return fmt.Errorf("%s: %w", r.URI, err)
		}
	}
	prompts, err := session.ListPrompts(ctx, nil)
	if err != nil {
		return err
	}
	for _, p := range prompts.Prompts {
		if _, err := session.GetPrompt(ctx, &gosdk.GetPromptParams{Name: p.Name}); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// runConformanceClient is the command that the suite runs, with the URL of its server as the
// only argument and the name of the scenario in the environment: the go-sdk's client, in front
// of a gateway that has this server as its backend, or, without a configuration, directly at the
// server.
func runConformanceClient() int {
	if err := conformanceClient(os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func conformanceClient(scenario, url string) (err error) {
	run, known := scenarioClients[scenario]
	if !known {
		return fmt.Errorf("no client for the scenario %q", scenario)
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"},
		&gosdk.ClientOptions{
			// The SDK fills in the schema's defaults.
			ElicitationHandler: func(
				_ context.Context, req *gosdk.ElicitRequest,
			) (*gosdk.ElicitResult, error) {
				content := map[string]any{}
				if scenario == "sep-2322-client-request-state" {
					content["confirmed"] = true
				}
				return &gosdk.ElicitResult{Action: "accept", Content: content}, nil
			},
		})
	session, err := client.Connect(ctx, conformanceTransport(url),
		&gosdk.ClientSessionOptions{ProtocolVersion: os.Getenv(suiteRevisionEnv)})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		if end := session.Close(); err == nil && end != nil {
			err = fmt.Errorf("close: %w", end)
		}
	}()
	return run(ctx, session)
}

// conformanceTransport connects to the scenario's server, through the gateway if there is one.
func conformanceTransport(url string) gosdk.Transport {
	config := os.Getenv(suiteConfigEnv)
	if config == "" {
		return &gosdk.StreamableClientTransport{Endpoint: url, HTTPClient: separateConnections()}
	}
	gw := exec.Command(os.Getenv(gatewayEnv), "-c", config)
	gw.Env = append(os.Environ(), suiteURLEnv+"="+url)
	gw.Stderr = os.Stderr
	return &gosdk.CommandTransport{Command: gw, TerminateDuration: waitTimeout}
}
