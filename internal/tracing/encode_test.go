package tracing

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"mcpgateway/internal/wire"
)

// A spanList is a span processor that keeps the spans that have ended.
type spanList struct{ spans []sdktrace.ReadOnlySpan }

func (l *spanList) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (l *spanList) OnEnd(s sdktrace.ReadOnlySpan)                   { l.spans = append(l.spans, s) }
func (l *spanList) Shutdown(context.Context) error                  { return nil }
func (l *spanList) ForceFlush(context.Context) error                { return nil }

// TestEncode decodes the encoding of spans with all fields with the generated code of the protocol,
// and compares all fields.
func TestEncode(t *testing.T) {
	var l spanList
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(&l), sdktrace.WithResource(
		resource.NewWithAttributes("https://schema.test", attribute.String("service.name", "x"))))
	tracer := p.Tracer("scope", trace.WithInstrumentationVersion("3"))
	state, err := trace.ParseTraceState("a=1,b=2")
	if err != nil {
		t.Fatal(err)
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2},
		SpanID: trace.SpanID{3}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true})
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), parent)
	begin := time.Unix(1700000000, 123456789)
	_, s := tracer.Start(ctx, "näme", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(begin), trace.WithLinks(trace.Link{SpanContext: parent}))
	s.SetAttributes(attribute.String("s", "é"), attribute.Int("i", -5),
		attribute.Float64("f", 0.25), attribute.Bool("b", true), attribute.Bool("no", false),
		attribute.String("empty", ""),
		attribute.StringSlice("list", []string{"x"}))
	s.SetStatus(codes.Error, "why")
	s.End(trace.WithTimestamp(begin.Add(time.Second)))
	_, s = tracer.Start(context.Background(), "root", trace.WithSpanKind(trace.SpanKindClient))
	s.SetStatus(codes.Ok, "")
	s.End()

	var got tracepb.TracesData
	if err := proto.Unmarshal(encode(l.spans), &got); err != nil {
		t.Fatal(err)
	}
	id := func(s sdktrace.ReadOnlySpan) ([]byte, []byte) {
		traceID, spanID := s.SpanContext().TraceID(), s.SpanContext().SpanID()
		return traceID[:], spanID[:]
	}
	value := func(key string, v *commonpb.AnyValue) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: key, Value: v}
	}
	text := func(key, s string) *commonpb.KeyValue {
		return value(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}})
	}
	flag := func(key string, b bool) *commonpb.KeyValue {
		return value(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: b}})
	}
	parentTrace, parentSpan := parent.TraceID(), parent.SpanID()
	_, firstID := id(l.spans[0])
	rootTrace, rootID := id(l.spans[1])
	want := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		SchemaUrl: "https://schema.test",
		Resource: &resourcepb.Resource{
			Attributes: []*commonpb.KeyValue{text("service.name", "x")}},
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: "scope", Version: "3"},
			Spans: []*tracepb.Span{{
				TraceId: parentTrace[:], SpanId: firstID, ParentSpanId: parentSpan[:],
				TraceState: "a=1,b=2", Flags: 0x301, Name: "näme",
				Kind:              tracepb.Span_SPAN_KIND_SERVER,
				StartTimeUnixNano: 1700000000123456789, EndTimeUnixNano: 1700000001123456789,
				Attributes: []*commonpb.KeyValue{
					text("s", "é"),
					value("i", &commonpb.AnyValue{
						Value: &commonpb.AnyValue_IntValue{IntValue: -5}}),
					value("f", &commonpb.AnyValue{
						Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 0.25}}),
					flag("b", true), flag("no", false), text("empty", ""), text("list", `["x"]`),
				},
				Links: []*tracepb.Span_Link{{TraceId: parentTrace[:], SpanId: parentSpan[:],
					TraceState: "a=1,b=2", Flags: 0x301}},
				Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "why"},
			}, {
				TraceId: rootTrace, SpanId: rootID, Flags: 0x101, Name: "root",
				Kind:              tracepb.Span_SPAN_KIND_CLIENT,
				StartTimeUnixNano: uint64(l.spans[1].StartTime().UnixNano()),
				EndTimeUnixNano:   uint64(l.spans[1].EndTime().UnixNano()),
				Status:            &tracepb.Status{Code: tracepb.Status_STATUS_CODE_OK},
			}},
		}},
	}}}
	if !proto.Equal(&got, want) {
		t.Error(cmp.Diff(fmt.Sprint(want), fmt.Sprint(&got)))
	}
	if encode(nil) != nil {
		t.Error("no spans have an encoding")
	}
}

// FuzzReceivedContext reads the trace context of any _meta: what reaches backends is valid.
func FuzzReceivedContext(f *testing.F) {
	f.Add(`"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`, `"a=1"`)
	f.Add(`"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x"`, `"a=1,a=2"`)
	f.Fuzz(func(t *testing.T, parent, state string) {
		m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` +
			`"traceparent":` + parent + `,"tracestate":` + state + `}}}`))
		if err != nil {
			return
		}
		c := readContext(m.Part(wire.PartMeta))
		if len(c.traceparent) > maxTraceParent || len(c.tracestate) > 3*maxTraceState {
			t.Fatalf("too long: %v", c)
		}
		to := m.SetMeta(wire.Member{Key: tracestate, Text: wire.Quote(c.tracestate)})
		if got, _ := wire.Lookup(to.Part(wire.PartMeta), tracestate); wire.Unquote(got) !=
			c.tracestate && strings.ToValidUTF8(c.tracestate, "\uFFFD") != wire.Unquote(got) {
			t.Fatalf("%q became %s", c.tracestate, got)
		}
	})
}

// FuzzReply reads any response of a receiver.
func FuzzReply(f *testing.F) {
	f.Add([]byte{0x0a, 4, 8, 1, 0x12, 0})
	f.Add([]byte{0x12, 1, 'x'})
	f.Fuzz(func(t *testing.T, reply []byte) {
		if err := partialSuccess(reply); err != nil && len(err.Error()) > 2*maxAttribute {
			t.Fatalf("long: %d bytes", len(err.Error()))
		}
		if message := field(reply, 2); len(message) > len(reply) {
			t.Fatal("long")
		}
		_ = retryAfter(string(reply), time.Now())
	})
}
