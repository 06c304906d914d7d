package httpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A stub is an MCP server over HTTP with replaceable parts. Its network is in memory, so that it
// runs in a synctest bubble.
type stub struct {
	// handles requests except initialize; nil = send a result
	post func(w http.ResponseWriter, r *http.Request, m wire.Message)
	// handles notifications and responses; nil = accept
	note func(w http.ResponseWriter, r *http.Request, m wire.Message)
	get  http.HandlerFunc // handles GET; nil = status 405
	end  http.HandlerFunc // handles DELETE; nil = status 204
	// handles initialize; nil = accept
	init func(w http.ResponseWriter, r *http.Request, m wire.Message)

	mu       sync.Mutex
	received []receivedRequest
	session  string
	conns    map[net.Conn]bool // open connections
	dialled  int
	refusing int // number of further connections to refuse
	accept   chan net.Conn
	done     chan struct{}
	log      logBuffer
}

// A receivedRequest is an HTTP request that has arrived.
type receivedRequest struct {
	verb, method string // HTTP verb and JSON-RPC method
	header       http.Header
	host, uri    string
	body         string
}

// A logBuffer is a log that may be read during writes.
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

// newStub starts a stub that runs until the end of the test.
func newStub(t *testing.T) *stub {
	s := &stub{session: "session-1", conns: map[net.Conn]bool{}, accept: make(chan net.Conn),
		done: make(chan struct{})}
	server := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		ConnState: s.connState}
	served := make(chan struct{})
	go func() {
		server.Serve(s)
		close(served)
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	return s
}

func (s *stub) connState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	}
}

// Accept, Close and Addr implement net.Listener.
func (s *stub) Accept() (net.Conn, error) {
	select {
	case c := <-s.accept:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *stub) Close() error {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return nil
}

func (s *stub) Addr() net.Addr { return &net.UnixAddr{Name: "stub"} }

func (s *stub) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	s.dialled++
	refuse := s.refusing > 0
	if refuse {
		s.refusing--
	}
	s.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	clientEnd, serverEnd := net.Pipe()
	select {
	case s.accept <- serverEnd:
		return clientEnd, nil
	case <-s.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.Parse(body)
	s.mu.Lock()
	s.received = append(s.received,
		receivedRequest{r.Method, m.Method(), r.Header.Clone(), r.Host, r.RequestURI, string(body)})
	s.mu.Unlock()
	switch {
	case r.Method == "DELETE" && s.end != nil:
		s.end(w, r)
	case r.Method == "DELETE":
		w.WriteHeader(http.StatusNoContent)
	case r.Method == "GET" && s.get != nil:
		s.get(w, r)
	case r.Method == "GET":
		http.Error(w, "no stream here", http.StatusMethodNotAllowed)
	case m.Method() == "initialize" && s.init != nil:
		s.init(w, r, m)
	case m.Method() == "initialize":
		w.Header().Set("Mcp-Session-Id", s.session)
		writeResult(w, m,
			`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"stub","version":"1"}}`)
	case m.Kind() == wire.Request && s.post != nil:
		s.post(w, r, m)
	case m.Kind() == wire.Request:
		writeResult(w, m, `{}`)
	case s.note != nil:
		s.note(w, r, m)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func writeResult(w http.ResponseWriter, m wire.Message, result string) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(wire.NewResult(m.ID(), []byte(result)).Raw())
}

// writeStream responds with a stream of events.
func writeStream(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		io.WriteString(w, e)
		w.(http.Flusher).Flush()
	}
	w.(http.Flusher).Flush()
}

// messageEvent returns an event whose data is the message.
func messageEvent(m string) string { return "data: " + m + "\n\n" }

// resultOf returns the response to m.
func resultOf(m wire.Message, result string) string {
	return string(wire.NewResult(m.ID(), []byte(result)).Raw())
}

// blockUntilAborted keeps the exchange open until the client aborts it.
func blockUntilAborted(r *http.Request) { <-r.Context().Done() }

// abortConnection breaks the connection.
func abortConnection() { panic(http.ErrAbortHandler) }

// count returns the number of received requests with this HTTP verb or JSON-RPC method.
func (s *stub) count(what string) (n int) {
	return len(s.requests(what))
}

func (s *stub) requests(what string) (all []receivedRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.received {
		if a.verb == what || a.method == what {
			all = append(all, a)
		}
	}
	return all
}

// order returns the methods of the received messages in order.
func (s *stub) order() string {
	var all []string
	for _, a := range s.requests("POST") {
		all = append(all, a.method)
	}
	return strings.Join(all, " ")
}

func (s *stub) openConns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// A client is a Conn with test helpers.
type client struct {
	*testing.T
	transport.Conn
	next int
}

// dialStub returns a Conn that the test closes; change may be nil.
func dialStub(t *testing.T, s *stub, change func(*Options)) *client {
	return dialStubBy(DialStreamable, t, s, change)
}

func dialStubBy(dial func(Options) transport.Conn, t *testing.T, s *stub,
	change func(*Options)) *client {
	debug := slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})
	o := Options{
		URL: "http://stub.test/mcp", Limit: 1 << 20, Log: slog.New(debug),
		RoundTripper: newPlainPool(&url.URL{Scheme: "http", Host: "stub.test"}, s.dial),
	}
	if change != nil {
		change(&o)
	}
	c := &client{T: t, Conn: dial(o), next: 100}
	t.Cleanup(func() { c.Close() })
	return c
}

// ready returns a Conn after the handshake, when all goroutines are idle.
func ready(t *testing.T, s *stub, change func(*Options)) *client {
	c := dialStub(t, s, change)
	c.handshake()
	return c
}

func (c *client) handshake() {
	c.Helper()
	c.write(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if m := c.read(); m.Kind() != wire.Response || m.Part(wire.PartResult) == nil {
		c.Fatalf("initialize was answered with %s", m.Raw())
	}
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (c *client) write(text string) {
	c.Helper()
	m, err := wire.Parse([]byte(text))
	if err != nil {
		c.Fatalf("%s: %v", text, err)
	}
	if err := c.Write(m, m.RequestID()); err != nil {
		c.Fatalf("write %s: %v", text, err)
	}
}

// call writes a request and returns its id.
func (c *client) call(method string) wire.ID {
	c.Helper()
	c.next++
	c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, c.next, method))
	return wire.ID(fmt.Sprint(c.next))
}

func (c *client) cancel(id wire.ID) {
	c.Helper()
	c.write(
		fmt.Sprintf(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
}

func (c *client) read() wire.Message {
	c.Helper()
	m, _, err := c.Read()
	if err != nil {
		c.Fatalf("read: %v", err)
	}
	return m
}

// want reads a message and compares it with text.
func (c *client) want(text string) {
	c.Helper()
	if m := c.read(); string(m.Raw()) != text {
		c.Errorf("got %s\nwant %s", m.Raw(), text)
	}
}

// wantLost reads the CallLostError of a request and returns its reason.
func (c *client) wantLost(id wire.ID, ran bool) error {
	c.Helper()
	m, _, err := c.Read()
	var lost *transport.CallLostError
	if !errors.As(err, &lost) {
		c.Fatalf("got %s, %v; want Lost", m.Raw(), err)
	}
	if lost.ID != id || lost.MayHaveRun != ran {
		c.Errorf("Lost has id %s, ran %v (%v); want %s, %v", lost.ID, lost.MayHaveRun, err, id, ran)
	}
	return err
}

// wantErrorText checks that the text of an error contains text.
func wantErrorText(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %q, want %q in it", err, text)
	}
}

// lostSessionResponses are responses of servers that do not know the session.
var lostSessionResponses = map[string]func(http.ResponseWriter){
	"404": func(w http.ResponseWriter) { http.Error(w, "Invalid session ID", 404) },
	"404 with JSON": func(w http.ResponseWriter) {
		rpcError(w, 404, "null", -32001,
			"Session not found")
	},
	"400 of the TypeScript examples": func(w http.ResponseWriter) {
		rpcError(w, 400, "101", -32000, "Bad Request: No valid session ID provided")
	},
	"400 of a restarted server": func(w http.ResponseWriter) {
		rpcError(w, 400, "null", -32000,
			"Bad Request: Server not initialized")
	},
	"400 with text": func(w http.ResponseWriter) {
		http.Error(w,
			"Invalid session ID", 400)
	},
	"200 with -32600": func(w http.ResponseWriter) {
		rpcError(w, 200, "101", -32600,
			"Session not found")
	},
	"200 with -32001": func(w http.ResponseWriter) {
		rpcError(w, 200, "null", -32001,
			"session not found")
	},
}

func rpcError(w http.ResponseWriter, status int, id string, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
}
