package httpserver

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/wire"
)

// A slash at the end of the path of an endpoint is accepted.
func TestSlashes_F_DOOR_2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		for _, path := range []string{"/mcp/", "/mcp//", "//mcp"} {
			key := h.want(testRequest{path: path, body: initializeRequest("2025-11-25")}, 200,
				"*").Header.Get("Mcp-Session-Id")
			h.want(testRequest{path: path, session: key, body: requestJSON("1", "echo", "{}")},
				200, resultJSON("1", "{}"))
			h.openStream(testRequest{path: path, method: "GET", session: key}).disconnect()
			h.want(testRequest{path: path, method: "DELETE", session: key}, 204, "")
		}
		s := h.openStream(testRequest{method: "GET", path: "/sse/"})
		first, _ := s.next()
		session, ok := strings.CutPrefix(first.data, "../message?session=")
		if !ok {
			t.Fatalf("the endpoint is %q", first.data)
		}
		h.want(testRequest{path: "/message/?session=" + session,
			body: requestJSON("1", "echo", "{}")}, 202, "")
		if ev, err := s.next(); err != nil || ev.data != resultJSON("1", "{}") {
			t.Errorf("%+v %v", ev, err)
		}
		s.disconnect()
		h.want(testRequest{method: "GET", path: "/healthz/"}, 200, "ok\n")
		h.want(testRequest{method: "GET", path: "/readyz/"}, 200, "ok\n")
		h.wantError(testRequest{path: "/", body: "{}"}, 404, "null", -32600)
		h.wantError(testRequest{path: "/x/mcp", body: "{}"}, 404, "null", -32600)
	})
}

// A rejection is logged with its reason; many rejections become two records per minute.
func TestRejectionsAreLogged_F_DOOR_2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.Tokens = bearerTokens("secret-token")
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		valid := func(tr testRequest) testRequest {
			return tr.withHeader("Authorization", "Bearer secret-token")
		}
		want := func(records int, with ...string) {
			t.Helper()
			text := log.String()
			if n := strings.Count(text, "\n"); n != records {
				t.Errorf("%d records, want %d:\n%s", n, records, text)
			}
			for _, part := range with {
				if !strings.Contains(text, part) {
					t.Errorf("the log lacks %s:\n%s", part, text)
				}
			}
			log.mu.Lock()
			log.buf.Reset()
			log.mu.Unlock()
		}
		h.do(valid(testRequest{path: "/mpc?token=query", body: "{}"}))
		want(1, "level=INFO", `err="POST /mpc: 404 Not found: the MCP endpoint is /mcp"`)
		h.do(valid(testRequest{body: "{}"}).withHeader("Content-Encoding", "gzip"))
		want(1, "415 Unsupported media type: the body is encoded (gzip)")
		h.do(valid(post("gone", requestJSON("1", "x", "{}"))))
		want(1, "404 Session not found")
		h.do(valid(testRequest{method: "PUT"}))
		want(1, "405 Method not allowed")
		h.do(testRequest{body: "{}"})
		want(1, "level=WARN", "401 Unauthorized")
		for range 1000 {
			h.do(testRequest{path: "/sse", method: "GET"})
			h.do(valid(testRequest{path: "/other", body: "{}"}))
		}
		want(0)
		time.Sleep(repeatPeriod)
		synctest.Wait()
		want(2, `level=INFO msg="further requests rejected" records=1000`,
			`level=WARN msg="further requests rejected" records=1000`)
		h.do(valid(testRequest{path: "/other", body: "{}"}))
		want(1, "404 Not found")

		for i := range 10 * maxReasons { // each with a different reason
			h.do(valid(testRequest{body: requestJSON("1", "x", "{}")}).
				withHeader("Content-Encoding", fmt.Sprint("x", i)))
		}
		want(maxReasons) // one reason was already counted, and one entry covers the rest
		time.Sleep(repeatPeriod)
		synctest.Wait()
		want(1, fmt.Sprintf("records=%d", 9*maxReasons))
		h.do(valid(testRequest{path: "/" + strings.Repeat("x", 10_000), body: "{}"}))
		if n := len(log.String()); n > 500 {
			t.Errorf("a record of %d bytes", n)
		}
		log.mu.Lock()
		log.buf.Reset()
		log.mu.Unlock()
		h.do(valid(testRequest{path: "/x", body: "{}"}))
		h.stop()
		want(1, "further requests rejected") // the last count is logged at the end
	})
}

// OnRejected is called for errors of the Server itself, with the log id of the session.
func TestRejectedRequestsAreReported(t *testing.T) {
	var reported []string
	var mu sync.Mutex
	h := newHarness(t, func(o *Options) {
		o.OnRejected = func(info SessionInfo, m wire.Message, err *wire.Error) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported,
				fmt.Sprintf("%t %s %s %d", info.ID != "", m.Method(), m.ID(), err.Code))
		}
	})
	key, _ := h.initialize("2025-03-26", nil)
	for _, c := range []struct {
		req  testRequest
		want string
	}{
		{testRequest{body: requestJSON("1", "tools/call", `{"name":"echo"}`)},
			"false tools/call 1 -32002"},
		{post("other", requestJSON("2", "tools/call", `{"name":"echo"}`)),
			"false tools/call 2 -32001"},
		{testRequest{session: key, body: requestJSON("3", "tools/call", `{"name":"echo"}`),
			header: map[string]string{versionHeader: "1999-01-01"}}, "true tools/call 3 -32022"},
		{post(key, `[`+requestJSON("4", "tools/call", `{"name":"echo"}`)+`,`+
			requestJSON("4", "tools/call", `{"name":"echo"}`)+
			`]`), "true tools/call 4 -32600|true tools/call 4 -32600"},
		{post(key,
			`{"jsonrpc":"2.0","id":5,"method":"tools/call","Method":"x","params":{"name":"echo"}}`),
			"true tools/call 5 -32600"},
		{post(key, `{"jsonrpc":"2.0","id":6,"method":`), "true   -32700"},
		{testRequest{body: requestJSON("7", "tools/call", `{"name":"echo"}`),
			header: map[string]string{versionHeader: "2026-07-28"}}, "false tools/call 7 -32602"},
	} {
		reported = nil
		if res, body := h.do(c.req); res.StatusCode < 400 {
			t.Errorf("%s: %s %s", c.req.body, res.Status, body)
		}
		if got := strings.Join(reported, "|"); got != c.want {
			t.Errorf("%s: reported %q, want %q", c.req.body, got, c.want)
		}
	}
}
