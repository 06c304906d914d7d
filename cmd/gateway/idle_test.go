package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"mcpgateway/internal/httpserver"
)

// An idle session over HTTP needs no goroutine, and 10,000 of them need less than 30 MB in the
// whole gateway. A session with earlier calls needs no more.
func TestIdleSessionNeedsNoGoroutineAndLittleMemory(t *testing.T) {
	d, end := serveInProcess(t)
	defer end()
	const n, most = 2000, 3 << 10
	for range 100 { // the first sessions allocate memory that stays
		callInNewSession(t, d)
	}
	goroutines, bytes := runtime.NumGoroutine(), bytesInUse()
	for range n {
		callInNewSession(t, d)
	}
	more, each := runtime.NumGoroutine()-goroutines, (bytesInUse()-bytes)/n
	t.Logf("%d goroutines for %d sessions, and %d bytes for each", more, n, each)
	if more > 10 {
		t.Errorf("%d goroutines for %d sessions", more, n)
	}
	if each > most {
		t.Errorf("%d bytes for each session; at most %d are allowed", each, most)
	}
}

// bytesInUse returns the size of the heap and the stacks after a garbage collection.
func bytesInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // a second collection empties the pools
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// serveInProcess opens a gateway as serve does, and runs it until end is called.
func serveInProcess(t *testing.T) (d *httpserver.Server, end func()) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := newCLI(stdio{null, null, null})
	c.source.path = file(t, "gateway.yaml",
		"listen: 127.0.0.1:0\nstate: none\nlog: { level: error }\nbackends: [{ name: demo, embedded: demo }]\n")
	a, err := c.open(t.Context(), runMode{})
	if err != nil {
		t.Fatal(err)
	}
	s := newService(a, c.stdio)
	ln, err := s.listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- a.run(ctx, func(ctx context.Context) error { return s.http.Run(ctx, ln) })
	}()
	return s.http, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		null.Close()
	}
}

// callInNewSession opens a session and calls a tool in it.
func callInNewSession(t *testing.T, d *httpserver.Server) {
	t.Helper()
	key := post(t, d, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`).Get("Mcp-Session-Id")
	post(t, d, key, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	post(t, d, key, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	post(t, d, key, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"now"}}`)
}

func post(t *testing.T, d *httpserver.Server, key, body string) http.Header {
	t.Helper()
	r := httptest.NewRequest("POST", "http://localhost/mcp", strings.NewReader(body))
	r.Header = http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
	}
	if key != "" {
		r.Header.Set("Mcp-Session-Id", key)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	if w.Code/100 != 2 || strings.Contains(w.Body.String(), `"error"`) {
		t.Fatalf("%s: %d %s", body, w.Code, w.Body)
	}
	return w.Header()
}
