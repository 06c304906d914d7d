package door

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serveBench opens a Door on loopback whose sessions answer at once, and returns
// where it is.
func serveBench(b *testing.B, h http.Handler) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	if d, ok := h.(*Door); ok {
		go func() { ended <- d.Run(ctx, ln) }()
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

func benchPost(b *testing.B, client *http.Client, url, key, body string, header ...string) *http.Response {
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
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

func BenchmarkCall(b *testing.B) {
	d := New(Options{Open: openToAll, Idle: time.Hour})
	url := serveBench(b, d)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	key := benchPost(b, client, url, "", initialize("2025-11-25")).Header.Get(sessionHeader)
	b.ReportAllocs()
	for b.Loop() {
		benchPost(b, client, url, key, benchCall)
	}
}

// BenchmarkLoneCall is BenchmarkCall in the stateless era.
func BenchmarkLoneCall(b *testing.B) {
	d := New(Options{Serve: serveAll})
	url := serveBench(b, d)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	v := lone("1", "tools/call", `"name":"x","arguments":{"a":1}`)
	b.ReportAllocs()
	for b.Loop() {
		benchPost(b, client, url, "", v.body, "Mcp-Protocol-Version", modern)
	}
}

// BenchmarkBare is what net/http alone needs for as much.
func BenchmarkBare(b *testing.B) {
	url := serveBench(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(result("1", `{"protocolVersion":"2025-03-26"}`)))
	}))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		benchPost(b, client, url, "", benchCall)
	}
}
