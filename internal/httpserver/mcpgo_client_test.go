package httpserver

import (
	"context"
	"encoding/json"
	"net"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// testTool is an MCP server whose tool reports progress and returns its own name.
type testTool struct{}

func (testTool) HandleNotification(wire.Message, peer.Origin) {}

func (testTool) HandleRequest(r *peer.Request) {
	switch r.Method() {
	case "initialize":
		r.Reply([]byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
			`"serverInfo":{"name":"test","version":"1"}}`))
	case "tools/call":
		r.Notify(progressNotification(1))
		text, _ := json.Marshal(r.Name())
		r.Reply([]byte(`{"content":[{"type":"text","text":` + string(text) + `}]}`))
	default:
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found"))
	}
}

// The client of mcp-go works over a real network with both transports.
func TestMCPGoClient(t *testing.T) {
	srv := New(Options{Loopback: true,
		OpenSession: func(info SessionInfo, out transport.Writer) SessionHandler {
			handler := newTestHandler(info, out)
			handler.Peer = peer.NewPush(out, testTool{}, peer.Options{})
			return handler
		}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- srv.Run(ctx, ln) }()
	base := "http://" + ln.Addr().String()
	for name, dial := range map[string]func() (*client.Client, error){
		"streamable HTTP": func() (*client.Client, error) {
			return client.NewStreamableHttpClient(base + "/mcp")
		},
		"HTTP+SSE": func() (*client.Client, error) {
			return client.NewSSEMCPClient(base + "/sse")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			progressed := make(chan bool, 10)
			c.OnNotification(func(n mcp.JSONRPCNotification) {
				progressed <- n.Method == "notifications/progress"
			})
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			initRequest := mcp.InitializeRequest{Params: mcp.InitializeParams{
				ProtocolVersion: "2025-11-25",
				ClientInfo:      mcp.Implementation{Name: "t", Version: "1"},
			}}
			if r, err := c.Initialize(t.Context(), initRequest); err != nil ||
				r.ServerInfo.Name != "test" {
				t.Fatalf("%+v %v", r, err)
			}
			call := mcp.CallToolRequest{Params: mcp.CallToolParams{Name: "greet"}}
			r, err := c.CallTool(t.Context(), call)
			if err != nil || len(r.Content) != 1 || r.Content[0].(mcp.TextContent).Text != "greet" {
				t.Errorf("%+v %v", r, err)
			}
			if !<-progressed {
				t.Error("no progress")
			}
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}
