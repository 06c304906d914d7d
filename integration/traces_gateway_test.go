//go:build unix

package integration

import (
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"mcpgateway/internal/mcptest/otlptest"
)

// A call through two gateways, the first on stdin with the receiver in a variable, the second over
// HTTP with the receiver in its configuration, is one trace: each span is the child of the one
// before. The client of the second gateway may also send its context in the headers of the POST.
func TestTraces_OverTwoGateways(t *testing.T) {
	var r otlptest.Receiver
	server := httptest.NewServer(http.HandlerFunc(r.ServeHTTP))
	defer server.Close()
	token := secret(t, "TRACES_KEY")
	file := filepath.Join(t.TempDir(), "key")
	hasSecrets(file)
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	back := newSetup(t, map[string]any{"otel": map[string]any{"endpoint": server.URL,
		"headers": map[string]any{"x-key": "${file:" + file + "}"}, "sample": "0"}},
		backend{Name: "demo", Embedded: "demo"})
	gw, url := back.serveHTTP()

	front := newSetup(t, nil, backend{Name: "far", URL: url})
	cmd := exec.Command(gateway(t), "-c", front.config)
	cmd.Dir, cmd.Env = front.dir, front.env("OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL,
		"OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_SERVICE_NAME=front")
	client := startRaw(t, cmd)
	client.initialize("2025-06-18")
	callTool(client, "echo", `{"text":"not in a span"}`)
	if code := client.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}

	// an HTTP client, without and with a trace context
	direct := dialHTTP(t, url, "2025-06-18")
	callTool(direct, "echo", `{"text":"not sampled"}`)
	direct.client.Transport = tracedRequests{direct.client.Transport}
	callTool(direct, "echo", `{"text":"sampled"}`)
	gw.cmd.Process.Signal(syscall.SIGTERM) // sends the rest
	if code := gw.exitCode(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}

	byParent := make(map[string]otlptest.Span)
	all := r.Spans(t)
	for _, s := range all {
		byParent[hex.EncodeToString(s.ParentSpanId)] = s
		if strings.Contains(s.String(), "not in a span") {
			t.Errorf("a span contains arguments or results: %v", s)
		}
	}
	var chain []string
	parent := ""
	for {
		s, ok := byParent[parent]
		if !ok {
			break
		}
		chain = append(chain, s.Resource["service.name"]+" "+s.Kind.String()+" "+s.Name+" "+
			s.Attribute("network.transport"))
		parent = hex.EncodeToString(s.SpanId)
	}
	kind := func(k tracepb.Span_SpanKind) string { return " " + k.String() + " tools/call echo " }
	want := []string{
		"front" + kind(tracepb.Span_SPAN_KIND_SERVER) + "pipe",
		"front" + kind(tracepb.Span_SPAN_KIND_CLIENT) + "tcp",
		"mcp-gateway" + kind(tracepb.Span_SPAN_KIND_SERVER) + "tcp",
		"mcp-gateway" + kind(tracepb.Span_SPAN_KIND_CLIENT) + "pipe",
	}
	if strings.Join(chain, "\n") != strings.Join(want, "\n") {
		t.Errorf("the trace is\n%s\nwant\n%s", strings.Join(chain, "\n"), strings.Join(want, "\n"))
	}
	if s := byParent["00f067aa0ba902b7"]; len(all) != 6 || s.Span == nil ||
		hex.EncodeToString(s.TraceId) != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("the context of the headers is not used: %v", all)
	}
	for _, q := range r.Requests() {
		fromBack := q.Header.Get("X-Key") == token
		if fromBack == (q.Header.Get("Content-Encoding") == "gzip") {
			t.Errorf("the headers are %v", q.Header)
		}
	}
	log := gw.logs()
	if !strings.Contains(log, "calls are traced") || strings.Contains(log, "spans of traces") {
		t.Errorf("the log is %s", log)
	}
	audit, err := os.ReadFile(back.audit)
	if err != nil || strings.Count(string(audit), `"trace_id":"`) != 2 {
		t.Errorf("the audit records are %s", audit)
	}
}

// tracedRequests sends requests with a trace context.
type tracedRequests struct{ http.RoundTripper }

func (t tracedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	return t.RoundTripper.RoundTrip(r)
}
