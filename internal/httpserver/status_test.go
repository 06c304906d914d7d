package httpserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// The cases are the requirements of the specification for a server (streamable HTTP, 2025-03-26 to
// 2025-11-25) that require a status.
func TestStatuses(t *testing.T) {
	h := newHarness(t, nil)
	key, _ := h.initialize("2025-11-25", nil)
	ended, _ := h.initialize("2025-11-25", nil)
	h.want(testRequest{session: ended, method: "DELETE"}, 204, "")
	ping := requestJSON("5", "ping", `{}`)
	note := `{"jsonrpc":"2.0","method":"notifications/x"}`
	get := testRequest{method: "GET", session: key}
	const version = "Mcp-Protocol-Version"
	const (
		invalid     = wire.CodeInvalidRequest
		parse       = wire.CodeParseError
		noInit      = wire.CodeNotInitialized
		noSession   = codeSessionNotFound
		unsupported = protocol.CodeUnsupportedVersion
	)
	for name, row := range map[string]struct {
		testRequest
		status int
		id     string
		code   int // 0: no error
	}{
		"request":      {post(key, ping), 200, "", 0},
		"notification": {post(key, note), 202, "", 0},
		"response":     {post(key, resultJSON("1", "{}")), 202, "", 0},
		"no session":   {testRequest{body: ping}, 400, "5", noInit},
		"no session, call": {testRequest{body: requestJSON("5", "tools/call",
			`{"name":"x"}`)}, 400, "5", noInit},
		"no session, notification": {testRequest{body: note}, 400, "null", noInit},
		"no session, batch": {testRequest{body: "[" +
			initializeRequest("2025-03-26") + "]"}, 400, "null", noInit},
		"no session, probe": {testRequest{body: requestJSON("5", "server/discover",
			`{}`)}, 404, "5", wire.CodeMethodNotFound},
		"unknown session":     {post(key[:len(key)-1]+"x", ping), 404, "5", noSession},
		"log id of a session": {post(key[:32], ping), 404, "5", noSession},
		"unknown session, initialize": {post("x", initializeRequest("2025-11-25")), 404,
			`"init"`, noSession},
		"ended session":     {post(ended, ping), 404, "5", noSession},
		"second initialize": {post(key, initializeRequest("2025-11-25")), 200, "", 0},
		"version known": {post(key, ping).withHeader(version, "2025-06-18"), 200,
			"", 0},
		"version unknown": {post(key, ping).withHeader(version, "2024-10-07"), 400,
			"5", unsupported},
		"version unknown, GET": {get.withHeader(version, "v9"), 400, "null",
			unsupported},
		"version unknown, DELETE": {testRequest{method: "DELETE",
			session: key}.withHeader(version, "v9"), 400, "null", unsupported},
		"accept all": {post(key, ping).withHeader("Accept", "*/*"), 200, "",
			0},
		"accept missing": {post(key, ping).withHeader("Accept", "-"), 200, "", 0},
		"accept ranges": {post(key, ping).
			withHeader("Accept", "application/*; q=0.8 , TEXT/*;q=0.1"), 200, "", 0},
		"accept parameters": {post(key, ping).
			withHeader("Accept", "application/json;charset=utf-8, text/event-stream"), 200, "", 0},
		"accept json only": {post(key, ping).
			withHeader("Accept", "application/json"), 200, "", 0},
		"accept events only": {post(key, ping).
			withHeader("Accept", "text/event-stream"), 200, "", 0},
		"accept all but events": {post(key, ping).
			withHeader("Accept", "*/*, text/event-stream;q=0"), 200, "", 0},
		"accept neither": {post(key, ping).
			withHeader("Accept", "text/html, */*;q=0"), 406, "null", invalid},
		"accept nonsense": {post(key, ping).withHeader("Accept", ",;/="), 406,
			"null", invalid},
		"content text": {post(key, ping).
			withHeader("Content-Type", "text/plain"), 415, "null", invalid},
		"content type missing": {post(key, ping).withHeader("Content-Type", "-"), 415,
			"null", invalid},
		"content with charset": {post(key, ping).
			withHeader("Content-Type", "application/json; charset=utf-8"), 200, "", 0},
		"content encoded": {post(key, ping).withHeader("Content-Encoding", "gzip"),
			415, "null", invalid},
		"too large": {post(key,
			requestJSON("5", "echo", `"`+strings.Repeat("x", 1<<20)+`"`)), 413, "null", invalid},
		"not JSON": {post(key, `{"jsonrpc":"2.0","id":5,`), 400, "null",
			parse},
		"not UTF-8": {post(key, requestJSON("5", "echo", "\"\xff\"")), 400,
			"null", parse},
		"empty body": {testRequest{session: key}, 400, "null", parse},
		"JSON, not a message": {post(key, `{"jsonrpc":"2.0","id":5}`), 400, "5",
			invalid},
		"JSON, not an object": {post(key, `7`), 400, "null", invalid},
		"two ids": {post(key,
			`{"jsonrpc":"2.0","id":5,"id":6,"method":"x"}`), 400, "null", invalid},
		"batch in a revision without": {post(key, "["+ping+"]"), 400, "null", invalid},
		"method PUT": {testRequest{session: key, method: "PUT", body: ping},
			405, "null", invalid},
		"method PATCH": {testRequest{session: key, method: "PATCH"}, 405,
			"null", invalid},
		"GET, no session": {testRequest{method: "GET"}, 400, "null", noInit},
		"GET, unknown session": {testRequest{method: "GET", session: "x"}, 404, "null",
			noSession},
		"GET, accept json": {get.withHeader("Accept", "application/json"), 406,
			"null", invalid},
		"GET, event never sent": {get.withHeader("Last-Event-ID", "0-1"), 400, "null",
			invalid},
		"GET, unknown stream": {get.withHeader("Last-Event-ID", "9-1"), 400, "null",
			invalid},
		"GET, invalid event id": {get.withHeader("Last-Event-ID", "0-00"), 400, "null",
			invalid},
		"GET, negative event id": {get.withHeader("Last-Event-ID", "0--1"), 400, "null",
			invalid},
		"DELETE, no session": {testRequest{method: "DELETE"}, 400, "null", noInit},
		"DELETE, unknown session": {testRequest{method: "DELETE", session: "x"}, 404,
			"null", noSession},
		"DELETE, ended session": {testRequest{method: "DELETE", session: ended}, 404,
			"null", noSession},
		"another path": {testRequest{path: "/x", body: ping}, 404, "null",
			invalid},
		"streamable HTTP at /sse": {testRequest{path: "/sse",
			body: initializeRequest("2025-11-25")}, 405, "null", invalid},
		"initialize without a version": {testRequest{body: requestJSON("5", "initialize",
			`{}`)}, 200, "", 0},
		"initialize as a notification": {post("", `{"jsonrpc":"2.0","method":"initialize"}`), 400,
			"null", noInit},
		"initialize in a newer revision": {post("", initializeRequest("2025-11-25")).
			withHeader(version, "2026-07-28"), 400, `"init"`, protocol.CodeHeaderMismatch},
		"version without sessions": {post(key, ping).withHeader(version, "2026-07-28"), 400,
			"5", wire.CodeInvalidParams},
		"version unknown, session": {post(key, ping).withHeader(version, "v9"), 400, "5",
			unsupported},
		"version older, no session": {post("", ping).withHeader(version, "2024-10-07"), 400,
			"5", noInit},
		"session of streamable HTTP, SSE": {testRequest{path: "/message?session=" + key,
			body: ping}, 404, "5", noSession},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.T = t
			var res *http.Response
			if row.code == 0 {
				res = h.want(row.testRequest, row.status, "*")
			} else {
				res = h.wantError(row.testRequest, row.status, row.id, row.code)
			}
			if allow := res.Header.Get("Allow"); (row.status == 405) != (allow != "") {
				t.Errorf("Allow: %s", allow)
			}
		})
	}
}

func TestSupportedVersionsAreListed(t *testing.T) {
	h := newHarness(t, nil)
	key, _ := h.initialize("2025-11-25", nil)
	_, body := h.do(testRequest{session: key, body: requestJSON("1", "ping", "{}"),
		header: map[string]string{"Mcp-Protocol-Version": "2026-01-01"}})
	var e struct {
		Error struct {
			Message string
			Data    struct {
				Supported []string
				Requested string
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil ||
		strings.Join(e.Error.Data.Supported,
			" ") != "2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05" ||
		e.Error.Data.Requested != "2026-01-01" ||
		!strings.Contains(e.Error.Message, "2025-06-18, 2025-03-26") {
		t.Errorf("%s %v", body, err)
	}
}

// A body without Content-Length is read up to the limit; the id is found in the bytes that were
// read.
func TestTooLargeBodyKeepsID(t *testing.T) {
	h := newHarness(t, nil)
	key, _ := h.initialize("2025-11-25", nil)
	req := h.newRequest(post(key, requestJSON("5", "echo", `"`+strings.Repeat("x", 1<<20)+`"`)))
	req.ContentLength = -1
	res, err := h.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil || res.StatusCode != 413 ||
		!strings.HasPrefix(body.String(), `{"jsonrpc":"2.0","id":5,"error":`) {
		t.Errorf("%d %s %v", res.StatusCode, body.String(), err)
	}
	h.want(post(key, requestJSON("1", "echo", `"`+strings.Repeat("x", 1<<20-60)+`"`)), 200, "*")
}

func TestHTTP_04_UnknownSessionsAre404AndMissingOnes400(t *testing.T) {
	h := newHarness(t, nil)
	h.wantError(post("bogus", requestJSON("1", "tools/list", "{}")), 404, "1", codeSessionNotFound)
	h.wantError(testRequest{body: requestJSON("1", "tools/list", "{}")}, 400, "1",
		wire.CodeNotInitialized)
	h.initialize("2025-11-25", nil) // the client initializes again
}

func TestHTTP_09_GarbageIsRejected(t *testing.T) {
	h := newHarness(t, nil)
	for _, tr := range []testRequest{
		{}, {header: map[string]string{"Content-Type": "text/html"}, body: "<p>"}, {method: "GET",
			path: "/"}, {path: "/"},
		{body: strings.Repeat("\x00junk", 2<<20)}, {body: requestJSON("1", "ping",
			"{}")}, {method: "GET", path: "/favicon.ico"},
		{method: "GET"}, {method: "GET", path: "/message"}, {path: "/message",
			body: "{}"}, {method: "PROPFIND"}, {method: "HEAD"},
		{body: "[]"}, {body: "[[]]"}, {body: `{"jsonrpc":"2.0","method":"initialize","id":{}}`},
	} {
		res, body := h.do(tr)
		if res.StatusCode < 400 || res.StatusCode > 499 {
			t.Errorf("%+.80v: %d %s", tr, res.StatusCode, body)
		}
	}
	h.want(testRequest{method: "GET", path: "/healthz"}, 200, "ok\n")
	h.initialize("2025-11-25", nil)
}

func TestMission_A_SessionIDs(t *testing.T) {
	h := newHarness(t, nil)
	seen := make(map[string]bool)
	for range 100 {
		key, handler := h.initialize("2025-11-25", nil)
		name, secret, _ := strings.Cut(key, "-")
		if len(name) != 32 || len(secret) != 32 ||
			strings.Trim(name+secret, "0123456789abcdef") != "" || handler.ID != name ||
			seen[name] || seen[secret] {
			t.Errorf("key %s, log id %s", key, handler.ID)
		}
		seen[name], seen[secret] = true, true
	}
}

// /readyz is public. The names of backends require a token.
func TestHealth_F_SEC_12(t *testing.T) {
	var waiting []string
	newServer := func(tokens ...string) *harness {
		return newHarness(t, func(o *Options) {
			o.PendingBackends = func(*principal.Principal) []string { return waiting }
			o.Tokens = bearerTokens(tokens...)
			o.Loopback = true
		})
	}
	h := newServer("secret")
	probe := testRequest{method: "GET", path: "/readyz", host: "10.0.0.7:80"}
	named := testRequest{method: "GET", path: "/readyz?backends=1", host: "10.0.0.7:80"}
	waiting = []string{"docs"}
	h.want(probe, 503, "not ready: waiting for 1 backend\n")
	waiting = append(waiting, "files")
	h.want(probe, 503, "not ready: waiting for 2 backends\n")
	h.want(probe.withHeader("Authorization", "Bearer secret"), 503,
		"not ready: waiting for 2 backends\n")
	h.want(named.withHeader("Authorization", "Bearer secret"), 503,
		"not ready: waiting for docs, files\n")
	h.wantError(named, 401, "null", wire.CodeInvalidRequest)
	h.wantError(named.withHeader("Authorization", "Bearer other"), 401, "null",
		wire.CodeInvalidRequest)
	newServer().wantError(named, 403, "null", wire.CodeInvalidRequest)
	waiting = nil
	h.want(probe, 200, "ok\n")
	h.want(named.withHeader("Authorization", "Bearer secret"), 200, "ok\n")
	probe.path = "/healthz"
	if res := h.want(probe, 200, "ok\n"); res.Header.Get("Server") != ServerHeader {
		t.Errorf("Server: %q", res.Header.Get("Server"))
	}
	probe.method = "POST"
	if res, _ := h.do(probe); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %s", res.Status)
	}
}
