package httpclient

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

var dialers = map[string]func(Options) transport.Conn{"streamable HTTP": DialStreamable,
	"HTTP+SSE": DialHTTPSSE}

// wantLost returns the error of a request with this method, which must be lost.
func wantLost(t *testing.T, dial func(Options) transport.Conn, method string, o Options) string {
	t.Helper()
	o.Limit, o.Log = 1<<20, slog.New(slog.DiscardHandler)
	c := dial(o)
	defer c.Close()
	m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err = c.Write(m, ""); err == nil {
		_, _, err = c.Read()
	}
	if err == nil {
		t.Fatalf("%s was answered", method)
	}
	return err.Error()
}

// The error for a URL with the wrong scheme contains the right scheme.
func TestWrongScheme(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	responds := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	writes := func(text string) string { // to each connection
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1<<10))
				_, _ = io.WriteString(conn, text)
				conn.Close()
			}
		}()
		return "//" + ln.Addr().String()
	}
	for name, tt := range map[string]struct{ url, want string }{
		"http to Go": {"http" + strings.TrimPrefix(secure.URL, "https"), hintUseHTTPS},
		"http to nginx": {responds(400,
			"<title>400 The plain HTTP request was sent to HTTPS port</title>"), hintUseHTTPS},
		"http to Apache": {responds(400,
			"<title>400 Bad Request</title>Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />"), hintUseHTTPS},
		"an alert":         {"http:" + writes("\x15\x03\x01\x00\x02\x02\x46"), hintUseHTTPS},
		"another 400":      {responds(400, "bad"), ""},
		"another status":   {responds(500, "Client sent an HTTP request to an HTTPS server."), ""},
		"https to Go":      {"https" + strings.TrimPrefix(plain.URL, "http"), hintUseHTTP},
		"https to a text":  {"https:" + writes("<html>what is this?</html>"), hintUseHTTP},
		"https to nothing": {"https:" + writes(""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, dial := range dialers {
				got := wantLost(t, dial, "initialize", Options{URL: tt.url})
				if strings.Contains(got, "in url") != (tt.want != "") ||
					strings.Count(got, tt.want) != 1 && tt.want != "" ||
					strings.Contains(got, "may be no server") && tt.want != "" {
					t.Errorf("%s: %s, want %q", kind, got, tt.want)
				}
			}
		})
	}
}

// The error for status 401 describes the missing configuration, and shows nothing of the headers
// that were sent.
func TestUnauthorized(t *testing.T) {
	const (
		basic   = "the server wants authorization: set a header Authorization in headers of the backend"
		wants   = basic + ", or use gateway login if the server has OAuth"
		any     = "the server wants authorization: set the header that it needs, often Authorization, in headers of the backend"
		refuses = "the server refuses the configured authorization: check the token, or the user and password"
		secret  = "tok-q9ZkTm4vXr7Lw2Pb8N"
	)
	null := `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Unauthorized"},"id":null}`
	own := strings.Replace(null, "null", "1", 1)
	for name, tt := range map[string]struct {
		challenges []string
		kind, body string
		headers    map[string]string
		want       string
	}{
		"bearer": {[]string{"Bearer"}, "text/plain", "", nil, wants},
		"basic":  {[]string{`Basic realm="x"`}, "text/plain", "", nil, basic},
		"OAuth":  {[]string{`Bearer error="invalid_token", resource_metadata="https://h/.well-known/x"`}, "text/plain", "", nil, wants},
		"the second": {[]string{"Basic", `bearer Resource_Metadata="https://h/.well-known/x"`},
			"text/plain", "", nil, wants},
		"no challenge":  {nil, "text/plain", "", nil, any},
		"other headers": {nil, "text/plain", "", map[string]string{"X-Api-Key": secret}, any},
		"configured": {[]string{`Bearer resource_metadata="` + secret + `"`}, "text/plain",
			secret, map[string]string{"authorization": "Bearer " + secret}, refuses},
		"JSON-RPC":   {[]string{"Bearer"}, "application/json", null, nil, wants},
		"its own id": {[]string{"Bearer"}, "application/json", own, nil, wants},
		"stream": {[]string{"Bearer"}, "text/event-stream", "data: " + null + "\n\n", nil,
			wants},
		"coding": {[]string{"Bearer"}, "text/plain", "br", nil, wants},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				w.Header()["Www-Authenticate"] = tt.challenges
				w.Header().Set("Content-Type", tt.kind)
				if tt.body == "br" {
					w.Header().Set("Content-Encoding", "br")
				}
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer server.Close()
			for kind, dial := range dialers {
				got := wantLost(t, dial, "initialize",
					Options{URL: server.URL, Headers: tt.headers})
				if !strings.HasSuffix(got, "; "+tt.want) || strings.Contains(got, secret) {
					t.Errorf("%s: %s, want %s", kind, got, tt.want)
				}
			}
		})
	}
}
