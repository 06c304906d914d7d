//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// helper-X: the test binary takes role X instead of running tests
	helperEnv = "INTEGRATION_HELPER"
	notesEnv  = "INTEGRATION_NOTES" // file to which the helper writes notes
)

// helpers are the roles of the test binary: backends and one client. Each returns its exit code.
var helpers = map[string]func() int{
	"unresponsive": runUnresponsive,
	"banner":       runBanner,
	"stubborn":     runStubborn,
	"mirror":       runMirror,
	"gosdk":        runGoSDKHelper,
	"mcpgo":        runMCPGoHelper,
	"attribution":  runAttributionServer,
	"features":     runFeatureServer,
	"tasks":        runTaskServer,
	"weather":      runWeather,

	"fidelity":     runFidelityServer,
	"matrix-gosdk": runMatrixGoSDK,
	"matrix-mcpgo": runMatrixMCPGo,

	"conformance-client": runConformanceClient,
	"conformance-login":  runConformanceLogin,
	"browser":            runBrowser,
}

func runHelper(role string) int {
	f, ok := helpers[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		return 2
	}
	note("started")
	return f()
}

// helperBackend returns a backend that is this binary in a role. notes may be empty.
func helperBackend(name, role, notes string) backend {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	env := map[string]string{helperEnv: "helper-" + role}
	if notes != "" {
		env[notesEnv] = notes
	}
	return backend{Name: name, Command: exe, Env: env}
}

// note appends a line to the notes file. Processes may share the file: lines are short, and the
// file is opened with O_APPEND.
func note(format string, args ...any) {
	path := os.Getenv(notesEnv)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer f.Close()
	fmt.Fprintf(f, format+"\n", args...)
}

// runUnresponsive reads and never responds.
func runUnresponsive() int {
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// runBanner writes a banner to stdout, which is reserved for the protocol, and fails.
func runBanner() int {
	fmt.Println("*** Welcome to the banner server v1.0 ***")
	fmt.Fprintln(os.Stderr, "banner: license file not found")
	return 3
}

// runStubborn is a working server that only SIGKILL ends.
func runStubborn() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	runMirror()
	note("stdin closed")
	select {}
}

// runMirror is a server without an SDK, so that the test determines all bytes that it sends. Tools:
// request returns the request's line, hold responds only when cancelled (which is forbidden, but
// common), die kills its process.
func runMirror() int {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			note("got %s", line)
			if response := mirrorResponse(line); response != "" {
				fmt.Println(response)
			}
		}
		if err != nil {
			return 0
		}
	}
}

// mirrorTools are the entries of tools/list: unknown fields, odd spacing, characters that
// encoders like to escape.
const mirrorTools = `{"name":"request","description":"<the> request & nothing else \u00fc ü","inputSchema":{"type":"object","x-order":[3,1,2]},"x-unknown": {"n":9007199254740993,"f":1.10}},` +
	`{"name":"hold","inputSchema":{"type":"object"}},` +
	`{"name":"die","inputSchema":{"type":"object"}}`

func mirrorResponse(line []byte) (response string) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name            string
			RequestID       json.RawMessage
			ProtocolVersion string
		}
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return ""
	}
	id := string(m.ID)
	switch m.Method {
	case "initialize":
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{"protocolVersion":"` +
			m.Params.ProtocolVersion +
			`","capabilities":{"tools":{}},"serverInfo":{"name":"mirror","version":"1"}}}`
	case "ping":
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`
	case "tools/list":
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[` + mirrorTools + `]}}`
	case "notifications/cancelled":
		return `{"jsonrpc":"2.0","id":` + string(m.Params.RequestID) +
			`,"error":{"code":0,"message":"Request cancelled"}}`
	case "tools/call":
		switch m.Params.Name {
		case "request":
			quoted, _ := json.Marshal(string(line))
			return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":` +
				string(quoted) + `}],"x-future": 1.10}}`
		case "hold":
			return ""
		case "die":
			fmt.Fprintln(os.Stderr, "mirror: asked to die")
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	if m.ID == nil {
		return ""
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no ` + m.Method +
		`"}}`
}

// Short names of the types in the signatures of tools.
type (
	gosdkRequest = gosdk.CallToolRequest
	gosdkResult  = gosdk.CallToolResult
	mcpgoRequest = mcpgo.CallToolRequest
	mcpgoResult  = mcpgo.CallToolResult
)

// The servers of the two SDKs have the same tools. echo. steps sends progress three times and
// then waits until release is called (because mcp-go's server sends notifications separately,
// and they could follow the result). hold sends progress once and then waits to be cancelled.
// grow adds a tool named grown.

func runGoSDKHelper() int { return serveGoSDK(newGoSDKServer(nil)) }

func serveGoSDK(server *gosdk.Server) int {
	if err := server.Run(context.Background(), &gosdk.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

func newGoSDKServer(o *gosdk.ServerOptions) *gosdk.Server {
	server := gosdk.NewServer(&gosdk.Implementation{Name: "gosdk", Version: "1"}, o)
	released := make(chan struct{})
	text := func(s string) *gosdkResult {
		return &gosdkResult{Content: []gosdk.Content{&gosdk.TextContent{Text: s}}}
	}
	progress := func(ctx context.Context, req *gosdkRequest, n int) {
		if token := req.Params.GetProgressToken(); token != nil {
			req.Session.NotifyProgress(ctx,
				&gosdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(n),
					Total: 3})
		}
	}
	schema := json.RawMessage(`{"type":"object"}`)
	add := func(name string, h gosdk.ToolHandler) {
		server.AddTool(&gosdk.Tool{Name: name, InputSchema: schema}, h)
	}
	add("echo", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		return text("gosdk " + string(req.Params.Arguments)), nil
	})
	add("steps", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		for n := 1; n <= 3; n++ {
			progress(ctx, req, n)
		}
		<-released
		return text("done"), nil
	})
	add("release", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		released <- struct{}{}
		return text("ok"), nil
	})
	add("hold", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		progress(ctx, req, 1)
		<-ctx.Done()
		note("cancelled")
		return nil, ctx.Err()
	})
	add("grow", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		add("grown", func(context.Context, *gosdkRequest) (*gosdkResult, error) {
			return text("grown"), nil
		})
		return text("ok"), nil
	})
	return server
}

func runMCPGoHelper() int {
	server := mcpgoserver.NewMCPServer("mcpgo", "1", mcpgoserver.WithToolCapabilities(true))
	released := make(chan struct{})
	progress := func(ctx context.Context, req mcpgoRequest, n int) {
		if req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil {
			server.SendNotificationToClient(ctx, "notifications/progress",
				map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": n,
					"total": 3})
		}
	}
	add := func(name string, h mcpgoserver.ToolHandlerFunc) {
		server.AddTool(mcpgo.NewToolWithRawSchema(name, "", json.RawMessage(`{"type":"object"}`)),
			h)
	}
	var grow sync.Once
	add("echo", func(ctx context.Context, req mcpgoRequest) (*mcpgoResult, error) {
		return mcpgo.NewToolResultText("mcpgo " + string(req.Params.RawArguments)), nil
	})
	add("steps", func(ctx context.Context, req mcpgoRequest) (*mcpgoResult, error) {
		for n := 1; n <= 3; n++ {
			progress(ctx, req, n)
		}
		<-released
		return mcpgo.NewToolResultText("done"), nil
	})
	add("release", func(ctx context.Context, req mcpgoRequest) (*mcpgoResult, error) {
		released <- struct{}{}
		return mcpgo.NewToolResultText("ok"), nil
	})
	add("hold", func(ctx context.Context, req mcpgoRequest) (*mcpgoResult, error) {
		progress(ctx, req, 1)
		<-ctx.Done()
		note("cancelled")
		return nil, ctx.Err()
	})
	add("grow", func(ctx context.Context, req mcpgoRequest) (*mcpgoResult, error) {
		grow.Do(func() {
			add("grown", func(context.Context, mcpgoRequest) (*mcpgoResult, error) {
				return mcpgo.NewToolResultText("grown"), nil
			})
		})
		return mcpgo.NewToolResultText("ok"), nil
	})
	if err := mcpgoserver.ServeStdio(server); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

// readNotes returns the lines of a notes file so far.
func readNotes(path string) []string {
	text, _ := os.ReadFile(path)
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
}

// awaitNote waits for the first note with this prefix.
func awaitNote(t testing.TB, path, prefix string) string {
	t.Helper()
	var found string
	if !poll(waitTimeout, func() bool {
		i := slices.IndexFunc(readNotes(path),
			func(n string) bool { return strings.HasPrefix(n, prefix) })
		if i >= 0 {
			found = readNotes(path)[i]
		}
		return i >= 0
	}) {
		t.Fatalf("no note %q in:\n%s", prefix, strings.Join(readNotes(path), "\n"))
	}
	return found
}
