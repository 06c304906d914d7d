package httpserver

import (
	"net/http"
	"strings"

	"mcpgateway/internal/wire"
)

// maxTraceHeader bounds the headers traceparent and tracestate, in bytes; a longer one is ignored.
const maxTraceHeader = 4096

// withTraceContext returns a request with the trace context in the headers of its POST (W3C Trace
// Context), in _meta. A traceparent in _meta has precedence. A message that is no request, or has
// no params, is returned unchanged.
func withTraceContext(m wire.Message, h http.Header) wire.Message {
	parents := h["Traceparent"]
	if len(parents) != 1 || len(parents[0]) > maxTraceHeader || m.Kind() != wire.Request {
		return m
	}
	meta := m.Part(wire.PartMeta)
	if has, _ := wire.Lookup(meta, "traceparent"); has != nil {
		return m
	}
	put := []wire.Member{{Key: "traceparent", Text: wire.Quote(parents[0])}}
	state := strings.Join(h["Tracestate"], ",")
	if len(state) > maxTraceHeader {
		state = ""
	}
	if has, _ := wire.Lookup(meta, "tracestate"); has != nil || state != "" {
		put = append(put, wire.Member{Key: "tracestate", Text: wire.Quote(state)})
	}
	return m.SetMeta(put...)
}
