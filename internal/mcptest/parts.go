package mcptest

import (
	"strings"

	"mcpgateway/internal/wire"
)

// Asked takes the next line, which must be a request of this method.
func (p *Peer) HandleRequest(method string) wire.Message {
	p.t.Helper()
	m := p.Message()
	if m.Kind() != wire.Request || m.Method() != method {
		p.t.Fatalf("%s: got %s\nwant a request: %s", p.name, m.Raw(), method)
	}
	return m
}

// Told takes the next line, which must be a notification of this method.
func (p *Peer) HandleNotification(method string) wire.Message {
	p.t.Helper()
	m := p.Message()
	if m.Kind() != wire.Notification || m.Method() != method {
		p.t.Fatalf("%s: got %s\nwant a notification: %s", p.name, m.Raw(), method)
	}
	return m
}

// Reply sends a result.
func (p *Peer) Reply(id wire.ID, result string) {
	p.Sendf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// Fail sends an error object.
func (p *Peer) Fail(id wire.ID, object string) {
	p.Sendf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, id, object)
}

// Hello is what a backend answers to initialize, unless the test cares.
const Hello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"scripted","version":"1"}}`

// Greet plays a backend's part of the handshake; result "" is Hello.
func (p *Peer) Greet(result string) {
	p.t.Helper()
	if result == "" {
		result = Hello
	}
	p.Reply(p.HandleRequest("initialize").ID(), result)
	p.HandleNotification("notifications/initialized")
}

// Discovered is a result of server/discover: of a backend with tools.
const Discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}`

// Discover answers the server/discover that must come next; result "" is Discovered.
func (p *Peer) Discover(result string) {
	p.t.Helper()
	if result == "" {
		result = Discovered
	}
	p.Reply(p.HandleRequest("server/discover").ID(), result)
}

// List answers the tools/list that must come next.
func (p *Peer) List(result string) {
	p.t.Helper()
	p.Reply(p.HandleRequest("tools/list").ID(), result)
}

// Ready is Greet and List for a backend with these tools.
func (p *Peer) Ready(names ...string) {
	p.t.Helper()
	p.Greet("")
	p.List(Tools(names...))
}

// Tools returns a result of tools/list with tools of these names.
func Tools(names ...string) string {
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
	m := p.Message()
	if m.ID() != `"init"` || m.Part(wire.PartResult) == nil {
		p.t.Fatalf("%s: initialize was answered with %s", p.name, m.Raw())
	}
	p.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return string(m.Part(wire.PartResult))
}
