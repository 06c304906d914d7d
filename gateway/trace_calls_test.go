package gateway_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"mcpgateway/internal/mcptest/otlptest"
	"mcpgateway/internal/wire"
)

// ofKind returns the spans of a kind.
func ofKind(all []otlptest.Span, kind tracepb.Span_SpanKind) []otlptest.Span {
	other := func(s otlptest.Span) bool { return s.Kind != kind }
	return slices.DeleteFunc(slices.Clone(all), other)
}

// Each request of a suspended call has a SERVER span of its own, and the request to the legacy
// backend one CLIENT span, which ends after the first request. The span of a request that continues
// the call has a link to the first one.
func TestTrace_SuspendedAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openTraced(t, "", settings{singleClient: true}, "gh")
		client, _ := g.connectClient()
		client.Send(modernRequest("0", "tools/list", "", clientCaps))
		gh := g.nextProcess("gh")
		gh.ServeStartup("ask")
		client.NextMessage()
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create",` +
			`"params":{"message":"Who?","requestedSchema":{"type":"object"}}}`)
		ticket := wantInputRequired(t, client, "q1")
		if all := g.spans(); len(all) != 1 || all[0].Kind != tracepb.Span_SPAN_KIND_SERVER ||
			all[0].Attribute("mcpgateway.outcome") != "input_required" ||
			all[0].Status.Code != tracepb.Status_STATUS_CODE_UNSET {
			t.Fatalf("got %v", all)
		}
		client.Send(retryRequest("2", `{"q1":{"action":"accept","content":{}}}`, ticket))
		gh.NextMessage()
		gh.SendResult(asked.ID(), `{"content":[]}`)
		client.NextMessage()
		all := g.spans()
		servers := ofKind(all, tracepb.Span_SPAN_KIND_SERVER)
		clients := ofKind(all, tracepb.Span_SPAN_KIND_CLIENT)
		if len(servers) != 2 || len(clients) != 1 {
			t.Fatalf("got %v", all)
		}
		first, second, child := servers[0], servers[1], clients[0]
		if string(child.ParentSpanId) != string(first.SpanId) ||
			child.EndTimeUnixNano < first.EndTimeUnixNano {
			t.Errorf("the spans are\n%v\n%v", first, child)
		}
		if len(second.Links) != 1 || string(second.Links[0].SpanId) != string(first.SpanId) ||
			string(second.TraceId) == string(first.TraceId) ||
			second.Attribute("mcpgateway.outcome") != "ok" {
			t.Errorf("the second span is %v", second)
		}
		wantAttributes(t, second, map[string]string{"mcp.protocol.version": "2026-07-28",
			"mcp.session.id": "", "network.transport": "pipe", "mcpgateway.queue.duration": "0"})
	})
}

// If a modern backend asks for input, each request to it has a CLIENT span below the one SERVER
// span of the session client's request, and a traceparent of its own.
func TestTrace_RoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openTraced(t, "", settings{singleClient: true,
			generation: map[string]string{"gh": "modern"}}, "gh")
		client, _ := g.connectClient()
		client.Initialize("2025-11-25", `{"elicitation":{}}`)
		gh := g.nextProcess("gh")
		gh.ServeDiscover("")
		gh.ServeToolsList(`{"tools":[{"name":"ask","inputSchema":{"type":"object"}}],` +
			`"resultType":"complete","ttlMs":0,"cacheScope":"private"}`)
		listTools(t, client)
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}`)
		var sent []string
		for round := range 2 {
			call := gh.WantRequest("tools/call")
			sent = append(sent, strings.Trim(paramAt(t, call, "_meta", "traceparent"), `"`))
			if round == 0 {
				gh.SendResult(call.ID(), `{"resultType":"input_required","inputRequests":{"u":`+
					`{"method":"elicitation/create","params":{"message":"Who?",`+
					`"requestedSchema":{"type":"object","properties":{}}}}}}`)
				client.SendResult(client.NextMessage().ID(), `{"action":"accept","content":{}}`)
			} else {
				gh.SendResult(call.ID(), `{"resultType":"complete","content":[]}`)
			}
		}
		client.NextMessage()
		all := g.spans()
		clients := ofKind(all, tracepb.Span_SPAN_KIND_CLIENT)
		if len(all) != 3 || len(clients) != 2 {
			t.Fatalf("got %v", all)
		}
		for i, s := range clients {
			if string(s.ParentSpanId) != string(all[2].SpanId) || traceparentOf(s) != sent[i] {
				t.Errorf("round %d: %v, sent %s", i, s, sent[i])
			}
			wantAttributes(t, s, map[string]string{"mcp.protocol.version": "2026-07-28"})
		}
	})
}

// Prompts, resources and completions are traced like tools. The URI of a resource is no part of the
// name of its span, and its query is masked. Requests that the gateway answers have no span.
func TestTrace_OtherMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openTraced(t, "", settings{}, "gh")
		client, _ := g.connectClient()
		client.Initialize("2025-06-18")
		gh := g.nextProcess("gh")
		gh.SendResult(gh.WantRequest("initialize").ID(), `{"protocolVersion":"2025-06-18",`+
			`"capabilities":{"prompts":{},"resources":{},"completions":{}},`+
			`"serverInfo":{"name":"x","version":"1"}}`)
		for open := 3; open > 0; {
			m := gh.NextMessage()
			lists := map[string]string{
				"prompts/list":             `{"prompts":[{"name":"p"}]}`,
				"resources/list":           `{"resources":[]}`,
				"resources/templates/list": `{"resourceTemplates":[{"name":"t","uriTemplate":"db://{+path}"}]}`,
			}
			if list, ok := lists[m.Method()]; ok {
				gh.SendResult(m.ID(), list)
				open--
			} else if m.Kind() == wire.Request {
				gh.SendResult(m.ID(), "{}")
			}
		}
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`)
		client.NextMessage()
		for i, request := range []string{
			`"prompts/get","params":{"name":"p"}`,
			`"resources/read","params":{"uri":"db://h/x?token=s3cret"}`,
			`"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}`,
			`"completion/complete","params":{"ref":{"type":"ref/resource","uri":"db://{+path}"},"argument":{"name":"a","value":"b"}}`,
		} {
			client.Sendf(`{"jsonrpc":"2.0","id":%d,"method":%s}`, i+2, request)
			m := gh.NextMessage()
			if parent, _ := wire.Lookup(m.Part(wire.PartMeta), "traceparent"); parent == nil {
				t.Errorf("no traceparent in %s", m.Raw())
			}
			gh.SendResult(m.ID(),
				`{"messages":[],"contents":[],"completion":{"values":[],"hasMore":false}}`)
			client.NextMessage()
		}
		servers := ofKind(g.spans(), tracepb.Span_SPAN_KIND_SERVER)
		want := []struct{ name, prompt, uri string }{
			{"prompts/get p", "p", ""}, {"resources/read", "", "db://h/x?***"},
			{"completion/complete", "p", ""}, {"completion/complete", "", ""},
		}
		if len(servers) != len(want) {
			t.Fatalf("got %v", servers)
		}
		for i, w := range want {
			if servers[i].Name != w.name {
				t.Errorf("the name is %q, want %q", servers[i].Name, w.name)
			}
			wantAttributes(t, servers[i], map[string]string{
				"gen_ai.prompt.name": w.prompt, "mcp.resource.uri": w.uri, "gen_ai.tool.name": "",
				"gen_ai.operation.name": "",
			})
		}
	})
}
