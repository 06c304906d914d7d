package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/activity"
	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/callid"
	"mcpgateway/internal/metrics"
	"mcpgateway/internal/protocol"
)

// A source has real counters and a fixed status.
type source struct{ *activity.Recorder }

func (source) States() []string { return []string{"ready", "open"} }
func (source) Commit() string   { return "abc" }
func (source) Status() adminapi.GatewayStatus {
	return adminapi.GatewayStatus{
		Gateway: adminapi.GatewayInfo{Version: "1.2.3"},
		Backends: []adminapi.BackendStatus{{Name: "docs", State: "open", Restarts: 3,
			Since: time.UnixMilli(1500), Lists: adminapi.ListCounts{Tools: 4},
			Calls:            adminapi.CallTotals{InFlight: 2},
			ConnectionStatus: adminapi.ConnectionStatus{Connections: 1, Queued: 5}}},
		Sessions: []adminapi.SessionStatus{{Transport: "stdio"},
			{Transport: "streamable HTTP", Stateless: true}},
		Audit: adminapi.AuditStatus{Written: 10, Lost: 1, Queued: 2, Lag: 1500,
			File: &adminapi.AuditFileStatus{Size: 7, FormerSize: 8,
				Problem: &adminapi.TimedText{Text: "full"}}},
		Configuration: adminapi.ConfigurationState{Problem: "line 3", Differs: true},
	}
}

func end(r *activity.Recorder, backend, tool string, kind gateway.OutcomeKind, dur time.Duration) {
	c := &gateway.CallInfo{Seq: callid.Next(), Method: protocol.MethodToolsCall, Name: tool,
		Arguments: []byte(`{"a":1}`), Started: time.Now(),
		Route: catalog.Route{Backend: backend, Original: tool}}
	r.Begin(c)
	r.Routed(c)
	c.Sent = c.Started
	r.End(c, gateway.Outcome{Kind: kind, Dur: dur, Result: make([]byte, 5000)})
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	s := source{activity.New()}
	end(s.Recorder, "docs", "search", gateway.OK, 3*time.Millisecond)
	end(s.Recorder, "docs", "search", gateway.OK, 2*time.Second)
	end(s.Recorder, "docs", "search", gateway.Timeout, time.Minute)
	end(s.Recorder, "docs", "bad\xffname\"\n", gateway.ToolError, time.Second)
	text := scrape(t, metrics.NewHandler(s))
	const search = `backend="docs",method="tools/call",tool="search"`
	for _, want := range []string{
		`mcp_gateway_build_info{commit="abc",go="go1.`,
		`version="1.2.3"} 1`,
		`mcp_gateway_calls_total{backend="docs",method="tools/call",outcome="ok",tool="search"} 2`,
		`mcp_gateway_calls_total{backend="docs",method="tools/call",outcome="timeout",tool="search"} 1`,
		`mcp_gateway_call_errors_total{` + search + `} 1`,
		`tool="bad` + "\ufffd" + `name\"\n"} 1`,
		`mcp_gateway_call_duration_seconds_bucket{` + search + `,le="0.001024"} 0`,
		`mcp_gateway_call_duration_seconds_bucket{` + search + `,le="0.004096"} 1`,
		`mcp_gateway_call_duration_seconds_bucket{` + search + `,le="4.194304"} 2`,
		`mcp_gateway_call_duration_seconds_bucket{` + search + `,le="+Inf"} 3`,
		`mcp_gateway_call_duration_seconds_sum{` + search + `} 62.003`,
		`mcp_gateway_call_duration_seconds_count{` + search + `} 3`,
		`mcp_gateway_call_arguments_bytes_bucket{` + search + `,le="256"} 3`,
		`mcp_gateway_call_result_bytes_bucket{` + search + `,le="4096"} 0`,
		`mcp_gateway_call_result_bytes_bucket{` + search + `,le="65536"} 3`,
		`mcp_gateway_calls_in_flight{backend="docs"} 2`,
		`mcp_gateway_calls_queued{backend="docs"} 5`,
		`mcp_gateway_backend_state{backend="docs",state="open"} 1`,
		`mcp_gateway_backend_state{backend="docs",state="ready"} 0`,
		`mcp_gateway_backend_healthy{backend="docs"} 0`,
		`mcp_gateway_backend_state_since_timestamp_seconds{backend="docs"} 1.5`,
		`mcp_gateway_backend_restarts_total{backend="docs"} 3`,
		`mcp_gateway_backend_connections{backend="docs"} 1`,
		`mcp_gateway_catalog_entries{backend="docs",kind="tools"} 4`,
		`mcp_gateway_sessions{generation="legacy",transport="stdio"} 1`,
		`mcp_gateway_sessions{generation="legacy",transport="streamable HTTP"} 0`,
		`mcp_gateway_sessions{generation="modern",transport="streamable HTTP"} 1`,
		`mcp_gateway_audit_records_total 10`,
		`mcp_gateway_audit_records_lost_total 1`,
		`mcp_gateway_audit_records_queued 2`,
		`mcp_gateway_audit_lag_seconds 1.5`,
		`mcp_gateway_audit_file_works 0`,
		`mcp_gateway_audit_files_bytes 15`,
		`mcp_gateway_configuration_valid 0`,
		`mcp_gateway_configuration_differs 1`,
		"go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// Names that backends and clients invent do not make the metrics grow without end.
func TestSeriesAreBounded(t *testing.T) {
	s := source{activity.New()}
	for i := range 3000 {
		end(s.Recorder, fmt.Sprint("b", i%300), fmt.Sprint("tool", i), gateway.OK, time.Second)
	}
	text := scrape(t, metrics.NewHandler(s))
	if n := strings.Count(text, "mcp_gateway_calls_total{"); n > 510 {
		t.Errorf("%d series of calls", n)
	}
	if !strings.Contains(text, `tool="other"`) {
		t.Error("no series for the other tools")
	}
}

// A blockingSource blocks each scrape until it is closed.
type blockingSource struct {
	source
	began, end chan struct{}
}

func (b blockingSource) Status() adminapi.GatewayStatus {
	b.began <- struct{}{}
	<-b.end
	return b.source.Status()
}

// More than four scrapes at the same time are refused.
func TestScrapesAreBounded(t *testing.T) {
	b := blockingSource{source{activity.New()}, make(chan struct{}), make(chan struct{})}
	h := metrics.NewHandler(b)
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() { scrape(t, h) })
		<-b.began
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	close(b.end)
	work.Wait()
}

// Scrapes and calls at the same time do not disturb each other.
func TestConcurrentScrapes(t *testing.T) {
	s := source{activity.New()}
	h := metrics.NewHandler(s)
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for range 20 {
				scrape(t, h)
				end(s.Recorder, "docs", fmt.Sprint("t", i), gateway.OK, time.Second)
			}
		})
	}
	work.Wait()
	if text := scrape(t, h); !strings.Contains(text, `outcome="ok",tool="t3"} 20`) {
		t.Error(text)
	}
}
