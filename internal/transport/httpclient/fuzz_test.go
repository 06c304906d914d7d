package httpclient

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A hostileServer responds to some requests with fuzzed data, and to the others correctly.
type hostileServer struct {
	which  uint8 // bits: initialize or discover, notifications, calls, GET
	status int
	header http.Header
	body   string
	piece  int
	cut    bool // the body breaks before its end
}

const (
	atHello = 1 << iota
	atNotes
	atCalls
	atGET
)

// RoundTrip implements http.RoundTripper.
func (h *hostileServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var m wire.Message
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		m, _ = wire.Parse(text)
	}
	hello := m.Method() == "initialize" || m.Method() == "server/discover"
	switch {
	case r.Method == "GET" && h.which&atGET != 0, hello && h.which&atHello != 0,
		m.Kind() == wire.Notification && h.which&atNotes != 0, m.Kind() == wire.Request && !hello &&
			h.which&atCalls != 0:
		return h.response(r, h.status, h.header.Clone(),
			&hostileBody{rest: h.body, piece: h.piece, cut: h.cut, done: r.Context().Done()}), nil
	case r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/sse"):
		return h.response(r, 200, http.Header{"Content-Type": {"text/event-stream"}},
			&hostileBody{rest: "event: endpoint\ndata: /post\n\n", piece: 100, hang: true,
				done: r.Context().Done()}), nil
	case r.Method == "GET":
		return h.response(r, 405, nil, io.NopCloser(strings.NewReader(""))), nil
	case m.Kind() != wire.Request || strings.HasSuffix(r.URL.Path, "/post"):
		return h.response(r, 202, nil, io.NopCloser(strings.NewReader(""))), nil
	case m.Method() == "server/discover":
		return h.response(r, 200, http.Header{"Content-Type": {"application/json"}},
			io.NopCloser(strings.NewReader(resultOf(m,
				`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}`)))), nil
	}
	return h.response(r, 200,
		http.Header{"Content-Type": {"application/json"}, "Mcp-Session-Id": {"s"}},
		io.NopCloser(strings.NewReader(resultOf(m,
			`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)))), nil
}

func (h *hostileServer) response(r *http.Request, status int, header http.Header,
	body io.ReadCloser) *http.Response {
	if header == nil {
		header = make(http.Header)
	}
	return &http.Response{Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: body, ContentLength: -1, Request: r}
}

// A hostileBody returns its content in pieces, and then ends, breaks or hangs.
type hostileBody struct {
	rest      string
	piece     int
	cut, hang bool
	done      <-chan struct{}
}

func (b *hostileBody) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), b.piece)], b.rest)
	b.rest = b.rest[n:]
	switch {
	case n > 0:
		return n, nil
	case b.hang:
		<-b.done
		return 0, errors.New("cancelled")
	case b.cut:
		return 0, io.ErrUnexpectedEOF
	}
	return 0, io.EOF
}

func (b *hostileBody) Close() error { return nil }

// For any data of a server, in response to any request and in each transport: Read returns messages
// within the limit, each request completes at most once, and no goroutine remains.
func FuzzAnswers(f *testing.F) {
	const events, json = "text/event-stream", "application/json"
	ok := `{"jsonrpc":"2.0","id":101,"result":{}}`
	for kind := range uint8(3) {
		for _, seed := range []struct {
			which   uint8
			status  uint16
			content string
			body    string
		}{
			{atCalls, 200, json, ok}, {atCalls, 200, events,
				"id: 1\ndata: " + ok + "\n\n"}, {atCalls, 404, json, "session not found"},
			{atCalls, 200, events,
				"id: 1\nretry: 5\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n"},
			{atHello, 400, json,
				`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}}`},
			{atHello, 200, "text/html", "<html>"}, {atNotes, 401, "", ""}, {atGET, 200, events,
				"event: endpoint\ndata: /post\n\ndata: " + ok + "\n\n"},
			{atGET, 302, "", ""}, {atCalls | atGET, 200, events,
				"id: 7\n\n: c\n\ndata: [" + ok + "]\n\n"}, {atCalls, 503, "", "later"},
			{atCalls, 200, json, strings.Repeat(" ", 5000) + ok}, {atCalls, 200, events,
				"data: " + strings.Repeat("x", 5000) + "\n\ndata: " + ok + "\n\n"},
			{15, 200, events, "data: \xb0\xa1\n\n"},
		} {
			for _, cut := range []bool{false, true} {
				f.Add(kind, seed.which, seed.status-100, seed.content, "s", "/elsewhere",
					[]byte(seed.body), uint8(9), cut)
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind, which uint8, status uint16, content, session, extra string,
		body []byte, piece uint8, cut bool) {
		const limit = 4096
		h := &hostileServer{which: which, status: 100 + int(status)%900, header: make(http.Header),
			body: string(body), piece: int(piece) + 1, cut: cut}
		for name, value := range map[string]string{"Content-Type": content,
			"Mcp-Session-Id": session, "Location": extra, "Retry-After": extra,
			"Mcp-Protocol-Version": extra} {
			if value != "" {
				h.header.Set(name, value)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			dial, url := DialStreamable, "http://h.test/mcp"
			switch kind % 3 {
			case 1:
				dial, url = DialHTTPSSE, "http://h.test/sse"
			case 2:
				dial = DialStateless
			}
			c := dial(Options{URL: url, RoundTripper: h, Limit: limit})
			reader := &checkingReader{t: t, limit: limit, lost: make(map[wire.ID]bool),
				answered: make(map[wire.ID]bool)}
			var reading sync.WaitGroup
			reading.Go(func() { reader.readAll(c) })
			hello := `"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`
			if kind%3 == 2 {
				hello = `"server/discover","params":{}`
			}
			for _, text := range []string{
				`{"jsonrpc":"2.0","id":1,"method":` + hello +
					`}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
				`{"jsonrpc":"2.0","id":101,"method":"tools/call","params":{"name":"x"}}`,
				`{"jsonrpc":"2.0","id":102,"method":"tools/list"}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":102}}`,
			} {
				m, err := wire.Parse([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				_ = c.Write(m, m.RequestID()) // the connection may have ended
				synctest.Wait()
			}
			time.Sleep(10 * time.Minute)
			c.Close()
			reading.Wait()
		})
	})
}

// A checkingReader reads a Conn to its end and checks the results of Read.
type checkingReader struct {
	t              *testing.T
	limit          int
	lost, answered map[wire.ID]bool
}

func (h *checkingReader) readAll(c transport.Conn) {
	for {
		m, _, err := c.Read()
		var malformed *transport.MalformedError
		var lost *transport.CallLostError
		switch {
		case err == nil:
			if again, err := wire.Parse(m.Raw()); err != nil || again.Kind() != m.Kind() ||
				m.Kind() == wire.Batch || len(m.Raw()) > h.limit {
				h.t.Errorf("a message of %d bytes, %v: %.300s", len(m.Raw()), err, m.Raw())
			}
			if m.Kind() == wire.Response {
				h.answered[m.ID()] = true
			}
		case errors.As(err, &malformed):
			if len(malformed.Text) > 4<<10 {
				h.t.Errorf("MalformedError of %d bytes", len(malformed.Text))
			}
		case errors.As(err, &lost):
			if id := lost.ID; h.lost[id] || h.answered[id] ||
				!bytes.Contains([]byte(" 1 101 102 "), []byte(" "+id+" ")) {
				h.t.Errorf("%s is lost (%v): lost before: %v, answered before: %v", id, lost,
					h.lost[id], h.answered[id])
			}
			h.lost[lost.ID] = true
		default:
			if len(err.Error()) > 4096 {
				h.t.Errorf("the final error has %d bytes: %.300s", len(err.Error()), err)
			}
			return
		}
	}
}
