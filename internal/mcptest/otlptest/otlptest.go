// Package otlptest has a receiver of OTLP over HTTP for tests. It decodes requests with the
// generated code of the protocol.
package otlptest

import (
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Receiver is the handler of the receiver. The zero value accepts all requests.
type Receiver struct {
	// Respond may respond to request n, the first being 1, in place of the receiver. It returns
	// true if it has responded; the spans of the request are then not recorded.
	Respond func(n int, w http.ResponseWriter) bool

	mu       sync.Mutex
	requests []*http.Request
	spans    []Span
	problems []string
}

// A Span is a span that was received.
type Span struct {
	*tracepb.Span
	Resource map[string]string // attributes of the resource
	Scope    string            // name of the instrumentation
}

// Attribute returns an attribute as text; "" = there is none.
func (s Span) Attribute(key string) string { return attributes(s.Attributes)[key] }

// attributes returns attributes as text.
func attributes(all []*commonpb.KeyValue) map[string]string {
	texts := make(map[string]string)
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			texts[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			texts[a.Key] = strconv.FormatInt(v.IntValue, 10)
		case *commonpb.AnyValue_DoubleValue:
			texts[a.Key] = strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
		case *commonpb.AnyValue_BoolValue:
			texts[a.Key] = strconv.FormatBool(v.BoolValue)
		}
	}
	return texts
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := r.read(req)
	r.mu.Lock()
	r.requests = append(r.requests, req)
	n := len(r.requests)
	r.mu.Unlock()
	if r.Respond != nil && r.Respond(n, w) {
		return
	}
	// TracesData has the encoding of ExportTraceServiceRequest.
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.problems = append(r.problems, err.Error())
	case req.Method != http.MethodPost, req.Header.Get("Content-Type") != "application/x-protobuf":
		r.problems = append(r.problems, req.Method+" of "+req.Header.Get("Content-Type"))
	}
	for _, resource := range data.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				if len(span.ProtoReflect().GetUnknown()) > 0 {
					r.problems = append(r.problems, "a span has fields that are not known")
				}
				r.spans = append(r.spans, Span{Span: span, Scope: scope.Scope.Name,
					Resource: attributes(resource.Resource.Attributes)})
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (r *Receiver) read(req *http.Request) ([]byte, error) {
	if req.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(req.Body)
	}
	z, err := gzip.NewReader(req.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Requests returns the requests that were received.
func (r *Receiver) Requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Spans returns the spans that were received, in the order of their end. It fails the test if a
// request was invalid.
func (r *Receiver) Spans(t testing.TB) []Span {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, problem := range r.problems {
		t.Errorf("the receiver of traces: %s", problem)
	}
	return slices.Clone(r.spans)
}
