package main

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
)

// health runs gateway health and returns its exit code and output.
func health(t *testing.T, args ...string) (int, string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	code := run(t.Context(), append([]string{"health"}, args...), stdio{os.Stdin, w, w})
	w.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return code, text.String()
}

// writeTempConfig returns a file with these lines.
func writeTempConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(text+
		"\nstate: none\nbackends: [{ name: demo, embedded: demo }]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestHealth_F_CFG_3(t *testing.T) {
	status := http.StatusOK
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", httpserver.ServerHeader)
		switch r.URL.Path {
		case "/healthz":
			w.WriteHeader(status)
		case "/readyz":
			http.Error(w, "not ready: waiting for 2 backends", http.StatusServiceUnavailable)
		default:
			http.NotFound(w, r)
		}
	})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secure.Close()
	addr := strings.TrimPrefix(plain.URL, "http://")
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	token := "auth: { tokens: [0123456789abcdef] }\n"
	for _, row := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{plain.URL}, 0, "ok"},
		{[]string{plain.URL + "/mcp"}, 0, "ok"},
		{[]string{plain.URL + "/sse/"}, 0, "ok"},
		{[]string{addr}, 0, "ok"},
		{[]string{plain.URL + "/readyz"}, 1, "waiting for 2 backends"},
		{[]string{secure.URL}, 1, "certificate"},
		{[]string{"-c", writeTempConfig(t, "listen: "+addr)}, 0, "ok"},
		{[]string{"-c", writeTempConfig(t, token+`listen: ":`+port+`"`)}, 0, "ok"},
		{[]string{"-c", writeTempConfig(t, token+"listen: 0.0.0.0:"+port)}, 0, "ok"},
		{[]string{"-c", writeTempConfig(t,
			token+"tls: { cert: a, key: b }\nlisten: "+strings.TrimPrefix(secure.URL, "https://"))},
			0, "ok"},
		{[]string{"-c", writeTempConfig(t, "")}, 2, "no listen"},
		{[]string{"-c", writeTempConfig(t, "listen: 127.0.0.1:0")}, 2, "give the URL"},
		{[]string{"-c", writeTempConfig(t, "listn: x")}, 2, "listn"},
		{[]string{"ftp://x"}, 2, "not the URL"},
		{[]string{"http://"}, 2, "not the URL"},
		{[]string{plain.URL, plain.URL}, 2, "takes one argument, but got 2"},
	} {
		if code, text := health(t, row.args...); code != row.code ||
			!strings.Contains(text, row.text) {
			t.Errorf("%q: exit code %d, %s", row.args, code, text)
		}
	}
	status = http.StatusServiceUnavailable
	if code, text := health(t, plain.URL); code != 1 || !strings.Contains(text, "503") {
		t.Errorf("503: exit code %d, %s", code, text)
	}
	plain.Close()
	if code, text := health(t, plain.URL); code != 1 || !strings.Contains(text, "hint: ") {
		t.Errorf("nobody: exit code %d, %s", code, text)
	}
}

// The hints distinguish a wrong URL or certificate from a gateway that does not run.
func TestHealthHints(t *testing.T) {
	plain, secure := httptest.NewServer(http.NotFoundHandler()),
		httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	for at, want := range map[string]string{
		secure.URL: "hint: the certificate is not trusted: set SSL_CERT_FILE",
		"https" + strings.TrimPrefix(plain.URL,
			"http"): "hint: the gateway serves no TLS: use http://",
		"http" + strings.TrimPrefix(secure.URL,
			"https"): "hint: the gateway serves TLS: use https://",
	} {
		if code, text := health(t, at); code != exitFailed || !strings.Contains(text, want) ||
			strings.Contains(text, "is a gateway running") {
			t.Errorf("%s: exit code %d, %s, want %s", at, code, text, want)
		}
	}
}

// health only needs the keys listen and tls. Variables of other keys, such as tokens, may be unset.
func TestHealthNeedsNoToken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Header().Set("Server", httpserver.ServerHeader)
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text string
		code int
		want string
	}{
		{"listen: " + addr + "\nauth: { tokens: [\"${NOT_SET_ANYWHERE}\"] }", exitOK, "ok"},
		{"listen: 0.0.0.0:" + port + "\nauth: { tokens: [\"x-${NOT_SET_ANYWHERE}\"] }", exitOK,
			"ok"},
		{"listen: " + addr +
			"\nhosts: [\"${NOT_SET_ANYWHERE}\"]\norigins: [\"${NOT_SET_ANYWHERE}\"]\nlimits: { page: \"${NOT_SET_ANYWHERE}\" }", exitOK, "ok"},
		{"listen: \"${NOT_SET_ANYWHERE}\"", exitUsage,
			"listen: variable NOT_SET_ANYWHERE is not set"},
		{"listen: " + addr + "\ntls: { cert: \"${NOT_SET_ANYWHERE}\", key: k }", exitUsage,
			"tls.cert: variable NOT_SET_ANYWHERE is not set"},
		{"listen: " + addr + "\nauth: { tokens: [short] }", exitUsage, "auth.tokens[0]: "},
	} {
		if code, text := health(t, "-c", writeTempConfig(t, tt.text)); code != tt.code ||
			!strings.Contains(text, tt.want) {
			t.Errorf("%s: exit code %d, %s, want %s", tt.text, code, text, tt.want)
		}
	}
	if code, text := health(t, "-c", writeTempConfig(t,
		"listen: 0.0.0.0:"+port)); code != exitUsage || !strings.Contains(text, "no auth.tokens") {
		t.Errorf("no tokens: exit code %d, %s", code, text)
	}
}

func TestHealthOfOwnConfiguration_F_CFG_3(t *testing.T) {
	for listen, want := range map[string]string{
		":7420": "http://127.0.0.1:7420/healthz", "0.0.0.0:7420": "http://127.0.0.1:7420/healthz",
		"[::]:7420":     "http://[::1]:7420/healthz",
		"localhost:80":  "http://localhost:80/healthz",
		"10.0.0.7:7420": "http://10.0.0.7:7420/healthz",
		"[fe80::1]:1":   "http://[fe80::1]:1/healthz",
	} {
		if got, err := listenURL(&config.Config{Listen: listen}); err != nil || got != want {
			t.Errorf("%s: %s, %v", listen, got, err)
		}
	}
}

// The response may come from another program, or from a gateway behind a proxy that changes the
// header Server.
func TestHealthOfAnotherProgram(t *testing.T) {
	for _, c := range []struct {
		server, text string
		url, own     int // exit codes
	}{
		{httpserver.ServerHeader, "ok\n", 0, 0}, {"nginx", "ok\n", 0, 1}, {"", "ok\n", 0, 1},
		{"nginx", "<html>", 1, 1}, {"", "", 1, 1}, {"", "ok\nand more", 1, 1},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Server", c.server)
			_, _ = w.Write([]byte(c.text))
		}))
		code, text := health(t, server.URL)
		if code != c.url ||
			code != 0 && !strings.Contains(text, "the program at that address is not a gateway") {
			t.Errorf("%+v: exit code %d, %s", c, code, text)
		}
		code, text = health(
			t, "-c", writeTempConfig(t, "listen: "+strings.TrimPrefix(server.URL, "http://")),
		)
		if code != c.own || code != 0 && !strings.Contains(text, "another program listens") {
			t.Errorf("%+v, our own address: exit code %d, %s", c, code, text)
		}
		server.Close()
	}
}

// A status other than 200 may come from another program, and the hint mentions this. The hint for a
// rejection by a gateway does not.
func TestHealthOfProgramThatRejects(t *testing.T) {
	for _, c := range []struct {
		server, text string
		status       int
		other        bool
	}{
		{"nginx", "<html>", 404, true}, {"", "", 302, true}, {"", "down", 503, true},
		{httpserver.ServerHeader, "not ready: waiting for 1 backend\n", 503, false},
		{"nginx", "not ready: waiting for 1 backend\n", 503, false},
		{"", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Forbidden: x"}}`, 403,
			false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Server", c.server)
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.text))
		}))
		code, text := health(t, server.URL)
		if code != exitFailed || strings.Contains(text, "another program listens") != c.other {
			t.Errorf("%+v: exit code %d, %s", c, code, text)
		}
		server.Close()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// closing with unread bytes would reset the connection
			_, _ = conn.Read(make([]byte, 4<<10))
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.6\r\n"))
			conn.Close()
		}
	}()
	if code, text := health(t, listener.Addr().String()); code != exitFailed ||
		!strings.Contains(text, "another program listens") {
		t.Errorf("SSH: exit code %d, %s", code, text)
	}
}
