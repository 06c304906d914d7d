package httpclient

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mark3labs "github.com/mark3labs/mcp-go/mcp"
	mcpgo "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpgateway/internal/wire"
)

// A realServer starts a server with at least two tools: echo, and grow, which adds a tool, so that
// the server sends tools/list_changed.
type realServer func() http.Handler

func goSDK(handler func(*gosdk.Server) http.Handler) realServer {
	return func() http.Handler {
		server := gosdk.NewServer(&gosdk.Implementation{Name: "go-sdk", Version: "1"}, nil)
		type text struct {
			Text string `json:"text"`
		}
		echo := func(_ context.Context, _ *gosdk.CallToolRequest, in text) (*gosdk.CallToolResult,
			any, error) {
			text := &gosdk.TextContent{Text: in.Text}
			return &gosdk.CallToolResult{Content: []gosdk.Content{text}}, nil, nil
		}
		gosdk.AddTool(server, &gosdk.Tool{Name: "echo"}, echo)
		gosdk.AddTool(server, &gosdk.Tool{Name: "grow"},
			func(ctx context.Context, r *gosdk.CallToolRequest, in text) (*gosdk.CallToolResult,
				any, error) {
				gosdk.AddTool(server, &gosdk.Tool{Name: "new"}, echo)
				return echo(ctx, r, in)
			})
		gosdk.AddTool(server, &gosdk.Tool{Name: "roots"},
			func(ctx context.Context, r *gosdk.CallToolRequest, in text) (*gosdk.CallToolResult,
				any, error) {
				//lint:ignore SA1019 this revision has roots
				roots, err := r.Session.ListRoots(ctx, nil)
				if err != nil {
					return nil, nil, err
				}
				return echo(ctx, r, text{roots.Roots[0].URI})
			})
		gosdk.AddTool(server, &gosdk.Tool{Name: "later"},
			func(ctx context.Context, r *gosdk.CallToolRequest, in text) (*gosdk.CallToolResult,
				any, error) {
				if r.Extra.CloseSSEStream != nil {
					r.Extra.CloseSSEStream(
						gosdk.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
				}
				return echo(ctx, r, in)
			})
		return handler(server)
	}
}

func goSDKStreamable(o gosdk.StreamableHTTPOptions) realServer {
	return goSDK(func(server *gosdk.Server) http.Handler {
		return gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return server },
			&o)
	})
}

func goSDKSSE() realServer {
	return goSDK(func(server *gosdk.Server) http.Handler {
		return gosdk.NewSSEHandler(func(*http.Request) *gosdk.Server { return server }, nil)
	})
}

func mcpGo(handler func(*mcpgo.MCPServer) http.Handler) realServer {
	return func() http.Handler {
		server := mcpgo.NewMCPServer("mcp-go", "1", mcpgo.WithToolCapabilities(true))
		echo := func(_ context.Context, r mark3labs.CallToolRequest) (*mark3labs.CallToolResult,
			error) {
			return mark3labs.NewToolResultText(r.GetString("text", "")), nil
		}
		server.AddTool(mark3labs.NewTool("echo"), echo)
		server.AddTool(mark3labs.NewTool("grow"),
			func(ctx context.Context, r mark3labs.CallToolRequest) (*mark3labs.CallToolResult,
				error) {
				server.AddTool(mark3labs.NewTool("new"), echo)
				return echo(ctx, r)
			})
		return handler(server)
	}
}

func mcpGoStreamable(o ...mcpgo.StreamableHTTPOption) realServer {
	return mcpGo(
		func(
			server *mcpgo.MCPServer) http.Handler {
			return mcpgo.NewStreamableHTTPServer(server, o...)
		})
}

func mcpGoSSE(o ...mcpgo.SSEOption) realServer {
	return mcpGo(
		func(server *mcpgo.MCPServer) http.Handler { return mcpgo.NewSSEServer(server, o...) })
}

var realServers = map[string]realServer{
	"go-sdk, streams": goSDKStreamable(gosdk.StreamableHTTPOptions{}),
	"go-sdk, JSON":    goSDKStreamable(gosdk.StreamableHTTPOptions{JSONResponse: true}),
	"go-sdk, resumable": goSDKStreamable(
		gosdk.StreamableHTTPOptions{EventStore: gosdk.NewMemoryEventStore(nil)}),
	"go-sdk, without sessions": goSDKStreamable(gosdk.StreamableHTTPOptions{Stateless: true}),
	"mcp-go":                   mcpGoStreamable(mcpgo.WithStateful(true)),
	"mcp-go, without sessions": mcpGoStreamable(mcpgo.WithStateLess(true)),
}

// Servers of HTTP+SSE.
var realSSEServers = map[string]realServer{
	"go-sdk": goSDKSSE(),
	"mcp-go": mcpGoSSE(mcpgo.WithSSEEndpoint("/")),
	"mcp-go, with keep-alive": mcpGoSSE(mcpgo.WithSSEEndpoint("/"),
		mcpgo.WithKeepAliveInterval(time.Millisecond)),
}

// dialReal starts a real server and performs the handshake with this revision.
func dialReal(t *testing.T, handler http.Handler, revision string) (*client, *httptest.Server) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := &client{T: t, Conn: DialStreamable(Options{URL: server.URL})}
	t.Cleanup(func() { c.Close() })
	c.handshakeReal(revision)
	return c, server
}

// dialRealSSE starts a real server of HTTP+SSE.
func dialRealSSE(t *testing.T, handler http.Handler) (*client, *httptest.Server) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := &client{T: t, Conn: DialHTTPSSE(Options{URL: server.URL})}
	t.Cleanup(func() { c.Close() }) // runs first, because the server waits for its stream to end
	return c, server
}

// handshakeReal performs the handshake with this revision.
func (c *client) handshakeReal(revision string) {
	c.Helper()
	c.initialize(revision)
	if m := c.readUntil("1"); !strings.Contains(string(m.Part(wire.PartResult)), revision) {
		c.Fatalf("initialize was answered with %s", m.Raw())
	}
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (c *client) initialize(revision string) {
	c.Helper()
	c.write(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` +
		revision +
		`","capabilities":{"roots":{}},"clientInfo":{"name":"t","version":"1"}}}`)
}

func (c *client) tool(id, name, text string) {
	c.Helper()
	c.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name +
		`","arguments":{"text":"` + text + `"}}}`)
}

// readUntil reads to the message with this method, or to the response with this id.
func (c *client) readUntil(what string) wire.Message {
	c.Helper()
	for {
		if m := c.read(); m.Method() == what || m.Kind() == wire.Response &&
			string(m.ID()) == what {
			return m
		}
	}
}

func (c *client) wantResult(id, text string) {
	c.Helper()
	if m := c.readUntil(id); !strings.Contains(string(m.Part(wire.PartResult)), text) {
		c.Errorf("got %s", m.Raw())
	}
}

func TestHTTPRealServers(t *testing.T) {
	for name, start := range realServers {
		for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
			t.Run(name+" "+revision, func(t *testing.T) {
				t.Parallel()
				c, _ := dialReal(t, start(), revision)
				c.callTools()
			})
		}
	}
}

// callTools calls the tools that all real servers have.
func (c *client) callTools() {
	c.Helper()
	c.write(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	c.wantResult("2", `"name":"echo"`)
	c.tool("3", "echo", "hello")
	c.wantResult("3", `"text":"hello"`)
	c.tool("4", "grow", "more")
	c.wantResult("4", `"text":"more"`)
	c.tool("5", "no-such-tool", "")
	if m := c.readUntil("5"); m.Part(wire.PartError) == nil {
		c.Errorf("got %s", m.Raw())
	}
}

// A server of HTTP+SSE is detected, and then used.
func TestSSERealServers(t *testing.T) {
	for name, start := range realSSEServers {
		for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
			t.Run(name+" "+revision, func(t *testing.T) {
				t.Parallel()
				c, server := dialRealSSE(t, start())
				first := &client{T: t, Conn: DialStreamable(Options{URL: server.URL})}
				defer first.Close()
				first.initialize(revision)
				if _, _, err := first.Read(); !errors.Is(err, ErrNotStreamable) {
					t.Errorf("over streamable HTTP: %v", err)
				}
				c.handshakeReal(revision)
				c.callTools()
			})
		}
	}
}

func TestSSERealServersSendNotifications(t *testing.T) {
	for name, start := range realSSEServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := dialRealSSE(t, start())
			c.handshakeReal("2025-06-18")
			c.tool("2", "grow", "more")
			c.readUntil("notifications/tools/list_changed")
		})
	}
}

func TestSSERealServerSendsRequests(t *testing.T) {
	c, _ := dialRealSSE(t, goSDKSSE()())
	c.handshakeReal("2025-11-25")
	c.tool("2", "roots", "")
	question := c.readUntil("roots/list")
	c.write(`{"jsonrpc":"2.0","id":` + string(question.ID()) +
		`,"result":{"roots":[{"uri":"file:///here"}]}}`)
	c.wantResult("2", "file:///here")
}

// Unsolicited notifications arrive on the standalone stream.
func TestHTTPRealServersSendNotifications(t *testing.T) {
	for _, name := range []string{"go-sdk, streams", "go-sdk, JSON", "go-sdk, resumable",
		"mcp-go"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := make(chan bool)
			handler := realServers[name]()
			c, _ := dialReal(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == "GET" {
					handler.ServeHTTP(&flushRecorder{ResponseWriter: w,
						flushed: sync.OnceFunc(func() { close(opened) })}, r)
					return
				}
				handler.ServeHTTP(w, r)
			}), "2025-06-18")
			<-opened
			c.tool("4", "grow", "more")
			c.readUntil("notifications/tools/list_changed")
		})
	}
}

// A flushRecorder records when the headers of the response were sent.
type flushRecorder struct {
	http.ResponseWriter
	flushed func()
}

func (f *flushRecorder) Unwrap() http.ResponseWriter { return f.ResponseWriter }
func (f *flushRecorder) Flush() {
	f.ResponseWriter.(http.Flusher).Flush()
	f.flushed()
}

func TestHTTPRealServerSendsRequests(t *testing.T) {
	c, _ := dialReal(t, realServers["go-sdk, streams"](), "2025-11-25")
	c.tool("2", "roots", "")
	question := c.readUntil("roots/list")
	c.write(`{"jsonrpc":"2.0","id":` + string(question.ID()) + `,"result":{"roots":[{"uri":"file:///here"}]}}`)
	c.wantResult("2", "file:///here")
}

// The server closes the stream of a call, and the client resumes it to get the response.
func TestHTTPRealServerIsResumed(t *testing.T) {
	c, _ := dialReal(t, realServers["go-sdk, resumable"](), "2025-11-25")
	c.tool("2", "later", "at last")
	c.wantResult("2", "at last")
}

// A restarted server does not know the session.
func TestHTTPRealServerLosesTheSession(t *testing.T) {
	for _, name := range []string{"go-sdk, streams", "mcp-go"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var handler atomic.Value
			handler.Store(http.HandlerFunc(realServers[name]().ServeHTTP))
			c, _ := dialReal(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				handler.Load().(http.HandlerFunc)(w, r)
			}), "2025-06-18")
			c.tool("2", "echo", "hello")
			c.wantResult("2", "hello")
			handler.Store(http.HandlerFunc(realServers[name]().ServeHTTP))
			c.tool("3", "echo", "hello")
			if err := c.wantLost("3", false); !errors.Is(err, ErrSessionLost) {
				t.Errorf("got %v", err)
			}
			if _, _, err := c.Read(); !errors.Is(err, ErrSessionLost) {
				t.Errorf("Read ends with %v", err)
			}
		})
	}
}
