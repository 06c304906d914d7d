//go:build unix

package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A real server that was restarted no longer knows the gateway's session. server-everything
// responds with status 400 instead of 404.
func TestHTTPBackend_ReconnectsAfterRestart(t *testing.T) {
	t.Parallel()
	web := everythingHTTP(t)
	s := newSetup(t, nil, backend{Name: "web", URL: web.url},
		backend{Name: "demo", Embedded: "demo"})
	gw := s.start()
	gw.initialize("2025-11-25")
	before := names(listTools(t, gw))
	if m := callTool(gw, "get-sum", `{"a":1,"b":2}`); !strings.Contains(string(m.Result), "is 3") {
		t.Fatalf("get-sum: %s", m.Raw)
	}

	web.kill()
	began := time.Now()
	m := callTool(gw, "get-sum", `{"a":1,"b":2}`)
	var e struct {
		Data struct{ Backend, Reason string }
	}
	if json.Unmarshal(m.Error, &e); m.code() != -32603 || e.Data.Backend != "web" ||
		e.Data.Reason == "" {
		t.Errorf("while it is down: %s", m.Raw)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the call failed after %v", took)
	}
	if m := callTool(gw, "now", `{}`); m.Result == nil {
		t.Errorf("the other backend: %s", m.Raw)
	}

	if !web.start() {
		t.Fatal("the server does not restart")
	}
	var last message
	if !poll(waitTimeout, func() bool {
		last = callTool(gw, "get-sum", `{"a":1,"b":2}`)
		return strings.Contains(string(last.Result), "is 3")
	}) {
		t.Errorf("after the restart: %s", last.Raw)
	}
	if after := names(listTools(t, gw)); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("tools: %q, before: %q", after, before)
	}
	for _, r := range s.records() {
		if r.Outcome == "" {
			t.Errorf("audit: %s", r.line)
		}
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A server is restarted between two calls, and no call is made while it is down: the first call
// that gets an unknown session was certainly not executed.
func TestHTTPBackend_SessionLostBetweenCalls(t *testing.T) {
	t.Parallel()
	web := everythingHTTP(t)
	s := newSetup(t, nil, backend{Name: "web", URL: web.url})
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	web.kill()
	if !web.start() {
		t.Fatal("the server does not restart")
	}
	var last message
	if !poll(5*time.Second, func() bool {
		last = callTool(gw, "get-sum", `{"a":1,"b":2}`)
		return strings.Contains(string(last.Result), "is 3")
	}) {
		t.Errorf("after the restart: %s", last.Raw)
	}
}

// Progress through the gateway is, byte for byte, the same as on a direct connection: the
// client's token is restored.
func TestProgress_SameBytesAsDirect(t *testing.T) {
	t.Parallel()
	const call = `"arguments":{"duration":0.3,"steps":3},"_meta":{"progressToken":"<tok> 9007199254740993"}}`
	progress := func(c *rawClient, tool string) []string {
		c.sendRequest("1", "tools/call", `{"name":"`+tool+`",`+call)
		if m := c.awaitResponse("1", waitTimeout); m.Result == nil {
			t.Errorf("%s: %s", tool, m.Raw)
		}
		var lines []string
		for _, line := range c.received() {
			if m, err := parseMessage(line); err == nil && m.Method == "notifications/progress" {
				lines = append(lines, string(line))
			}
		}
		return lines
	}
	everything := stdioBackend(t, "everything", "everything", nil)
	want := progress(connectDirect(t, everything), "trigger-long-running-operation")
	if len(want) != 3 {
		t.Fatalf("direct: %q", want)
	}
	for name, b := range map[string]backend{"stdio": everything,
		"http": {Name: "web", URL: everythingHTTP(t).url}} {
		gw := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, b).start()
		gw.initialize("2025-11-25")
		listTools(t, gw)
		got := progress(gw, "trigger-long-running-operation")
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: progress\n%s\ndirect:\n%s", name, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
}
