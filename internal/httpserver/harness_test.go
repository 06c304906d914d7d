package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A harness is a Server with test handlers. Its network is in memory, so that it works in a
// synctest bubble.
type harness struct {
	*testing.T
	server        *Server
	client        *http.Client
	pool          *http.Transport
	heldRequests  chan *peer.Request // requests with the method "hold"
	notifications chan string        // methods of received notifications
	handlers      chan *testHandler
	stop          func() // ends Run and waits for its return

	accept    chan net.Conn
	done      chan struct{}
	closeDone func() // closes done once
}

// A testHandler is the handler of a session or of a stateless request.
type testHandler struct {
	*peer.Peer
	transport.Writer
	SessionInfo
	stateless bool       // handler of a stateless request
	closed    chan error // reason of the end; capacity 1
	reason    error      // argument of Closed; valid once closed has a value
}

func newTestHandler(info SessionInfo, out transport.Writer) *testHandler {
	return &testHandler{Writer: out, SessionInfo: info, closed: make(chan error, 1)}
}

// Shutdown and Closed implement SessionHandler; Receive is promoted from Peer.
func (handler *testHandler) Shutdown() { _ = handler.Peer.Close() }

func (handler *testHandler) Closed(reason error) {
	handler.Peer.Disconnected()
	handler.reason = reason
	handler.closed <- transport.ErrClosed
}

// retained returns the number of bytes that the session retains for resumption.
func (handler *testHandler) retained() int {
	s := handler.Writer.(*httpSession)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams.retained
}

// retainedBytes returns the number of bytes that all sessions retain for resumption.
func (h *harness) retainedBytes() int64 {
	q := &h.server.retention
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// bearerTokens returns tokens without names.
func bearerTokens(texts ...string) (all []StaticToken) {
	for _, t := range texts {
		all = append(all, StaticToken{Text: t})
	}
	return all
}

// newHarness starts a harness for the duration of the test; change may be nil.
func newHarness(t *testing.T, change func(*Options)) *harness {
	h := &harness{T: t, heldRequests: make(chan *peer.Request, 5000),
		notifications: make(chan string, 5000), handlers: make(chan *testHandler, 20000),
		accept: make(chan net.Conn), done: make(chan struct{})}
	o := Options{OpenSession: h.openSession, ServeRequest: h.serveRequest,
		MessageLimit: 1 << 20, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	h.server = New(o)
	h.closeDone = sync.OnceFunc(func() { close(h.done) })
	h.pool = &http.Transport{DialContext: h.dial, DisableCompression: true,
		MaxIdleConnsPerHost: 100}
	h.client = &http.Client{Transport: h.pool}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := h.server.Run(ctx, h); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	h.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(func() {
		h.stop()
		h.pool.CloseIdleConnections()
		if n, list := h.retainedBytes(), h.server.retention.retainers.Len(); n != 0 || list > 0 {
			t.Errorf("%d bytes are retained for closed sessions, %d retainers are left", n, list)
		}
		sessions := h.server.sessions
		if n := &sessions.limit.counter; len(sessions.sessions) > 0 || n.Keys() > 0 {
			t.Errorf("sessions are left: %d, %d principals", len(sessions.sessions), n.Keys())
		}
		if n := &h.server.stateless.limit.counter; n.Total() != 0 || n.Keys() > 0 {
			t.Errorf("%d exchanges are left, of %d principals", n.Total(), n.Keys())
		}
		if total, clients := h.backlog(); total != 0 || clients > 0 {
			t.Errorf("%d bytes are unsent for %d disconnected clients", total, clients)
		}
		if b := &h.server.posts.quota; b.total != 0 || len(b.byKey) > 0 {
			t.Errorf("%d posted bytes of finished requests are in use, %v", b.total, b.byKey)
		}
	})
	return h
}

// backlog returns the unsent bytes and the number of clients that have any, after waiting for
// both to become 0. Messages written by the test are accounted for asynchronously.
func (h *harness) backlog() (bytes int64, clients int) {
	q := &h.server.backlogQuota
	for range 1000 {
		q.mu.Lock()
		bytes, clients = q.total, len(q.backlogs)
		q.mu.Unlock()
		if bytes == 0 && clients == 0 {
			break
		}
		time.Sleep(time.Millisecond) // takes no real time in a bubble
	}
	return bytes, clients
}

// Accept, Close and Addr implement net.Listener.
func (h *harness) Accept() (net.Conn, error) {
	select {
	case c := <-h.accept:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *harness) Close() error {
	h.closeDone()
	return nil
}

func (h *harness) Addr() net.Addr { return &net.UnixAddr{Name: "harness"} }

func (h *harness) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case h.accept <- far:
		return near, nil
	case <-h.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// openSession and serveRequest serve sessions and single requests: "echo" returns its params, the
// test responds to "hold", and other methods are errors.
func (h *harness) openSession(info SessionInfo, out transport.Writer) SessionHandler {
	handler := newTestHandler(info, out)
	handler.Peer = peer.NewPush(out, &echoServer{h, handler},
		peer.Options{
			AllowBatches: func() bool { return true }, RejectInBatch: protocol.RejectInBatch,
		})
	h.handlers <- handler
	return handler
}

func (h *harness) serveRequest(
	info SessionInfo, m wire.Message, out transport.Writer,
) (cancel func()) {
	handler := newTestHandler(info, out)
	handler.stateless = true
	h.handlers <- handler
	return servePeer(&echoServer{h, handler}, m, out, func() {
		handler.closed <- transport.ErrClosed
	})
}

// servePeer passes a request to a peer.Handler. The result closes the request and calls cancelled.
func servePeer(
	h peer.Handler, m wire.Message, out transport.Writer, cancelled func(),
) (cancel func()) {
	r := peer.NewRequest(out, m)
	h.HandleRequest(r)
	return func() {
		r.Close(nil)
		cancelled()
	}
}

type echoServer struct {
	h       *harness
	handler *testHandler
}

func (s *echoServer) HandleNotification(m wire.Message, _ peer.Origin) {
	s.h.notifications <- m.Method()
}

func (s *echoServer) HandleRequest(r *peer.Request) {
	switch r.Method() {
	case "initialize":
		var params struct{ ProtocolVersion string }
		if json.Unmarshal(r.Part(wire.PartParams), &params) != nil || params.ProtocolVersion == "" {
			r.Fail(wire.Errorf(wire.CodeInvalidParams, "no version"))
			return
		}
		r.Reply(fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":{}}`,
			protocol.Negotiate(params.ProtocolVersion).Date))
	case "echo":
		r.Reply(r.Part(wire.PartParams))
	case "hold", methodListen:
		s.h.heldRequests <- r
	default:
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found"))
	}
}

// A testRequest is an HTTP request of a test. The zero values of all fields except body describe a
// correct client.
type testRequest struct {
	method, path, body string
	session            string
	header             map[string]string // the value "-" removes a header
	host               string
}

// post returns a POST with this body in a session.
func post(session, body string) testRequest { return testRequest{session: session, body: body} }

func (h *harness) newRequest(tr testRequest) *http.Request {
	h.Helper()
	if tr.path == "" {
		tr.path = "/mcp"
	}
	if !strings.HasPrefix(tr.path, "/") { // relative to /sse
		tr.path = "/" + tr.path
	}
	if tr.method == "" {
		tr.method = http.MethodPost
	}
	req, err := http.NewRequest(tr.method, "http://localhost:7420"+tr.path,
		strings.NewReader(tr.body))
	if err != nil {
		h.Fatal(err)
	}
	req.Host = tr.host
	req.Header.Set("Accept", "application/json, text/event-stream")
	if tr.method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if tr.session != "" {
		req.Header.Set("Mcp-Session-Id", tr.session)
	}
	for k, value := range tr.header {
		if value == "-" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, value)
		}
	}
	return req
}

// send returns the response; its body is not read.
func (h *harness) send(tr testRequest) *http.Response {
	h.Helper()
	res, err := h.client.Do(h.newRequest(tr))
	if err != nil {
		h.Fatalf("%s %s: %v", tr.method, tr.body, err)
	}
	return res
}

// do returns the response and its body.
func (h *harness) do(tr testRequest) (*http.Response, string) {
	h.Helper()
	res := h.send(tr)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		h.Errorf("%s %s: %v", tr.method, tr.body, err)
	}
	return res, string(body)
}

// want sends a request and compares the response. body "*" matches any body.
func (h *harness) want(tr testRequest, status int, body string) *http.Response {
	h.Helper()
	res, got := h.do(tr)
	if res.StatusCode != status || body != "*" && got != body {
		h.Errorf("%s %s %s:\n got %d %s\nwant %d %s", tr.method, tr.path, tr.body, res.StatusCode,
			got, status, body)
	}
	return res
}

// wantError sends a request that must fail with that status, id and code.
func (h *harness) wantError(tr testRequest, status int, id string, code int) *http.Response {
	h.Helper()
	res, got := h.do(tr)
	var e struct {
		Jsonrpc string
		ID      json.RawMessage
		Error   struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(got), &e); err != nil || res.StatusCode != status ||
		e.Jsonrpc != "2.0" || string(e.ID) != id ||
		e.Error.Code != code || e.Error.Message == "" ||
		res.Header.Get("Content-Type") != "application/json" {
		h.Errorf("%s %s %.100s:\n got %d %s\nwant %d, id %s, code %d", tr.method, tr.path, tr.body,
			res.StatusCode, got, status, id, code)
	}
	return res
}

func initializeRequest(date string) string {
	return `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` +
		date + `","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
}

// initialize opens a session and returns its key and handler.
func (h *harness) initialize(date string, header map[string]string) (key string,
	handler *testHandler) {
	h.Helper()
	res := h.want(testRequest{body: initializeRequest(date), header: header}, 200,
		`{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"`+date+`","capabilities":{}}}`)
	key = res.Header.Get("Mcp-Session-Id")
	if key == "" {
		h.Fatal("no session")
	}
	h.want(testRequest{session: key, header: header,
		body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, 202, "")
	if m := <-h.notifications; m != "notifications/initialized" {
		h.Errorf("notification %s", m)
	}
	return key, <-h.handlers
}

func requestJSON(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

func cancelJSON(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

func resultJSON(id, result string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`
}

func progressNotification(n int) wire.Message {
	return wire.NewNotification("notifications/progress",
		fmt.Appendf(nil, `{"progressToken":"t","progress":%d}`, n))
}

// An eventReader reads an event stream.
type eventReader struct {
	*harness
	res *http.Response
	r   *bufio.Reader
}

// event is one server-sent event, or a comment.
type event struct{ name, id, data, retry, comment string }

func (h *harness) readEvents(res *http.Response) *eventReader {
	h.Helper()
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(res.Body)
		h.Fatalf("not an event stream: %d %s %s", res.StatusCode, res.Header, body)
	}
	return &eventReader{h, res, bufio.NewReader(res.Body)}
}

// openStream sends a request whose response must be an event stream.
func (h *harness) openStream(tr testRequest) *eventReader {
	h.Helper()
	return h.readEvents(h.send(tr))
}

func (e *eventReader) next() (ev event, err error) {
	for begun := false; ; {
		line, err := e.r.ReadString('\n')
		if err != nil {
			return ev, err
		}
		if line == "\n" && begun {
			return ev, nil
		}
		begun = true
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			ev.name = value
		case "id":
			ev.id = value
		case "data":
			ev.data += value
		case "retry":
			ev.retry = value
		case "":
			ev.comment = value
		default:
			e.Errorf("unexpected line in an event: %q", line)
		}
	}
}

// want reads one event and compares it.
func (e *eventReader) want(id, data string) {
	e.Helper()
	got, err := e.next()
	name := "message"
	if data == "" {
		name = ""
	}
	if err != nil || got.id != id || got.data != data || got.name != name || got.comment != "" {
		e.Fatalf("got %+.200v, %v\nwant %s %.200s", got, err, id, data)
	}
}

// wantEnd reads the end of the stream.
func (e *eventReader) wantEnd() {
	e.Helper()
	if ev, err := e.next(); err != io.EOF {
		e.Errorf("the stream has not ended: %+v, %v", ev, err)
	}
	e.res.Body.Close()
}

func (e *eventReader) disconnect() { e.res.Body.Close() }

// logBuffer is a log that can be read during writes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
