package httpserver

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func TestSEC_01_OtherHostsAndOriginsAreRejected(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Loopback = true
		o.Hosts = []string{"gw.example"}
		o.Origins = []string{"https://app.example"}
	})
	for _, row := range []struct {
		host, origin string
		ok           bool
	}{
		{"localhost:7420", "-", true},
		{"LOCALHOST", "-", true},
		{"127.0.0.1:7420", "-", true},
		{"[::1]:7420", "-", true},
		{"[::1]", "-", true},
		{"gw.example", "-", true},
		{"gw.example:7420", "-", true},
		{"evil.com", "-", false},
		{"evil.com:7420", "-", false},
		{"localhost.evil.com", "-", false},
		{"127.0.0.1.evil.com", "-", false},
		{"10.0.0.1", "-", false},
		{"localhost:7420", "http://localhost:7420", true},
		{"[::1]:7420", "http://[::1]:7420", true},
		{"localhost:7420", "http://localhost:3000", false}, // F-SEC-6: see origin_test.go
		{"localhost:7420", "http://127.0.0.1:7420", false},
		{"127.0.0.1:7420", "http://127.0.0.2:7420", false},
		{"localhost", "https://127.0.0.1", false},
		{"localhost", "https://app.example", true},
		{"gw.example:7420", "http://gw.example:7420", true},
		{"localhost", "http://evil.com", false},
		{"evil.com", "http://evil.com", false},
		{"localhost", "https://app.example.evil.com", false},
		{"localhost", "http://app.example", false},
		{"localhost", "http://gw.example", false},
		{"localhost", "http://localhost.evil.com", false},
		{"localhost", "http://evil.com@localhost:1", false}, // not sent by browsers
		{"localhost", "http://localhost/evil", false},
		{"localhost", "null", false},
		{"localhost", "", false},
		{"localhost", "file://localhost", false},
		{"localhost", "chrome-extension://abc", false},
	} {
		for _, tr := range []testRequest{
			{body: initializeRequest("2025-11-25")},
			{method: "OPTIONS", header: map[string]string{"Access-Control-Request-Method": "POST"}},
			{method: "GET", path: "/sse"},
		} {
			if tr.header == nil {
				tr.header = map[string]string{}
			}
			tr.host, tr.header["Origin"] = row.host, row.origin
			res := h.send(tr)
			res.Body.Close()
			if (res.StatusCode < 300) != row.ok || !row.ok && res.StatusCode != 403 {
				t.Errorf("%s %s from %q: %s", tr.method, row.host, row.origin, res.Status)
			}
			if cors := res.Header.Get("Access-Control-Allow-Origin"); row.ok &&
				row.origin != "-" && cors != row.origin || !row.ok && cors != "" {
				t.Errorf("%s %s from %q: Access-Control-Allow-Origin %q", tr.method, row.host,
					row.origin, cors)
			}
		}
	}
}

// Pages of logins accept requests from pages of other sites, but only for a name of the gateway.
func TestLoginPagesOfOtherHostsAreRejected(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Loopback = true
		o.LoginPages = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("page"))
		})
	})
	page := testRequest{method: "GET", path: "/login/x"}.withHeader("Origin", "https://i.example")
	h.want(page, 200, "page")
	page.host = "evil.com"
	_, body := h.do(page)
	if !strings.Contains(body, "add it to hosts") {
		t.Errorf("another host: %s", body)
	}
}

// If the Host header is not checked, an equal origin proves nothing unless the host is known to
// be the gateway.
func TestOriginsBeyondLoopback(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Hosts = []string{"gw.example"} })
	for _, row := range []struct {
		host, origin string
		ok           bool
	}{
		{"gw.lan", "-", true},
		{"gw.example", "https://gw.example", true},
		{"192.0.2.7:7420", "http://192.0.2.7:7420", true},
		{"192.0.2.7:7420", "http://192.0.2.7", false},
		{"rebound.example", "http://rebound.example", false},
		{"gw.example", "http://localhost:3000", false},
	} {
		res := h.send(testRequest{body: initializeRequest("2025-11-25"), host: row.host,
			header: map[string]string{"Origin": row.origin}})
		res.Body.Close()
		if (res.StatusCode == 200) != row.ok {
			t.Errorf("%s from %s: %s", row.host, row.origin, res.Status)
		}
	}
}

func TestCORS(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Loopback, o.Tokens = true, bearerTokens("secret") })
	origin := map[string]string{"Origin": "http://localhost:6274",
		"Access-Control-Request-Method": "POST", "Authorization": "-"}
	res := h.want(testRequest{method: "OPTIONS", header: origin}, 204, "")
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":  "http://localhost:6274",
		"Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
		"Vary":                         "Origin",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, name := range []string{"Authorization", "Content-Type", "Last-Event-ID",
		"Mcp-Protocol-Version", "Mcp-Session-Id"} {
		if !strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), name) {
			t.Errorf("header %s is not allowed", name)
		}
	}
	res = h.wantError(testRequest{body: initializeRequest("2025-11-25"), header: origin}, 401,
		"null", -32600)
	if !strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
		t.Errorf("401: %v", res.Header)
	}
	origin["Authorization"] = "Bearer secret"
	res = h.want(testRequest{body: initializeRequest("2025-11-25"), header: origin}, 200, "*")
	if !strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id") {
		t.Errorf("the page cannot read its session: %v", res.Header)
	}
	if res := h.want(testRequest{method: "OPTIONS"}, 204, ""); res.Header.Get("Allow") == "" ||
		res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS without Origin: %v", res.Header)
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.Tokens = bearerTokens("alpha-token", "beta-token")
			o.Log = slog.New(slog.NewTextHandler(&log,
				&slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		bearer := func(s string) map[string]string { return map[string]string{"Authorization": s} }
		for _, a := range []string{"-", "", "Bearer", "Bearer ", "Bearer x", "Bearer alpha-toke",
			"Bearer alpha-token2", "Basic alpha-token", "alpha-token",
			"Bearer alpha-token beta-token"} {
			for _, tr := range []testRequest{{body: initializeRequest("2025-11-25")},
				{method: "GET"}, {method: "DELETE"}, {method: "GET",
					path: "/sse"}, {path: "/message?session=x", body: "{}"}} {
				tr.header = bearer(a)
				res := h.wantError(tr, 401, "null", -32600)
				if res.Header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%q: %v", a, res.Header)
				}
			}
		}
		h.initialize("2025-11-25", bearer("bearer  beta-token"))
		key, _ := h.initialize("2025-11-25", bearer("Bearer alpha-token"))
		for _, tr := range []testRequest{{session: key, body: requestJSON("1", "echo", "{}")},
			{method: "GET", session: key}, {method: "DELETE", session: key}} {
			tr.header = bearer("Bearer beta-token") // a session belongs to its principal
			if res, body := h.do(tr); res.StatusCode != 404 {
				t.Errorf("%s: %s %s", tr.method, res.Status, body)
			}
		}
		h.want(testRequest{session: key, body: requestJSON("1", "echo", "{}"),
			header: bearer("Bearer alpha-token")}, 200, resultJSON("1", "{}"))

		sse := h.openStream(testRequest{method: "GET", path: "/sse",
			header: bearer("Bearer alpha-token")})
		first, _ := sse.next()
		h.wantError(testRequest{path: first.data, body: requestJSON("1", "echo", "{}"),
			header: bearer("Bearer beta-token")}, 404, "1", codeSessionNotFound)
		sse.disconnect()
		_, secret, _ := strings.Cut(key, "-")
		for _, s := range []string{"alpha-token", "beta-token", secret} {
			if strings.Contains(log.String(), s) {
				t.Errorf("%s is in the log:\n%s", s, log.String())
			}
		}
		if !strings.Contains(log.String(), key[:32]) {
			t.Errorf("the log id of the session is not in the log:\n%s", log.String())
		}
	})
}

func TestTooManySessions(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.MaxSessions = 3 })
	first, _ := h.initialize("2025-11-25", nil)
	h.initialize("2025-11-25", nil)
	sse := h.openStream(testRequest{method: "GET", path: "/sse"})
	if _, err := sse.next(); err != nil {
		t.Fatal(err)
	}
	for _, tr := range []testRequest{{body: initializeRequest("2025-11-25")},
		{method: "GET", path: "/sse"}} {
		res, body := h.do(tr)
		if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" ||
			res.Header.Get("Mcp-Session-Id") != "" ||
			!strings.Contains(body, "Too many sessions") {
			t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
		}
	}
	h.want(testRequest{method: "DELETE", session: first}, 204, "")
	h.initialize("2025-11-25", nil)
	sse.disconnect()
}

// One of several tokens can open at most half of the sessions.
func TestSessionsPerPrincipal(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.MaxSessions, o.Tokens = 3, bearerTokens("a", "b") })
	open := func(token string, status int, text string) (session string) {
		t.Helper()
		res, body := h.do(testRequest{body: initializeRequest("2025-11-25")}.withHeader(
			"Authorization", "Bearer "+token))
		if res.StatusCode != status || !strings.Contains(body, text) {
			t.Errorf("%s: %d %v %s", token, res.StatusCode, res.Header, body)
		}
		return res.Header.Get("Mcp-Session-Id")
	}
	open("a", 200, "")
	closed := open("a", 200, "")
	open("a", 503, "Too many sessions are open under this token")
	open("b", 200, "")
	open("b", 503, "Too many sessions are open")
	h.want(testRequest{method: "DELETE", session: closed}.withHeader("Authorization", "Bearer a"),
		204, "")
	open("a", 200, "")
}

// An initialize that fails, or whose client disconnects, leaves no session.
func TestNoSessionAfterFailedInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		res := h.want(testRequest{body: requestJSON("1", "initialize", "{}")}, 200, "*")
		if res.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%v", res.Header)
		}
		synctest.Wait()
		if len(h.server.sessions.sessions) != 0 {
			t.Error("a session was opened")
		}

		silent := newHarness(t, func(o *Options) {
			o.OpenSession = func(_ SessionInfo, out transport.Writer) SessionHandler {
				return silentHandler{out}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() {
			if res, err := silent.client.Do(
				silent.newRequest(testRequest{body: initializeRequest("2025-11-25")}).WithContext(
					ctx)); err == nil {
				t.Errorf("%s", res.Status)
			}
			close(done)
		}()
		synctest.Wait()
		if len(silent.server.sessions.sessions) != 1 {
			t.Error("no session was opened")
		}
		cancel()
		<-done
		synctest.Wait()
		if len(silent.server.sessions.sessions) != 0 {
			t.Error("a session was opened")
		}
	})
}

func TestHandlerClosesSession(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.OpenSession = func(_ SessionInfo, out transport.Writer) SessionHandler {
			_ = out.Close()
			return silentHandler{out}
		}
	})
	res, body := h.do(testRequest{body: initializeRequest("2025-11-25")})
	if res.StatusCode != 404 || !bytes.Contains([]byte(body), []byte(`"id":"init"`)) ||
		res.Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
	}
}

// A client that accepts only events gets no session id with an error response to initialize.
func TestInitializeErrorAsEvent_NoSessionID(t *testing.T) {
	h := newHarness(t, nil)
	for accept, contentType := range map[string]string{"text/event-stream": "text/event-stream",
		"application/json": "application/json"} {
		res, body := h.do(testRequest{body: requestJSON("1", "initialize", "{}"),
			header: map[string]string{"Accept": accept}})
		if res.StatusCode != 200 || !strings.Contains(body, "no version") ||
			res.Header.Get("Content-Type") != contentType || res.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("Accept %s: %d %v %s", accept, res.StatusCode, res.Header, body)
		}
	}
}

// panicHandler is a SessionHandler with a bug.
type panicHandler struct{ echoHandler }

func (p panicHandler) Receive(m wire.Message) {
	if m.Method() == "bug" {
		panic("a bug")
	}
	p.echoHandler.Receive(m)
}

// A panic in one session closes that session, is logged, and affects no other session. The request
// may have been executed, so its response is not status 404, after which clients send it again.
func TestPanicClosesSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.OpenSession = func(_ SessionInfo, out transport.Writer) SessionHandler {
				return panicHandler{echoHandler{silentHandler{out}}}
			}
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		enter := func() string {
			return h.want(testRequest{body: initializeRequest("2025-03-26")}, 200, "*").
				Header.Get("Mcp-Session-Id")
		}
		one, other := enter(), enter()
		h.wantError(post(one, requestJSON("1", "bug", "{}")), 200, "1", wire.CodeInternalError)
		h.wantError(post(one, requestJSON("2", "x", "{}")), 404, "2", codeSessionNotFound)
		h.want(post(other, requestJSON("2", "x", "{}")), 200, "*")
		if !strings.Contains(log.String(),
			`level=ERROR msg="session closed after a panic" session=`+one[:32]+` err="a bug\n`) {
			t.Error(log.String())
		}
	})
}

// A gateway that is its own backend would call itself endlessly.
func TestViaLoopIsRejected(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Via = "mcp-gateway-1" })
	with := func(via string) testRequest {
		return testRequest{body: initializeRequest("2025-11-25"),
			header: map[string]string{"Via": via}}
	}
	h.wantError(with("1.1 mcp-gateway-1"), http.StatusLoopDetected, "null", wire.CodeInvalidRequest)
	h.wantError(with("1.1 proxy, 1.1 mcp-gateway-1 (x)"), http.StatusLoopDetected, "null",
		wire.CodeInvalidRequest)
	h.initialize("2025-11-25", map[string]string{"Via": "1.1 mcp-gateway-2"})
}

// A proxy may check the first of two values while a server uses the second.
func TestHeadersWithTwoValuesAreRejected(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Tokens = bearerTokens("alpha-token") })
	token := map[string]string{"Authorization": "Bearer alpha-token"}
	key, _ := h.initialize("2025-11-25", token)
	for name, values := range map[string][]string{
		"Authorization":  {"Bearer alpha-token", "Bearer other"},
		"Mcp-Session-Id": {key, "other"},
		"Last-Event-Id":  {"1", "2"},
		"Content-Type":   {"application/json", "text/plain"},
	} {
		send := func(a, b string) int {
			req := h.newRequest(testRequest{session: key, body: requestJSON("1", "echo", "{}"),
				header: token})
			req.Header[name] = []string{a, b}
			res, err := h.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			return res.StatusCode
		}
		if status := send(values[0], values[1]); status != http.StatusBadRequest {
			t.Errorf("%s with two values: %d", name, status)
		}
		if status := send(values[0], values[0]); status != http.StatusOK {
			t.Errorf("%s with the same value twice: %d", name, status)
		}
	}
}
