package httpserver

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A modernTool serves one modern request like testTool. It does not respond to a call of "wait".
type modernTool struct {
	testTool
	waiting chan<- bool
}

func (s *modernTool) HandleRequest(r *peer.Request) {
	const common = `"resultType":"complete"`
	switch {
	case r.Method() == "server/discover":
		r.Reply([]byte(`{` + common +
			`,"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},` +
			`"ttlMs":0,"cacheScope":"private"}`))
	case r.Name() == "wait":
		s.waiting <- true
	case r.Method() == "tools/call":
		r.Notify(progressNotification(1))
		r.Reply([]byte(`{` + common + `,"content":[{"type":"text","text":"greet"}]}`))
	default:
		s.testTool.HandleRequest(r)
	}
}

// The client of the Go SDK detects the modern generation, is served, and cancels a call.
func TestGoSDKClient(t *testing.T) {
	started, cancelled := make(chan bool), make(chan bool, 1)
	open := func(_ SessionInfo, out transport.Writer) SessionHandler {
		t.Error("the client has opened a session")
		return silentHandler{out}
	}
	srv := New(Options{Loopback: true, OpenSession: open,
		ServeRequest: func(_ SessionInfo, m wire.Message, out transport.Writer) func() {
			s := &modernTool{waiting: started}
			return servePeer(s, m, out, func() { cancelled <- true })
		}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- srv.Run(ctx, ln) }()

	progressed := make(chan bool, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(
			context.Context, *mcp.ProgressNotificationClientRequest,
		) {
			progressed <- true
		},
	})
	c, err := client.Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: "http://" + ln.Addr().String() + "/mcp",
			DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.InitializeResult().ProtocolVersion; got != modernRevision {
		t.Errorf("negotiated %s", got)
	}
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "greet"})
	if err != nil || len(r.Content) != 1 || r.Content[0].(*mcp.TextContent).Text != "greet" {
		t.Errorf("%+v %v", r, err)
	}
	<-progressed
	calling, hangUp := context.WithCancel(t.Context())
	called := make(chan error)
	go func() {
		_, err := c.CallTool(calling, &mcp.CallToolParams{Name: "wait"})
		called <- err
	}()
	<-started
	hangUp()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
	<-cancelled
	_ = c.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}
