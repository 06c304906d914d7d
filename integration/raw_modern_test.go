//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Clients of 2026-07-28 that keep every byte they receive: rawModern over HTTP, and
// modernCaller, a rawClient whose requests get the metadata of that revision, over stdio.

// withMeta adds the client metadata of 2026-07-28 to params, a JSON object. capabilities is
// JSON; extra are further members of _meta, for example `"progressToken":1`.
func withMeta(params, capabilities string, extra ...string) string {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernRevision + `",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1.0"},` +
		`"io.modelcontextprotocol/clientCapabilities":` + capabilities
	for _, e := range extra {
		meta += "," + e
	}
	inner := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(params), "{"))
	if inner != "}" {
		inner = "," + inner
	}
	return "{" + meta + "}" + inner
}

// A modernCaller is a rawClient that makes requests of 2026-07-28.
type modernCaller struct {
	*rawClient
	capabilities string
}

func (c modernCaller) call(method, params string) message {
	return c.rawClient.call(method, withMeta(params, c.capabilities))
}

// A rawModern is a raw client of 2026-07-28 over HTTP.
type rawModern struct {
	t            testing.TB
	url          string
	capabilities string      // JSON
	header       http.Header // in addition to the headers that follow from the body
	nextID       atomic.Int64
	client       http.Client
}

func newRawModern(t testing.TB, url, capabilities string) *rawModern {
	return &rawModern{t: t, url: url, capabilities: capabilities, header: http.Header{}}
}

// headersFor returns the headers that repeat parts of a request's body.
func headersFor(method, params string) http.Header {
	h := http.Header{"Mcp-Protocol-Version": {modernRevision}, "Mcp-Method": {method}}
	var p struct{ Name, URI string }
	json.Unmarshal([]byte(params), &p)
	switch method {
	case "tools/call", "prompts/get":
		h.Set("Mcp-Name", p.Name)
	case "resources/read":
		h.Set("Mcp-Name", p.URI)
	}
	return h
}

// post sends a body unchanged, with these headers.
func (c *rawModern) post(body string, h http.Header) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url,
		strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header = h.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, values := range c.header {
		req.Header[name] = values
	}
	res, err := c.client.Do(req)
	if err != nil {
		c.t.Fatalf("POST %.100s: %v", body, err)
	}
	return res
}

// sendRequest sends a request and returns the stream of its response.
func (c *rawModern) sendRequest(id, method, params string) *rawStream {
	c.t.Helper()
	res := c.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+withMeta(params,
		c.capabilities)+`}`, headersFor(method, params))
	return newRawStream(c.t, res)
}

// call sends a request and returns the response; earlier messages are discarded.
func (c *rawModern) call(method, params string) message {
	c.t.Helper()
	id := itoa(c.nextID.Add(1))
	s := c.sendRequest(id, method, params)
	defer s.close()
	return s.awaitResponse(id)
}

// listen sends a subscriptions/listen request and waits for the acknowledgement.
func (c *rawModern) listen(id, notifications string) *rawStream {
	c.t.Helper()
	s := c.sendRequest(id, "subscriptions/listen", `{"notifications":`+notifications+`}`)
	if ack := s.next(); ack.Method != "notifications/subscriptions/acknowledged" {
		c.t.Fatalf("first message of subscriptions/listen: %s", ack.Raw)
	}
	c.t.Cleanup(s.close)
	return s
}

// A rawStream is the response to a POST: one JSON message, or events.
type rawStream struct {
	t        testing.TB
	response *http.Response
	messages chan message // closed at the end of the stream
}

func newRawStream(t testing.TB, res *http.Response) *rawStream {
	s := &rawStream{t: t, response: res, messages: make(chan message, 1000)}
	go s.read()
	return s
}

func (s *rawStream) read() {
	defer close(s.messages)
	keep := func(raw []byte) {
		if m, err := parseMessage(raw); err == nil {
			s.messages <- m
		} else {
			s.messages <- message{Raw: fmt.Appendf(nil, "%v: %s", err, raw)}
		}
	}
	kind, _, _ := mime.ParseMediaType(s.response.Header.Get("Content-Type"))
	if kind != "text/event-stream" {
		if body, _ := io.ReadAll(s.response.Body); len(body) > 0 {
			keep(body)
		}
		return
	}
	events := newEventReader(s.response.Body)
	for {
		event, err := events.Next()
		if err != nil {
			return
		}
		keep(event.Data)
	}
}

// next waits for a message; the end of the stream fails the test.
func (s *rawStream) next() message {
	s.t.Helper()
	select {
	case m, ok := <-s.messages:
		if !ok {
			s.t.Fatalf("%s: the stream has ended", s.response.Status)
		}
		return m
	case <-time.After(waitTimeout):
		s.t.Fatalf("%s: timeout", s.response.Status)
	}
	panic("unreachable")
}

// awaitResponse waits for the response with this raw id.
func (s *rawStream) awaitResponse(id string) message {
	s.t.Helper()
	for {
		if m := s.next(); m.Method == "" && string(m.ID) == id {
			return m
		}
	}
}

// close disconnects.
func (s *rawStream) close() { s.response.Body.Close() }
