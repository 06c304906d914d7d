package tracing

import (
	"context"
	"encoding/hex"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"mcpgateway/gateway"
	"mcpgateway/internal/callid"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A requestTrace is the trace of one request of a client.
type requestTrace struct {
	tracer *OTelTracer
	from   gateway.TracedClient
	ctx    context.Context // contains span
	span   trace.Span      // the SERVER span; it records nothing if the trace is not sampled

	fromClient bool // the client has sent a valid traceparent
	hasState   bool // the client has sent a tracestate, valid or not
	ofPrompt   bool // the request is a completion for a prompt
}

// ID implements gateway.Trace.
func (r *requestTrace) ID() string {
	c := r.span.SpanContext()
	if !r.fromClient && !c.IsSampled() {
		return ""
	}
	return c.TraceID().String()
}

// Continue implements gateway.Trace: it links the span to that of the earlier request.
func (r *requestTrace) Continue(earlier gateway.Trace) {
	if e, ok := earlier.(*requestTrace); ok && e.span.SpanContext().IsSampled() {
		r.span.AddLink(trace.Link{SpanContext: e.span.SpanContext()})
	}
}

// End implements gateway.Trace.
func (r *requestTrace) End(c *gateway.CallInfo, o gateway.Outcome) {
	if !r.span.IsRecording() {
		return
	}
	t := r.tracer
	a := t.request(c.Method, c.ID)
	if c.Route.Original != "" { // the name is in the catalog
		r.span.SetName(t.spanName(c.Method, c.Name))
	}
	if c.Method != protocol.MethodCompletionComplete || r.ofPrompt {
		a = append(a, t.target(c.Method, c.Name)...)
	}
	if r.from.Session != "" {
		a = append(a, attribute.String("mcp.session.id", r.from.Session))
	}
	a = append(a, t.connection(r.from.Revision, r.from.HTTP)...)
	if c.Seq != 0 {
		a = append(a, attribute.String("mcpgateway.call.id", callid.Text(c.Seq)))
	}
	if c.Route.Backend != "" {
		a = append(a, attribute.String("mcpgateway.backend", c.Route.Backend))
	}
	a = append(a, attribute.String("mcpgateway.outcome", string(o.Kind)))
	if !c.Sent.IsZero() {
		// a resumed call may have been sent before this request arrived
		queued := max(c.Sent.Sub(c.Started), 0)
		a = append(a, attribute.Float64("mcpgateway.queue.duration", queued.Seconds()))
	}
	r.span.SetAttributes(a...)
	switch {
	case o.Kind == gateway.OK, o.Kind == gateway.InputRequired:
	case o.Kind == gateway.ToolError:
		t.fail(r.span, 0, toolError, "")
	default:
		text := o.Reason
		if text == "" && o.Result != nil {
			text = wire.ReadError(o.Result).Message
		}
		t.fail(r.span, o.Code, string(o.Kind), text)
	}
	r.span.End()
}

// BackendSpan implements gateway.Trace.
func (r *requestTrace) BackendSpan() contract.RequestSpan { return &backendSpan{trace: r} }

// A backendSpan is the span of a request to a backend. Its methods are called one at a time.
type backendSpan struct {
	trace *requestTrace
	span  trace.Span // the CLIENT span; nil = not begun, has ended, or the trace is not sampled
	sent  contract.TracedRequest
}

// Begin implements contract.RequestSpan. If the trace is not sampled there is no CLIENT span; the
// backend then gets the id of the SERVER span, which is not recorded either.
func (s *backendSpan) Begin(sent contract.TracedRequest) []wire.Member {
	c := s.trace.span.SpanContext()
	s.span = nil
	if c.IsSampled() { // even if the SERVER span has ended
		s.sent = sent
		_, s.span = s.trace.tracer.tracer.Start(s.trace.ctx, sent.Method, clientSpan)
		c = s.span.SpanContext()
	}
	meta := append(make([]wire.Member, 0, 2), wire.Member{Key: traceparent, Text: parentOf(c)})
	if state := c.TraceState().String(); state != "" || s.trace.hasState {
		// an empty one replaces one that was invalid, or does not belong to this trace
		meta = append(meta, wire.Member{Key: tracestate, Text: wire.Quote(state)})
	}
	return meta
}

// parentOf returns the traceparent of requests below a span, as JSON. The propagator of the SDK
// writes the same text, with seven allocations.
func parentOf(c trace.SpanContext) []byte {
	traceID, spanID := c.TraceID(), c.SpanID()
	b := append(make([]byte, 0, minTraceParent), `"00-`...)
	b = append(hex.AppendEncode(b, traceID[:]), '-')
	b = append(hex.AppendEncode(b, spanID[:]), '-')
	return append(b, '0', '0'+byte(c.TraceFlags()&knownFlags), '"')
}

// knownFlags are the flags of W3C Trace Context that are passed on.
const knownFlags = trace.FlagsSampled | trace.FlagsRandom

// End implements contract.RequestSpan.
func (s *backendSpan) End(id wire.ID, resp contract.BackendResponse) {
	span, t := s.span, s.trace.tracer
	if span == nil {
		return
	}
	s.span = nil
	a := append(t.request(s.sent.Method, id), t.target(s.sent.Method, s.sent.Entry)...)
	a = append(a, t.connection(s.sent.Revision, s.sent.URL != "")...)
	a = append(a, attribute.String("mcpgateway.backend", s.sent.Backend))
	a = append(a, server(s.sent.URL)...)
	if s.sent.Entry != "" {
		span.SetName(t.spanName(s.sent.Method, s.sent.Entry))
	}
	span.SetAttributes(a...)
	switch failure := resp.Message.Part(wire.PartError); {
	case resp.Err != nil:
		kind, code := classify(resp.Err)
		t.fail(span, code, kind, resp.Err.Error())
	case failure != nil:
		e := wire.ReadError(failure)
		t.fail(span, e.Code, "_OTHER", e.Message)
	case resp.Message.IsToolError():
		t.fail(span, 0, toolError, "")
	}
	span.End()
}

// toolError is the error.type of a result with isError.
const toolError = "tool_error"

// fail sets the status of a span whose request has failed. code is the code of the error, 0 = none.
// kind is its error.type if there is no code.
func (t *OTelTracer) fail(span trace.Span, code int, kind, text string) {
	if code != 0 {
		kind = strconv.Itoa(code)
		span.SetAttributes(attribute.String("rpc.response.status_code", kind))
	}
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, t.clean(text))
}
