package httpserver

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// A testConn sends requests over one connection to a harness.
type testConn struct {
	*harness
	net.Conn
	r *bufio.Reader
}

func (h *harness) newCaller() *testConn {
	h.Helper()
	c, err := h.dial(h.Context(), "", "")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { c.Close() })
	return &testConn{h, c, bufio.NewReader(c)}
}

// post sends a request and returns the status; 0 = the connection is closed.
func (c *testConn) post(method, token string) int {
	body := statelessRequest("1", method, "")
	text := fmt.Sprintf(
		"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Authorization: Bearer %s\r\n", token)
	for name, value := range body.header {
		text += name + ": " + value + "\r\n"
	}
	text += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body.body), body.body)
	if _, err := c.Write([]byte(text)); err != nil {
		return 0
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	var all [4096]byte
	for {
		if _, err := res.Body.Read(all[:]); err != nil {
			return res.StatusCode
		}
	}
}

// isOpen reports whether the server keeps the idle connection open.
func (c *testConn) isOpen() bool {
	synctest.Wait()
	closed := make(chan bool, 1)
	go func() {
		_, err := c.r.Peek(1)
		closed <- err != nil
	}()
	synctest.Wait()
	select {
	case <-closed:
		return false
	default:
		return true
	}
}

// Connections without a valid token do not displace clients, whether they are idle or busy.
func TestUnadmittedConnections_F_SEC_8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.MaxSessions, o.Tokens = 4, bearerTokens("secret")
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		client := h.newCaller()
		if got := client.post("echo", "secret"); got != 200 {
			t.Fatalf("the client got status %d", got)
		}
		var unadmitted []*testConn
		for i := range maxUnadmittedConns {
			c := h.newCaller()
			if i%16 == 1 { // a connection with a wrong token
				if got := c.post("echo", "guess"); got != 401 {
					t.Fatalf("an unauthenticated request got status %d", got)
				}
			}
			unadmitted = append(unadmitted, c)
		}
		synctest.Wait()
		if strings.Contains(log.String(), "too many connections") {
			t.Errorf("at the limit:\n%s", log.String())
		}
		for range 10 {
			if got := h.newCaller().post("echo", "secret"); got != 200 {
				t.Errorf("a further client got status %d", got)
			}
		}
		if got := client.post("echo", "secret"); got != 200 {
			t.Errorf("the client got status %d", got)
		}
		if unadmitted[0].isOpen() {
			t.Error("the oldest unadmitted connection is still open")
		}
		if !unadmitted[1].isOpen() || !unadmitted[maxUnadmittedConns-1].isOpen() {
			// A single closed connection suffices for all connections that are admitted afterwards.
			t.Error("a newer unadmitted connection was closed")
		}
		if n := strings.Count(log.String(), "too many unauthenticated connections"); n != 1 {
			t.Errorf("the log has\n%s", log.String())
		}
	})
}

// If no unadmitted connection is idle, a busy connection is closed, for example one with a slow
// body.
func TestBusyUnadmittedConnections_F_SEC_8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MaxSessions, o.Tokens = 4, bearerTokens("secret") })
		const slow = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
		for range maxUnadmittedConns {
			if _, err := h.newCaller().Write([]byte(slow)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for range 3 {
			if got := h.newCaller().post("echo", "secret"); got != 200 {
				t.Errorf("a client got status %d", got)
			}
		}
	})
}

// If there are too many admitted connections, the connection that has been idle the longest is
// closed.
func TestTooManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.MaxSessions = 4
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		var clients []*testConn
		for range 4 * maxConnsPerSession {
			c := h.newCaller()
			if got := c.post("echo", ""); got != 200 {
				t.Fatalf("a client got status %d", got)
			}
			synctest.Wait() // the server reports idle only after the response
			clients = append(clients, c)
		}
		// Then this connection is not the one that has been idle the longest.
		if got := clients[0].post("echo", ""); got != 200 {
			t.Errorf("the first client got status %d", got)
		}
		synctest.Wait()
		for range 2 {
			if got := h.newCaller().post("echo", ""); got != 200 {
				t.Errorf("a further client got status %d", got)
			}
			synctest.Wait()
		}
		for i, c := range clients {
			if open := c.isOpen(); open != (i != 1 && i != 2) {
				t.Errorf("connection %d is open: %v", i, open)
			}
		}
		if n := strings.Count(log.String(), "too many connections"); n != 1 {
			t.Errorf("the log has\n%s", log.String())
		}
	})
}

// If all admitted connections are busy, a further client is served on an unadmitted connection,
// within the limit of unadmitted connections.
func TestBusyClientsStayConnected_F_SEC_8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) {
			o.MaxSessions = 2 * maxConnsPerSession
			o.Tokens = bearerTokens("secret")
		})
		h.server.stateless.limit.max = 1000 // more than connections
		done := make(chan int, 1000)
		for range 2 * maxConnsPerSession * maxConnsPerSession {
			c := h.newCaller()
			go func() { done <- c.post("hold", "secret") }()
		}
		synctest.Wait()
		for range 3 {
			if got := h.newCaller().post("echo", "secret"); got != 200 {
				t.Errorf("a further client got status %d", got)
			}
		}
		for range 2 * maxConnsPerSession * maxConnsPerSession {
			(<-h.heldRequests).Reply([]byte("{}"))
			if got := <-done; got != 200 {
				t.Errorf("a busy client got status %d", got)
			}
		}
	})
}

// Unadmitted connections leave file descriptors to clients and child processes.
func TestUnadmittedLimit(t *testing.T) {
	for descriptors, want := range map[int]int{0: maxUnadmittedConns, 1 << 20: maxUnadmittedConns,
		1024: 512, 64: 32, 1: 1} {
		if got := unadmittedLimit(descriptors); got != want {
			t.Errorf("%d descriptors: limit %d, want %d", descriptors, got, want)
		}
	}
}

// Failed accepts are logged as warnings, at most once per logThrottle. Other messages of net/http
// are logged as debug.
func TestAcceptErrorsAreWarnings(t *testing.T) {
	var log logBuffer
	server := slog.NewLogLogger(&acceptErrorHandler{Handler: slog.NewTextHandler(&log, nil)},
		slog.LevelDebug)
	for range 3 {
		server.Print("http: Accept error: accept tcp: too many open files; retrying in 5ms")
	}
	server.Print("http: TLS handshake error from 127.0.0.1:1: EOF")
	if got := log.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, "level=WARN") || !strings.Contains(got, "too many open files") {
		t.Errorf("the log has %q", got)
	}
}
