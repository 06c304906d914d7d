package mcptest

import (
	"strings"

	"mcpgateway/internal/wire"
)

// Asked takes the next line, which must be a request of this method.
func (p *Peer) HandleRequest(method string) wire.Message {
	p.t.Helper()
	m := p.NextMessage()
	if m.Kind() != wire.Request || m.Method() != method {
		p.t.Fatalf("%s: got %s\nwant a request: %s", p.name, m.Raw(), method)
	}
	return m
}

// Told takes the next line, which must be a notification of this method.
func (p *Peer) HandleNotification(method string) wire.Message {
	p.t.Helper()
	m := p.NextMessage()
	if m.Kind() != wire.Notification || m.Method() != method {
		p.t.Fatalf("%s: got %s\nwant a notification: %s", p.name, m.Raw(), method)
	}
	return m
}

// SendResult sends a result.
func (p *Peer) SendResult(id wire.ID, result string) {
	p.Sendf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// SendError sends an error object.
func (p *Peer) SendError(id wire.ID, object string) {
	p.Sendf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, id, object)
}

// InitializeResult is what a backend answers to initialize, unless the test cares.
const InitializeResult = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"scripted","version":"1"}}`

// ServeHandshake plays a backend's part of the handshake; result "" is InitializeResult.
func (p *Peer) ServeHandshake(result string) {
	p.t.Helper()
	if result == "" {
		result = InitializeResult
	}
	p.SendResult(p.HandleRequest("initialize").ID(), result)
	p.HandleNotification("notifications/initialized")
}

// DiscoverResult is a result of server/discover: of a backend with tools.
const DiscoverResult = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}`

// ServeDiscover answers the server/discover that must come next; result "" is DiscoverResult.
func (p *Peer) ServeDiscover(result string) {
	p.t.Helper()
	if result == "" {
		result = DiscoverResult
	}
	p.SendResult(p.HandleRequest("server/discover").ID(), result)
}

// ServeToolsList answers the tools/list that must come next.
func (p *Peer) ServeToolsList(result string) {
	p.t.Helper()
	p.SendResult(p.HandleRequest("tools/list").ID(), result)
}

// ServeStartup is Greet and List for a backend with these tools.
func (p *Peer) ServeStartup(names ...string) {
	p.t.Helper()
	p.ServeHandshake("")
	p.ServeToolsList(ToolsResult(names...))
}

// ToolsResult returns a result of tools/list with tools of these names.
func ToolsResult(names ...string) string {
	all := make([]string, 0, len(names))
	for _, name := range names {
		all = append(all, `{"name":`+string(wire.Quote(name))+`,"inputSchema":{"type":"object"}}`)
	}
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// Initialize plays a client's part of the handshake and returns the result. The
// capabilities that it declares are {} unless they are given.
func (p *Peer) Initialize(revision string, capabilities ...string) string {
	p.t.Helper()
	can := strings.Join(capabilities, "")
	if can == "" {
		can = "{}"
	}
	p.Sendf(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"tester","version":"1"}}}`, revision, can)
	m := p.NextMessage()
	if m.ID() != `"init"` || m.Part(wire.PartResult) == nil {
		p.t.Fatalf("%s: initialize was answered with %s", p.name, m.Raw())
	}
	p.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return string(m.Part(wire.PartResult))
}
