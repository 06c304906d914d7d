package httpserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
	"mcpgateway/internal/resourceserver"
	"mcpgateway/internal/wire"
)

// startBenchServer starts an HTTP server for h on loopback, and returns the URL of its MCP
// endpoint.
func startBenchServer(b *testing.B, h http.Handler) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	if srv, ok := h.(*Server); ok {
		go func() { ended <- srv.Run(ctx, ln) }()
	} else {
		server := &http.Server{Handler: h}
		go func() { ended <- server.Serve(ln) }()
		context.AfterFunc(ctx, func() { server.Close() })
	}
	b.Cleanup(func() {
		cancel()
		<-ended
	})
	return "http://" + ln.Addr().String() + "/mcp"
}

func benchPost(b *testing.B, client *http.Client, url, key, body string,
	header ...string) *http.Response {
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}}
	if key != "" {
		req.Header[sessionHeader] = []string{key}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(res.Body); err != nil || res.StatusCode != 200 || buf.Len() == 0 {
		b.Fatalf("%d %s %v", res.StatusCode, buf.String(), err)
	}
	res.Body.Close()
	return res
}

const benchCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":1}}}`

// BenchmarkCall measures a call of one session while other sessions are open.
func BenchmarkCall(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("%d sessions", n), func(b *testing.B) {
			srv := New(Options{OpenSession: openEcho, IdleTimeout: time.Hour})
			url := startBenchServer(b, srv)
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for range n - 1 {
				x := &httpExchange{srv: srv}
				if herr := srv.sessions.open(newSession(x, false)); herr != nil {
					b.Fatal(herr)
				}
			}
			key := benchPost(b, client, url, "", initializeRequest("2025-11-25")).
				Header.Get(sessionHeader)
			b.ReportAllocs()
			for b.Loop() {
				benchPost(b, client, url, key, benchCall)
			}
		})
	}
}

// A discardWriter is a ResponseWriter that discards everything.
type discardWriter struct{ header http.Header }

func (s discardWriter) Header() http.Header              { return s.header }
func (s discardWriter) Write(b []byte) (int, error)      { return len(b), nil }
func (s discardWriter) WriteHeader(int)                  {}
func (s discardWriter) FlushError() error                { return nil }
func (s discardWriter) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkEvents measures the writing of a message as a server-sent event.
func BenchmarkEvents(b *testing.B) {
	for _, n := range []int{32, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d bytes", n), func(b *testing.B) {
			sw := newStreamWriter(discardWriter{})
			batch := []wire.Text{largeNotification(0, n).Text()}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if err := sw.writeEvents(batch, "1-", 7); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Writing an event does not copy its message, and further events of a batch do not allocate.
func TestAllocations_OfEvents(t *testing.T) {
	for _, n := range []int{1, 100} {
		sw := newStreamWriter(discardWriter{})
		batch := slices.Repeat([]wire.Text{largeNotification(0, 4<<10).Text()}, n)
		send := func() {
			if err := sw.writeEvents(batch, "1-", 7); err != nil {
				t.Fatal(err)
			}
		}
		if got := testing.AllocsPerRun(100, send); got > 6 {
			t.Errorf("%d events: %v allocations", n, got)
		}
	}
}

// BenchmarkStatelessCall measures a call without a session.
func BenchmarkStatelessCall(b *testing.B) {
	p := oidctest.New(b, oidctest.Options{Audience: []string{audience}})
	oauth := AccessRules{OAuth: resourceserver.New(resourceserver.Options{
		Issuer: p.Issuer(), Audience: audience})}
	const token = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	for _, access := range []struct {
		name, authorization string
		rules               AccessRules
	}{
		{"without authentication", "", AccessRules{}},
		{"token", "Bearer " + token, AccessRules{Tokens: bearerTokens("a", "b", token)}},
		{"JWT", "Bearer " + p.IssueToken(oidctest.TokenSpec{Scopes: []string{"read"}}), oauth},
	} {
		b.Run(access.name, func(b *testing.B) {
			srv := New(Options{ServeRequest: serveEcho, AccessRules: access.rules})
			url := startBenchServer(b, srv)
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			tr := statelessRequest("1", "tools/call", `"name":"x","arguments":{"a":1}`)
			b.ReportAllocs()
			for b.Loop() {
				benchPost(b, client, url, "", tr.body, "Mcp-Protocol-Version", modernRevision,
					"Authorization", access.authorization)
			}
		})
	}
}

// BenchmarkNetHTTP measures net/http alone with the same bodies.
func BenchmarkNetHTTP(b *testing.B) {
	url := startBenchServer(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(resultJSON("1", `{"protocolVersion":"2025-03-26"}`)))
	}))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		benchPost(b, client, url, "", benchCall)
	}
}
