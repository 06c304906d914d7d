package httpclient

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/wire"
)

func TestHTTPRedirects(t *testing.T) {
	tests := []struct {
		name, to string
		status   int
		followed bool
	}{
		{"307 on the same origin", "/there?x=1", 307, true},
		{"308 on the same origin", "http://stub.test/there", 308, true},
		{"308 on the same origin, spelt otherwise", "http://STUB.test:80/there", 308, true},
		{"307 to another host", "http://other.test/there", 307, false},
		{"307 to a host below", "http://sub.stub.test/there", 307, false},
		{"307 to another port", "http://stub.test:81/there", 307, false},
		{"308 to another scheme", "https://stub.test/there", 308, false},
		{"301 would make a GET", "/there", 301, false},
		{"303 would make a GET", "/there", 303, false},
		{"in a circle", "/mcp", 307, false},
		{"nowhere", "http://[::1/", 307, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					if r.URL.Path == "/there" {
						writeResult(w, m, "{}")
						return
					}
					w.Header().Set("Location", tt.to)
					w.WriteHeader(tt.status)
				}
				c := ready(t, s,
					func(o *Options) { o.Headers = map[string]string{"X-Api-Key": "hunter2"} })
				id := c.call("tools/call")
				if tt.followed {
					if m := c.read(); m.ID() != id {
						t.Errorf("got %s", m.Raw())
					}
				} else if _, _, err := c.Read(); err == nil {
					t.Error("the redirect was followed")
				}
				if n := len(s.requests("tools/call")); n > 4 {
					t.Errorf("%d redirects were followed", n-1)
				}
				for _, a := range s.requests("tools/call") {
					if a.host != "stub.test" && a.host != "STUB.test:80" ||
						a.header.Get("X-Api-Key") != "hunter2" {
						t.Errorf("%s was requested, key %q", a.host, a.header.Get("X-Api-Key"))
					}
				}
			})
		})
	}
}

// No error and no log record shows a secret of the configuration, even if the server repeats it.
func TestHTTPShowsNoSecrets(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("admin:hunter2"))
	replies := map[string]func(w http.ResponseWriter, r *http.Request){
		"echo": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			fmt.Fprintf(w, "%s said %q, %s, %s, 日本", r.RequestURI, r.Header, "admin",
				"hunter2 hunter3")
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.test/?"+r.URL.RawQuery, http.StatusTemporaryRedirect)
		},
		"bad redirect": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://[::/"+r.URL.RawQuery)
			w.WriteHeader(307)
		},
		"broken": func(http.ResponseWriter, *http.Request) { abortConnection() },
		"nonsense": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w,
				"hunter2 hunter3")
		},
		"in a stream": func(w http.ResponseWriter, _ *http.Request) {
			writeStream(w,
				": hunter2\n\n")
		},
	}
	for name, reply := range replies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
					reply(w,
						r)
				}
				s.note = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					if reply(w, r); m.Method() != "notifications/initialized" {
						w.WriteHeader(400)
					}
				}
				c := ready(t, s, func(o *Options) {
					o.URL = "http://admin:hunter2@stub.test/mcp?api_key=hunter4&x=1"
					o.Headers = map[string]string{"X-Api-Key": "hunter3", "X-Auth": "Token hunter5"}
				})
				c.write(`{"jsonrpc":"2.0","method":"a"}`)
				c.call("tools/call")
				_, _, err := c.Read()
				if err == nil {
					t.Fatal("no error")
				}
				for _, secret := range []string{"hunter", "admin", basic, "api_key"} {
					if strings.Contains(err.Error()+s.log.String(), secret) {
						t.Errorf("%q is shown: %v\n%s", secret, err, s.log.String())
					}
				}
			})
		})
	}
}

// The user and password in the URL are sent to the server.
func TestHTTPSendsTheUserOfItsURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		ready(t, s, func(o *Options) { o.URL = "http://admin:hunter2@stub.test/mcp" })
		if got := s.requests("initialize")[0].header.Get("Authorization"); !strings.HasPrefix(got,
			"Basic ") {
			t.Errorf("Authorization is %q", got)
		}
	})
}

func TestHTTPOverTLS(t *testing.T) {
	s := &stub{session: "s"}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	defer server.Close()
	t.Run("with a certificate that is not trusted", func(t *testing.T) {
		c := &client{T: t, Conn: DialStreamable(Options{URL: server.URL})}
		defer c.Close()
		wantErrorText(t, c.wantLost(c.call("ping"), false), "certificate")
	})
	t.Run("with HTTP/2", func(t *testing.T) {
		pool := newPool()
		pool.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		c := &client{T: t, Conn: DialStreamable(Options{URL: server.URL, RoundTripper: pool}),
			next: 100}
		defer c.Close()
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			writeStream(w, messageEvent(resultOf(m, `"`+r.Proto+`"`)))
		}
		c.handshake()
		c.call("tools/call")
		c.want(`{"jsonrpc":"2.0","id":101,"result":"HTTP/2.0"}`)
	})
	t.Run("where there is none", func(t *testing.T) {
		plain := httptest.NewServer(s)
		defer plain.Close()
		c := &client{T: t,
			Conn: DialStreamable(Options{URL: "https" + strings.TrimPrefix(plain.URL, "http")})}
		defer c.Close()
		wantErrorText(t, c.wantLost(c.call("ping"), false), "HTTPS client")
	})
}
