package main

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// A client of the debug socket that does not read responses does not delay the end of the gateway.
func TestDebugClientDoesNotDelayExit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	t.Setenv(debugEnv, path)
	end := serveDebug(slog.New(slog.DiscardHandler))
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	if n, err := c.Write(bytes.Repeat([]byte("GET /goroutines HTTP/1.1\r\nHost: x\r\n\r\n"), 1<<20)); err == nil {
		t.Fatalf("the server read %d bytes of requests whose responses nobody reads", n)
	}
	end() // must return although the client does not read
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		t.Error("the socket still accepts connections")
	}
}
