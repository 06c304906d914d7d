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

// The servers of the matrix have the same six tools in each SDK, with an argument n that
// distinguishes the calls:
//
//	progress  sends progress three times, and continues each time when release is called with the
//	          same n: over HTTP, mcp-go's server has two streams for the messages of a call, and
//	          their order is undefined
//	hang      sends progress once and waits until it is cancelled, which it notes
//	ask       elicits a name, and returns "accept" and the name
//	sample    requests a word by sampling, and returns it
//	touch     reports a change of the resource matrix://news
//	grow      adds a tool with the name grown- and n
//
// ask and sample use input requests, as a server of 2026-07-28 does. For legacy clients their
// SDKs convert these to requests of the server.
const matrixResource = "matrix://news"

// notesPath is the file to which a server of the matrix writes its notes, in this process or in
// another one.
type notesPath string

func (b notesPath) note(line string) {
	f, err := os.OpenFile(string(b), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

// releases lets calls of progress continue.
type releases struct {
	mu       sync.Mutex
	channels map[string]chan struct{}
}

// channel returns the channel on which a call waits for release.
func (r *releases) channel(n string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.channels == nil {
		r.channels = make(map[string]chan struct{})
	}
	if r.channels[n] == nil {
		r.channels[n] = make(chan struct{}, 3)
	}
	return r.channels[n]
}

const matrixSchema = `{"type":"object","properties":{"n":{"type":"string"}}}`

// newMatrixGoSDK returns the go-sdk's server, which speaks only this revision (or the legacy
// ones). When end is done, no call hangs any longer.
func newMatrixGoSDK(end context.Context, notes notesPath, revision string) *gosdk.Server {
	versions := revisions
	if revision == modernRevision {
		versions = []string{modernRevision}
	}
	ignore := func(context.Context, *gosdk.SubscribeRequest) error { return nil }
	server := gosdk.NewServer(&gosdk.Implementation{Name: "matrix-gosdk", Version: "1"},
		&gosdk.ServerOptions{
			SupportedProtocolVersions: versions,
			SubscribeHandler:          ignore,
			UnsubscribeHandler: func(context.Context, *gosdk.UnsubscribeRequest) error {
				return nil
			},
		})
	var waiting releases
	text := func(s string) (*gosdkResult, error) {
		return &gosdkResult{Content: []gosdk.Content{&gosdk.TextContent{Text: s}}}, nil
	}
	add := func(name string, h func(
		ctx context.Context, req *gosdkRequest, n string,
	) (*gosdkResult, error)) {
		server.AddTool(&gosdk.Tool{Name: name, InputSchema: json.RawMessage(matrixSchema)},
			func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
				var args struct{ N string }
				if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
					return nil, err
				}
				return h(ctx, req, args.N)
			})
	}
	progress := func(ctx context.Context, req *gosdkRequest, step int) {
		if token := req.Params.GetProgressToken(); token != nil {
			req.Session.NotifyProgress(ctx,
				&gosdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(step),
					Total: 3})
		}
	}
	add("progress", func(ctx context.Context, req *gosdkRequest, n string) (*gosdkResult, error) {
		for step := 1; step <= 3; step++ {
			progress(ctx, req, step)
			select {
			case <-waiting.channel(n):
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-end.Done():
				return nil, end.Err()
			}
		}
		return text("done " + n)
	})
	add("release", func(_ context.Context, _ *gosdkRequest, n string) (*gosdkResult, error) {
		waiting.channel(n) <- struct{}{}
		return text("ok")
	})
	add("hang", func(ctx context.Context, req *gosdkRequest, n string) (*gosdkResult, error) {
		progress(ctx, req, 1)
		select {
		case <-ctx.Done():
			notes.note("cancelled " + n)
		case <-end.Done():
		}
		return nil, context.Canceled
	})
	add("ask", func(_ context.Context, req *gosdkRequest, n string) (*gosdkResult, error) {
		if who, ok := req.Params.InputResponses["who"].(*gosdk.ElicitResult); ok {
			return text(fmt.Sprint(who.Action, " ", who.Content["name"]))
		}
		return &gosdkResult{InputRequests: gosdk.InputRequestMap{"who": &gosdk.ElicitParams{
			Message: "who?",
			RequestedSchema: json.RawMessage(
				`{"type":"object","properties":{"name":{"type":"string"}}}`),
		}}}, nil
	})
	add("sample", func(_ context.Context, req *gosdkRequest, n string) (*gosdkResult, error) {
		switch word := req.Params.InputResponses["word"].(type) {
		case nil:
			sampling := &gosdk.CreateMessageParams{
				MaxTokens: 10,
				Messages: []*gosdk.SamplingMessage{{Role: "user",
					Content: &gosdk.TextContent{Text: "a word"}}},
			}
			return &gosdkResult{InputRequests: gosdk.InputRequestMap{"word": sampling}}, nil
		case *gosdk.CreateMessageResult:
			return text(word.Content.(*gosdk.TextContent).Text)
		case *gosdk.CreateMessageWithToolsResult:
			return text(word.Content[0].(*gosdk.TextContent).Text)
		default:
			return nil, fmt.Errorf("response %T", word)
		}
	})
	add("touch", func(ctx context.Context, _ *gosdkRequest, _ string) (*gosdkResult, error) {
		if err := server.ResourceUpdated(ctx,
			&gosdk.ResourceUpdatedNotificationParams{URI: matrixResource}); err != nil {
			return nil, err
		}
		return text("ok")
	})
	add("grow", func(_ context.Context, _ *gosdkRequest, n string) (*gosdkResult, error) {
		add("grown-"+n, func(context.Context, *gosdkRequest, string) (*gosdkResult, error) {
			return text("grown")
		})
		return text("ok")
	})
	server.AddResource(&gosdk.Resource{Name: "news", URI: matrixResource},
		func(context.Context, *gosdk.ReadResourceRequest) (*gosdk.ReadResourceResult, error) {
			contents := []*gosdk.ResourceContents{{URI: matrixResource, Text: "no news"}}
			return &gosdk.ReadResourceResult{Contents: contents}, nil
		})
	return server
}

// newMatrixMCPGo returns mcp-go's server.
func newMatrixMCPGo(end context.Context, notes notesPath) *mcpgoserver.MCPServer {
	// The SDK leaves it to its user to know which sessions listen for updates over HTTP.
	var listening sync.Map // set of sessions
	hooks := new(mcpgoserver.Hooks)
	hooks.AddBeforeSubscriptionsListen(func(
		ctx context.Context, _ any, req *mcpgo.SubscriptionsListenRequest,
	) {
		if session := mcpgoserver.ClientSessionFromContext(ctx); slices.Contains(
			req.Params.Notifications.ResourceSubscriptions, matrixResource) {
			listening.Store(session, true)
		}
	})
	hooks.AddAfterSubscriptionsListen(func(ctx context.Context, _ any,
		_ *mcpgo.SubscriptionsListenRequest, _ *mcpgo.SubscriptionsListenResult) {
		listening.Delete(mcpgoserver.ClientSessionFromContext(ctx))
	})
	server := mcpgoserver.NewMCPServer("matrix-mcpgo", "1", mcpgoserver.WithToolCapabilities(true),
		mcpgoserver.WithResourceCapabilities(true, true), mcpgoserver.WithElicitation(),
		mcpgoserver.WithHooks(hooks))
	server.EnableSampling()
	var waiting releases
	text := func(s string) (*mcpgoResult, error) { return mcpgo.NewToolResultText(s), nil }
	add := func(name string, h func(
		ctx context.Context, req mcpgoRequest, n string,
	) (*mcpgoResult, error)) {
		server.AddTool(mcpgo.NewToolWithRawSchema(name, "", json.RawMessage(matrixSchema)),
			func(ctx context.Context, req mcpgoRequest) (*mcpgoResult, error) {
				return h(ctx, req, req.GetString("n", ""))
			})
	}
	progress := func(ctx context.Context, req mcpgoRequest, step int) {
		if req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil {
			server.SendNotificationToClient(ctx, "notifications/progress",
				map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": step,
					"total": 3})
		}
	}
	add("progress", func(ctx context.Context, req mcpgoRequest, n string) (*mcpgoResult, error) {
		for step := 1; step <= 3; step++ {
			progress(ctx, req, step)
			select {
			case <-waiting.channel(n):
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-end.Done():
				return nil, end.Err()
			}
		}
		return text("done " + n)
	})
	add("release", func(_ context.Context, _ mcpgoRequest, n string) (*mcpgoResult, error) {
		waiting.channel(n) <- struct{}{}
		return text("ok")
	})
	add("hang", func(ctx context.Context, req mcpgoRequest, n string) (*mcpgoResult, error) {
		progress(ctx, req, 1)
		select {
		case <-ctx.Done():
			notes.note("cancelled " + n)
		case <-end.Done():
		}
		return nil, context.Canceled
	})
	add("ask", func(_ context.Context, req mcpgoRequest, n string) (*mcpgoResult, error) {
		who := mcpgoserver.ElicitationResponse(req.Params.InputResponses, "who")
		if who == nil {
			return mcpgoserver.NewInputRequestBuilder("").Elicit("who", mcpgo.ElicitationParams{
				Message: "who?",
				RequestedSchema: json.RawMessage(
					`{"type":"object","properties":{"name":{"type":"string"}}}`),
			}).ToolResult(), nil
		}
		content, _ := who.Content.(map[string]any)
		return text(fmt.Sprint(who.Action, " ", content["name"]))
	})
	add("sample", func(_ context.Context, req mcpgoRequest, n string) (*mcpgoResult, error) {
		word := mcpgoserver.SamplingResponse(req.Params.InputResponses, "word")
		if word == nil {
			return mcpgoserver.NewInputRequestBuilder("").Sample("word", mcpgo.CreateMessageParams{
				MaxTokens: 10,
				Messages: []mcpgo.SamplingMessage{{Role: "user",
					Content: mcpgo.NewTextContent("a word")}},
			}).ToolResult(), nil
		}
		content, _ := json.Marshal(word.Content)
		var block struct{ Text string }
		if err := json.Unmarshal(content, &block); err != nil {
			return nil, err
		}
		return text(block.Text)
	})
	add("touch", func(context.Context, mcpgoRequest, string) (*mcpgoResult, error) {
		params := map[string]any{"uri": matrixResource}
		server.SendNotificationToAllClients("notifications/resources/updated", params)
		listening.Range(func(session, _ any) bool {
			notification := mcpgo.JSONRPCNotification{
				JSONRPC: "2.0", Notification: mcpgo.Notification{
					Method: "notifications/resources/updated",
					Params: mcpgo.NotificationParams{AdditionalFields: params},
				},
			}
			select {
			case session.(mcpgoserver.ClientSession).NotificationChannel() <- notification:
			default: // the session is closing
			}
			return true
		})
		return text("ok")
	})
	add("grow", func(_ context.Context, _ mcpgoRequest, n string) (*mcpgoResult, error) {
		add("grown-"+n, func(context.Context, mcpgoRequest, string) (*mcpgoResult, error) {
			return text("grown")
		})
		return text("ok")
	})
	server.AddResource(mcpgo.NewResource(matrixResource, "news"),
		func(context.Context, mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
			return []mcpgo.ResourceContents{mcpgo.TextResourceContents{URI: matrixResource,
				Text: "no news"}}, nil
		})
	return server
}

// revisionEnv has the revision of a server of the matrix that runs as a process.
const revisionEnv = "INTEGRATION_REVISION"

func runMatrixGoSDK() int {
	return serveGoSDK(newMatrixGoSDK(context.Background(), notesPath(os.Getenv(notesEnv)),
		os.Getenv(revisionEnv)))
}

func runMatrixMCPGo() int {
	if err := mcpgoserver.ServeStdio(newMatrixMCPGo(context.Background(),
		notesPath(os.Getenv(notesEnv)))); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

// A matrixServer is a column of the matrix.
type matrixServer struct {
	name, revision string
	backend        backend
	notes          string
}

// matrixServers starts the servers that are not children of the gateway.
func matrixServers(t testing.TB) []matrixServer {
	var servers []matrixServer
	notes := func() string { return notesFile(t) }
	web := func(sdk, kind, revision, notes string, h http.Handler) {
		site := httptest.NewServer(h)
		t.Cleanup(func() {
			site.CloseClientConnections()
			site.Close()
		})
		b := backend{Name: "matrix", URL: site.URL + "/mcp"}
		if kind == "SSE" {
			b.URL, b.Transport = site.URL+"/sse", "sse"
		}
		servers = append(servers, matrixServer{sdk + " " + kind, revision, b, notes})
	}
	child := func(sdk, revision string, b backend, notes string) {
		b.Env = map[string]string{notesEnv: notes, revisionEnv: revision,
			helperEnv: b.Env[helperEnv]}
		if revision == legacyRevision {
			b.Sharing = "session"
		}
		servers = append(servers, matrixServer{sdk + " stdio", revision, b, notes})
	}
	for _, revision := range []string{modernRevision, legacyRevision} {
		path := notes()
		server := newMatrixGoSDK(t.Context(), notesPath(path), revision)
		web("go-sdk", "HTTP", revision, path,
			gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return server },
				&gosdk.StreamableHTTPOptions{Stateless: revision == modernRevision,
					PropagateRequestCancellation: true}))
		child("go-sdk", revision, helperBackend("matrix", "matrix-gosdk", ""), notes())
	}
	path := notes()
	legacy := newMatrixGoSDK(t.Context(), notesPath(path), legacyRevision)
	web("go-sdk", "SSE", legacyRevision, path,
		gosdk.NewSSEHandler(func(*http.Request) *gosdk.Server { return legacy }, nil))

	for _, revision := range []string{modernRevision, legacyRevision} {
		path := notes()
		versions := revisions
		if revision == modernRevision {
			versions = []string{modernRevision}
		}
		options := []mcpgoserver.StreamableHTTPOption{
			mcpgoserver.WithStreamableHTTPProtocolVersions(versions...),
			mcpgoserver.WithStateful(revision == legacyRevision),
		}
		if revision == legacyRevision {
			// Without a store, a request that has just got its response may take messages from
			// another request's stream and drop them.
			options = append(options,
				mcpgoserver.WithEventStore(mcpgoserver.NewInMemoryEventStore()))
		}
		web("mcp-go", "HTTP", revision, path,
			mcpgoserver.NewStreamableHTTPServer(newMatrixMCPGo(t.Context(), notesPath(path)),
				options...))
		b := helperBackend("matrix", "matrix-mcpgo", "")
		if revision == legacyRevision {
			b.Generation = "legacy" // over stdio mcp-go supports both generations
		}
		child("mcp-go", revision, b, notes())
	}
	for _, n := range []struct{ sdk, version, revision string }{
		{"npm v2", "v2", modernRevision}, {"npm v2", "v2", legacyRevision},
		{"npm v1", "v1", legacyRevision},
	} {
		argv := func(kind string) []string {
			return []string{node(t), packageDir + "/testdata/matrix-server.mjs", n.version, kind,
				n.revision}
		}
		path := notes()
		addr := "127.0.0.1:" + freePort(t)
		exited, _ := startServer(t, append(argv("http"), strings.TrimPrefix(addr, "127.0.0.1:")),
			notesEnv+"="+path)
		awaitListener(t, addr, exited)
		servers = append(servers, matrixServer{n.sdk + " HTTP", n.revision,
			backend{Name: "matrix", URL: "http://" + addr + "/mcp"}, path})
		args := argv("stdio")
		child(n.sdk, n.revision, backend{Name: "matrix", Command: args[0], Args: args[1:]}, notes())
	}
	return servers
}
