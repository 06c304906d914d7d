package httpserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A halfConn is one end of a connection whose directions can be closed separately.
type halfConn struct {
	net.Conn // for reading
	out      net.Conn
}

func halfPipe() (near, far halfConn) {
	a, b := net.Pipe()
	c, d := net.Pipe()
	return halfConn{a, c}, halfConn{d, b}
}

func (c halfConn) Write(b []byte) (int, error)        { return c.out.Write(b) }
func (c halfConn) CloseWrite() error                  { return c.out.Close() }
func (c halfConn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }

func (c halfConn) SetDeadline(t time.Time) error {
	_ = c.out.SetDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c halfConn) Close() error {
	_ = c.out.Close()
	return c.Conn.Close()
}

// rawConn sends a request over a connection of its own, closes the sending side after the given
// time, and returns all bytes of the response.
func (h *harness) rawConn(tr testRequest, after time.Duration) string {
	h.Helper()
	near, far := halfPipe()
	h.accept <- far
	defer near.Close()
	go func() {
		if err := h.newRequest(tr).Write(near); err == nil {
			time.Sleep(after)
			_ = near.CloseWrite()
		}
	}()
	text, _ := io.ReadAll(near)
	return string(text)
}

// A client that closes its sending side gets its response or a closed connection, never an empty
// response.
func TestHalfClosedConnectionGetsNoEmptyResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-11-25", nil)
		old, _ := h.initialize("2025-06-18", nil)
		for name, tr := range map[string]testRequest{
			"initialize": {body: initializeRequest("2025-11-25")},
			"echo":       {session: key, body: requestJSON("1", "echo", `{"a":1}`)},
			"ping":       {session: key, body: requestJSON("2", "ping", `{}`)},
			"error":      {session: key, body: requestJSON("3", "what", `{}`)},
			"events": {session: key, body: requestJSON("4", "echo", `{"a":1}`),
				header: map[string]string{"Accept": "text/event-stream, */*;q=0.5"}},
			"JSON": {session: key, body: requestJSON("5", "echo", `{"a":1}`),
				header: map[string]string{"Accept": "application/json"}},
			"stateless":  statelessRequest("6", "echo", ""),
			"no session": {session: "x", body: requestJSON("7", "ping", `{}`)},
		} {
			for i := range 20 {
				got := h.rawConn(tr, 0)
				head, body, _ := strings.Cut(got, "\r\n\r\n")
				if got != "" && !strings.Contains(body, `"result"`) &&
					!strings.Contains(body, `"error"`) {
					t.Fatalf("%s, %d: response without a message: %q", name, i, got)
				}
				_, id, named := strings.Cut(head, "Mcp-Session-Id: ")
				id, _, _ = strings.Cut(id, "\r")
				if named {
					h.want(post(id, requestJSON("9", "ping", `{}`)), 200, resultJSON("9", "{}"))
				}
			}
		}
		for name, tr := range map[string]testRequest{
			"session": {session: key, body: requestJSON("10", "hold", `{}`)},
			"JSON": {session: key, body: requestJSON("11", "hold", `{}`),
				header: map[string]string{"Accept": "application/json"}},
			"stateless": statelessRequest("12", "hold", ""),
		} {
			if got := h.rawConn(tr, time.Millisecond); got != "" {
				t.Errorf("%s: premature response: %q", name, got)
			}
		}
		for name, tr := range map[string]testRequest{
			"session":     {session: key, body: requestJSON("13", "hold", `{}`)},
			"old session": {session: old, body: requestJSON("14", "hold", `{}`)},
			"stateless":   statelessRequest("15", "hold", ""),
		} {
			if got := h.rawConn(tr, 20*time.Second); !strings.Contains(got, "text/event-stream") ||
				strings.HasSuffix(got, "\r\n0\r\n\r\n") {
				t.Errorf("%s: a stream without the response was ended as if complete: %q",
					name, got)
			}
		}
		httpSSE := h.openStream(testRequest{method: "GET", path: "/sse"})
		endpoint, err := httpSSE.next()
		if err != nil {
			t.Fatal(err)
		}
		note := `{"jsonrpc":"2.0","method":"notifications/x"}`
		for range 20 {
			got := h.rawConn(testRequest{path: endpoint.data, body: note}, 0)
			if got != "" && !strings.HasPrefix(got, "HTTP/1.1 202 ") {
				t.Errorf("HTTP+SSE: %q", got)
			}
		}
		httpSSE.disconnect()
	})
}

// A response that is ready when the disconnect is noticed is sent, because the client may have
// closed only its sending side.
func TestHalfClosedConnectionGetsReadyResponse(t *testing.T) {
	var mu sync.Mutex
	var leave context.CancelFunc
	leaving := func() context.CancelFunc {
		mu.Lock()
		defer mu.Unlock()
		return leave
	}
	srv := New(Options{
		OpenSession: func(_ SessionInfo, out transport.Writer) SessionHandler {
			handler := newTestHandler(SessionInfo{}, out)
			handler.Peer = peer.NewPush(out, disconnectingServer{leaving}, peer.Options{})
			return handler
		},
		ServeRequest: func(_ SessionInfo, m wire.Message, out transport.Writer) func() {
			return servePeer(disconnectingServer{leaving}, m, out, func() {})
		},
	})
	defer srv.shutDown(func() {})
	ask := func(tr testRequest) *httptest.ResponseRecorder {
		ctx, cancel := context.WithCancel(t.Context())
		mu.Lock()
		leave = cancel
		mu.Unlock()
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, (&harness{T: t}).newRequest(tr).WithContext(ctx))
		return w
	}
	for i := range 100 {
		key := ask(testRequest{body: initializeRequest("2025-11-25")}).Header().
			Get("Mcp-Session-Id")
		if key == "" {
			t.Fatalf("%d: no session", i)
		}
		for name, tr := range map[string]testRequest{
			"session": {session: key, body: requestJSON("1", "echo", `{}`)},
			"JSON": {session: key, body: requestJSON("1", "echo", `{}`),
				header: map[string]string{"Accept": "application/json"}},
			"events": {session: key, body: requestJSON("1", "echo", `{}`),
				header: map[string]string{"Accept": "text/event-stream, */*;q=0.5"}},
			"stateless": statelessRequest("1", "echo", ""),
		} {
			if w := ask(tr); w.Code != http.StatusOK ||
				!strings.Contains(w.Body.String(), `"result"`) {
				t.Fatalf("%s, %d: %d %q", name, i, w.Code, w.Body)
			}
		}
		ask(testRequest{method: "DELETE", session: key})
	}
}

// disconnectingServer responds to all requests at once; then the client disconnects.
type disconnectingServer struct{ disconnect func() context.CancelFunc }

func (disconnectingServer) HandleNotification(wire.Message, peer.Origin) {}

func (a disconnectingServer) HandleRequest(r *peer.Request) {
	leave := a.disconnect() // before the response, because the next request may follow it
	r.Reply([]byte(`{"protocolVersion":"2025-11-25","capabilities":{}}`))
	leave()
}

// A request whose client disconnects before delivery is reported to OnRejected.
func TestUndeliveredRequestIsReported(t *testing.T) {
	var mu sync.Mutex
	var got []string
	h := newHarness(t, func(o *Options) {
		o.OnRejected = func(info SessionInfo, m wire.Message, err *wire.Error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%t %s %s", info.ID != "", m.ID(), err.Message))
		}
	})
	key, _ := h.initialize("2025-03-26", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tr := range []testRequest{
		{session: key, body: requestJSON("1", "hold", `{}`)},
		{session: key, body: "[" + requestJSON("2", "hold", `{}`) + "," +
			requestJSON("3", "hold", `{}`) + "]"},
		statelessRequest("4", "hold", ""),
	} {
		func() {
			defer func() {
				if bug := recover(); bug != http.ErrAbortHandler {
					t.Errorf("%s: ServeHTTP panics with %v", tr.body, bug)
				}
			}()
			h.server.ServeHTTP(httptest.NewRecorder(), h.newRequest(tr).WithContext(ctx))
		}()
	}
	h.stop()
	const why = " The client has closed the connection; the request did not run"
	want := "true 1" + why + "\ntrue 2" + why + "\ntrue 3" + why + "\ntrue 4" + why
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("reported:\n%s\nwant:\n%s", text, want)
	}
	if len(h.heldRequests) > 0 {
		t.Error("a request of a disconnected client was delivered")
	}
}
