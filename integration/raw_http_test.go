//go:build unix

package integration

import (
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"mcpgateway/internal/sse"
)

// A rawHTTP is a raw client over streamable HTTP.
type rawHTTP struct {
	t       testing.TB
	url     string
	session string
	nextID  atomic.Int64
	client  http.Client
}

// dialHTTP does the handshake. The session is deleted when the test ends.
func dialHTTP(t testing.TB, url, revision string) *rawHTTP {
	t.Helper()
	// A separate transport: the default one closes connections of this client when other tests
	// have many.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	c := &rawHTTP{t: t, url: url, client: http.Client{Timeout: waitTimeout, Transport: transport}}
	m := c.call("initialize", initializeParams(revision))
	if m.Result == nil {
		t.Fatalf("initialize: %s", m.Raw)
	}
	t.Cleanup(func() {
		if res, err := c.do(http.MethodDelete, ""); err == nil {
			res.Body.Close()
		}
	})
	res, err := c.do(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("initialized: %s", res.Status)
	}
	return c
}

func (c *rawHTTP) do(method, body string) (*http.Response, error) {
	req, err := http.NewRequest(method, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	return c.client.Do(req)
}

func (c *rawHTTP) call(method, params string) message {
	c.t.Helper()
	id := itoa(c.nextID.Add(1))
	res, err := c.do(http.MethodPost, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+
		`","params":`+params+`}`)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	defer res.Body.Close()
	if s := res.Header.Get("Mcp-Session-Id"); s != "" {
		c.session = s
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind != "text/event-stream" {
		body, _ := io.ReadAll(res.Body)
		m, err := parseMessage(body)
		if err != nil {
			c.t.Fatalf("%s: %s: %v: %s", method, res.Status, err, body)
		}
		return m
	}
	events := newEventReader(res.Body)
	for {
		event, err := events.Next()
		if err != nil {
			c.t.Fatalf("%s: the event stream ended without a response: %v", method, err)
		}
		m, err := parseMessage(event.Data)
		if err != nil {
			c.t.Fatalf("%s: %v: %s", method, err, event.Data)
		}
		if m.Method == "" && string(m.ID) == id {
			return m
		}
	}
}

// newEventReader returns a reader of the server-sent events in body.
func newEventReader(body io.Reader) *sse.Reader {
	const maxEvent = 64 << 20 // bytes
	events := sse.NewReader(maxEvent, nil)
	events.Open(body)
	return events
}
