package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// testOptions are the options of a RoundTripper in tests.
func testOptions(addr string) Options {
	return Options{Addr: addr, MaxIdle: 4, IdleTimeout: 4 * time.Second,
		MaxHeaderBytes: 64 << 10, BufferSize: 4 << 10}
}

// newServer starts a server and returns it with a RoundTripper to it. Both end with the test.
func newServer(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *RoundTripper) {
	s := httptest.NewServer(handler)
	o := testOptions(s.Listener.Addr().String())
	o.IdleTimeout = time.Minute
	tr := New(o)
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		s.Close()
	})
	return s, tr
}

// request returns a request whose URL has the host server.test.
func request(ctx context.Context, method, body string) *http.Request {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://server.test/mcp?q=1", r)
	if err != nil {
		panic(err)
	}
	return req
}

// roundTrip sends a request and returns the response with its whole body.
func roundTrip(t *testing.T, rt http.RoundTripper, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("body after %d bytes: %v", len(body), err)
	}
	return resp, string(body)
}

// Each response is equal to that of net/http's own Transport, and the connection is reused unless
// the response forbids it.
func TestResponsesEqualThoseOfNetHTTP(t *testing.T) {
	large := strings.Repeat("0123456789", 100_000)
	for _, test := range []struct {
		name, method, body string
		handle             http.HandlerFunc
		closes             bool
	}{
		{name: "echo", method: "POST", body: "hello", handle: echo},
		{name: "short body in two parts", method: "POST", body: large[:6<<10], handle: echo},
		{name: "body of 64 KiB", method: "POST", body: large[:64<<10], handle: echo},
		{name: "large body", method: "POST", body: large, handle: echo},
		{name: "no body", method: "POST", handle: echo},
		{name: "GET", method: "GET", handle: echo},
		{name: "DELETE", method: "DELETE", handle: echo},
		{name: "HEAD", method: "HEAD", handle: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
		}},
		{name: "204", method: "POST", handle: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}},
		{name: "304", method: "GET", handle: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "77")
			w.WriteHeader(http.StatusNotModified)
		}},
		{name: "chunked", method: "POST", handle: func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				io.WriteString(w, large[:1000])
				w.(http.Flusher).Flush()
			}
		}},
		{name: "trailer", method: "POST", handle: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Sum")
			io.WriteString(w, "text")
			w.Header().Set("Sum", "4")
		}},
		{name: "informational responses", method: "POST", body: "x",
			handle: func(w http.ResponseWriter, r *http.Request) {
				for range 3 {
					w.WriteHeader(http.StatusEarlyHints)
				}
				echo(w, r)
			}},
		{name: "Connection: close", method: "POST", body: "x", closes: true,
			handle: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Connection", "close")
				echo(w, r)
			}},
		{name: "status 500", method: "POST", body: "x",
			handle: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "failed", http.StatusInternalServerError)
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, tr := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Date"] = nil
				test.handle(w, r)
			})
			standard := &http.Transport{DisableCompression: true, DialContext: func(
				ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
			}}
			defer standard.CloseIdleConnections()
			for i := range 3 {
				reused := false
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
				got, body := roundTrip(t, tr, request(ctx, test.method, test.body))
				// The goroutine that writes the rest of a long body may end late.
				want := i > 0 && !test.closes
				if reused != want && len(test.body) <= maxInlineBody {
					t.Errorf("request %d: connection reused %v, want %v", i, reused, want)
				}
				other, otherBody := roundTrip(t, standard,
					request(t.Context(), test.method, test.body))
				compare(t, got, body, other, otherBody)
			}
		})
	}
}

// echo sends the headers and the body of a request back.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %d\n", r.Method, r.RequestURI, r.Host, r.ContentLength)
	w.Write(body)
}

// compare reports differences between two responses.
func compare(t testing.TB, got *http.Response, body string, want *http.Response, wantBody string) {
	t.Helper()
	head := func(r *http.Response) string {
		return fmt.Sprintf("%s %s %v %d %v %v %v", r.Proto, r.Status, r.Header, r.ContentLength,
			r.TransferEncoding, r.Close, r.Trailer)
	}
	if head(got) != head(want) {
		t.Errorf("got %s\nwant %s", head(got), head(want))
	}
	if body != wantBody {
		t.Errorf("the bodies have %d and %d bytes and differ", len(body), len(wantBody))
	}
}

// The bytes of a request are those that net/http sends, in an order of headers that may differ.
func TestRequestOnTheWire(t *testing.T) {
	for _, test := range []struct{ method, body, host, want string }{
		{"POST", "abc", "", "POST /mcp?q=1 HTTP/1.1\r\nHost: server.test\r\nContent-Length: 3\r\n" +
			"A: 1\r\nA: 2\r\nUser-Agent: test\r\n\r\nabc"},
		{"POST", "", "other.test:80", "POST /mcp?q=1 HTTP/1.1\r\nHost: other.test:80\r\n" +
			"Content-Length: 0\r\nA: 1\r\nA: 2\r\nUser-Agent: test\r\n\r\n"},
		{"DELETE", "", "", "DELETE /mcp?q=1 HTTP/1.1\r\nHost: server.test\r\n" +
			"A: 1\r\nA: 2\r\nUser-Agent: test\r\n\r\n"},
	} {
		s := newRawServer(t, func(c net.Conn, _ *bufio.Reader, _ int) {})
		req := request(t.Context(), test.method, test.body)
		req.Host = test.host
		req.Header = http.Header{"A": {"1", "2"}, "User-Agent": {"test"}, "Content-Length": {"9"},
			"Transfer-Encoding": {"chunked"}, "Host": {"wrong"}}
		got := make(chan string, 1)
		s.setHandler(func(c net.Conn, r *bufio.Reader, _ int) {
			buf := make([]byte, 1000)
			n, _ := r.Read(buf)
			got <- string(buf[:n])
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		})
		roundTrip(t, s.transport(), req)
		if text := <-got; text != test.want {
			t.Errorf("got %q\nwant %q", text, test.want)
		}
	}
}

func TestInvalidRequestsAreNotSent(t *testing.T) {
	tr := New(Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("a connection was opened")
		return nil, errors.New("no")
	}})
	for name, change := range map[string]func(*http.Request){
		"https":          func(r *http.Request) { r.URL.Scheme = "https" },
		"unknown length": func(r *http.Request) { r.ContentLength = -1 },
		"length 0":       func(r *http.Request) { r.ContentLength = 0 },
		"no body":        func(r *http.Request) { r.Body = nil },
		"method":         func(r *http.Request) { r.Method = "GET /" },
		"host":           func(r *http.Request) { r.Host = "a b" },
		"host CR":        func(r *http.Request) { r.Host = "a\r\nB: c" },
		"zone":           func(r *http.Request) { r.Host = "[fe80::1%25eth0]" },
		"header name":    func(r *http.Request) { r.Header["A B"] = []string{"1"} },
		"empty name":     func(r *http.Request) { r.Header[""] = []string{"1"} },
		"header value":   func(r *http.Request) { r.Header["A"] = []string{"1\r\nB: 2"} },
		"header NUL":     func(r *http.Request) { r.Header["A"] = []string{"\x00"} },
	} {
		req := request(t.Context(), "POST", "abc")
		closed := &closeRecorder{Reader: strings.NewReader("abc")}
		req.Body = closed
		change(req)
		hasBody := req.Body != nil
		if resp, err := tr.RoundTrip(req); err == nil {
			t.Errorf("%s: no error, status %d", name, resp.StatusCode)
		}
		if hasBody && !closed.closed.Load() {
			t.Errorf("%s: the body was not closed", name)
		}
	}
}

type closeRecorder struct {
	io.Reader
	closed atomic.Bool
}

func (c *closeRecorder) Close() error {
	c.closed.Store(true)
	return nil
}

// A body whose length differs from Content-Length fails the request; the connection is not reused.
func TestRequestBodyOfWrongLength(t *testing.T) {
	_, tr := newServer(t, echo)
	for _, size := range []int{10, 10_000, 200_000} {
		for _, wrong := range []int{-1, 1} {
			req := request(t.Context(), "POST", strings.Repeat("x", size))
			req.ContentLength += int64(wrong)
			if _, err := tr.RoundTrip(req); err == nil ||
				!strings.Contains(err.Error(), "body of the request") {
				t.Errorf("%d bytes, %+d: %v", size, wrong, err)
			}
		}
	}
	if len(tr.idle) > 0 {
		t.Errorf("%d connections are idle", len(tr.idle))
	}
}

func TestConcurrentRequests(t *testing.T) {
	_, tr := newServer(t, echo)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for k := range 20 {
				body := strings.Repeat(fmt.Sprint(i, ","), 1+k*k*k)
				resp, err := tr.RoundTrip(request(t.Context(), "POST", body))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || !bytes.HasSuffix(got, []byte("\n"+body)) {
					t.Errorf("got %d bytes, %v", len(got), err)
				}
			}
		})
	}
	all.Wait()
	if n := len(tr.idle); n == 0 || n > tr.o.MaxIdle {
		t.Errorf("%d connections are idle, want 1 to %d", n, tr.o.MaxIdle)
	}
}

// An idle connection is closed after IdleTimeout, not earlier.
func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		tr := s.transport()
		roundTrip(t, tr, request(t.Context(), "POST", "a"))
		time.Sleep(3 * time.Second)
		roundTrip(t, tr, request(t.Context(), "POST", "b"))
		time.Sleep(3 * time.Second)
		if open, dialled := s.counts(); open != 1 || dialled != 1 {
			t.Errorf("before the timeout: %d open of %d connections", open, dialled)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if open, _ := s.counts(); open != 0 || len(tr.idle) != 0 || tr.timer != nil {
			t.Errorf("after the timeout: %d open connections, timer %v", open, tr.timer)
		}
		roundTrip(t, tr, request(t.Context(), "POST", "c"))
		if _, dialled := s.counts(); dialled != 2 {
			t.Errorf("%d connections, want 2", dialled)
		}
		tr.CloseIdleConnections()
		synctest.Wait()
		if open, _ := s.counts(); open != 0 {
			t.Errorf("after CloseIdleConnections: %d open connections", open)
		}
	})
}

// A stream may stay open for hours.
func TestLongStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		s.handler = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 5 {
				io.WriteString(w, "data: 1\n\n")
				w.(http.Flusher).Flush()
				time.Sleep(time.Hour)
			}
		}
		tr := s.transport()
		defer tr.CloseIdleConnections()
		_, body := roundTrip(t, tr, request(t.Context(), "GET", ""))
		if n := strings.Count(body, "data"); n != 5 {
			t.Errorf("%d events", n)
		}
		if len(tr.idle) != 1 {
			t.Error("the connection was not kept")
		}
	})
}

// A pipeServer is an HTTP server over in-memory pipes, for synctest.
type pipeServer struct {
	handler http.HandlerFunc

	accept  chan net.Conn
	mu      sync.Mutex
	open    map[net.Conn]bool
	dialled int
}

func newPipeServer(t *testing.T) *pipeServer {
	s := &pipeServer{handler: echo, accept: make(chan net.Conn), open: map[net.Conn]bool{}}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler(w, r) }),
		ConnState: func(c net.Conn, state http.ConnState) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.open[c] = true; state == http.StateClosed {
				delete(s.open, c)
			}
		},
	}
	go server.Serve(s)
	t.Cleanup(func() { server.Close() })
	return s
}

func (s *pipeServer) Accept() (net.Conn, error) {
	if c, ok := <-s.accept; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (s *pipeServer) Close() error {
	close(s.accept)
	return nil
}

func (s *pipeServer) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (s *pipeServer) transport() *RoundTripper {
	o := testOptions("server.test:80")
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		s.mu.Lock()
		s.dialled++
		s.mu.Unlock()
		s.accept <- server
		return client, nil
	}
	return New(o)
}

func (s *pipeServer) counts() (open, dialled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.dialled
}

// A body whose WriteTo passes it in several parts arrives complete, and so does the next request.
func TestRequestBodyInParts(t *testing.T) {
	_, tr := newServer(t, echo)
	for _, sizes := range [][]int{{10, 300_000}, {300_000, 10}, {10, 20, 300_000, 30, 1},
		{20_000, 1, 20_000}, {0, 70_000}, {1, 1, 1 << 20}, {10, 10}} {
		body := &bodyInParts{}
		for i, size := range sizes {
			body.parts = append(body.parts, strings.Repeat(string(rune('a'+i)), size))
		}
		want := strings.Join(body.parts, "")
		req := request(t.Context(), "POST", want)
		req.Body = body
		_, got := roundTrip(t, tr, req)
		if _, got, _ = strings.Cut(got, "\n"); got != want {
			t.Errorf("%v: the server got %d bytes", sizes, len(got))
		}
	}
}

type bodyInParts struct {
	io.ReadCloser
	parts []string
}

func (b *bodyInParts) Close() error { return nil }

func (b *bodyInParts) WriteTo(w io.Writer) (n int64, err error) {
	for len(b.parts) > 0 && err == nil {
		var written int
		written, err = io.WriteString(w, b.parts[0])
		b.parts, n = b.parts[1:], n+int64(written)
	}
	return n, err
}
