package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

const allCapsHandshake = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{"subscribe":true},"logging":{},` +
	`"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"experimental":{"bar":{"x":1.0}},"extensions":{"foo":{}}},"serverInfo":{"name":"s","version":"1"}}`

// serveFullStartup handles the startup of a backend with all capabilities, and with a tool, a
// prompt and a resource that are named after the backend.
func serveFullStartup(p *mcptest.Peer, name string) {
	p.ServeHandshake(allCapsHandshake)
	p.ServeToolsList(mcptest.ToolsResult(name))
	p.SendResult(p.WantRequest("prompts/list").ID(), `{"prompts":[{"name":"`+name+`"}]}`)
	p.SendResult(p.WantRequest("resources/list").ID(),
		`{"resources":[{"uri":"`+name+`://","name":"r"}]}`)
	p.SendResult(p.WantRequest("resources/templates/list").ID(), `{"resourceTemplates":[]}`)
}

// openTwoClients starts a harness with running backends and two clients.
func openTwoClients(t *testing.T, o settings,
	names ...string) (h *harness, a, b *mcptest.Peer, backends map[string]*mcptest.Peer) {
	t.Helper()
	h = newHarness(t, o, names...)
	first, served := h.connectClient()
	first.Initialize("2025-11-25")
	backends = make(map[string]*mcptest.Peer)
	for _, name := range names {
		backends[name] = h.nextProcess(name)
		serveFullStartup(backends[name], name)
	}
	listTools(t, first)
	first.CloseSend()
	<-served
	a, _ = h.connectClient()
	a.Initialize("2025-11-25", allClientCaps)
	b, _ = h.connectClient()
	b.Initialize("2025-11-25", allClientCaps)
	return h, a, b, backends
}

// FIDELITY-16, VERSION-05: the capabilities for a client are those of the backends, including
// unknown keys.
func TestVERSION_05_FIDELITY_16_CapabilitiesOfBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, _, _ := openTwoClients(t, settings{}, "gh", "docs")
		client, _ := h.connectClient()
		got := client.Initialize("2025-11-25")
		want := `"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},` +
			`"logging":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"experimental":{"bar":{"x":1.0}},"extensions":{"foo":{}}}`
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
		client.Send(
			`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"gh"}}}`)
		client.Want(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: completion/complete"}}`)
	})
}

// A method is not found if its capability was not offered to the client.
func TestUndeclaredMethodsAreNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		h.nextProcess("gh").ServeStartup("a")
		listTools(t, client)
		client, _ = h.connectClient()
		client.Initialize("2025-11-25")
		for _, method := range []string{
			"resources/subscribe", "resources/unsubscribe", "logging/setLevel",
			"completion/complete",
			"tasks/get", "tasks/result", "tasks/list", "tasks/cancel",
		} {
			client.Send(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{}}`)
			client.Want(
				`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: ` +
					method + `"}}`)
		}
	})
}

// Resource updates are sent only to subscribers.
func TestResourceUpdatesReachSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b, backends := openTwoClients(t, settings{}, "gh", "docs")
		gh := backends["gh"]
		const updated = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"gh://","x":1.0}}`
		a.Send(
			`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"gh://","x":1.0}}`)
		m := gh.WantRequest("resources/subscribe")
		if got := string(m.Part(wire.PartParams)); got != `{"uri":"gh://","x":1.0}` {
			t.Errorf("the request is %s", got)
		}
		gh.SendResult(m.ID(), "{}")
		a.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		gh.Send(updated)
		a.Want(updated)
		b.WantNothing()
		a.Send(`{"jsonrpc":"2.0","id":2,"method":"resources/unsubscribe","params":{"uri":"gh://"}}`)
		gh.SendResult(gh.WantRequest("resources/unsubscribe").ID(), "{}")
		a.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		gh.Send(updated)
		a.WantNothing()
		a.Send(
			`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"nobody://"}}`)
		a.Want(
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"Resource not found","data":{"uri":"nobody://"}}}`)
		a.Send(`{"jsonrpc":"2.0","id":4,"method":"resources/subscribe"}`)
		a.Want(
			`{"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"Invalid params: resources/subscribe needs a uri"}}`)
		backends["docs"].WantNothing()
	})
}

// The completion of a URL elicitation is sent only to the client of the elicitation, even if the
// call has ended.
func TestElicitationCompleteReachesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b, backends := openTwoClients(t, settings{}, "gh", "docs")
		gh, docs := backends["gh"], backends["docs"]
		a.Send(toolsCall("1", "gh"))
		callOfA := gh.WantRequest("tools/call")
		gh.Send(
			`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"mode":"url","url":"https://x","elicitationId":"e1","message":"m"}}`)
		a.SendResult(a.WantRequest("elicitation/create").ID(), `{"action":"accept"}`)
		gh.Want(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`)
		const failure = `{"code":-32042,"message":"m","data":{"x":1.0,"elicitations":[{"mode":"url","elicitationId":"e2","message":"%sm"},{"message":"%sn"}]}}`
		gh.SendError(callOfA.ID(), strings.ReplaceAll(failure, "%s", ""))
		a.Want(`{"jsonrpc":"2.0","id":1,"error":` + strings.ReplaceAll(failure, "%s", "[gh] ") +
			`}`)
		complete := func(p *mcptest.Peer, id string) string {
			line := `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"` + id + `","x":1.0}}`
			p.Send(line)
			return line
		}
		a.Want(complete(gh, "e1"))
		a.Want(complete(gh, "e2"))
		complete(gh, "nobody's")
		complete(docs, "e1")
		// from here, unsolicited messages of gh belong to b, unless an id in them belongs to
		// another session
		b.Send(toolsCall("1", "gh"))
		gh.WantRequest("tools/call")
		a.Want(complete(gh, "e1"))
		a.WantNothing()
		b.WantNothing()
	})
}

// CONC-09: messages on a per-session connection are sent only to the client of the session.
func TestCONC_09_PerSessionConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a, b, _ := openTwoClients(t, settings{sharing: map[string]string{"gh": "session"}}, "gh")
		a.Send(toolsCall("1", "gh"))
		ofA := h.nextProcess("gh")
		m := ofA.WantRequest("initialize")
		if caps, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(caps) !=
			allClientCaps {
			t.Errorf("got %s", caps)
		}
		ofA.SendResult(m.ID(), allCapsHandshake)
		ofA.WantNotification("notifications/initialized")
		ofA.WantRequest("tools/call")
		b.Send(toolsCall("1", "gh"))
		ofB := h.nextProcess("gh")
		ofB.ServeHandshake(allCapsHandshake)
		ofB.WantRequest("tools/call")
		ofA.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
		a.WantNotification("notifications/message")
		b.WantNothing()
		b.Send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		ofB.WantNotification("notifications/roots/list_changed")
		ofA.WantNothing()
		a.Close()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		ofA.WantNotification("notifications/cancelled")
		if !ofA.Disconnected() || ofB.Disconnected() {
			t.Error("the ended session's connection is open, or the other one's is closed")
		}
		b.WantNothing()
	})
}

// roots/list_changed of a client without the capability is not forwarded.
func TestRootsListChangedRequiresCapability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, _, _ := startCallThatAsks(t, settings{}, `{"sampling":{}}`)
		client.Send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		gh.WantNothing()
	})
}
