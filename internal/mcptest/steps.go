package mcptest

import (
	"strings"

	"mcpgateway/internal/wire"
)

// WantRequest returns the next message, which must be a request with this method.
func (p *Peer) WantRequest(method string) wire.Message {
	p.t.Helper()
	m := p.NextMessage()
	if m.Kind() != wire.Request || m.Method() != method {
		p.t.Fatalf("%s: got %s\nwant a request: %s", p.name, m.Raw(), method)
	}
	return m
}

// WantNotification returns the next message, which must be a notification with this method.
func (p *Peer) WantNotification(method string) wire.Message {
	p.t.Helper()
	m := p.NextMessage()
	if m.Kind() != wire.Notification || m.Method() != method {
		p.t.Fatalf("%s: got %s\nwant a notification: %s", p.name, m.Raw(), method)
	}
	return m
}

// SendResult sends a result response.
func (p *Peer) SendResult(id wire.ID, result string) {
	p.Sendf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// SendError sends an error response with this error object.
func (p *Peer) SendError(id wire.ID, object string) {
	p.Sendf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, id, object)
}

// InitializeResult is the default result of initialize.
const InitializeResult = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
	`"serverInfo":{"name":"scripted","version":"1"}}`

// ServeHandshake receives initialize, sends result ("" = InitializeResult), and receives
// notifications/initialized.
func (p *Peer) ServeHandshake(result string) {
	p.t.Helper()
	if result == "" {
		result = InitializeResult
	}
	p.SendResult(p.WantRequest("initialize").ID(), result)
	p.WantNotification("notifications/initialized")
}

// DiscoverResult is the default result of server/discover, for a backend with tools.
const DiscoverResult = `{"resultType":"complete","supportedVersions":["2026-07-28"],` +
	`"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public",` +
	`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}`

// ServeDiscover receives server/discover and sends result; "" = DiscoverResult.
func (p *Peer) ServeDiscover(result string) {
	p.t.Helper()
	if result == "" {
		result = DiscoverResult
	}
	p.SendResult(p.WantRequest("server/discover").ID(), result)
}

// ServeToolsList receives tools/list and sends result.
func (p *Peer) ServeToolsList(result string) {
	p.t.Helper()
	p.SendResult(p.WantRequest("tools/list").ID(), result)
}

// ServeStartup serves the handshake and the tools/list of a backend with these tools.
func (p *Peer) ServeStartup(names ...string) {
	p.t.Helper()
	p.ServeHandshake("")
	p.ServeToolsList(ToolsResult(names...))
}

// ToolsResult returns a tools/list result with tools that have these names.
func ToolsResult(names ...string) string {
	all := make([]string, 0, len(names))
	for _, name := range names {
		all = append(all, `{"name":`+string(wire.Quote(name))+`,"inputSchema":{"type":"object"}}`)
	}
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// Initialize performs the handshake as a client and returns the initialize result. The default
// capabilities are {}.
func (p *Peer) Initialize(revision string, capabilities ...string) string {
	p.t.Helper()
	declared := strings.Join(capabilities, "")
	if declared == "" {
		declared = "{}"
	}
	p.Sendf(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":%q,`+
		`"capabilities":%s,"clientInfo":{"name":"tester","version":"1"}}}`, revision, declared)
	m := p.NextMessage()
	if m.ID() != `"init"` || m.Part(wire.PartResult) == nil {
		p.t.Fatalf("%s: initialize failed: %s", p.name, m.Raw())
	}
	p.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return string(m.Part(wire.PartResult))
}
