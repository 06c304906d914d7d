//go:build unix

package integration

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A connection to the admin socket becomes a session of MCP, which ends with the gateway.
func TestConnect_OverAdminSocket(t *testing.T) {
	t.Parallel()
	short, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	s := newSetup(t, map[string]any{"state": short}, backend{Name: "demo", Embedded: "demo"})
	gw := s.start()
	gw.initialize("2025-11-25")
	s.awaitStatus("ready", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Backends[0].State == "ready"
	})
	sockets, err := filepath.Glob(filepath.Join(short, "gateways", "*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("%q %v", sockets, err)
	}
	conn, err := net.Dial("unix", sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(waitTimeout))
	fmt.Fprint(conn, "GET /api/v1/connect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"+
		"Upgrade: mcp-stdio\r\n\r\n")
	lines := bufio.NewScanner(conn)
	awaitLine := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("no line with %q: %v", text, lines.Err())
	}
	awaitLine("101 Switching Protocols")
	for lines.Scan() && lines.Text() != "" {
	}
	fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}`+"\n",
		initializeParams("2025-11-25"))
	awaitLine(`"serverInfo"`)
	fmt.Fprint(conn, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo",`+
		`"arguments":{"text":"over the socket"}}}`+"\n")
	awaitLine("over the socket")
	s.awaitStatus("two sessions", func(all []statusReport) bool {
		return len(all) == 1 && len(all[0].Sessions) == 2
	})
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
}
