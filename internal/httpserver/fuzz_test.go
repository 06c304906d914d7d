package httpserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// silentHandler is a SessionHandler that does not respond.
type silentHandler struct{ transport.Writer }

func (silentHandler) Receive(wire.Message) {}
func (s silentHandler) Shutdown()          { _ = s.Close() }
func (silentHandler) Closed(error)         {}

// echoHandler responds to every request immediately, and sends a second response.
type echoHandler struct{ silentHandler }

func (s echoHandler) Receive(m wire.Message) {
	requests := []wire.Message{m}
	if m.Kind() == wire.Batch {
		requests = nil
		for _, text := range m.Elements() {
			if e, err := wire.Parse(text); err == nil {
				requests = append(requests, e)
			}
		}
	}
	for _, r := range requests {
		if r.Kind() == wire.Request {
			answer := wire.NewResult(r.ID(), []byte(`{"protocolVersion":"2025-03-26"}`))
			_ = s.Write(answer, r.ID())
			_ = s.Write(answer, r.ID())
		}
	}
}

// openEcho and serveEcho implement Options with echoHandler.
func openEcho(_ SessionInfo, out transport.Writer) SessionHandler {
	return echoHandler{silentHandler{out}}
}

func serveEcho(_ SessionInfo, m wire.Message, out transport.Writer) (cancel func()) {
	echoHandler{silentHandler{out}}.Receive(m)
	return func() {}
}

// For any body and headers there is no panic, no 5xx status, and a valid response. A modern request
// neither needs nor gets a session, and the response has the id of the request.
func FuzzPost(f *testing.F) {
	srv := New(Options{OpenSession: openEcho, ServeRequest: serveEcho, MessageLimit: 64 << 10,
		MaxSessions: 1 << 30, IdleTimeout: time.Second, Loopback: true})
	go srv.sessions.sweep(f.Context())
	open := func() string {
		r := httptest.NewRequest("POST", "/mcp", strings.NewReader(initializeRequest("2025-03-26")))
		r.Header, r.Host = http.Header{"Content-Type": {"application/json"}}, "localhost"
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		return w.Header().Get(sessionHeader)
	}
	if open() == "" {
		f.Fatal("no session")
	}
	const mcp, accept = "/mcp", "application/json, text/event-stream"
	for _, body := range []string{
		requestJSON("1", "echo", "{}"), initializeRequest("2025-03-26"), "[]", "[" +
			requestJSON("1", "a", "{}") + "," + requestJSON(`"1"`, "b", "{}") + "]",
		"[" + cancelJSON("1") + "]", resultJSON("1",
			"{}"), "", "{", "7", `{"jsonrpc":"2.0","id":null,"method":""}`,
	} {
		f.Add([]byte(body), "POST", mcp, true, "application/json", accept, "2025-03-26", "",
			"http://localhost", "localhost")
		f.Add([]byte(body), "POST", mcp, false, "application/json; x=y", "*/*;q=0.1, text/*", "",
			"0-1", "", "[::1]:80")
		f.Add([]byte(body), "POST", "/message?session=x", false, "application/json", accept, "",
			"", "null", "evil.com")
	}
	const id, capabilities = `{"jsonrpc":"2.0","id":"i","method":`, metaPrefix +
		`clientCapabilities":{}`
	for date, body := range map[string]string{
		modernRevision: statelessRequest("7", "tools/call", `"name":"x"`).
			body, "2027-01-01": requestJSON("7", "echo",
			"{"+meta("v9")+"}"), "2025-11-25": statelessRequest("1", "initialize", "").body,
		" " + modernRevision: id + `"server/discover"}`, "v9": id + `"x","params":{"_meta":{"` +
			capabilities + `}}}`, "": requestJSON("null", "x", "{"+meta("2025-03-26")+"}"),
		"2026-07-2": `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,` + meta(modernRevision) + `}}`,
	} {
		for _, named := range []string{date, modernRevision, "2025-11-25"} {
			f.Add([]byte(body), "POST", mcp, false, "application/json", accept, named, "", "",
				"localhost")
			f.Add([]byte(body), "POST", mcp, true, "application/json",
				"text/event-stream, application/json", named, "1-1", "", "localhost")
		}
		f.Add([]byte(body), "DELETE", mcp, true, "", "", date, "", "", "localhost")
	}
	f.Fuzz(func(t *testing.T, body []byte, verb, path string, session bool, content, accept,
		version, seen, origin, host string) {
		target := mcp
		if strings.HasPrefix(path, "/") && !strings.ContainsAny(path, " %#") &&
			!strings.HasPrefix(path, "//") && printable(path) {
			target = path
		}
		if verb != "POST" && verb != "DELETE" && verb != "PUT" { // a GET would open a stream
			verb = "POST"
		}
		r := httptest.NewRequest(verb, target, strings.NewReader(string(body)))
		r.Host = host
		for name, value := range map[string]string{"Content-Type": content, "Accept": accept,
			"Mcp-Protocol-Version": version, "Last-Event-ID": seen, "Origin": origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if session {
			r.Header.Set(sessionHeader, open())
		}
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		if w.Code >= 500 && r.URL.Path != "/readyz" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") &&
			!json.Valid(w.Body.Bytes()) {
			t.Errorf("not JSON: %s", w.Body)
		}
		if m, err := wire.Parse(body); err == nil && m.Kind() == wire.Request &&
			protocol.IsModern(m) && target == mcp && verb == "POST" {
			// A request that is rejected before its body is read gets an error without an id.
			answer, err := wire.Parse(w.Body.Bytes())
			if read := w.Code != 401 && w.Code != 403 && w.Code != 406 && w.Code != 413 &&
				w.Code != 415; read && err == nil && answer.ID() != m.ID() ||
				w.Header().Get(sessionHeader) != "" ||
				w.Code == 200 && strings.TrimSpace(version) != protocol.RevisionOf(m) {
				t.Errorf("%d %s %s", w.Code, w.Header(), w.Body)
			}
		}
		if key := w.Header().Get(sessionHeader); key != "" {
			end := httptest.NewRequest("DELETE", "/mcp", nil)
			end.Host = "localhost"
			end.Header.Set(sessionHeader, key)
			srv.ServeHTTP(httptest.NewRecorder(), end)
		}
	})
}

func printable(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
