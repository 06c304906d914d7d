package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/config"
)

// The command that serve logs works when it is copied: the quotes of the log do not break it,
// and the token is a shell variable, not ***.
func TestServeLogsPasteableCommand(t *testing.T) {
	t.Setenv("DOOR_KEY", "0123456789abcdef-door")
	t.Setenv("GATEWAY_TOKEN", "0123456789abcdef-other")
	for token, want := range map[string]string{
		"${DOOR_KEY}":                "Authorization: Bearer 0123456789abcdef-door",
		"${UNSET:-0123456789abcdef}": "Authorization: Bearer 0123456789abcdef-other",
		"0123456789abcdef-other":     "Authorization: Bearer 0123456789abcdef-other",
	} {
		file := filepath.Join(t.TempDir(), "gateway.yaml")
		text := "listen: 127.0.0.1:0\nstate: none\nauth: { tokens: [\"" + token +
			"\"] }\nbackends: [{ name: demo, embedded: demo }]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		line := serveUntilCommand(t, "serve", "-c", file)
		_, command, _ := strings.Cut(strings.TrimSuffix(line, `"`), "claude ")
		out, err := exec.Command("sh", "-c",
			`claude() { printf '%s\n' "$@"; }; claude `+command).CombinedOutput()
		if args := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil ||
			args[len(args)-1] != want {
			t.Errorf("%s: %s\n%s%v", token, line, out, err)
		}
	}
}

// serveUntilCommand serves until it has logged the command for clients, and returns that line.
func serveUntilCommand(t *testing.T, args ...string) (line string) {
	t.Helper()
	all := serveLogLines(t, args...)
	for _, one := range all {
		if strings.Contains(one, "to use it") {
			line = one
		}
	}
	if line == "" {
		t.Fatalf("%q", all)
	}
	return line
}

// serveLogLines serves until it has logged the command for clients, and returns all lines of the
// log.
func serveLogLines(t *testing.T, args ...string) (all []string) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		code := run(ctx, args, stdio{null, os.Stdout, w})
		w.Close()
		ended <- code
	}()
	for lines := bufio.NewScanner(r); lines.Scan(); {
		all = append(all, lines.Text())
		if strings.Contains(lines.Text(), "to use it") {
			cancel()
		}
	}
	cancel()
	if code := <-ended; code != exitOK {
		t.Fatalf("%q, exit code %d", all, code)
	}
	return all
}

// The URL for clients has the host name of listen, because a certificate may be valid only for
// that name.
func TestEndpointURLHasHostOfListen(t *testing.T) {
	for listen, want := range map[string]string{
		"localhost:0": "http://localhost:7420/mcp", "gw.example:0": "http://gw.example:7420/mcp",
		"127.0.0.1:0": "http://127.0.0.1:7420/mcp", "[::1]:0": "http://[::1]:7420/mcp",
	} {
		ip := net.IPv4(127, 0, 0, 1)
		if listen[0] == '[' {
			ip = net.IPv6loopback
		}
		c := &config.Config{Listen: listen}
		if got := endpointURL(c, &net.TCPAddr{IP: ip, Port: 7420}); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
