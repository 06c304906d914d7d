package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// denyTools changes the configuration to deny the tools, prompts and resources of the backend gh
// that match these globs.
func denyTools(t *testing.T, set *backends.Set, generation, tools, prompts, resources string) {
	t.Helper()
	c := config.Backend{Name: "gh", Command: "gh", Enabled: true, StartTimeout: time.Minute,
		MaxInFlight: 20_000, Generation: config.GenerationSetting(generation)}
	c.Tools.Deny, c.Prompts.Deny, c.Resources.Deny = strings.Fields(tools), strings.Fields(prompts),
		strings.Fields(resources)
	applyConfig(t, set, c)
}

// applyConfig applies a configuration with these backends.
func applyConfig(t *testing.T, set *backends.Set, all ...config.Backend) {
	t.Helper()
	err := set.Apply(context.Background(), backends.Change{Backends: all,
		Catalog: catalog.Options{Prefix: catalog.PrefixOnCollision, Separator: "__",
			NameLimit: 50},
		CatalogWait: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
}

const completionServer = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{}},"serverInfo":{"name":"x","version":"1"}}`

// A client calls a tool that it has listed, but a reload has denied the tool since then. The error
// is the error for an unknown name, and no backend gets the call.
func TestListedToolIsForbiddenByReload_F_SEC_1_F_SEC_12(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{backendSet: &set}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeHandshake(completionServer)
		for range 4 {
			switch m := gh.NextMessage(); m.Method() {
			case "tools/list":
				gh.SendResult(m.ID(), mcptest.ToolsResult("open", "secret"))
			case "prompts/list":
				gh.SendResult(m.ID(), `{"prompts":[{"name":"open"},{"name":"secret"}]}`)
			case "resources/list":
				gh.SendResult(m.ID(),
					`{"resources":[{"uri":"x:open","name":"o"},{"uri":"x:secret","name":"s"}]}`)
			case "resources/templates/list":
				gh.SendResult(m.ID(),
					`{"resourceTemplates":[{"uriTemplate":"x:secret/{id}","name":"t"}]}`)
			}
		}
		listTools(t, client)
		denyTools(t, set, "legacy", "secret", "secret", "x:secret*")
		gone := `{"code":-32002,"message":"Resource not found","data":{"uri":"%s"}}`
		for i, one := range []struct{ method, params, failure string }{
			{"tools/call", `{"name":"secret"}`, `{"code":-32602,"message":"Unknown tool: secret"}`},
			{"tools/call", `{"name":"gh__secret"}`,
				`{"code":-32602,"message":"Unknown tool: gh__secret"}`},
			{"prompts/get", `{"name":"secret"}`,
				`{"code":-32602,"message":"Unknown prompt: secret"}`},
			{"resources/read", `{"uri":"x:secret"}`, fmt.Sprintf(gone, "x:secret")},
			{"resources/read", `{"uri":"x:secret/1"}`, fmt.Sprintf(gone, "x:secret/1")},
			{"resources/subscribe", `{"uri":"x:secret/1"}`, fmt.Sprintf(gone, "x:secret/1")},
			{"completion/complete",
				`{"ref":{"type":"ref/prompt","name":"secret"},"argument":{"name":"a","value":""}}`,
				`{"code":-32602,"message":"Unknown prompt: secret"}`},
			{"completion/complete",
				`{"ref":{"type":"ref/resource","uri":"x:secret/{id}"},"argument":{"name":"id","value":""}}`, `{"code":-32602,"message":"Unknown resource: x:secret/{id}"}`},
		} {
			id := fmt.Sprint(i + 10)
			client.Send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + one.method + `","params":` +
				one.params + `}`)
			for m := client.NextMessage(); ; m = client.NextMessage() {
				if m.Kind() != wire.Response { // the lists have changed
					continue
				}
				if want := `{"jsonrpc":"2.0","id":` + id + `,"error":` + one.failure +
					`}`; string(m.Raw()) != want {
					t.Errorf("%s %s: got %s, want %s", one.method, one.params, m.Raw(), want)
				}
				break
			}
		}
		for kind, want := range map[string]string{
			"tools":               `{"tools":[{"name":"open","inputSchema":{"type":"object"}}]}`,
			"prompts":             `{"prompts":[{"name":"open"}]}`,
			"resources":           `{"resources":[{"uri":"x:open","name":"o"}]}`,
			"resources/templates": `{"resourceTemplates":[]}`,
		} {
			client.Send(`{"jsonrpc":"2.0","id":1,"method":"` + kind + `/list"}`)
			if m := client.NextMessage(); string(m.Part(wire.PartResult)) != want {
				t.Errorf("%s: listed %s, want %s", kind, m.Raw(), want)
			}
		}
		gh.WantNothing()
		client.Send(toolsCall("99", "open"))
		gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":99,"result":{}}`)
		records := h.auditRecords()
		if !strings.Contains(records[0], `reason="the filters of backend gh deny it"`) ||
			!strings.Contains(records[1], `reason="the filters of backend gh deny it"`) {
			t.Errorf("the audit record does not name the filter: %q", records)
		}
		if len(records) != 3 || !strings.Contains(records[0], "outcome=rejected") ||
			!strings.Contains(records[1], "outcome=rejected") ||
			!strings.Contains(records[2], "outcome=ok") {
			t.Errorf("the audit log has\n%s", strings.Join(records, "\n"))
		}
	})
}

// While a call waits for its backend to start, a reload denies its tool.
func TestQueuedCallIsForbiddenByReload_F_SEC_1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{backendSet: &set, stateDir: t.TempDir()}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeStartup("secret")
		listTools(t, client)
		gh.Exit("exit 1", "")
		again := h.nextProcess("gh") // the handshake is still open
		client.Send(toolsCall("1", "secret"))
		synctest.Wait()
		denyTools(t, set, "legacy", "secret", "", "")
		again.ServeHandshake("")
		for m := client.NextMessage(); ; m = client.NextMessage() {
			if m.Kind() == wire.Response {
				if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: secret"}}`; string(m.Raw()) != want {
					t.Errorf("got %s, want %s", m.Raw(), want)
				}
				break
			}
		}
		if lines := again.TakeAll(); strings.Contains(strings.Join(lines, ""), "tools/call") {
			t.Errorf("the server got %q", lines)
		}
		if records := h.auditRecords(); len(records) != 1 ||
			!strings.Contains(records[0], "outcome=rejected") {
			t.Errorf("the audit log has %q", records)
		}
	})
}

// While a stateless client's call is suspended, a reload denies the tool or removes the backend.
// When the client continues the call, the call ends, also at the backend.
func TestSuspendedCallIsForbiddenByReload_F_SEC_1(t *testing.T) {
	for name, reload := range map[string]func(*testing.T, *backends.Set){
		"the tool is denied": func(t *testing.T,
			set *backends.Set) {
			denyTools(t, set, "legacy", "ask", "", "")
		},
		"the backend is removed": func(t *testing.T, set *backends.Set) { applyConfig(t, set) },
		"the backend is disabled": func(t *testing.T, set *backends.Set) {
			applyConfig(t, set, config.Backend{Name: "gh", Command: "gh", Generation: "legacy"})
		},
	} {
		t.Run(name, func(t *testing.T) { testSuspendedThenForbidden(t, reload) })
	}
}

func testSuspendedThenForbidden(t *testing.T, reload func(*testing.T, *backends.Set)) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{singleClient: true, backendSet: &set}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", clientCaps))
		gh := h.nextProcess("gh")
		gh.ServeStartup("ask")
		client.NextMessage()
		client.Send(firstRequest("1"))
		gh.WantRequest("tools/call")
		gh.Send(
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object"}}}`)
		ticket := wantInputRequired(t, client, "q1")
		reload(t, set)
		client.Send(retryRequest("2", `{"q1":{"action":"accept","content":{}}}`, ticket))
		client.Want(
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Unknown tool: ask"}}`)
		sent := strings.Join(gh.TakeAll(), "\n")
		if !strings.Contains(sent, `{"action":"cancel"}`) ||
			!strings.Contains(sent, "notifications/cancelled") || strings.Contains(sent, "accept") {
			t.Errorf("the backend got %s", sent)
		}
		if n := h.gateway.SuspendedCalls(); n != 0 {
			t.Errorf("%d calls are suspended", n)
		}
		client.Send(firstRequest("3"))
		client.Want(
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"Unknown tool: ask"}}`)
		gh.WantNothing()
	})
}

// A session client's call requires input at a modern backend. If a reload has denied the call
// since then, the call is not sent again with the responses.
func TestContinuationIsForbiddenByReload_F_SEC_1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{singleClient: true,
			generation: map[string]string{"gh": "modern"}, backendSet: &set}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", `{"elicitation":{}}`)
		gh := h.nextProcess("gh")
		gh.ServeDiscover("")
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		listTools(t, client)
		client.Send(toolsCall("1", "ask"))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"S"}`)
		request := client.WantRequest("elicitation/create")
		denyTools(t, set, "modern", "ask", "", "")
		client.WantNotification("notifications/tools/list_changed")
		client.SendResult(request.ID(), `{"action":"accept","content":{}}`)
		client.Want(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: ask"}}`)
		gh.WantNothing()
		if records := h.auditRecords(); len(records) != 1 ||
			!strings.Contains(records[0], "outcome=rejected") {
			t.Errorf("the audit log has %q", records)
		}
	})
}

// The user has accepted the URL elicitations of a call. If a reload has denied the call since
// then, the call is not sent again.
func TestRerunIsForbiddenByReload_F_SEC_1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{singleClient: true, backendSet: &set}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", urlElicitationCap))
		gh := h.nextProcess("gh")
		gh.ServeStartup("ask")
		client.NextMessage()
		ticket, back := startURLElicitation(t, client, gh)
		denyTools(t, set, "legacy", "ask", "", "")
		client.Send(back("2", acceptBoth, ticket))
		client.Want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Unknown tool: ask"}}`)
		gh.WantNothing()
	})
}
