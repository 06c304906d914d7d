//go:build unix

package integration

import (
	"bufio"
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

// Clients of 2026-07-28 that keep every byte they were sent: over HTTP rawStateless, at a pipe rawClient itself, whose
// requests stamped makes ones of that era.

// stamped puts the marks of 2026-07-28 into params, a JSON object. capabilities is JSON; extra are further members of
// _meta, e.g. `"progressToken":1`.
func stamped(params, capabilities string, extra ...string) string {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + statelessEra + `",` +
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

// A stampedCaller is a rawClient that makes requests of 2026-07-28.
type stampedCaller struct {
	*rawClient
	capabilities string
}

func (c stampedCaller) call(method, params string) message {
	return c.rawClient.call(method, stamped(params, c.capabilities))
}

// A rawStateless is rawHTTP's sibling of 2026-07-28.
type rawStateless struct {
	t            testing.TB
	url          string
	capabilities string      // JSON
	header       http.Header // besides those that follow from the body
	nextID       atomic.Int64
	client       http.Client
}

func newRawStateless(t testing.TB, url, capabilities string) *rawStateless {
	return &rawStateless{t: t, url: url, capabilities: capabilities, header: http.Header{}}
}

// headersOf are what a request's headers have to repeat of its body.
func headersOf(method, params string) http.Header {
	h := http.Header{"Mcp-Protocol-Version": {statelessEra}, "Mcp-Method": {method}}
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

// post sends a body as it is, with these headers.
func (c *rawStateless) post(body string, h http.Header) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(body))
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

// open sends a request and returns its answer, of which each message may be read when it comes.
func (c *rawStateless) open(id, method, params string) *rawStream {
	c.t.Helper()
	res := c.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+stamped(params, c.capabilities)+`}`, headersOf(method, params))
	return newRawStream(c.t, res)
}

// call waits for the answer; what comes before it is not kept.
func (c *rawStateless) call(method, params string) message {
	c.t.Helper()
	id := itoa(c.nextID.Add(1))
	s := c.open(id, method, params)
	defer s.close()
	return s.answer(id)
}

// listen opens a subscription and waits for its acknowledgement.
func (c *rawStateless) listen(id, notifications string) *rawStream {
	c.t.Helper()
	s := c.open(id, "subscriptions/listen", `{"notifications":`+notifications+`}`)
	if ack := s.next(); ack.Method != "notifications/subscriptions/acknowledged" {
		c.t.Fatalf("the first message of a listen: %s", ack.Raw)
	}
	c.t.Cleanup(s.close)
	return s
}

// A rawStream is the answer to a POST: one message of JSON, or events.
type rawStream struct {
	t        testing.TB
	response *http.Response
	messages chan message // closed at its end
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
	events := bufio.NewReader(s.response.Body)
	for {
		line, err := events.ReadString('\n')
		if data, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:"); ok {
			if data = strings.TrimPrefix(data, " "); data != "" {
				keep([]byte(data)) // both the gateway and the SDKs write one data line for an event
			}
		}
		if err != nil {
			return
		}
	}
}

// next waits for a message; at the end of the stream the test fails.
func (s *rawStream) next() message {
	s.t.Helper()
	select {
	case m, ok := <-s.messages:
		if !ok {
			s.t.Fatalf("%s: the stream is at its end", s.response.Status)
		}
		return m
	case <-time.After(patience):
		s.t.Fatalf("%s: nothing comes", s.response.Status)
	}
	panic("unreachable")
}

// answer waits for the response to this raw id.
func (s *rawStream) answer(id string) message {
	s.t.Helper()
	for {
		if m := s.next(); m.Method == "" && string(m.ID) == id {
			return m
		}
	}
}

// close hangs up.
func (s *rawStream) close() { s.response.Body.Close() }
