package httpserver

import (
	"net/http"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

// The trace context of the headers is put into _meta, unless _meta has one. Only that changes.
func TestTraceContextOfHeaders(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	long := strings.Repeat("a", maxTraceHeader+1)
	for _, c := range []struct {
		name   string
		header http.Header
		params string
		want   string
	}{
		{"none", http.Header{}, `{"name":"x"}`, `{"name":"x"}`},
		{"parent", http.Header{"Traceparent": {parent}}, `{"name":"x"}`,
			`{"_meta":{"traceparent":"` + parent + `"},"name":"x"}`},
		{"state", http.Header{"Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}},
			`{"_meta":{"y":1.0}}`,
			`{"_meta":{"traceparent":"` + parent + `","tracestate":"a=1,b=2","y":1.0}}`},
		{"_meta wins", http.Header{"Traceparent": {parent}, "Tracestate": {"a=1"}},
			`{"_meta":{"traceparent":"x"}}`, `{"_meta":{"traceparent":"x"}}`},
		{"the state of another parent", http.Header{"Traceparent": {parent}},
			`{"_meta":{"tracestate":"z=1"}}`,
			`{"_meta":{"traceparent":"` + parent + `","tracestate":""}}`},
		{"twice", http.Header{"Traceparent": {parent, parent}}, `{"name":"x"}`, `{"name":"x"}`},
		{"long parent", http.Header{"Traceparent": {long}}, `{"name":"x"}`, `{"name":"x"}`},
		{"long state", http.Header{"Traceparent": {parent}, "Tracestate": {long}}, `{"name":"x"}`,
			`{"_meta":{"traceparent":"` + parent + `"},"name":"x"}`},
		{"quotes", http.Header{"Traceparent": {"a\"\\\xff"}}, `{}`,
			`{"_meta":{"traceparent":"a\"\\\ufffd"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := func(params string) string {
				return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
			}
			m, err := wire.Parse([]byte(call(c.params)))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(withTraceContext(m, c.header).Raw()); got != call(c.want) {
				t.Errorf("got  %.300s\nwant %.300s", got, call(c.want))
			}
		})
	}
}
