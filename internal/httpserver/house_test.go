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

// A house is a Server with a server behind it. Its network is in memory, so that it
// runs in a synctest bubble.
type house struct {
	*testing.T
	door   *Server
	client *http.Client
	pool   *http.Transport
	held   chan *peer.Request // those with the method "hold"
	told   chan string        // the methods of notifications
	conns  chan *visitor
	stop   func() // ends Run and waits for it

	accept chan net.Conn
	done   chan struct{}
	shut   func() // closes done, once
}

// A visitor is a session as its holder, or Serve, sees it.
type visitor struct {
	*peer.Peer
	transport.Writer
	SessionInfo
	ended chan error // why, once it is over; 1 slot
	why   error      // as End was told, once ended has a value
}

func newVisitor(v SessionInfo, out transport.Writer) *visitor {
	return &visitor{Writer: out, SessionInfo: v, ended: make(chan error, 1)}
}

// Shutdown and End implement SessionHandler; Receive is the Peer's.
func (g *visitor) Shutdown() { _ = g.Peer.Close() }

func (g *visitor) Closed(why error) {
	g.Peer.Disconnected()
	g.why = why
	g.ended <- transport.ErrClosed
}

// keeps tells how many bytes the session keeps for resumption.
func (g *visitor) keeps() int {
	s := g.Writer.(*session)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// newHouse opens a house for the length of the test; change may be nil.
func newHouse(t *testing.T, change func(*Options)) *house {
	h := &house{T: t, held: make(chan *peer.Request, 5000), told: make(chan string, 5000), conns: make(chan *visitor, 20000),
		accept: make(chan net.Conn), done: make(chan struct{})}
	o := Options{OpenSession: h.open, ServeStateless: h.serve, MessageLimit: 1 << 20, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	h.door = New(o)
	h.shut = sync.OnceFunc(func() { close(h.done) })
	h.pool = &http.Transport{DialContext: h.dial, DisableCompression: true, MaxIdleConnsPerHost: 100}
	h.client = &http.Client{Transport: h.pool}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := h.door.Run(ctx, h); err != nil {
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
		if n := h.door.kept.Load(); n != 0 {
			t.Errorf("%d bytes are kept for sessions that are gone", n)
		}
		if len(h.door.sessions) > 0 || len(h.door.sessionsOf) > 0 || h.door.keepers.Len() > 0 {
			t.Errorf("sessions are left: %d, %v, %d", len(h.door.sessions), h.door.sessionsOf, h.door.keepers.Len())
		}
		if n := h.door.visits; n != 0 || len(h.door.visitsOf) > 0 {
			t.Errorf("%d visits are left, %v", n, h.door.visitsOf)
		}
		if total, piles := h.waiting(); total != 0 || piles > 0 {
			t.Errorf("%d bytes wait for %d clients that are gone", total, piles)
		}
		if b := &h.door.bodies; b.total != 0 || len(b.of) > 0 {
			t.Errorf("%d bytes are held for requests that are over, %v", b.total, b.of)
		}
	})
	return h
}

// waiting returns what waits for clients, when nothing changes that any more: what a test writes is
// counted by the goroutine that does, perhaps behind the end of everything else.
func (h *house) waiting() (bytes int64, clients int) {
	o := &h.door.outbox
	for range 1000 {
		o.mu.Lock()
		bytes, clients = o.total, len(o.piles)
		o.mu.Unlock()
		if bytes == 0 && clients == 0 {
			break
		}
		time.Sleep(time.Millisecond) // at once in a bubble
	}
	return bytes, clients
}

// Accept, Close and Addr make the house its own listener.
func (h *house) Accept() (net.Conn, error) {
	select {
	case c := <-h.accept:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *house) Close() error {
	h.shut()
	return nil
}

func (h *house) Addr() net.Addr { return &net.UnixAddr{Name: "house"} }

func (h *house) dial(ctx context.Context, _, _ string) (net.Conn, error) {
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

// open holds a session, and serve one request: the server answers "echo" with its params, "hold" when the test
// does, and whatever else with an error.
func (h *house) open(v SessionInfo, out transport.Writer) SessionHandler {
	g := newVisitor(v, out)
	g.Peer = peer.NewPush(out, &server{h, g}, peer.Options{AllowBatches: func() bool { return true }, RejectInBatch: protocol.RejectInBatch})
	h.conns <- g
	return g
}

func (h *house) serve(ctx context.Context, v SessionInfo, c transport.Conn) {
	g := newVisitor(v, c)
	g.Peer = peer.New(c, &server{h, g}, peer.Options{})
	h.conns <- g
	g.ended <- g.Run(ctx)
}

type server struct {
	h *house
	g *visitor
}

func (s *server) HandleNotification(m wire.Message, _ peer.Origin) { s.h.told <- m.Method() }

func (s *server) HandleRequest(r *peer.Request) {
	switch r.Method() {
	case "initialize":
		var params struct{ ProtocolVersion string }
		if json.Unmarshal(r.Part(wire.PartParams), &params) != nil || params.ProtocolVersion == "" {
			r.Fail(wire.Errorf(wire.CodeInvalidParams, "no version"))
			return
		}
		r.Reply(fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":{}}`, protocol.Negotiate(params.ProtocolVersion).Date))
	case "echo":
		r.Reply(r.Part(wire.PartParams))
	case "hold", methodListen:
		s.h.held <- r
	default:
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found"))
	}
}

// A knock is one HTTP request that a test makes. The zero value of all but body
// stands for what a good client would send.
type knock struct {
	verb, path, body string
	session          string
	header           map[string]string // "-" takes one away
	host             string
}

func (h *house) request(v knock) *http.Request {
	h.Helper()
	if v.path == "" {
		v.path = "/mcp"
	}
	if !strings.HasPrefix(v.path, "/") { // relative to /sse
		v.path = "/" + v.path
	}
	if v.verb == "" {
		v.verb = http.MethodPost
	}
	req, err := http.NewRequest(v.verb, "http://localhost:7420"+v.path, strings.NewReader(v.body))
	if err != nil {
		h.Fatal(err)
	}
	req.Host = v.host
	req.Header.Set("Accept", "application/json, text/event-stream")
	if v.verb == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if v.session != "" {
		req.Header.Set("Mcp-Session-Id", v.session)
	}
	for k, value := range v.header {
		if value == "-" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, value)
		}
	}
	return req
}

// send returns the response with its body unread.
func (h *house) send(v knock) *http.Response {
	h.Helper()
	res, err := h.client.Do(h.request(v))
	if err != nil {
		h.Fatalf("%s %s: %v", v.verb, v.body, err)
	}
	return res
}

// ask returns the status and the body.
func (h *house) ask(v knock) (*http.Response, string) {
	h.Helper()
	res := h.send(v)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		h.Errorf("%s %s: %v", v.verb, v.body, err)
	}
	return res, string(body)
}

// want makes a request and compares the answer.
func (h *house) want(v knock, status int, body string) *http.Response {
	h.Helper()
	res, got := h.ask(v)
	if res.StatusCode != status || body != "*" && got != body {
		h.Errorf("%s %s %s:\n got %d %s\nwant %d %s", v.verb, v.path, v.body, res.StatusCode, got, status, body)
	}
	return res
}

// wantError makes a request that is refused with that status, id and code.
func (h *house) wantError(v knock, status int, id string, code int) *http.Response {
	h.Helper()
	res, got := h.ask(v)
	var e struct {
		Jsonrpc string
		ID      json.RawMessage
		Error   struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(got), &e); err != nil || res.StatusCode != status || e.Jsonrpc != "2.0" || string(e.ID) != id ||
		e.Error.Code != code || e.Error.Message == "" || res.Header.Get("Content-Type") != "application/json" {
		h.Errorf("%s %s %.100s:\n got %d %s\nwant %d, id %s, code %d", v.verb, v.path, v.body, res.StatusCode, got, status, id, code)
	}
	return res
}

func initialize(date string) string {
	return `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + date + `","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
}

// enter opens a session and returns its key, and what Serve sees of it.
func (h *house) enter(date string, header map[string]string) (key string, g *visitor) {
	h.Helper()
	res := h.want(knock{body: initialize(date), header: header}, 200,
		`{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"`+date+`","capabilities":{}}}`)
	key = res.Header.Get("Mcp-Session-Id")
	if key == "" {
		h.Fatal("no session")
	}
	h.want(knock{session: key, header: header, body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, 202, "")
	if m := <-h.told; m != "notifications/initialized" {
		h.Errorf("told %s", m)
	}
	return key, <-h.conns
}

func call(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

func result(id, result string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`
}

func progress(n int) wire.Message {
	return wire.NewNotification("notifications/progress", fmt.Appendf(nil, `{"progressToken":"t","progress":%d}`, n))
}

// A events reads a stream of events.
type events struct {
	*house
	res *http.Response
	r   *bufio.Reader
}

// event is what one event has, comments included as such.
type event struct{ name, id, data, retry, comment string }

func (h *house) events(res *http.Response) *events {
	h.Helper()
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(res.Body)
		h.Fatalf("no stream of events: %d %s %s", res.StatusCode, res.Header, body)
	}
	return &events{h, res, bufio.NewReader(res.Body)}
}

// stream opens a stream of events.
func (h *house) stream(v knock) *events {
	h.Helper()
	return h.events(h.send(v))
}

func (e *events) next() (ev event, err error) {
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
			e.Errorf("a line of an event is %q", line)
		}
	}
}

// want reads one event.
func (e *events) want(id, data string) {
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

// end reads the end of the stream.
func (e *events) end() {
	e.Helper()
	if ev, err := e.next(); err != io.EOF {
		e.Errorf("the stream goes on: %+v, %v", ev, err)
	}
	e.res.Body.Close()
}

func (e *events) cut() { e.res.Body.Close() }

// lines is a log that may be read while it is written to.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
