package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/sdnotify"
)

// The watchdog of systemd is told that the gateway works only after a response of the gateway.
func TestWatchdogIsNotNotifiedWhileTheGatewayHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "100000")
	requests, release := make(chan string, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path
		<-release
		w.Header().Set("Server", httpserver.ServerHeader)
		w.WriteHeader(http.StatusServiceUnavailable) // not ready, but it works
	}))
	defer server.Close()
	respond := sync.OnceFunc(func() { close(release) })
	defer respond()
	var log strings.Builder
	s := &service{app: &app{appLog: appLog{log: slog.New(slog.NewTextHandler(&log, nil))},
		backends: backends.New(backends.Options{Log: slog.New(slog.DiscardHandler)})}}
	r := newSystemdReporter(sdnotify.FromEnvironment(), s, server.URL+"/readyz")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.run(ctx)
	}()
	// Three requests: the gateway did not respond to two of them.
	for range 3 {
		if at := <-requests; at != "/readyz" {
			t.Errorf("request to %s", at)
		}
	}
	data := make([]byte, 4096)
	receive := func() string {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, err := socket.Read(data)
		if err != nil {
			t.Fatal(err)
		}
		return string(data[:n])
	}
	if got := receive(); !strings.HasPrefix(got, "READY=1\n") {
		t.Errorf("received %q", got)
	}
	_ = socket.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := socket.Read(data); err == nil {
		t.Errorf("received %q while the gateway hangs", data[:n])
	}
	end()
	<-ended
	if got := receive(); !strings.HasPrefix(got, "STOPPING=1\n") {
		t.Errorf("received %q", got)
	}
	if !strings.Contains(log.String(), "the gateway does not respond to itself") {
		t.Errorf("log: %s", log.String())
	}
	respond()
	if err := r.probe(t.Context()); err != nil {
		t.Errorf("the gateway responds, but: %v", err)
	}
}

func TestReadyURL(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv6zero, Port: 7421}
	for listen, want := range map[string]string{
		":0":          "http://127.0.0.1:7421/readyz",
		"[::]:0":      "http://[::1]:7421/readyz",
		"localhost:0": "http://localhost:7421/readyz",
	} {
		if got := readyURL(&config.Config{Listen: listen}, addr); got != want {
			t.Errorf("%s: %s", listen, got)
		}
	}
}
