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

// serveEverything runs it over HTTP until the test ends, and returns its URL. With -stateless=false it keeps sessions,
// and refuses 2026-07-28; with -stateless=true it can ask clients of the session era nothing.
func serveEverything(t testing.TB, form string) string {
	t.Helper()
	addr := "127.0.0.1:" + freePort(t)
	exited, _ := startServer(t, []string{everythingServer(t), "-http", addr, form})
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
	suiteConfig = "INTEGRATION_CONFIG"    // of the gateway that the client starts; none if it goes straight to the server
	suiteURL    = "INTEGRATION_SUITE_URL" // in that config, the scenario's server
	suiteEra    = "INTEGRATION_ERA"       // the revision that the client speaks
)

// clientDeeds are what the scenarios want a client to do, besides the handshake.
var clientDeeds = map[string]func(context.Context, *gosdk.ClientSession) error{
	"initialize":                          listsTools,
	"request-metadata":                    listsTools,
	"json-schema-ref-no-deref":            listsTools,
	"tools_call":                          calls("add_numbers", `{"a":5,"b":3}`),
	"sse-retry":                           calls("test_reconnection", `{}`),
	"elicitation-sep1034-client-defaults": calls("test_client_elicitation_defaults", `{}`),
	"json-schema-2020-12-preservation":    echoesSchema,
	"sep-2322-client-request-state":       callsAllTools,
	"http-invalid-tool-headers":           callsAllTools,
	"http-custom-headers":                 callsAsTold,
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
		return callTells(ctx, session, tool, json.RawMessage(arguments))
	}
}

// callTells calls a tool, and takes isError for an error.
func callTells(ctx context.Context, session *gosdk.ClientSession, tool string, arguments any) error {
	result, err := session.CallTool(ctx, &gosdk.CallToolParams{Name: tool, Arguments: arguments})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", tool, err)
	case result.IsError:
		return fmt.Errorf("%s: %v", tool, result.Content)
	}
	return nil
}

// callsAllTools calls each tool there is, with an argument that one scenario's valid tool asks for.
func callsAllTools(ctx context.Context, session *gosdk.ClientSession) error {
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	for _, tool := range list.Tools {
		if err := callTells(ctx, session, tool.Name, map[string]any{"region": "us-west1"}); err != nil {
			return err
		}
	}
	return nil
}

// callsAsTold makes the calls that the suite's context has, with their arguments as they stand there.
func callsAsTold(ctx context.Context, session *gosdk.ClientSession) error {
	if err := listsTools(ctx, session); err != nil {
		return err
	}
	var told struct {
		ToolCalls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &told); err != nil || len(told.ToolCalls) == 0 {
		return fmt.Errorf("the suite tells no calls: %w", err)
	}
	for _, call := range told.ToolCalls {
		if err := callTells(ctx, session, call.Name, call.Arguments); err != nil {
			return err
		}
	}
	return nil
}

// echoesSchema hands the schema of one tool, as it was listed, to another.
func echoesSchema(ctx context.Context, session *gosdk.ClientSession) error {
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list.Tools, func(t *gosdk.Tool) bool { return t.Name == "json_schema_2020_12_tool" })
	if i < 0 {
		return errors.New("json_schema_2020_12_tool is not listed")
	}
	return callTells(ctx, session, "json_schema_echo", map[string]any{"schema": list.Tools[i].InputSchema})
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

// playConformanceClient is the command that the suite runs, with its server's URL as the only argument and the
// scenario's name in the environment: the go-sdk's client, in front of a gateway that has this server as its backend,
// or, without a config, straight at the server.
func playConformanceClient() int {
	if err := conformanceClient(os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func conformanceClient(scenario, url string) (err error) {
	deed, known := clientDeeds[scenario]
	if !known {
		return fmt.Errorf("no client for the scenario %q", scenario)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"}, &gosdk.ClientOptions{
		// It fills in the schema's defaults itself.
		ElicitationHandler: func(_ context.Context, req *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
			content := map[string]any{}
			if scenario == "sep-2322-client-request-state" {
				content["confirmed"] = true
			}
			return &gosdk.ElicitResult{Action: "accept", Content: content}, nil
		},
	})
	session, err := client.Connect(ctx, conformanceRoad(url), &gosdk.ClientSessionOptions{ProtocolVersion: os.Getenv(suiteEra)})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		if end := session.Close(); err == nil && end != nil {
			err = fmt.Errorf("close: %w", end)
		}
	}()
	return deed(ctx, session)
}

// conformanceRoad leads to the scenario's server.
func conformanceRoad(url string) gosdk.Transport {
	config := os.Getenv(suiteConfig)
	if config == "" {
		return &gosdk.StreamableClientTransport{Endpoint: url, HTTPClient: ownConnections()}
	}
	gw := exec.Command(os.Getenv(gatewayEnv), "-c", config)
	gw.Env = append(os.Environ(), suiteURL+"="+url)
	gw.Stderr = os.Stderr
	return &gosdk.CommandTransport{Command: gw, TerminateDuration: patience}
}
