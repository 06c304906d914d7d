package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A rawServer accepts connections and calls a function for each of them.
type rawServer struct {
	t        *testing.T
	listener net.Listener
	pipes    bool // connections of transport have no file descriptor
	handle   atomic.Value
	accepted atomic.Int32
}

// newRawServer starts a server whose function gets each connection with its number, from 1.
func newRawServer(t *testing.T, handle func(c net.Conn, r *bufio.Reader, n int)) *rawServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{t: t, listener: l}
	s.setHandler(handle)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := int(s.accepted.Add(1))
			all.Go(func() {
				defer c.Close()
				s.handle.Load().(func(net.Conn, *bufio.Reader, int))(c, bufio.NewReader(c), n)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return s
}

func (s *rawServer) setHandler(handle func(c net.Conn, r *bufio.Reader, n int)) {
	s.handle.Store(handle)
}

// transport returns a RoundTripper that is closed before the server waits for its connections.
func (s *rawServer) transport() *RoundTripper {
	o := testOptions(s.listener.Addr().String())
	if s.pipes {
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return struct{ net.Conn }{c}, err // hides SyscallConn, as on Windows
		}
	}
	tr := New(o)
	s.t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// answer reads a request and writes a response.
func answer(c net.Conn, r *bufio.Reader, response string) error {
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	io.Copy(io.Discard, req.Body)
	_, err = io.WriteString(c, response)
	return err
}

const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// forBothChecks runs a test with each way to notice that an idle connection was closed.
func forBothChecks(t *testing.T, test func(*testing.T, bool)) {
	for _, pipes := range []bool{false, true} {
		t.Run(fmt.Sprintf("readCheck=%v", pipes), func(t *testing.T) { test(t, pipes) })
	}
}

// A POST is never written to a connection that the server has closed, or on which it has sent bytes
// without a request.
func TestIdleConnectionClosedByServer(t *testing.T) {
	forBothChecks(t, func(t *testing.T, pipes bool) {
		for _, extra := range []string{"", "HTTP/1.1 408 Request Timeout\r\n\r\n", "x"} {
			var requests atomic.Int32
			closed := make(chan struct{})
			s := newRawServer(t, func(c net.Conn, r *bufio.Reader, n int) {
				if answer(c, r, okResponse) == nil {
					requests.Add(1)
				}
				io.WriteString(c, extra)
				c.Close()
				closed <- struct{}{}
			})
			s.pipes = pipes
			tr := s.transport()
			for i := range 3 {
				roundTrip(t, tr, request(t.Context(), "POST", "x"))
				<-closed
				waitForBytes(t, tr)
				if n := int(requests.Load()); n != i+1 {
					t.Errorf("the server has received %d requests, want %d", n, i+1)
				}
			}
		}
	})
}

// waitForBytes waits until the idle connection of tr, if any, has something to read.
func waitForBytes(t *testing.T, tr *RoundTripper) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.idle) == 0 {
		return
	}
	if k, ok := tr.idle[0].check.(*readCheck); ok {
		k.result <- <-k.result
		return
	}
	socket, err := tr.idle[0].Conn.(syscall.Conn).SyscallConn()
	if err == nil {
		err = socket.Read(peekable)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A request is repeated only as the documentation of RoundTripper says.
func TestConnectionBreaksDuringReuse(t *testing.T) {
	for _, test := range []struct {
		method, body string
		partial      string // what the server sends before it closes the second exchange
		repeated     bool
	}{
		{"POST", "x", "", false},
		{"POST", "", "", false},
		{"DELETE", "", "", false},
		{"GET", "", "", true},
		{"HEAD", "", "", true},
		{"GET", "", "HTTP/1.1 2", false},
	} {
		t.Run(fmt.Sprintf("%s %q %q", test.method, test.body, test.partial), func(t *testing.T) {
			var requests atomic.Int32
			s := newRawServer(t, func(c net.Conn, r *bufio.Reader, n int) {
				for answer(c, r, "HTTP/1.1 204 No Content\r\n\r\n") == nil {
					if requests.Add(1); n > 1 {
						continue
					}
					if _, err := http.ReadRequest(r); err == nil {
						requests.Add(1)
						io.WriteString(c, test.partial)
					}
					return
				}
			})
			tr := s.transport()
			roundTrip(t, tr, request(t.Context(), "POST", "x"))
			resp, err := tr.RoundTrip(request(t.Context(), test.method, test.body))
			if test.repeated != (err == nil) {
				t.Errorf("error %v", err)
			}
			if resp != nil {
				resp.Body.Close()
			}
			if want := map[bool]int32{false: 2, true: 3}[test.repeated]; requests.Load() != want {
				t.Errorf("the server has received %d requests, want %d", requests.Load(), want)
			}
		})
	}
}

// A request of which nothing was written is repeated with its whole body.
func TestNothingWrittenIsRepeated(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, r *bufio.Reader, n int) {
		for answer(c, r, okResponse) == nil {
		}
	})
	for _, size := range []int{10, 10_000, 100_000} {
		o := testOptions(s.listener.Addr().String())
		broken := &brokenConn{}
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if broken.Conn == nil {
				broken.Conn = c
				c = broken
			}
			return c, err
		}
		tr := New(o)
		roundTrip(t, tr, request(t.Context(), "POST", "x"))
		broken.fail.Store(true)
		requested, got := 0, 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GetConn: func(string) { requested++ },
			GotConn: func(httptrace.GotConnInfo) { got++ },
		})
		roundTrip(t, tr, request(ctx, "POST", strings.Repeat("x", size)))
		if requested != 2 || got != 2 {
			t.Errorf("%d connections were requested, %d found; want 2", requested, got)
		}
		tr.CloseIdleConnections()
	}
}

// A brokenConn fails to write once fail is set.
type brokenConn struct {
	net.Conn
	fail atomic.Bool
}

func (b *brokenConn) Write(p []byte) (int, error) {
	if b.fail.Load() {
		return 0, errors.New("broken")
	}
	return b.Conn.Write(p)
}

// If the connection breaks while a request is written, a response that the server has sent before
// is returned; otherwise the request fails with the error of the write.
func TestResponseBeforeConnectionBreaks(t *testing.T) {
	for _, response := range []string{
		"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig", "",
	} {
		s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) {
			r.ReadByte()
			io.WriteString(c, response)
		})
		for _, size := range []int{100, 100_000} {
			o := testOptions(s.listener.Addr().String())
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &partialConn{c}, err
			}
			tr := New(o)
			resp, err := tr.RoundTrip(request(t.Context(), "POST", strings.Repeat("x", size)))
			switch {
			case response == "" && (err == nil || !strings.Contains(err.Error(), "broken")),
				response != "" && (err != nil || resp.StatusCode != 413):
				t.Errorf("%d bytes, response %q: %v", size, response, err)
			case err == nil:
				if body, err := io.ReadAll(resp.Body); string(body) != "big" || err != nil {
					t.Errorf("%d bytes: body %q, %v", size, body, err)
				}
			}
			if len(tr.idle) != 0 {
				t.Error("the connection was kept")
			}
		}
	}
}

// A partialConn writes ten bytes and then fails.
type partialConn struct{ net.Conn }

func (p *partialConn) Write(b []byte) (int, error) {
	n, _ := p.Conn.Write(b[:10])
	return n, &net.OpError{Op: "write", Err: errors.New("broken")}
}

func TestHeaderLimit(t *testing.T) {
	for name, response := range map[string]string{
		"one header": "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 100<<10) +
			"\r\nContent-Length: 0\r\n\r\n",
		"informational": strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", 10<<10) +
			okResponse,
		"endless line": strings.Repeat("x", 1<<20),
	} {
		s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) { answer(c, r, response) })
		_, err := s.transport().RoundTrip(request(t.Context(), "POST", "x"))
		if !errors.Is(err, errHeaderTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A body may be longer.
	s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) {
		answer(c, r, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 1e6))
	})
	roundTrip(t, s.transport(), request(t.Context(), "POST", "x"))
}

// Responses after which the connection must not be used again, and responses that are cut off.
func TestResponseEndsConnection(t *testing.T) {
	for _, test := range []struct {
		name, response, body string
		fails                bool // reading the body fails
	}{
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nok", "ok", false},
		{"more than announced", okResponse + "more", "ok", false},
		{"less than announced", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "ok", true},
		{"chunk cut off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok", "ok", true},
		{"bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok", "", true},
		{"101", "HTTP/1.1 101 Switching Protocols\r\n\r\nabc", "", false},
	} {
		s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) {
			answer(c, r, test.response)
		})
		tr := s.transport()
		resp, err := tr.RoundTrip(request(t.Context(), "POST", "x"))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if string(body) != test.body || test.fails != (err != nil) {
			t.Errorf("%s: body %q, %v", test.name, body, err)
		}
		if _, again := resp.Body.Read(make([]byte, 1)); err != nil && again != err {
			t.Errorf("%s: the next read fails with %v", test.name, again)
		}
		resp.Body.Close()
		if len(tr.idle) != 0 {
			t.Errorf("%s: the connection was kept", test.name)
		}
	}
}

// The context ends a request at any time, and no goroutine remains.
func TestCancellation(t *testing.T) {
	before := runtime.NumGoroutine()
	block := func(c net.Conn) { io.Copy(io.Discard, c) }
	reason := errors.New("the reason")
	for _, test := range []struct {
		name string
		size int
		// serve sends begun when the request is to be cancelled, unless the headers arrive; it may
		// return after done
		serve func(c net.Conn, r *bufio.Reader, begun chan<- bool,
			done <-chan bool)
		body bool // the headers arrive
	}{
		{"waiting for the response", 10, func(c net.Conn, r *bufio.Reader, begun chan<- bool,
			done <-chan bool) {
			http.ReadRequest(r)
			begun <- true
			block(c)
		}, false},
		{"writing the body", 16 << 20, func(c net.Conn, r *bufio.Reader, begun chan<- bool,
			done <-chan bool) {
			http.ReadRequest(r)
			begun <- true
			<-done
		}, false},
		{"reading the body", 10, func(c net.Conn, r *bufio.Reader, begun chan<- bool,
			done <-chan bool) {
			answer(c, r, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12")
			block(c)
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			begun, done := make(chan bool, 1), make(chan bool)
			s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) {
				go func() {
					<-done
					c.Close()
				}()
				test.serve(c, r, begun, done)
			})
			defer close(done)
			tr := s.transport()
			ctx, cancel := context.WithCancelCause(context.Background())
			go func() {
				<-begun
				cancel(reason)
			}()
			resp, err := tr.RoundTrip(request(ctx, "POST", strings.Repeat("x", test.size)))
			if test.body {
				if err != nil {
					t.Fatal(err)
				}
				begun <- true
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if !errors.Is(err, reason) {
				t.Errorf("error %v", err)
			}
			if len(tr.idle) != 0 {
				t.Error("the connection was kept")
			}
		})
	}
	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		tr := New(testOptions("127.0.0.1:1"))
		if _, err := tr.RoundTrip(request(ctx, "POST", "x")); !errors.Is(err, reason) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("dialling", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := testOptions("127.0.0.1:1")
		o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			cancel(reason)
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
		}
		_, err := New(o).RoundTrip(request(ctx, "POST", "x"))
		if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
			t.Errorf("error %v", err)
		}
	})
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
		<-time.After(time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// A server may respond before it has read a long body. The response is returned whether or not the
// server closes the connection, which is not used again.
func TestResponseBeforeEndOfBody(t *testing.T) {
	for _, closes := range []bool{false, true} {
		done := make(chan bool)
		s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) {
			if _, err := http.ReadRequest(r); err != nil {
				t.Error(err)
			}
			io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
			if closes {
				c.(*net.TCPConn).CloseWrite()
			}
			<-done
		})
		tr := s.transport()
		resp, body := roundTrip(t, tr, request(t.Context(), "POST", strings.Repeat("x", 16<<20)))
		if resp.StatusCode != 413 || body != "big" || len(tr.idle) != 0 {
			t.Errorf("%s %q, %d idle connections", resp.Status, body, len(tr.idle))
		}
		close(done)
	}
}

// A server that sends a long response while it does not read the request does not block the
// exchange.
func TestLongResponseBeforeEndOfBody(t *testing.T) {
	for _, size := range []int{maxInlineBody, 8 << 20} {
		s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) {
			req, err := http.ReadRequest(r)
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", 16<<20)
			c.Write(make([]byte, 16<<20))
			io.Copy(io.Discard, req.Body)
			answer(c, r, okResponse)
		})
		tr := s.transport()
		_, body := roundTrip(t, tr, request(t.Context(), "POST", strings.Repeat("x", size)))
		if len(body) != 16<<20 {
			t.Errorf("%d bytes", len(body))
		}
	}
}

// Closing a body early keeps the connection only if the rest has already arrived.
func TestBodyClosedEarly(t *testing.T) {
	for _, test := range []struct {
		length, sent int
		kept         bool
	}{{1000, 1000, true}, {1000, 500, false}, {1 << 20, 1 << 20, false}} {
		done := make(chan bool)
		s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) {
			answer(c, r, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", test.length,
				strings.Repeat("x", test.sent)))
			<-done
		})
		tr := s.transport()
		resp, err := tr.RoundTrip(request(t.Context(), "POST", "x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if kept := len(tr.idle) == 1; kept != test.kept {
			t.Errorf("%d of %d bytes sent: connection kept: %v", test.sent, test.length, kept)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose {
			t.Errorf("read after Close: %v", err)
		}
		close(done)
	}
}

// Close ends a Read that waits.
func TestCloseDuringRead(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, r *bufio.Reader, _ int) {
		answer(c, r, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1")
		io.Copy(io.Discard, c)
	})
	resp, err := s.transport().RoundTrip(request(t.Context(), "POST", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := resp.Body.Read(make([]byte, 1))
		ended <- err
	}()
	resp.Body.Close()
	if err := <-ended; err == nil {
		t.Error("Read returned without an error")
	}
}

// The hooks are called in order, and WroteRequest gets the error.
func TestTrace(t *testing.T) {
	_, tr := newServer(t, echo)
	for _, size := range []int{1, maxInlineBody + 1} {
		events := make(chan string, 10)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GetConn: func(addr string) { events <- "get " + addr },
			GotConn: func(httptrace.GotConnInfo) { events <- "got" },
			WroteRequest: func(i httptrace.WroteRequestInfo) {
				events <- fmt.Sprint("wrote ", i.Err)
			},
		})
		roundTrip(t, tr, request(ctx, "POST", strings.Repeat("x", size)))
		for _, want := range []string{"get " + tr.o.Addr, "got", "wrote <nil>"} {
			if got := <-events; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}

// A request whose context is done is not sent, not even over an idle connection.
func TestCancelledRequestIsNotSent(t *testing.T) {
	var served atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served.Add(1)
	}))
	defer server.Close()
	tr := New(Options{Addr: server.Listener.Addr().String(), MaxIdle: 1, IdleTimeout: time.Minute,
		MaxHeaderBytes: 1 << 20, BufferSize: 4096})
	defer tr.CloseIdleConnections()
	send := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, "POST", server.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := send(t.Context()); err != nil { // its connection becomes idle
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if err := send(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the request has ended with %v", err)
		}
	}
	if n := served.Load(); n != 1 {
		t.Errorf("%d requests have reached the server", n)
	}
}
