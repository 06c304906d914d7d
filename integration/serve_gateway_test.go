//go:build unix

package integration

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runToExit runs the gateway with arguments with which it must exit at once, and returns the
// exit code and stderr.
func (s *setup) runToExit(args ...string) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, gateway(s.t), append([]string{"-c", s.config}, args...)...)
	cmd.Env, cmd.Dir = s.env(), s.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run() // the exit code is checked instead
	searchText(s.t, "stderr", stderr.Bytes())
	return cmd.ProcessState.ExitCode(), stderr.String()
}

func TestServe_StartupErrors(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	demo := backend{Name: "demo", Embedded: "demo"}
	for _, c := range []struct {
		name   string
		more   map[string]any
		addr   string
		code   int
		stderr []string
	}{
		{"port in use", nil, taken.Addr().String(), 1, []string{"is in use", "hint: "}},
		{"public address without tokens", nil, "0.0.0.0:0", 2, []string{"auth.tokens"}},
		{"missing certificate", map[string]any{"tls": map[string]any{"cert": "/none.pem",
			"key": "/none.pem"}}, "127.0.0.1:0", 2,
			[]string{"/none.pem", "hint: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, stderr := newSetup(t, c.more, demo).runToExit("serve", "--listen", c.addr)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not contain %q:\n%s", want, stderr)
				}
			}
		})
	}
}

// certificate returns a self-signed certificate for 127.0.0.1 in PEM files, and a pool that
// trusts it.
func certificate(t testing.TB) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
			0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pool = x509.NewCertPool()
	parsed, _ := x509.ParseCertificate(der)
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret), pool
}

// bearer sends a token with each request.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

func TestServe_TokensAndTLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := certificate(t)
	token := secret(t, "token")
	s := newSetup(t, map[string]any{
		"auth": map[string]any{"tokens": []string{token}},
		"tls":  map[string]any{"cert": cert, "key": key},
	}, backend{Name: "demo", Embedded: "demo"})
	url := strings.Replace(s.serveURL(), "http://", "https://", 1)
	pipe := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer pipe.CloseIdleConnections()

	for who, client := range map[string]*http.Client{
		"no token":    {Transport: pipe},
		"wrong token": {Transport: bearer{pipe, secret(t, "wrong token")}},
	} {
		res, err := client.Post(url, "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized ||
			!strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: %s, WWW-Authenticate %q", who, res.Status,
				res.Header.Get("WWW-Authenticate"))
		}
	}
	var got []message
	v, err := dialStreams(t.Context(), &http.Client{Transport: bearer{pipe, token}}, url, `{}`,
		func(_ string, m message) { got = append(got, m) })
	if err == nil {
		err = v.post("1",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`)
	}
	if err != nil || len(got) != 1 || !strings.Contains(string(got[0].Result), `"3"`) {
		t.Errorf("with the token: %v: %q", err, got)
	}
	if err := v.deleteSession(); err != nil {
		t.Error(err)
	}
	if res, err := http.Get(url); err == nil {
		t.Errorf("a client that does not trust the certificate: %s", res.Status)
	}
	for _, path := range []string{"/healthz", "/readyz"} { // probes need no token
		res, err := (&http.Client{Transport: pipe}).Get(strings.TrimSuffix(url, "/mcp") + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

// Stdio and HTTP are served by one gateway: both use the same backend process, and the end of
// stdin ends both.
func TestServe_StdioAndHTTP(t *testing.T) {
	t.Parallel()
	notes := notesFile(t)
	b := helperBackend("mirror", "mirror", notes)
	b.Sharing = "shared"
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, b)
	addr := "127.0.0.1:" + freePort(t)
	gw := s.start("serve", "--stdio", "--listen", addr)
	awaitListener(t, addr, gw.exited)
	gw.initialize("2025-11-25")
	web := dialHTTP(t, "http://"+addr+"/mcp", "2025-11-25")
	for _, c := range []caller{gw, web} {
		if got := names(listTools(t, c)); len(got) != 3 {
			t.Errorf("tools: %q", got)
		}
		if m := callTool(c, "request", `{}`); m.Result == nil {
			t.Errorf("request: %s", m.Raw)
		}
	}
	started := 0
	for _, n := range readNotes(notes) {
		if n == "started" {
			started++
		}
	}
	if started != 1 {
		t.Errorf("the backend was started %d times", started)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
	gw.checkPure()
}

// A client starts a gateway that only listens, gets an error, and closes stdin: the gateway
// exits and releases the port.
func TestServe_ExitsWithRejectedStdioClient(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"})
	addr := "127.0.0.1:" + freePort(t)
	gw := s.start("serve", "--listen", addr)
	awaitListener(t, addr, gw.exited)
	if m := gw.call("initialize", `{}`); m.Error == nil || !strings.Contains(string(m.Raw), addr) {
		t.Errorf("response %s", m.Raw)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// SIGTERM with calls in flight over HTTP: the calls end with an error response, and no process
// is left (newSetup checks that).
func TestServe_ShutdownWithCallsInFlight(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		helperBackend("mirror", "mirror", ""))
	addr := "127.0.0.1:" + freePort(t)
	gw := s.start("serve", "--listen", addr)
	awaitListener(t, addr, gw.exited)
	url := "http://" + addr + "/mcp"
	awaitReady(t, url)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}}
	defer client.CloseIdleConnections()
	type end struct {
		m   message
		err error
	}
	ends := make(chan end, 100)
	const calls = 20
	for range calls {
		responses := make(chan message, 1)
		v, err := dialStreams(t.Context(), client, url, `{}`,
			func(_ string, m message) { responses <- m })
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			err := v.post("1",
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}`)
			select {
			case m := <-responses:
				ends <- end{m, err}
			default:
				ends <- end{message{}, err}
			}
		}()
	}
	if !poll(waitTimeout, func() bool {
		return strings.Count(gw.logs(), `msg="client connected"`) >= calls
	}) {
		t.Error("not all clients are connected")
	}
	<-time.After(300 * time.Millisecond) // the streams of the clients are open by then
	began := time.Now()
	gw.cmd.Process.Signal(syscall.SIGTERM)
	if code := gw.exitCode(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("exited after %v", time.Since(began).Round(time.Millisecond))
	for range calls {
		if e := next(t, "end of a call", ends); e.err != nil || e.m.code() != -32603 {
			t.Errorf("a call ended with %v, %s", e.err, e.m.Raw)
		}
	}
	for _, r := range s.records() {
		if r.Outcome != "cancelled" {
			t.Errorf("audit: %s", r.line)
		}
	}
}

// A client whose session is unknown after a restart of the gateway gets 404 and reconnects
// (HTTP-04). The SDKs' clients leave that to their user: a new connection works at once.
func TestHTTP_04_ClientsReconnectAfterRestart(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		helperBackend("gosdk", "gosdk", ""))
	addr := "127.0.0.1:" + freePort(t)
	url := "http://" + addr + "/mcp"
	run := func() *rawClient {
		gw := s.start("serve", "--listen", addr)
		awaitListener(t, addr, gw.exited)
		return gw
	}
	end := func(gw *rawClient) {
		gw.cmd.Process.Signal(syscall.SIGTERM)
		if code := gw.exitCode(20 * time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	gw := run()
	for name, dial := range map[string]sessionDialer{"gosdk": goSDKDialer(false),
		"mcpgo": mcpGoDialer(false)} {
		stale, err := dial(t.Context(), url, "2025-11-25", newSessionEvents())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text, err := stale.call(t.Context(), "echo", ""); err != nil ||
			!strings.HasPrefix(text, "gosdk") {
			t.Errorf("%s: echo: %q, %v", name, text, err)
		}
		end(gw)
		gw = run()
		_, err = stale.call(t.Context(), "echo", "")
		t.Logf("%s: the first call after the restart: %v", name, err)
		_ = stale.close() // its session no longer exists
		c, err := dial(t.Context(), url, "2025-11-25", newSessionEvents())
		if err != nil {
			t.Fatalf("%s reconnects: %v", name, err)
		}
		if text, err := c.call(t.Context(), "echo", ""); err != nil ||
			!strings.HasPrefix(text, "gosdk") {
			t.Errorf("%s: echo: %q, %v", name, text, err)
		}
		if err := c.close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
	stale := &streamClient{url: url, session: "0123-4567", client: http.DefaultClient,
		onMessage: func(string, message) {}, ctx: t.Context()}
	res, err := stale.do(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown session: %s", res.Status)
	}
	end(gw)
}
