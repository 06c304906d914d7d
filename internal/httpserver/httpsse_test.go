package httpserver

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/wire"
)

// HTTP+SSE (2024-11-05) uses one stream for all messages, which lasts as long as the session.
func TestHTTPSSE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.IdleTimeout = time.Minute })
		s := h.openStream(testRequest{method: "GET", path: "/sse",
			header: map[string]string{"Accept": "text/event-stream"}})
		first, err := s.next()
		if err != nil || first.name != "endpoint" ||
			!strings.HasPrefix(first.data, "message?session=") || len(first.data) < 80 {
			t.Fatalf("%+v %v", first, err)
		}
		handler := <-h.handlers
		if !handler.HTTPSSE {
			t.Error("the session is not marked as one of HTTP+SSE")
		}
		postSSE := func(body string) testRequest {
			return testRequest{path: first.data, body: body,
				header: map[string]string{"Accept": "-"}}
		}
		want := func(data string) {
			t.Helper()
			if ev, err := s.next(); err != nil || ev != (event{name: "message", data: data}) {
				t.Errorf("got %+v %v, want %s", ev, err, data)
			}
		}
		// A modern client gets an error that makes it use initialize.
		h.want(
			postSSE(
				`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`), 202, "")
		want(
			`{"jsonrpc":"2.0","id":"d","error":{"code":-32022,"message":"Unsupported protocol version: supported are 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",` +
				`"data":{"requested":"2026-07-28","supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"]}}}`)
		h.want(postSSE(initializeRequest("2024-11-05")), 202, "")
		want(resultJSON(`"init"`, `{"protocolVersion":"2024-11-05","capabilities":{}}`))
		h.want(postSSE(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), 202, "")
		h.want(postSSE(requestJSON("1", "hold", "{}")), 202, "")
		h.want(postSSE(requestJSON("2", "echo", `{"a":1}`)), 202, "")
		want(resultJSON("2", `{"a":1}`))
		r := <-h.heldRequests
		r.Notify(progressNotification(1))
		want(string(progressNotification(1).Raw()))
		h.write(handler, logMessage(1), "")
		want(string(logMessage(1).Raw()))
		r.Reply([]byte("{}"))
		want(resultJSON("1", "{}"))
		h.want(postSSE("["+requestJSON("3", "echo", `{}`)+"]"), 202, "")
		want("[" + resultJSON("3", `{}`) + "]")

		h.wantError(postSSE("{"), 400, "null", wire.CodeParseError)
		h.wantError(postSSE(`{"jsonrpc":"2.0","id":4}`), 400, "4", wire.CodeInvalidRequest)
		h.wantError(postSSE(requestJSON("4", "echo", `"`+strings.Repeat("x", 2<<20)+`"`)), 413,
			"null", wire.CodeInvalidRequest)
		h.wantError(testRequest{path: "/message?session=x", body: requestJSON("4", "ping", "{}")},
			404, "4", codeSessionNotFound)
		h.wantError(testRequest{path: "/message", body: requestJSON("4", "ping", "{}")}, 404, "4",
			codeSessionNotFound)
		h.wantError(post(strings.TrimPrefix(first.data, "message?session="),
			requestJSON("4", "ping", "{}")), 404, "4", codeSessionNotFound)
		if retained := handler.retained(); retained != 0 {
			t.Errorf("%d bytes are retained although nothing can be resumed", retained)
		}

		for range 20 { // much longer than IdleTimeout
			if ev, err := s.next(); err != nil || ev.comment == "" {
				t.Errorf("%+v %v", ev, err)
			}
		}
		h.want(postSSE(requestJSON("5", "ping", "{}")), 202, "")
		want(resultJSON("5", "{}"))
		s.disconnect()
		synctest.Wait()
		h.wantError(postSSE(requestJSON("6", "ping", "{}")), 404, "6", codeSessionNotFound)
		if err := handler.Write(logMessage(1), ""); err == nil {
			t.Error("the session is still open")
		}
	})
}

func TestHTTPSSESessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		s := h.openStream(testRequest{method: "GET", path: "/sse"})
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
		handler := <-h.handlers
		h.write(handler, logMessage(1), "")
		handler.Writer.Close()
		if ev, err := s.next(); err != nil || ev.data != string(logMessage(1).Raw()) {
			t.Errorf("%+v %v", ev, err)
		}
		s.wantEnd()
	})
}

// Behind a proxy with a path prefix, the endpoint resolves to a URL with that prefix.
func TestEndpointIsRelative_F_DOOR_8(t *testing.T) {
	h := newHarness(t, nil)
	for address, want := range map[string]string{
		"https://proxy.example/tools/gw/sse":  "https://proxy.example/tools/gw/message",
		"https://proxy.example/tools/gw/sse/": "https://proxy.example/tools/gw/message",
		"http://localhost:7420/sse":           "http://localhost:7420/message",
	} {
		base, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		s := h.openStream(testRequest{method: "GET",
			path: base.Path[strings.Index(base.Path, "/sse"):]})
		first, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		at, err := base.Parse(first.data)
		if err != nil || !strings.HasPrefix(at.String(), want+"?session=") {
			t.Errorf("at %s the endpoint is %s: %v", address, at, err)
		}
		s.disconnect()
	}
}
