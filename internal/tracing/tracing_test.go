package tracing_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/mcptest/otlptest"
	"mcpgateway/internal/tracing"
	"mcpgateway/internal/wire"
)

// variables looks up variables in a map.
func variables(all map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := all[name]; return v, ok }
}

// A sender is a Tracer that sends to a receiver in a bubble.
type sender struct {
	*tracing.OTelTracer
	t    testing.TB
	log  *mcptest.Log
	stop func() time.Duration // ends Run and returns how long it took
}

type dialer = func(context.Context, string, string) (net.Conn, error)

func newSender(t testing.TB, c config.OTel, env map[string]string, dial dialer) *sender {
	t.Helper()
	found, warnings := tracing.Load(c, variables(env))
	if found == nil || warnings != nil {
		t.Fatal("no settings:", warnings)
	}
	s := &sender{t: t}
	var log *slog.Logger
	s.log, log = mcptest.NewLog()
	s.OTelTracer = tracing.New(tracing.Options{Settings: found, Version: "1.2", Log: log,
		Dial: dial,
		Mask: func(text string) string {
			for _, secret := range found.Secrets() {
				text = strings.ReplaceAll(text, secret, "***")
			}
			return text
		}})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	s.stop = sync.OnceValue(func() time.Duration {
		before := time.Now()
		cancel()
		running.Wait()
		return time.Since(before)
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// trace sends the spans of n calls.
func (s *sender) trace(n int) {
	m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
	if err != nil {
		s.t.Fatal(err)
	}
	for range n {
		c := &gateway.CallInfo{Method: "tools/call", ID: "1", Name: "x",
			Route: catalog.Route{Backend: "b", Original: "x"}}
		trace := s.Begin(c, m,
			gateway.TracedClient{Session: "s", Revision: "2025-06-18", HTTP: true})
		span := trace.BackendSpan()
		span.Begin(contract.TracedRequest{Backend: "b", Method: "tools/call", Entry: "x",
			Revision: "2025-06-18", URL: "https://h.example/mcp"})
		span.End("7", contract.BackendResponse{Message: wire.NewResult("7", []byte(`{}`))})
		trace.End(c, gateway.Outcome{Kind: gateway.OK})
	}
}

const receiverURL = "http://receiver.test"

// Spans are sent with the headers, compressed if a variable says so, to the path of the protocol.
func TestSend(t *testing.T) {
	for _, compression := range []string{"", "gzip"} {
		synctest.Test(t, func(t *testing.T) {
			var r otlptest.Receiver
			s := newSender(t, config.OTel{Endpoint: receiverURL + "/base/",
				Headers: map[string]string{"x-api-key": "s3cret"}},
				map[string]string{"OTEL_EXPORTER_OTLP_COMPRESSION": compression},
				otlptest.Pipe(t, &r))
			s.trace(1)
			time.Sleep(6 * time.Second)
			spans, requests := r.Spans(t), r.Requests()
			if len(spans) != 2 || len(requests) != 1 {
				t.Fatalf("got %d spans in %d requests", len(spans), len(requests))
			}
			if q := requests[0]; q.URL.Path != "/base/v1/traces" ||
				q.Header.Get("X-Api-Key") != "s3cret" || q.Header.Get("User-Agent") !=
				"mcp-gateway/1.2" || q.Header.Get("Content-Encoding") != compression {
				t.Errorf("the request is %s %v", q.URL, q.Header)
			}
			for key, want := range map[string]string{"server.address": "h.example",
				"server.port": "443", "network.transport": "tcp", "network.protocol.name": "http"} {
				if got := spans[0].Attribute(key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
		})
	}
}

// The spans of the time of OTEL_BSP_SCHEDULE_DELAY are sent together, at most
// OTEL_BSP_MAX_EXPORT_BATCH_SIZE in one request; the rest is sent when the gateway ends.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r otlptest.Receiver
		s := newSender(t, config.OTel{Endpoint: receiverURL}, map[string]string{
			"OTEL_BSP_SCHEDULE_DELAY": "60000", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10"},
			otlptest.Pipe(t, &r))
		s.trace(7)
		time.Sleep(30 * time.Second)
		if n := len(r.Spans(t)); n != 10 {
			t.Errorf("%d spans were sent at once", n)
		}
		time.Sleep(31 * time.Second)
		if n := len(r.Spans(t)); n != 14 {
			t.Errorf("%d spans were sent after a minute", n)
		}
		s.trace(12)
		s.stop()
		if n, requests := len(r.Spans(t)), len(r.Requests()); n != 38 || requests != 5 {
			t.Errorf("%d spans were sent in %d requests", n, requests)
		}
		if lines := s.log.Warnings(); len(lines) != 0 {
			t.Errorf("the log has %q", lines)
		}
	})
}

// A receiver that is temporarily unavailable gets the spans again, after the time that it asks for;
// other responses are final. Lost spans are counted and logged.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		status     int
		retryAfter string
		tries      int
		wait       time.Duration // between the tries, at least
	}{
		{429, "", 2, 500 * time.Millisecond}, {502, "", 2, 0}, {503, "7", 2, 7 * time.Second},
		{504, "nonsense", 2, 0}, {400, "", 1, 0}, {401, "1", 1, 0}, {404, "", 1, 0},
		{500, "", 1, 0}, {307, "", 1, 0},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var times []time.Time
				r := otlptest.Receiver{Respond: func(n int, w http.ResponseWriter) bool {
					times = append(times, time.Now())
					w.Header().Set("Retry-After", c.retryAfter)
					w.Header().Set("Location", "http://elsewhere.test/")
					if n == 1 {
						w.WriteHeader(c.status)
						// a google.rpc.Status
						_, _ = w.Write(protowire.AppendString(protowire.AppendTag(nil, 2,
							protowire.BytesType), "not\nnow: s3cret"))
					}
					return n == 1
				}}
				s := newSender(t, config.OTel{Endpoint: receiverURL,
					Headers: map[string]string{"x-key": "s3cret"}}, nil, otlptest.Pipe(t, &r))
				s.trace(1)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if len(times) != c.tries || len(times) == 2 && times[1].Sub(times[0]) < c.wait {
					t.Errorf("the tries are at %v", times)
				}
				lines := s.log.Warnings()
				switch {
				case c.tries == 2 && len(lines) == 0 && len(r.Spans(t)) == 2:
				case c.tries == 1 && len(lines) == 1 && strings.Contains(lines[0], "lost=2") &&
					strings.Contains(lines[0], fmt.Sprintf("HTTP status %d: not now: ***", c.status)):
				default:
					t.Errorf("%d spans; the log has %q", len(r.Spans(t)), lines)
				}
			})
		})
	}
}

// Spans that a receiver rejects in a successful response are counted.
func TestPartialSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := otlptest.Receiver{Respond: func(n int, w http.ResponseWriter) bool {
			partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
			partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType),
				"too old")
			_, _ = w.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType),
				partial))
			return true
		}}
		s := newSender(t, config.OTel{Endpoint: receiverURL}, nil, otlptest.Pipe(t, &r))
		s.trace(1)
		time.Sleep(6 * time.Second)
		lines := s.log.Warnings()
		if len(lines) != 1 || !strings.Contains(lines[0], "lost=1") ||
			!strings.Contains(lines[0], "too old") {
			t.Errorf("the log has %q", lines)
		}
	})
}

// A receiver that is down, or does not answer, costs calls nothing: the queue is bounded, lost
// spans are logged once a minute at most, and the end of the gateway is delayed by two seconds at
// most.
func TestReceiverDownOrSlow(t *testing.T) {
	down := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: fmt.Errorf("connection refused")}
	}
	silent := func(context.Context, string, string) (net.Conn, error) {
		conn, remote := net.Pipe()
		go func() { // takes the request, and does not respond
			buffer := make([]byte, 1024)
			for {
				if _, err := remote.Read(buffer); err != nil {
					return
				}
			}
		}()
		return conn, nil
	}
	for name, dial := range map[string]dialer{"down": down, "slow": silent} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSender(t, config.OTel{Endpoint: receiverURL},
					map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "20"}, dial)
				begin := time.Now()
				for range 130 {
					before := time.Now()
					s.trace(20)
					if d := time.Since(before); d > 0 {
						t.Fatalf("calls waited for %v", d)
					}
					time.Sleep(time.Second)
				}
				lines := s.log.Warnings()
				if most := int(time.Since(begin)/time.Minute) + 1; len(lines) < 2 ||
					len(lines) > most {
					t.Errorf("the log has %d lines: %q", len(lines), lines)
				}
				if !strings.Contains(lines[1], "the queue of 20 spans was full") ||
					!strings.Contains(lines[1], "lost=2") {
					t.Errorf("the log has %s", lines[1])
				}
				if d := s.stop(); d > 2*time.Second {
					t.Errorf("the end took %v", d)
				}
				after := s.log.Warnings()
				if len(after) <= len(lines) {
					t.Errorf("the last loss is not logged: %q", after)
				}
			})
		})
	}
}

// An idle Tracer sends nothing and sets no timer; New starts no goroutine.
func TestNewStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine remains
		found, _ := tracing.Load(config.OTel{Endpoint: receiverURL}, variables(nil))
		tracing.New(tracing.Options{Settings: found})
	})
}

func TestAllocationsOfUnsampledCalls(t *testing.T) {
	found, _ := tracing.Load(config.OTel{Endpoint: receiverURL, Sample: "0"}, variables(nil))
	tracer := tracing.New(tracing.Options{Settings: found})
	m, _ := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
	c := &gateway.CallInfo{Method: "tools/call"}
	n := testing.AllocsPerRun(100, func() {
		trace := tracer.Begin(c, m, gateway.TracedClient{})
		span := trace.BackendSpan()
		span.Begin(contract.TracedRequest{Method: "tools/call"})
		span.End("7", contract.BackendResponse{})
		trace.End(c, gateway.Outcome{})
	})
	if n > 7 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkUnsampledCall(b *testing.B) { benchmarkCall(b, "0") }
func BenchmarkSampledCall(b *testing.B)   { benchmarkCall(b, "1") }

// benchmarkCall measures what tracing adds to a call, except for the encoding of spans.
func benchmarkCall(b *testing.B, sample string) {
	found, _ := tracing.Load(config.OTel{Endpoint: receiverURL, Sample: sample}, variables(nil))
	tracer := tracing.New(tracing.Options{Settings: found})
	m, _ := wire.Parse([]byte(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":1}}}`))
	c := &gateway.CallInfo{Method: "tools/call", ID: "1", Name: "x"}
	b.ReportAllocs()
	for b.Loop() {
		trace := tracer.Begin(c, m, gateway.TracedClient{Session: "s", Revision: "2025-06-18"})
		span := trace.BackendSpan()
		m.SetMeta(span.Begin(contract.TracedRequest{
			Backend: "b", Method: "tools/call", Entry: "x"})...)
		span.End("7", contract.BackendResponse{})
		trace.End(c, gateway.Outcome{Kind: gateway.OK})
	}
}
