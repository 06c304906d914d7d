package gateway_test

import (
	"context"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/mcptest/otlptest"
	"mcpgateway/internal/tracing"
	"mcpgateway/internal/wire"
)

// A tracedGateway is a gateway in a bubble whose calls are traced.
type tracedGateway struct {
	*harness
	receiver otlptest.Receiver
	tracer   *tracing.OTelTracer
}

// openTraced starts a gateway with backends with these names, whose calls are traced.
func openTraced(t *testing.T, sample string, o settings, names ...string) *tracedGateway {
	t.Helper()
	g := &tracedGateway{}
	found, warnings := tracing.Load(config.OTel{Endpoint: "http://receiver.test", Sample: sample},
		func(string) (string, bool) { return "", false })
	if found == nil || warnings != nil {
		t.Fatal("no settings:", warnings)
	}
	log, logger := mcptest.NewLog()
	g.tracer = tracing.New(tracing.Options{Settings: found, Version: "test", Log: logger,
		Dial: otlptest.Pipe(t, &g.receiver), Mask: func(s string) string {
			return strings.ReplaceAll(s, "s3cret", "***")
		}})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.tracer.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if lines := log.Warnings(); len(lines) > 0 {
			t.Errorf("the tracer logs %q", lines)
		}
	})
	o.tracer = g.tracer
	g.harness = newHarness(t, o, names...)
	return g
}

// spans returns the spans that have ended.
func (g *tracedGateway) spans() []otlptest.Span {
	g.t.Helper()
	time.Sleep(6 * time.Second)
	return g.receiver.Spans(g.t)
}

// wantPair returns the single SERVER span and the single CLIENT span.
func (g *tracedGateway) wantPair() (server, client otlptest.Span) {
	g.t.Helper()
	all := g.spans()
	if len(all) != 2 || all[0].Kind != tracepb.Span_SPAN_KIND_CLIENT ||
		all[1].Kind != tracepb.Span_SPAN_KIND_SERVER {
		g.t.Fatalf("got %d spans: %v", len(all), all)
	}
	return all[1], all[0]
}

// openTracedCall opens a session client in front of the legacy backend gh with the tool search.
func openTracedCall(t *testing.T, sample string, o settings) (g *tracedGateway,
	client, gh *mcptest.Peer) {
	t.Helper()
	g = openTraced(t, sample, o, "gh")
	client, _ = g.connectClient()
	client.Initialize("2025-06-18")
	gh = g.nextProcess("gh")
	gh.ServeStartup("search")
	listTools(t, client)
	return g, client, gh
}

func wantAttributes(t *testing.T, s otlptest.Span, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := s.Attribute(key); got != value && (value != "*" || got == "") {
			t.Errorf("span %s: %s is %q, want %q", s.Name, key, got, value)
		}
	}
}

const (
	sampledParent   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampledParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	parentTrace     = "4bf92f3577b34da6a3ce929d0e0e4736"
)

// traceparentOf returns the traceparent of a request that belongs to a span.
func traceparentOf(s otlptest.Span) string {
	return "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"
}

// A call has a SERVER span with the attributes of the semantic conventions, and below it a CLIENT
// span for the request to the backend.
func TestTrace_SpansOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, client, gh := openTracedCall(t, "", settings{})
		client.Send(`{"jsonrpc":"2.0","id":"a\u0031","method":"tools/call",` +
			`"params":{"name":"search","arguments":{"q":"hidden"}}}`)
		call := gh.WantRequest("tools/call")
		gh.SendResult(call.ID(), `{"content":[{"type":"text","text":"hidden"}]}`)
		client.NextMessage()
		server, child := g.wantPair()
		wantAttributes(t, server, map[string]string{
			"mcp.method.name": "tools/call", "gen_ai.tool.name": "search",
			"gen_ai.operation.name": "execute_tool", "jsonrpc.request.id": "a1",
			"mcp.session.id": "*", "mcp.protocol.version": "2025-06-18", "network.transport": "pipe",
			"mcpgateway.call.id": "*", "mcpgateway.backend": "gh", "mcpgateway.outcome": "ok",
			"mcpgateway.queue.duration": "0", "error.type": "", "rpc.response.status_code": "",
		})
		wantAttributes(t, child, map[string]string{
			"mcp.method.name": "tools/call", "gen_ai.tool.name": "search",
			"jsonrpc.request.id": string(call.ID()), "mcp.protocol.version": "2025-11-25",
			"network.transport": "pipe", "mcpgateway.backend": "gh", "mcp.session.id": "",
			"error.type": "", "server.address": "",
		})
		if server.Name != "tools/call search" || child.Name != "tools/call search" {
			t.Errorf("the names are %q and %q", server.Name, child.Name)
		}
		if len(server.ParentSpanId) > 0 || string(child.ParentSpanId) != string(server.SpanId) ||
			string(child.TraceId) != string(server.TraceId) {
			t.Errorf("the spans are not parent and child: %v %v", server, child)
		}
		if got := paramAt(t, call, "_meta", "traceparent"); got != `"`+traceparentOf(child)+`"` {
			t.Errorf("the backend got %s", got)
		}
		if strings.Contains(server.String()+child.String(), "hidden") {
			t.Error("a span contains arguments or results")
		}
		if server.Scope != "mcp-gateway" || server.Resource["service.name"] != "mcp-gateway" ||
			server.Resource["service.version"] != "test" {
			t.Errorf("the source is %s %v", server.Scope, server.Resource)
		}
		records := g.auditRecords()
		want := "trace_id=" + hex.EncodeToString(server.TraceId)
		if len(records) != 1 || !strings.Contains(records[0], want) {
			t.Errorf("%s is not in %s", want, records)
		}
	})
}

// The parent is the traceparent in _meta. Only this member changes in the message to the backend;
// tracestate, baggage and all other bytes stay.
func TestTrace_ParentAndForwardedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, client, gh := openTracedCall(t, "0", settings{})
		params := func(parent string) string {
			return `{ "name":"search", "x":1e400, "_meta":{"baggage":"a=1, b=\u0032" ,` +
				`"tracestate":"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE","traceparent" : "` + parent +
				`"},"arguments":{"n":9007199254740993.0, "s":"\u003c"} }`
		}
		client.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":` +
			params(sampledParent) + `}`)
		call := gh.WantRequest("tools/call")
		gh.SendResult(call.ID(), `{"content":[]}`)
		client.NextMessage()
		server, child := g.wantPair()
		if want := params(traceparentOf(child)); string(call.Part(wire.PartParams)) != want {
			t.Errorf("the backend got\n%s, want\n%s", call.Part(wire.PartParams), want)
		}
		if hex.EncodeToString(server.TraceId) != parentTrace ||
			hex.EncodeToString(server.ParentSpanId) != "00f067aa0ba902b7" ||
			server.TraceState != "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE" ||
			server.Flags&0x301 != 0x301 {
			t.Errorf("the parent is not that of the client: %v", server)
		}
	})
}

// A call that is not sampled has no span. The trace goes on to the backend, with the sampled flag
// off, and is in the audit record if the client has sent it.
func TestTrace_NotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, client, gh := openTracedCall(t, "0", settings{})
		call := func(meta string) string {
			client.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"search"` +
				meta + `}}`)
			m := gh.WantRequest("tools/call")
			gh.SendResult(m.ID(), `{"content":[]}`)
			client.NextMessage()
			return strings.Trim(paramAt(t, m, "_meta", "traceparent"), `"`)
		}
		root := call("")
		continued := call(`,"_meta":{"traceparent":"` + unsampledParent + `"}`)
		if len(root) != 55 || !strings.HasSuffix(root, "-00") ||
			strings.Contains(root, parentTrace) {
			t.Errorf("a new trace is %q", root)
		}
		if !strings.HasPrefix(continued, "00-"+parentTrace+"-") || continued == unsampledParent ||
			!strings.HasSuffix(continued, "-00") {
			t.Errorf("the client's trace goes on as %q", continued)
		}
		if all := g.spans(); len(all) != 0 {
			t.Errorf("got spans: %v", all)
		}
		records := g.auditRecords()
		if len(records) != 2 || strings.Contains(records[0], "trace_id") ||
			!strings.Contains(records[1], "trace_id="+parentTrace) {
			t.Errorf("the records are %q", records)
		}
	})
}

// An invalid traceparent is ignored, with its tracestate, as W3C Trace Context requires. A
// tracestate that is invalid or too long is dropped.
func TestTrace_InvalidParents(t *testing.T) {
	for _, c := range []struct{ name, meta, state string }{
		{"not hexadecimal", `"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e473Z-00f067aa0ba902b7-01"`,
			""},
		{"all zero", `"traceparent":"00-00000000000000000000000000000000-00f067aa0ba902b7-01"`, ""},
		{"version ff", `"traceparent":"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`, ""},
		{"too short", `"traceparent":"00-1-2-01","tracestate":"a=1"`, `""`},
		{"too long", `"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01` +
			strings.Repeat("-aa", 1000) + `"`, ""},
		{"a number", `"traceparent":1234567890123456789012345678901234567890123456789012345678`, ""},
		{"an object", `"traceparent":{"a":"4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b700f067a"}`,
			""},
		{"null", `"traceparent":null,"tracestate":null`, `""`},
		{"twice", `"traceparent":"` + sampledParent + `","traceparent":"` + sampledParent + `"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, client, gh := openTracedCall(t, "1", settings{})
				client.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call",` +
					`"params":{"name":"search","_meta":{` + c.meta + `}}}`)
				call := gh.WantRequest("tools/call")
				gh.SendResult(call.ID(), `{"content":[]}`)
				client.NextMessage()
				server, child := g.wantPair()
				if len(server.ParentSpanId) > 0 ||
					hex.EncodeToString(server.TraceId) == parentTrace {
					t.Errorf("the span has a parent: %v", server)
				}
				if got := paramAt(t, call, "_meta", "traceparent"); got !=
					`"`+traceparentOf(child)+`"` {
					t.Errorf("the backend got the traceparent %s", got)
				}
				if got := paramAt(t, call, "_meta", "tracestate"); got != c.state {
					t.Errorf("the backend got the tracestate %s, want %s", got, c.state)
				}
			})
		})
	}
	for name, state := range map[string]string{
		"huge": "a=" + strings.Repeat("b", 1<<20), "invalid": "a=1,a=2", "33 members": strings.Repeat(
			"a=1,", 33)} {
		t.Run(name+" tracestate", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, client, gh := openTracedCall(t, "0", settings{maxMessage: 4 << 20})
				client.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"search",` +
					`"_meta":{"traceparent":"` + sampledParent + `","tracestate":"` + state + `"}}}`)
				call := gh.WantRequest("tools/call")
				gh.SendResult(call.ID(), `{"content":[]}`)
				client.NextMessage()
				server, _ := g.wantPair()
				if hex.EncodeToString(server.TraceId) != parentTrace || server.TraceState != "" {
					t.Errorf("the span is %v", server)
				}
				if got := paramAt(t, call, "_meta", "tracestate"); got != `""` {
					t.Errorf("the backend got the tracestate %.100s", got)
				}
			})
		})
	}
}

// Failures have an error.type and the status error, with masked and short texts.
func TestTrace_Failures(t *testing.T) {
	type outcome = map[string]string
	long := strings.Repeat("é", 3000)
	for _, c := range []struct {
		name           string
		play           func(t *testing.T, client, gh *mcptest.Peer, call wire.Message)
		server, client outcome
		message        string // of the CLIENT span
	}{
		{"tool error", func(t *testing.T, client, gh *mcptest.Peer, call wire.Message) {
			gh.SendResult(call.ID(), `{"isError":true,"content":[]}`)
		}, outcome{"error.type": "tool_error", "mcpgateway.outcome": "tool_error",
			"rpc.response.status_code": ""}, outcome{"error.type": "tool_error"}, ""},
		{"JSON-RPC error", func(t *testing.T, client, gh *mcptest.Peer, call wire.Message) {
			gh.Sendf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32011,"message":"no s3cret %s"}}`,
				call.ID(), long)
		}, outcome{"error.type": "-32011", "mcpgateway.outcome": "rpc_error",
			"rpc.response.status_code": "-32011"},
			outcome{"error.type": "-32011", "rpc.response.status_code": "-32011"}, "no *** é"},
		{"cancelled", func(t *testing.T, client, gh *mcptest.Peer, call wire.Message) {
			client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled",` +
				`"params":{"requestId":5}}`)
		}, outcome{"error.type": "cancelled", "mcpgateway.outcome": "cancelled"},
			outcome{"error.type": "cancelled"}, "cancelled"},
		{"backend lost", func(t *testing.T, client, gh *mcptest.Peer, call wire.Message) {
			gh.Exit("exit status 1", "")
		}, outcome{"error.type": "-32603", "mcpgateway.outcome": "backend_lost"},
			outcome{"error.type": "backend_lost"}, ""},
		{"timeout", func(t *testing.T, client, gh *mcptest.Peer, call wire.Message) {
			time.Sleep(11 * time.Second)
		}, outcome{"error.type": "-32603", "mcpgateway.outcome": "timeout"},
			outcome{"error.type": "timeout"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, client, gh := openTracedCall(t, "", settings{
					callTimeout: map[string]time.Duration{"gh": 10 * time.Second}})
				client.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call",` +
					`"params":{"name":"search"}}`)
				c.play(t, client, gh, gh.WantRequest("tools/call"))
				server, child := g.wantPair()
				wantAttributes(t, server, c.server)
				wantAttributes(t, child, c.client)
				for _, s := range []otlptest.Span{server, child} {
					if s.Status.Code != tracepb.Status_STATUS_CODE_ERROR ||
						len(s.Status.Message) > 300 ||
						strings.Contains(s.Status.Message, "s3cret") {
						t.Errorf("the status is %v", s.Status)
					}
				}
				if !strings.HasPrefix(child.Status.Message, c.message) {
					t.Errorf("the message is %q", child.Status.Message)
				}
			})
		})
	}
}

// A name that is not in the catalog is no part of the name of a span, and its attribute is bounded.
// The call has no CLIENT span.
func TestTrace_UnknownNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, client, _ := openTracedCall(t, "", settings{})
		for _, name := range []string{"none", "gh__" + strings.Repeat("x", 10_000)} {
			client.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"` + name +
				`"}}`)
			client.NextMessage()
		}
		all := g.spans()
		if len(all) != 2 {
			t.Fatalf("got %v", all)
		}
		for _, s := range all {
			if s.Name != "tools/call" || len(s.Attribute("gen_ai.tool.name")) > 260 ||
				s.Attribute("mcpgateway.outcome") != "rejected" {
				t.Errorf("got %v", s)
			}
		}
	})
}

// A request that is rejected before it becomes a call has a SERVER span as well.
func TestTrace_RejectedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openTraced(t, "", settings{}, "gh")
		client, _ := g.connectClient()
		client.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"search"}}`)
		client.NextMessage()
		all := g.spans()
		if len(all) != 1 || all[0].Attribute("mcpgateway.outcome") != "rejected" ||
			all[0].Status.Code != tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("got %v", all)
		}
	})
}

// With tracing off, the trace context of a client is forwarded as it is, and is not in the audit
// record. TestAllocations of this package checks that calls cost nothing more.
func TestTrace_Off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("search")
		listTools(t, client)
		const params = `{ "name":"search" ,"_meta":{"traceparent": "` + sampledParent +
			`","tracestate":"a=1,a=2" } }`
		client.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":` + params + `}`)
		call := gh.WantRequest("tools/call")
		if string(call.Part(wire.PartParams)) != params {
			t.Errorf("the backend got %s", call.Part(wire.PartParams))
		}
		gh.SendResult(call.ID(), `{"content":[]}`)
		client.NextMessage()
		if records := h.auditRecords(); len(records) != 1 ||
			strings.Contains(records[0], "trace_id") {
			t.Errorf("the records are %q", records)
		}
	})
}
