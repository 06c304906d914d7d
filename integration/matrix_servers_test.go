//go:build unix

//lint:file-ignore SA1019 sampling is deprecated, not gone

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The servers of the matrix have the same six tools in each SDK, with an argument n that tells the calls apart:
//
//	progress  tells its progress three times, and goes on each time when release is called with the same n: mcp-go's
//	          server has two streams for what belongs to a call over HTTP, and the order would be anyone's guess
//	hang      tells its progress once and waits until it is cancelled, which it notes
//	ask       asks the user for a name, and says "accept" and the name
//	sample    asks the model for a word, and says it
//	touch     changes the resource matrix://news
//	grow      adds a tool that is named grown- and n
//
// The two that ask do it as a server of 2026-07-28 does. Towards clients of the session era their SDKs make requests of
// it.
const matrixNews = "matrix://news"

// notebook is where a server of the matrix notes what happens, in this process or in one of its own.
type notebook string

func (b notebook) note(line string) {
	f, err := os.OpenFile(string(b), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

// releases lets calls of progress go on.
type releases struct {
	mu    sync.Mutex
	waits map[string]chan struct{}
}

// of is where a call waits, and where release finds it.

func (r *releases) of(n string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits == nil {
		r.waits = make(map[string]chan struct{})
	}
	if r.waits[n] == nil {
		r.waits[n] = make(chan struct{}, 3)
	}
	return r.waits[n]
}

const matrixSchema = `{"type":"object","properties":{"n":{"type":"string"}}}`

// newMatrixGoSDK is the go-sdk's server; era is the only one it speaks. When end ends nothing hangs any more.
func newMatrixGoSDK(end context.Context, notes notebook, era string) *gosdk.Server {
	versions := revisions
	if era == statelessEra {
		versions = []string{statelessEra}
	}
	nothing := func(context.Context, *gosdk.SubscribeRequest) error { return nil }
	server := gosdk.NewServer(&gosdk.Implementation{Name: "matrix-gosdk", Version: "1"}, &gosdk.ServerOptions{
		SupportedProtocolVersions: versions,
		SubscribeHandler:          nothing,
		UnsubscribeHandler:        func(context.Context, *gosdk.UnsubscribeRequest) error { return nil },
	})
	var waiting releases
	text := func(s string) (*gosdk.CallToolResult, error) {
		return &gosdk.CallToolResult{Content: []gosdk.Content{&gosdk.TextContent{Text: s}}}, nil
	}
	add := func(name string, h func(ctx context.Context, req *gosdk.CallToolRequest, n string) (*gosdk.CallToolResult, error)) {
		server.AddTool(&gosdk.Tool{Name: name, InputSchema: json.RawMessage(matrixSchema)},
			func(ctx context.Context, req *gosdk.CallToolRequest) (*gosdk.CallToolResult, error) {
				var args struct{ N string }
				if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
					return nil, err
				}
				return h(ctx, req, args.N)
			})
	}
	progress := func(ctx context.Context, req *gosdk.CallToolRequest, step int) {
		if token := req.Params.GetProgressToken(); token != nil {
			req.Session.NotifyProgress(ctx, &gosdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(step), Total: 3})
		}
	}
	add("progress", func(ctx context.Context, req *gosdk.CallToolRequest, n string) (*gosdk.CallToolResult, error) {
		for step := 1; step <= 3; step++ {
			progress(ctx, req, step)
			select {
			case <-waiting.of(n):
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-end.Done():
				return nil, end.Err()
			}
		}
		return text("done " + n)
	})
	add("release", func(_ context.Context, _ *gosdk.CallToolRequest, n string) (*gosdk.CallToolResult, error) {
		waiting.of(n) <- struct{}{}
		return text("ok")
	})
	add("hang", func(ctx context.Context, req *gosdk.CallToolRequest, n string) (*gosdk.CallToolResult, error) {
		progress(ctx, req, 1)
		select {
		case <-ctx.Done():
			notes.note("cancelled " + n)
		case <-end.Done():
		}
		return nil, context.Canceled
	})
	add("ask", func(_ context.Context, req *gosdk.CallToolRequest, n string) (*gosdk.CallToolResult, error) {
		if who, ok := req.Params.InputResponses["who"].(*gosdk.ElicitResult); ok {
			return text(fmt.Sprint(who.Action, " ", who.Content["name"]))
		}
		return &gosdk.CallToolResult{InputRequests: gosdk.InputRequestMap{"who": &gosdk.ElicitParams{
			Message: "who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
		}}}, nil
	})
	add("sample", func(_ context.Context, req *gosdk.CallToolRequest, n string) (*gosdk.CallToolResult, error) {
		switch word := req.Params.InputResponses["word"].(type) {
		case nil:
			return &gosdk.CallToolResult{InputRequests: gosdk.InputRequestMap{"word": &gosdk.CreateMessageParams{
				MaxTokens: 10, Messages: []*gosdk.SamplingMessage{{Role: "user", Content: &gosdk.TextContent{Text: "a word"}}},
			}}}, nil
		case *gosdk.CreateMessageResult:
			return text(word.Content.(*gosdk.TextContent).Text)
		case *gosdk.CreateMessageWithToolsResult:
			return text(word.Content[0].(*gosdk.TextContent).Text)
		default:
			return nil, fmt.Errorf("answered %T", word)
		}
	})
	add("touch", func(ctx context.Context, _ *gosdk.CallToolRequest, _ string) (*gosdk.CallToolResult, error) {
		if err := server.ResourceUpdated(ctx, &gosdk.ResourceUpdatedNotificationParams{URI: matrixNews}); err != nil {
			return nil, err
		}
		return text("ok")
	})
	add("grow", func(_ context.Context, _ *gosdk.CallToolRequest, n string) (*gosdk.CallToolResult, error) {
		add("grown-"+n, func(context.Context, *gosdk.CallToolRequest, string) (*gosdk.CallToolResult, error) {
			return text("grown")
		})
		return text("ok")
	})
	server.AddResource(&gosdk.Resource{Name: "news", URI: matrixNews},
		func(context.Context, *gosdk.ReadResourceRequest) (*gosdk.ReadResourceResult, error) {
			return &gosdk.ReadResourceResult{Contents: []*gosdk.ResourceContents{{URI: matrixNews, Text: "no news"}}}, nil
		})
	return server
}

// newMatrixMCPGo is mcp-go's.
func newMatrixMCPGo(end context.Context, notes notebook) *mcpgoserver.MCPServer {
	// Who listens for updates over HTTP the SDK leaves to its user to know.
	var listening sync.Map // the sessions, as keys
	hooks := new(mcpgoserver.Hooks)
	hooks.AddBeforeSubscriptionsListen(func(ctx context.Context, _ any, req *mcpgo.SubscriptionsListenRequest) {
		if session := mcpgoserver.ClientSessionFromContext(ctx); slices.Contains(req.Params.Notifications.ResourceSubscriptions, matrixNews) {
			listening.Store(session, true)
		}
	})
	hooks.AddAfterSubscriptionsListen(func(ctx context.Context, _ any, _ *mcpgo.SubscriptionsListenRequest, _ *mcpgo.SubscriptionsListenResult) {
		listening.Delete(mcpgoserver.ClientSessionFromContext(ctx))
	})
	server := mcpgoserver.NewMCPServer("matrix-mcpgo", "1", mcpgoserver.WithToolCapabilities(true),
		mcpgoserver.WithResourceCapabilities(true, true), mcpgoserver.WithElicitation(), mcpgoserver.WithHooks(hooks))
	server.EnableSampling()
	var waiting releases
	text := func(s string) (*mcpgo.CallToolResult, error) { return mcpgo.NewToolResultText(s), nil }
	add := func(name string, h func(ctx context.Context, req mcpgo.CallToolRequest, n string) (*mcpgo.CallToolResult, error)) {
		server.AddTool(mcpgo.NewToolWithRawSchema(name, "", json.RawMessage(matrixSchema)),
			func(ctx context.Context, req mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
				return h(ctx, req, req.GetString("n", ""))
			})
	}
	progress := func(ctx context.Context, req mcpgo.CallToolRequest, step int) {
		if req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil {
			server.SendNotificationToClient(ctx, "notifications/progress",
				map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": step, "total": 3})
		}
	}
	add("progress", func(ctx context.Context, req mcpgo.CallToolRequest, n string) (*mcpgo.CallToolResult, error) {
		for step := 1; step <= 3; step++ {
			progress(ctx, req, step)
			select {
			case <-waiting.of(n):
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-end.Done():
				return nil, end.Err()
			}
		}
		return text("done " + n)
	})
	add("release", func(_ context.Context, _ mcpgo.CallToolRequest, n string) (*mcpgo.CallToolResult, error) {
		waiting.of(n) <- struct{}{}
		return text("ok")
	})
	add("hang", func(ctx context.Context, req mcpgo.CallToolRequest, n string) (*mcpgo.CallToolResult, error) {
		progress(ctx, req, 1)
		select {
		case <-ctx.Done():
			notes.note("cancelled " + n)
		case <-end.Done():
		}
		return nil, context.Canceled
	})
	add("ask", func(_ context.Context, req mcpgo.CallToolRequest, n string) (*mcpgo.CallToolResult, error) {
		who := mcpgoserver.ElicitationResponse(req.Params.InputResponses, "who")
		if who == nil {
			return mcpgoserver.NewInputRequestBuilder("").Elicit("who", mcpgo.ElicitationParams{
				Message: "who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
			}).ToolResult(), nil
		}
		content, _ := who.Content.(map[string]any)
		return text(fmt.Sprint(who.Action, " ", content["name"]))
	})
	add("sample", func(_ context.Context, req mcpgo.CallToolRequest, n string) (*mcpgo.CallToolResult, error) {
		word := mcpgoserver.SamplingResponse(req.Params.InputResponses, "word")
		if word == nil {
			return mcpgoserver.NewInputRequestBuilder("").Sample("word", mcpgo.CreateMessageParams{
				MaxTokens: 10, Messages: []mcpgo.SamplingMessage{{Role: "user", Content: mcpgo.NewTextContent("a word")}},
			}).ToolResult(), nil
		}
		content, _ := json.Marshal(word.Content)
		var block struct{ Text string }
		if err := json.Unmarshal(content, &block); err != nil {
			return nil, err
		}
		return text(block.Text)
	})
	add("touch", func(context.Context, mcpgo.CallToolRequest, string) (*mcpgo.CallToolResult, error) {
		params := map[string]any{"uri": matrixNews}
		server.SendNotificationToAllClients("notifications/resources/updated", params)
		listening.Range(func(session, _ any) bool {
			select {
			case session.(mcpgoserver.ClientSession).NotificationChannel() <- mcpgo.JSONRPCNotification{
				JSONRPC: "2.0", Notification: mcpgo.Notification{
					Method: "notifications/resources/updated", Params: mcpgo.NotificationParams{AdditionalFields: params},
				},
			}:
			default: // it is on its way out
			}
			return true
		})
		return text("ok")
	})
	add("grow", func(_ context.Context, _ mcpgo.CallToolRequest, n string) (*mcpgo.CallToolResult, error) {
		add("grown-"+n, func(context.Context, mcpgo.CallToolRequest, string) (*mcpgo.CallToolResult, error) {
			return text("grown")
		})
		return text("ok")
	})
	server.AddResource(mcpgo.NewResource(matrixNews, "news"), func(context.Context, mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
		return []mcpgo.ResourceContents{mcpgo.TextResourceContents{URI: matrixNews, Text: "no news"}}, nil
	})
	return server
}

// matrixEra tells a server of the matrix that runs as a process which era it speaks.
const matrixEra = "INTEGRATION_ERA"

func playMatrixGoSDK() int {
	return runGoSDK(newMatrixGoSDK(context.Background(), notebook(os.Getenv(notesEnv)), os.Getenv(matrixEra)))
}

func playMatrixMCPGo() int {
	if err := mcpgoserver.ServeStdio(newMatrixMCPGo(context.Background(), notebook(os.Getenv(notesEnv)))); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

// A matrixServer is a column of the matrix.
type matrixServer struct {
	name, era string
	backend   backend
	notes     string
}

// matrixServers starts those that are not children of the gateway.
func matrixServers(t testing.TB) []matrixServer {
	var servers []matrixServer
	notes := func() string { return notesFile(t) }
	web := func(sdk, kind, era, notes string, h http.Handler) {
		site := httptest.NewServer(h)
		t.Cleanup(func() {
			site.CloseClientConnections()
			site.Close()
		})
		b := backend{Name: "matrix", URL: site.URL + "/mcp"}
		if kind == "SSE" {
			b.URL, b.Transport = site.URL+"/sse", "sse"
		}
		servers = append(servers, matrixServer{sdk + " " + kind, era, b, notes})
	}
	child := func(sdk, era string, b backend, notes string) {
		b.Env = map[string]string{notesEnv: notes, matrixEra: era, partEnv: b.Env[partEnv]}
		if era == sessionEra {
			b.Sharing = "session"
		}
		servers = append(servers, matrixServer{sdk + " stdio", era, b, notes})
	}
	for _, era := range []string{statelessEra, sessionEra} {
		path := notes()
		server := newMatrixGoSDK(t.Context(), notebook(path), era)
		web("go-sdk", "HTTP", era, path, gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return server },
			&gosdk.StreamableHTTPOptions{Stateless: era == statelessEra, PropagateRequestCancellation: true}))
		child("go-sdk", era, actor("matrix", "matrix-gosdk", ""), notes())
	}
	path := notes()
	older := newMatrixGoSDK(t.Context(), notebook(path), sessionEra)
	web("go-sdk", "SSE", sessionEra, path, gosdk.NewSSEHandler(func(*http.Request) *gosdk.Server { return older }, nil))

	for _, era := range []string{statelessEra, sessionEra} {
		path := notes()
		versions := revisions
		if era == statelessEra {
			versions = []string{statelessEra}
		}
		options := []mcpgoserver.StreamableHTTPOption{
			mcpgoserver.WithStreamableHTTPProtocolVersions(versions...), mcpgoserver.WithStateful(era == sessionEra),
		}
		if era == sessionEra {
			// Without a store a request that has just been answered may take what another one's stream is for, and drop it.
			options = append(options, mcpgoserver.WithEventStore(mcpgoserver.NewInMemoryEventStore()))
		}
		web("mcp-go", "HTTP", era, path, mcpgoserver.NewStreamableHTTPServer(newMatrixMCPGo(t.Context(), notebook(path)), options...))
		b := actor("matrix", "matrix-mcpgo", "")
		if era == sessionEra {
			b.Era = "legacy" // over stdio it speaks both
		}
		child("mcp-go", era, b, notes())
	}
	for _, n := range []struct{ sdk, version, era string }{
		{"npm v2", "v2", statelessEra}, {"npm v2", "v2", sessionEra}, {"npm v1", "v1", sessionEra},
	} {
		argv := func(kind string) []string {
			return []string{node(t), packageDir + "/testdata/matrix-server.mjs", n.version, kind, n.era}
		}
		path := notes()
		addr := "127.0.0.1:" + freePort(t)
		exited, _ := startServer(t, append(argv("http"), strings.TrimPrefix(addr, "127.0.0.1:")), notesEnv+"="+path)
		awaitListener(t, addr, exited)
		servers = append(servers, matrixServer{n.sdk + " HTTP", n.era, backend{Name: "matrix", URL: "http://" + addr + "/mcp"}, path})
		args := argv("stdio")
		child(n.sdk, n.era, backend{Name: "matrix", Command: args[0], Args: args[1:]}, notes())
	}
	return servers
}
