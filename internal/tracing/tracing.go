// Package tracing sends the traces of requests to a receiver of OpenTelemetry (OTLP over HTTP).
//
// The spans follow the semantic conventions for MCP: a SERVER span for each request of a client
// that a backend serves, and below it a CLIENT span for each request to a backend. The spans are
// those of the SDK. Its exporters are not used, because they link gRPC or the protobuf runtime.
//
//	Load ─ ExportSettings ─ New ─ OTelTracer (gateway.Tracer)
//	Begin ─ requestTrace ─ BackendSpan ─ backendSpan (contract.RequestSpan)
//	spans that have ended ─ spanQueue ─ Run ─ encode ─ otlpClient ─ POST
//
// The trace context of a client is in params._meta, as traceparent and tracestate (W3C Trace
// Context, in the place that the conventions give). An invalid traceparent is ignored.
//
// Calls never wait for the receiver: if the queue is full, spans are lost. Lost spans are counted
// and logged.
package tracing

import (
	"context"
	"log/slog"
	"net"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"mcpgateway/gateway"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Options are the options of an OTelTracer.
type Options struct {
	Settings *ExportSettings
	Version  string              // of the gateway
	Mask     func(string) string // masks secrets in attributes and logs; nil = no masking
	Log      *slog.Logger
	// Dial connects to the receiver; nil = over the network. Only tests set it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// An OTelTracer is a gateway.Tracer that sends spans to a receiver.
type OTelTracer struct {
	tracer trace.Tracer
	queue  *spanQueue
	mask   func(string) string
}

// New returns an OTelTracer. It sends nothing before Run is called.
func New(o Options) *OTelTracer {
	if o.Mask == nil {
		o.Mask = func(s string) string { return s }
	}
	q := newSpanQueue(o)
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(o.Settings.sampler),
		sdktrace.WithResource(o.Settings.resource(o.Version)),
		sdktrace.WithSpanProcessor(q))
	version := trace.WithInstrumentationVersion(o.Version)
	return &OTelTracer{tracer: provider.Tracer("mcp-gateway", version), queue: q, mask: o.Mask}
}

// Secrets returns the values of the headers for the receiver, which must appear in no log; nil for
// a nil OTelTracer.
func (t *OTelTracer) Secrets() []string {
	if t == nil {
		return nil
	}
	return t.queue.client.settings.Secrets()
}

// Run sends spans until ctx is done. Then it sends the spans in the queue, for at most two seconds
// and without further tries, and returns. It must be called once.
func (t *OTelTracer) Run(ctx context.Context) { t.queue.run(ctx) }

var (
	serverSpan = trace.WithSpanKind(trace.SpanKindServer)
	clientSpan = trace.WithSpanKind(trace.SpanKindClient)
)

// Begin implements gateway.Tracer.
func (t *OTelTracer) Begin(
	c *gateway.CallInfo, m wire.Message, from gateway.TracedClient,
) gateway.Trace {
	parent := readContext(m.Part(wire.PartMeta))
	ctx := context.Background()
	if parent.traceparent != "" {
		carrier := parent // only this copy is on the heap
		ctx = propagation.TraceContext{}.Extract(ctx, &carrier)
	}
	r := &requestTrace{tracer: t, from: from, hasState: parent.hasState}
	r.fromClient = trace.SpanContextFromContext(ctx).IsValid()
	r.ctx, r.span = t.tracer.Start(ctx, c.Method, serverSpan)
	if r.span.IsRecording() && c.Method == protocol.MethodCompletionComplete {
		kind, _ := wire.Lookup(m.Part(wire.PartParams), "ref", "type")
		r.ofPrompt = wire.Unquote(kind) == "ref/prompt"
	}
	return r
}

const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
)

const (
	// minTraceParent is the length of the JSON string of a traceparent of version 00, in bytes, and
	// maxTraceParent bounds those of later versions.
	minTraceParent = len(`"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`)
	maxTraceParent = 512
	// maxTraceState bounds the tracestate of a client, in bytes; a longer one is ignored. W3C Trace
	// Context asks for at least 512.
	maxTraceState = 4096
)

// A clientContext is the trace context in the _meta of a client's request. It implements
// propagation.TextMapCarrier, for reading.
type clientContext struct {
	traceparent, tracestate string // "" = absent or not usable
	hasState                bool   // there is a member tracestate, of any value
}

// readContext reads the trace context in _meta. A member that occurs twice is ignored.
func readContext(meta []byte) (c clientContext) {
	if len(meta) == 0 {
		return c
	}
	value, _ := wire.Lookup(meta, traceparent)
	if len(value) >= minTraceParent && len(value) <= maxTraceParent {
		c.traceparent = wire.Unquote(value)
	}
	value, _ = wire.Lookup(meta, tracestate)
	if c.hasState = value != nil; c.hasState && len(value) <= maxTraceState {
		c.tracestate = wire.Unquote(value)
	}
	return c
}

// Get implements propagation.TextMapCarrier.
func (c *clientContext) Get(key string) string {
	switch key {
	case traceparent:
		return c.traceparent
	case tracestate:
		return c.tracestate
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *clientContext) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c *clientContext) Keys() []string { return []string{traceparent, tracestate} }
