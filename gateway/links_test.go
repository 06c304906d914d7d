package gateway_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// serveResourcesStartup handles the startup of a server that has a tool, a prompt and the given
// resources, which are JSON objects separated by commas.
func serveResourcesStartup(t *testing.T, p *mcptest.Peer, tool, resources string) {
	t.Helper()
	p.ServeHandshake(
		`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true},"prompts":{}},"serverInfo":{"name":"x","version":"1"}}`)
	for range 4 {
		switch m := p.NextMessage(); m.Method() {
		case "tools/list":
			p.SendResult(m.ID(), mcptest.ToolsResult(tool))
		case "prompts/list":
			p.SendResult(m.ID(), `{"prompts":[{"name":"p`+tool+`"}]}`)
		case "resources/list":
			p.SendResult(m.ID(), `{"resources":[`+resources+`]}`)
		case "resources/templates/list":
			p.SendResult(m.ID(), `{"resourceTemplates":[]}`)
		}
	}
}

// A result contains links to resources that are in no list. The client of the result reads the
// resources, and subscribes to them, at the backend of the result; other clients cannot. A
// resource that another backend lists belongs to that other backend.
func TestLinks_SessionReadsLinkedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "a", "b")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		a, b := h.nextProcess("a"), h.nextProcess("b")
		serveResourcesStartup(t, a, "one", `{"uri":"x:listed","name":"l"}`)
		serveResourcesStartup(t, b, "two", "")
		listTools(t, client)
		read := func(id int, uri string) string {
			return fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%d,"method":"resources/read","params":{"uri":%q}}`, id, uri)
		}
		missing := func(id int, uri string) string {
			return fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%d,"error":{"code":-32002,"message":"Resource not found","data":{"uri":%q}}}`, id, uri)
		}
		client.Send(read(1, "x:linked"))
		client.Want(missing(1, "x:linked"))

		client.Send(toolsCall("2", "two"))
		b.SendResult(b.WantRequest("tools/call").ID(),
			`{"content":[{"type":"resource_link","uri":"x:linked","name":"n"},`+
				`{"type":"resource","resource":{"uri":"x:embedded","text":"t"}},{"type":"resource_link","uri":"x:listed","name":"n"}]}`)
		client.NextMessage()
		client.Send(`{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"ptwo"}}`)
		b.SendResult(b.WantRequest("prompts/get").ID(),
			`{"messages":[{"role":"user","content":{"type":"resource_link","uri":"x:prompted","name":"n"}}]}`)
		client.NextMessage()
		for i, uri := range []string{"x:linked", "x:embedded", "x:prompted"} {
			client.Send(read(10+i, uri))
			asked := b.WantRequest("resources/read")
			if got := paramAt(t, asked, "uri"); got != `"`+uri+`"` {
				t.Errorf("read %s, want %s", got, uri)
			}
			b.SendResult(asked.ID(), `{"contents":[]}`)
			client.Want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"contents":[]}}`, 10+i))
		}
		client.Send(
			`{"jsonrpc":"2.0","id":20,"method":"resources/subscribe","params":{"uri":"x:linked"}}`)
		b.SendResult(b.WantRequest("resources/subscribe").ID(), `{}`)
		client.Want(`{"jsonrpc":"2.0","id":20,"result":{}}`)
		client.Send(read(21, "x:listed"))
		a.SendResult(a.WantRequest("resources/read").ID(), `{"contents":[]}`)
		client.NextMessage()

		other, _ := h.connectClient()
		other.Initialize("2025-11-25")
		listTools(t, other)
		other.Send(read(30, "x:linked"))
		other.Want(missing(30, "x:linked"))
	})
}

// At the limit the oldest link is removed.
func TestLinks_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "a", "b")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		a, b := h.nextProcess("a"), h.nextProcess("b")
		serveResourcesStartup(t, a, "one", "")
		serveResourcesStartup(t, b, "two", "")
		listTools(t, client)
		content := ""
		for i := range 257 {
			content += fmt.Sprintf(`,{"type":"resource_link","uri":"x:%d","name":"n"}`, i)
		}
		client.Send(toolsCall("2", "two"))
		b.SendResult(b.WantRequest("tools/call").ID(), `{"content":[`+content[1:]+`]}`)
		client.NextMessage()
		client.Send(`{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"x:0"}}`)
		if m := client.NextMessage(); m.Part(wire.PartError) == nil {
			t.Errorf("the oldest link was not removed: %s", m.Raw())
		}
		client.Send(`{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"x:1"}}`)
		b.SendResult(b.WantRequest("resources/read").ID(), `{"contents":[]}`)
		client.Want(`{"jsonrpc":"2.0","id":4,"result":{"contents":[]}}`)
	})
}

// A stateless client can read linked resources in later requests.
func TestLinks_StatelessClientReadsLinkedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "a", "b")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", clientCaps))
		a, b := h.nextProcess("a"), h.nextProcess("b")
		serveResourcesStartup(t, a, "one", "")
		serveResourcesStartup(t, b, "two", "")
		client.NextMessage()
		client.Send(modernRequest("1", "tools/call", `"name":"two",`, clientCaps))
		b.SendResult(b.WantRequest("tools/call").ID(),
			`{"content":[{"type":"resource_link","uri":"x:linked","name":"n"}]}`)
		client.NextMessage()
		client.Send(modernRequest("2", "resources/read", `"uri":"x:linked",`, clientCaps))
		b.SendResult(b.WantRequest("resources/read").ID(), `{"contents":[]}`)
		if m := client.NextMessage(); m.Part(wire.PartError) != nil {
			t.Errorf("the response is %s", m.Raw())
		}
	})
}
