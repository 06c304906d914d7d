package httpclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An sseStub is a stub of HTTP+SSE: it accepts each POST and responds to requests on its stream.
type sseStub struct {
	*stub
	opening string      // the beginning of the stream
	events  chan string // sent on the stream; "" breaks the stream, and closing the channel ends it
}

const endpoint = "event: endpoint\ndata: /post?session=hunter6\n\n"

func newSSEStub(t *testing.T) *sseStub {
	s := &sseStub{newStub(t), endpoint, make(chan string)}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		writeStream(w, s.opening)
		for {
			select {
			case text, ok := <-s.events:
				if !ok {
					return
				}
				if text == "" {
					abortConnection()
				}
				writeStream(w, text)
			case <-r.Context().Done():
				return
			}
		}
	}
	s.init = s.acceptPost
	s.post = s.acceptPost
	return s
}

// acceptPost accepts a POST and sends the response on the stream.
func (s *sseStub) acceptPost(w http.ResponseWriter, r *http.Request, m wire.Message) {
	w.WriteHeader(http.StatusAccepted)
	io.WriteString(w, "Accepted")
	s.respond(r, m)
}

func (s *sseStub) respond(r *http.Request, m wire.Message) {
	select {
	case s.events <- "event: message\n" + messageEvent(resultOf(m, `{}`)):
	case <-r.Context().Done():
	}
}

func (s *sseStub) dialSSE(t *testing.T, change func(*Options)) *client {
	return dialStubBy(DialHTTPSSE, t, s.stub, change)
}

func (s *sseStub) ready(t *testing.T) *client {
	c := s.dialSSE(t, nil)
	c.handshake()
	synctest.Wait()
	return c
}

// wantCallWorks makes a call and checks that it gets a result.
func (c *client) wantCallWorks() {
	c.Helper()
	id := c.call("tools/call")
	if m := c.read(); m.ID() != id || m.Part(wire.PartResult) == nil {
		c.Errorf("call %s: got %s", id, m.Raw())
	}
}

// wantConnectFails writes a first request, checks that the connection fails, and returns the error.
func (c *client) wantConnectFails() error {
	c.Helper()
	lost := c.wantLost(c.call("initialize"), false)
	err := c.wantEnd()
	if err.Error() != lost.Error() {
		c.Errorf("CallLostError is %q, then Read returned %q", lost, err)
	}
	return err
}

// wantEnd reads the error that ends the connection.
func (c *client) wantEnd() error {
	c.Helper()
	m, _, err := c.Read()
	if lost := new(transport.CallLostError); err == nil || errors.As(err, &lost) {
		c.Fatalf("got %s, %v; want the end", m.Raw(), err)
	}
	if err := c.Write(wire.NewRequest("9", "ping", nil), ""); !errors.Is(err, transport.ErrClosed) {
		c.Errorf("then Write: %v", err)
	}
	return err
}

func TestSSECallsAndNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		c := s.dialSSE(t,
			func(o *Options) { o.Headers = map[string]string{"Authorization": "Bearer secret"} })
		c.handshake()
		c.wantCallWorks()
		question := `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`
		s.events <- messageEvent(serverNotification(1)) + "event: message\n" +
			messageEvent("["+question+","+serverNotification(2)+"]") + messageEvent("nonsense") +
			"event: ping\n" + messageEvent("{}") + "event: endpoint\n" +
			messageEvent("http://other.test/")
		c.want(serverNotification(1))
		c.want(question)
		c.want(serverNotification(2))
		_, _, err := c.Read()
		if malformed := new(transport.MalformedError); !errors.As(err, &malformed) {
			t.Errorf("got %v, want a MalformedError", err)
		}
		c.write(`{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`)
		synctest.Wait()
		c.wantCallWorks()
		c.Close()
		if got := s.order(); got != "initialize notifications/initialized tools/call  tools/call" {
			t.Errorf("arrived: %s", got)
		}
		for _, a := range s.received {
			uri, accept := "/post?session=hunter6", "application/json, text/event-stream"
			if a.verb == "GET" {
				uri, accept = "/mcp", "text/event-stream"
			}
			if a.host != "stub.test" || a.uri != uri || a.header.Get("Accept") != accept ||
				a.header.Get("Authorization") != "Bearer secret" {
				t.Errorf("%s %s%s: %v", a.verb, a.host, a.uri, a.header)
			}
			if a.header.Get("Mcp-Session-Id") != "" || a.header.Get("Last-Event-ID") != "" {
				t.Errorf("%s has the header of another transport: %v", a.verb, a.header)
			}
		}
		if s.count("GET") != 1 || s.count("DELETE") != 0 {
			t.Errorf("%d GETs, %d DELETEs", s.count("GET"), s.count("DELETE"))
		}
	})
}

func TestSSEEndpoint(t *testing.T) {
	tests := []struct{ name, endpoint, uri, refusal string }{
		{"absolute path", "/post", "/post", ""},
		{"relative path", "post?session=1", "/v1/post?session=1", ""},
		{"query alone", "?session=1", "/v1/mcp?session=1", ""},
		{"URL", "http://stub.test/post?x=1&y=%2F#z", "/post?x=1&y=%2F", ""},
		{"URL in another spelling", "HTTP://STUB.test:80/post", "/post", ""},
		{"URL without a scheme", "//stub.test/post", "/post", ""},
		{"URL with a user", "http://admin:hunter9@stub.test/post", "/post", ""},
		{"path that looks like a host", `\\other.test/post`, "/v1/%5C%5Cother.test/post", ""},
		{"another host", "http://other.test/post", "", "another origin, http://other.test:80"},
		{"another host without a scheme", "//other.test/post", "", "another origin"},
		{"host as a user", "http://stub.test@other.test/post", "", "another origin"},
		{"host below", "http://sub.stub.test/post", "", "another origin"},
		{"another port", "http://stub.test:81/post", "", "another origin"},
		{"another scheme", "https://stub.test/post", "", "another origin"},
		{"no host", "http:/post", "", "another origin"},
		{"no HTTP", "javascript:alert(1)", "", "another origin"},
		{"file", "file:///etc/passwd", "", "another origin"},
		{"address of a cloud's own", "http://169.254.169.254/latest", "", "another origin"},
		{"no URL", "http://[::1/", "", "is no URL"},
		{"too long", "/" + strings.Repeat("x", maxEndpoint), "", "longer than 8192 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				s.opening = "event: endpoint\ndata: " + tt.endpoint + "\n\n"
				c := s.dialSSE(t, func(o *Options) { o.URL = "http://me:hunter2@stub.test/v1/mcp" })
				if tt.refusal == "" {
					c.wantCallWorks()
				} else {
					wantErrorText(t, c.wantConnectFails(), tt.refusal)
				}
				for _, a := range s.requests("POST") {
					user, _, _ := (&http.Request{Header: a.header}).BasicAuth()
					if a.host == "other.test" || a.uri != tt.uri || user != "me" {
						t.Errorf("posted to %s%s as %s", a.host, a.uri, user)
					}
				}
			})
		})
	}
}

// For any endpoint, messages are sent only to the origin of the server.
func FuzzEndpoint(f *testing.F) {
	for _, seed := range []string{"/post", "?a=b", "//h/x", "http://stub.test:80/", "http:x",
		"\\\\h", "http://a@stub.test\\@h/", "%", "http://[::1]%25/"} {
		f.Add(seed)
	}
	base, _ := url.Parse("http://stub.test/v1/mcp")
	f.Fuzz(func(t *testing.T, name string) {
		u, err := resolveEndpoint(base, name)
		if err != nil {
			return
		}
		req, err := http.NewRequest("POST", u.String(), nil)
		if err == nil &&
			(!strings.EqualFold(req.URL.Hostname(), "stub.test") || req.URL.Scheme != "http" ||
				req.URL.Port() != "" && req.URL.Port() != "80") {
			t.Errorf("%q leads to %s", name, req.URL)
		}
	})
}

// The endpoint is relative to the URL of the stream after redirects.
func TestSSERedirect(t *testing.T) {
	tests := []struct{ to, want string }{
		{"/there/sse", "/there/post"},
		{"http://other.test/sse", ""},
		{"https://stub.test/sse", ""},
	}
	for _, tt := range tests {
		t.Run(tt.to, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				s.opening = "event: endpoint\ndata: post\n\n"
				found := s.get
				s.get = func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/mcp" {
						http.Redirect(w, r, tt.to, http.StatusFound)
						return
					}
					found(w, r)
				}
				c := s.dialSSE(t, nil)
				if tt.want == "" {
					wantErrorText(t, c.wantConnectFails(), "no stream of events: HTTP 302 Found")
					return
				}
				c.wantCallWorks()
				if got := s.requests("POST")[0].uri; got != tt.want {
					t.Errorf("posted to %s", got)
				}
			})
		})
	}
}

// Streams may begin in many ways and have any line ends.
func TestSSEStreamBeginnings(t *testing.T) {
	for name, opening := range map[string]string{
		"CR LF":           "event: endpoint\r\ndata: /post\r\n\r\n",
		"CR":              "event: endpoint\rdata: /post\r\r",
		"mcp-go's":        "event: endpoint\ndata: /post\r\n\r\n",
		"no spaces":       "event:endpoint\ndata:/post\n\n",
		"byte order mark": "\uFEFFevent: endpoint\ndata: /post\n\n",
		"comment and ping": ": hello\n\nevent: ping\ndata: 1\n\n" +
			"id: 7\nretry: 10\nevent: endpoint\ndata: /post\n\n",
		"message before it": messageEvent(serverNotification(1)) +
			"event: endpoint\ndata: /post\n\n",
		"too large before it": messageEvent(strings.Repeat("x", 2<<20)) +
			"event: endpoint\ndata: /post\n\n",
		"blanks around the URL": "event: endpoint\ndata:  \t/post \n\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				s.opening = opening
				c := s.dialSSE(t, nil)
				c.wantCallWorks()
				if got := s.requests("POST")[0].uri; got != "/post" {
					t.Errorf("posted to %s", got)
				}
			})
		})
	}
}

func TestSSEMessagesWaitForTheEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		s.opening = ": wait\n\n"
		c := s.dialSSE(t, nil)
		c.write(`{"jsonrpc":"2.0","method":"a"}`)
		given := c.call("tools/call")
		c.cancel(given)
		c.write(`{"jsonrpc":"2.0","method":"b"}`)
		id := c.call("tools/list")
		time.Sleep(50 * time.Second)
		if s.count("POST") != 0 {
			t.Errorf("posted before the endpoint: %s", s.order())
		}
		s.events <- endpoint
		if m := c.read(); m.ID() != id {
			t.Errorf("got %s", m.Raw())
		}
		if got := s.order(); got != "a b tools/list" {
			t.Errorf("arrived: %s", got)
		}
		time.Sleep(time.Hour) // endpointTimeout has passed
		c.wantCallWorks()
	})
}

func TestSSEWithoutAStream(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "hunter4 says\nno",
				code)
		}
	}
	tests := []struct {
		name string
		get  http.HandlerFunc
		want string
		gets int
	}{
		{"404", status(404), "no stream of events: HTTP 404 Not Found: *** says no", 1},
		{"405", status(405), "no stream of events: HTTP 405 Method Not Allowed: *** says no", 1},
		{"401", status(401), "no stream of events: HTTP 401 Unauthorized", 1},
		{"500", status(500), "no stream of events: HTTP 500 Internal Server Error", 1},
		{"502", status(502), "no stream of events: HTTP 502 Bad Gateway", 1 + maxRetries},
		{"a page", status(200), "no stream of events: HTTP 200 OK: *** says no", 1},
		{"connection broken", func(http.ResponseWriter, *http.Request) { abortConnection() },
			"no stream of events: unexpected EOF", 1 + maxRetries},
		{"empty", func(w http.ResponseWriter, _ *http.Request) { writeStream(w) },
			"the stream of events ended before it named an endpoint: unexpected EOF", 1},
		{"no endpoint", func(w http.ResponseWriter, _ *http.Request) {
			writeStream(w, messageEvent("/post"), "event: endpoint\ndata:\n\n")
		},
			"the stream of events ended before it named an endpoint: unexpected EOF", 1},
		{"silent",
			func(w http.ResponseWriter, r *http.Request) { writeStream(w); blockUntilAborted(r) },
			"the server has named no endpoint within 1m0s", 1},
		{"without an answer", func(_ http.ResponseWriter, r *http.Request) { blockUntilAborted(r) },
			"the server has named no endpoint within 1m0s", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				s.get = tt.get
				c := s.dialSSE(t, func(o *Options) { o.URL += "?key=hunter4" })
				err := c.wantConnectFails()
				wantErrorText(t, err, tt.want)
				if errors.Is(err, io.EOF) {
					t.Error("the stream did not end in an orderly way")
				}
				if s.count("GET") != tt.gets || s.count("POST") != 0 {
					t.Errorf("%d GETs, %d POSTs", s.count("GET"), s.count("POST"))
				}
			})
		})
	}
}

func TestSSENoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		s.refusing = maxRetries
		s.ready(t)
		s.refusing = 1000
		c := s.dialSSE(t, nil)
		wantErrorText(t, c.wantConnectFails(), "no stream of events: dial tcp: connection refused")
	})
}

func TestSSEStreamEnds(t *testing.T) {
	tests := []struct {
		name    string
		cut     func(*sseStub)
		orderly bool
		want    string
	}{
		{"orderly", func(s *sseStub) { close(s.events) }, true, "the stream of events ended: EOF"},
		{"broken", func(s *sseStub) { s.events <- "" }, false,
			"the stream of events ended: unexpected EOF"},
		{"in an event", func(s *sseStub) { s.events <- "data: {"; s.events <- "" }, false,
			"the stream of events ended: unexpected EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSSEStub(t)
				c := s.ready(t)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					if m.Method() == "slow" {
						blockUntilAborted(r)
					}
					w.WriteHeader(202)
				}
				c.call("tools/call") // is accepted and gets no response
				id := c.call("slow")
				synctest.Wait()
				tt.cut(s)
				wantErrorText(t, c.wantLost(id, true), tt.want)
				err := c.wantEnd()
				wantErrorText(t, err, tt.want)
				if errors.Is(err, io.EOF) != tt.orderly {
					t.Errorf("%v: io.EOF %v", err, !tt.orderly)
				}
				time.Sleep(time.Hour)
				if n := s.count("GET"); n != 1 {
					t.Errorf("%d GETs", n)
				}
			})
		})
	}
}

func TestSSEKeepsTheBytesOfALargeEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		c := s.ready(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) { w.WriteHeader(202) }
		large := `{"jsonrpc":"2.0", "id":101,"result":"` + strings.Repeat("\\u00e9x ", 100_000) +
			`"}`
		c.call("tools/call")
		s.events <- messageEvent(large)
		c.want(large)
	})
}

func TestSSESkipsOversizedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		c := s.ready(t)
		s.events <- messageEvent(`{"jsonrpc":"2.0","id":101,"result":"` +
			strings.Repeat("x", 2<<20) + `"}`)
		_, _, err := c.Read()
		if malformed := new(transport.MalformedError); !errors.As(err, &malformed) ||
			malformed.ID != "101" ||
			!malformed.LooksLikeResponse {
			t.Errorf("got %v", err)
		}
		c.wantCallWorks()
	})
}

func TestSSENotificationsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		wait := 9 * time.Second
		s.note = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			wait -= 2 * time.Second // the first POST takes the longest
			time.Sleep(wait)
			w.WriteHeader(202)
		}
		c := s.dialSSE(t, nil)
		c.handshake()
		c.write(`{"jsonrpc":"2.0","method":"a"}`)
		c.write(`{"jsonrpc":"2.0","method":"b"}`)
		c.wantCallWorks()
		if got := s.order(); got != "initialize notifications/initialized a b tools/call" {
			t.Errorf("arrived: %s", got)
		}
	})
}

func TestSSECloseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			switch m.Method() {
			case "hangs":
				blockUntilAborted(r)
			case "speaks":
				for r.Context().Err() == nil {
					s.respond(r, m)
				}
			}
			w.WriteHeader(202)
		}
		for _, last := range []string{"", "tools/call", "hangs", "speaks"} {
			for range 20 {
				c := s.ready(t)
				if last != "" {
					c.call(last)
				}
				synctest.Wait()
				c.Close()
				if _, _, err := c.Read(); err != transport.ErrClosed {
					t.Errorf("Read: %v", err)
				}
				if err := c.Write(wire.NewRequest("9", "ping", nil),
					""); err != transport.ErrClosed {
					t.Errorf("Write: %v", err)
				}
				c.Close()
				synctest.Wait()
				if n := s.openConns(); n != 0 {
					t.Fatalf("%s: %d connections are open", last, n)
				}
			}
		}
		if n := s.count("DELETE"); n != 0 {
			t.Errorf("%d DELETEs", n)
		}
	})
}

func TestSSECloseBeforeAnyMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		c := s.dialSSE(t, nil)
		synctest.Wait()
		if s.dialled != 0 {
			t.Error("dialled before the first message")
		}
		c.Close()
		if _, _, err := c.Read(); err != transport.ErrClosed {
			t.Errorf("Read: %v", err)
		}
		bad := DialHTTPSSE(Options{URL: "http://[::1/?key=hunter2"})
		if _, _, err := bad.Read(); err != errNoURL {
			t.Errorf("Read: %v", err)
		}
		bad.Close()
	})
}

// Neither errors nor the log show the session in the endpoint.
func TestSSEShowsNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		s.opening = "event: endpoint\ndata: /post?session=hunter6&long=hunter6%2Bhunter7\n\n"
		s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
			w.WriteHeader(500)
			fmt.Fprintf(w, "%s of hunter3: hunter6+hunter7 hunter6 failed", r.RequestURI)
		}
		s.note = s.post
		c := s.dialSSE(t,
			func(o *Options) { o.Headers = map[string]string{"X-Api-Key": "hunter3"} })
		c.write(`{"jsonrpc":"2.0","method":"a"}`)
		err := c.wantLost(c.call("tools/call"), true)
		wantErrorText(t, err, "HTTP 500 Internal Server Error: /post?*** of ***: *** *** failed")
		s.note = func(http.ResponseWriter, *http.Request, wire.Message) { abortConnection() }
		c.write(`{"jsonrpc":"2.0","method":"a"}`)
		synctest.Wait()
		if text := s.log.String(); strings.Contains(text, "hunter") ||
			strings.Count(text, "message not accepted") != 2 {
			t.Errorf("the log is %s", text)
		}
	})
}
