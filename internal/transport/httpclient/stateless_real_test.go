package httpclient

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpgateway/internal/wire"
)

// Servers of the revision without sessions.
var realStatelessServers = map[string]realServer{
	"go-sdk, streams": goSDKStreamable(gosdk.StreamableHTTPOptions{Stateless: true}),
	"go-sdk, JSON": goSDKStreamable(gosdk.StreamableHTTPOptions{Stateless: true,
		JSONResponse: true}),
	"mcp-go": mcpGoStreamable(mcpgo.WithStateLess(true)),
}

// metaHeaders implements Options.RequestHeaders for the requests of these tests.
func metaHeaders(m wire.Message) map[string]string {
	h := map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": m.Method()}
	if m.Method() == "tools/call" {
		h["Mcp-Name"] = m.Name()
	}
	return h
}

// dialRealStateless returns a Conn to a real server.
func dialRealStateless(t *testing.T, handler http.Handler) (*client, *httptest.Server) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := &client{T: t, Conn: DialStateless(Options{URL: server.URL, RequestHeaders: metaHeaders})}
	t.Cleanup(func() { c.Close() }) // runs first, because the server waits for its streams to end
	return c, server
}

// writeRequest writes a request with client metadata; params contains further members of its
// params.
func (c *client) writeRequest(id, method, params string) {
	c.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`
	if params != "" {
		params += ","
	}
	c.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params +
		meta + `}}`)
}

func TestStatelessRealServers(t *testing.T) {
	for name, start := range realStatelessServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := start()
			c, _ := dialRealStateless(t,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != "POST" || r.Header.Get("Mcp-Session-Id") != "" {
						t.Errorf("%s with session %q", r.Method, r.Header.Get("Mcp-Session-Id"))
					}
					handler.ServeHTTP(w, r)
				}))
			c.writeRequest("1", "server/discover", "")
			c.wantResult("1", `"2026-07-28"`)
			c.writeRequest("2", "tools/list", "")
			c.wantResult("2", `"name":"echo"`)
			c.writeRequest("3", "tools/call", `"name":"echo","arguments":{"text":"hello"}`)
			c.wantResult("3", `"text":"hello"`)
			c.writeRequest("4", "tools/call", `"name":"no-such-tool"`)
			c.wantError("4")
			c.writeRequest("5", "no/such", "")
			c.wantError("5")
		})
	}
}

func (c *client) wantError(id string) {
	c.Helper()
	if m := c.readUntil(id); m.Part(wire.PartError) == nil {
		c.Errorf("got %s", m.Raw())
	}
}

// A change arrives on the stream of the request that has subscribed, and the server notices when
// the stream is closed.
func TestStatelessRealServersSendChanges(t *testing.T) {
	for _, name := range []string{"go-sdk, streams", "mcp-go"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over := make(chan bool, 1)
			handler := realStatelessServers[name]()
			c, _ := dialRealStateless(t,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					handler.ServeHTTP(w, r)
					if r.Header.Get("Mcp-Method") == "subscriptions/listen" {
						over <- r.Context().Err() != nil
					}
				}))
			c.writeRequest("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
			c.readUntil("notifications/subscriptions/acknowledged")
			c.writeRequest("2", "tools/call", `"name":"grow","arguments":{"text":"more"}`)
			for seen := 0; seen < 2; {
				m, about, err := c.Read()
				switch {
				case err != nil:
					t.Fatal(err)
				case m.Method() == "notifications/tools/list_changed" &&
					about == "1", string(m.ID()) == "2":
					seen++
				}
			}
			c.cancel("1")
			if !<-over {
				t.Error("the server ended the stream")
			}
			c.writeRequest("3", "tools/list", "")
			c.wantResult("3", `"name":"new"`)
		})
	}
}

// All real servers are probed. Servers of legacy revisions are recognised and then used with a
// handshake.
func TestStatelessProbeOfRealServers(t *testing.T) {
	for name, start := range realServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			probe, server := dialRealStateless(t, start())
			probe.writeRequest("1", "server/discover", "")
			if m, _, err := probe.Read(); err != nil && !errors.Is(err, ErrNotStateless) {
				t.Errorf("got %s, %v", m.Raw(), err)
			} else if knows := strings.Contains(string(m.Part(wire.PartResult)),
				"2026-07-28"); knows != (strings.HasPrefix(name, "mcp-go") ||
				strings.Contains(name, "without sessions")) {
				t.Errorf("got %s, %v", m.Raw(), err)
			}
			c := &client{T: t, Conn: DialStreamable(Options{URL: server.URL})}
			defer c.Close()
			c.handshakeReal("2025-11-25")
			c.callTools()
		})
	}
	for name, start := range realSSEServers {
		t.Run("HTTP+SSE, "+name, func(t *testing.T) {
			t.Parallel()
			probe, _ := dialRealStateless(t, start())
			probe.writeRequest("1", "server/discover", "")
			if m, _, err := probe.Read(); !errors.Is(err, ErrNotStateless) {
				t.Errorf("got %s, %v", m.Raw(), err)
			}
		})
	}
}
