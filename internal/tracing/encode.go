package tracing

import (
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// This file encodes spans as the message ExportTraceServiceRequest of OTLP 1 (trace.proto,
// common.proto and resource.proto; its field numbers are stable). The generated code for these
// messages is not used: with the protobuf runtime it needs 1 MB of memory in every gateway, also if
// nothing is traced. Tests decode the result with the generated code.

// encode returns the encoded request for spans of one tracer.
func encode(spans []sdktrace.ReadOnlySpan) []byte {
	if len(spans) == 0 {
		return nil
	}
	scope := spans[0].InstrumentationScope()
	s := appendString(appendString(nil, 1, scope.Name), 2, scope.Version)
	scopeSpans := appendBytes(nil, 1, s)
	for _, span := range spans {
		scopeSpans = appendBytes(scopeSpans, 2, encodeSpan(span))
	}
	resource := spans[0].Resource()
	r := appendBytes(nil, 1, appendAttributes(nil, 1, resource.Attributes()))
	r = appendBytes(r, 2, scopeSpans)
	return appendBytes(nil, 1, appendString(r, 3, resource.SchemaURL()))
}

func encodeSpan(s sdktrace.ReadOnlySpan) []byte {
	c, parent := s.SpanContext(), s.Parent()
	b := appendContext(make([]byte, 0, 1024), c)
	if parent.SpanID().IsValid() {
		id := parent.SpanID()
		b = appendBytes(b, 4, id[:])
	}
	b = appendString(b, 5, s.Name())
	b = appendVarint(b, 6, uint64(s.SpanKind())) // the numbers are the same
	b = appendFixed64(b, 7, uint64(s.StartTime().UnixNano()))
	b = appendFixed64(b, 8, uint64(s.EndTime().UnixNano()))
	b = appendAttributes(b, 9, s.Attributes())
	b = appendVarint(b, 10, uint64(s.DroppedAttributes()))
	for _, l := range s.Links() {
		link := appendAttributes(appendContext(nil, l.SpanContext), 4, l.Attributes)
		b = appendBytes(b, 13, appendFixed32(link, 6, flags(l.SpanContext, l.SpanContext)))
	}
	b = appendVarint(b, 14, uint64(s.DroppedLinks()))
	b = appendBytes(b, 15, encodeStatus(s.Status()))
	return appendFixed32(b, 16, flags(c, parent))
}

func encodeStatus(s sdktrace.Status) []byte {
	b := appendString(nil, 2, s.Description)
	switch s.Code {
	case codes.Ok:
		return appendVarint(b, 3, 1)
	case codes.Error:
		return appendVarint(b, 3, 2)
	}
	return b
}

// flags returns the flags of a span or link with the context c. The flag 0x200 tells that other,
// the parent of a span, is in another process.
func flags(c, other trace.SpanContext) uint32 {
	const hasIsRemote, isRemote = 0x100, 0x200
	f := uint32(c.TraceFlags()) | hasIsRemote
	if other.IsRemote() {
		f |= isRemote
	}
	return f
}

// appendContext appends the ids and the state, which have the same numbers in a span and a link.
func appendContext(b []byte, c trace.SpanContext) []byte {
	traceID, spanID := c.TraceID(), c.SpanID()
	b = appendBytes(appendBytes(b, 1, traceID[:]), 2, spanID[:])
	return appendString(b, 3, c.TraceState().String())
}

func appendAttributes(b []byte, n protowire.Number, all []attribute.KeyValue) []byte {
	for _, a := range all {
		pair := appendString(nil, 1, string(a.Key))
		b = appendBytes(b, n, appendBytes(pair, 2, encodeValue(a.Value)))
	}
	return b
}

// encodeValue encodes a value. The attributes of the gateway are strings and numbers.
func encodeValue(v attribute.Value) []byte {
	switch v.Type() {
	case attribute.BOOL:
		b := protowire.AppendTag(nil, 2, protowire.VarintType)
		return protowire.AppendVarint(b, protowire.EncodeBool(v.AsBool()))
	case attribute.INT64:
		b := protowire.AppendTag(nil, 3, protowire.VarintType)
		return protowire.AppendVarint(b, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		return appendFixed64(nil, 4, math.Float64bits(v.AsFloat64()))
	}
	return appendBytes(nil, 1, []byte(v.String()))
}

// The functions below append a field. Some leave out an empty value, as protobuf does.

func appendBytes(b []byte, n protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), value)
}

func appendString(b []byte, n protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendVarint(b []byte, n protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func appendFixed32(b []byte, n protowire.Number, v uint32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(b, n, protowire.Fixed32Type), v)
}

func appendFixed64(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), v)
}
