package httpserver

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/wire"
)

func TestJSONResponses(t *testing.T) {
	h := newHarness(t, nil)
	key, _ := h.initialize("2025-11-25", nil)
	h.want(post(key, requestJSON("7", "echo", `{ "a":1.0,"b":"<\u00e9>"}`)), 200,
		resultJSON("7", `{ "a":1.0,"b":"<\u00e9>"}`))
	h.want(post(key, requestJSON("null", "echo", `{}`)), 200, resultJSON("null", `{}`))
	h.want(post(key, requestJSON("1", "ping", `{}`)), 200, resultJSON("1", `{}`))
	res := h.want(post(key, `{"jsonrpc":"2.0","id":9,"method":"what"}`), 200, "*")
	if kind := res.Header.Get("Content-Type"); kind != "application/json" ||
		res.Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("headers: %v", res.Header)
	}
	h.want(post(key, `{"jsonrpc":"2.0","id":9,"result":{}}`), 202, "")
	h.want(testRequest{session: key, method: "DELETE"}, 204, "")
	h.wantError(post(key, requestJSON("3", "ping", `{}`)), 404, "3", codeSessionNotFound)
}

// Messages before the response, or a late response, open an event stream.
func TestEventResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for date, primes := range map[string]bool{"2025-03-26": false, "2025-06-18": false,
			"2025-11-25": true} {
			h := newHarness(t, nil)
			key, _ := h.initialize(date, nil)
			go func() {
				r := <-h.heldRequests
				r.Notify(progressNotification(1))
				r.Reply([]byte(`{}`))
			}()
			s := h.openStream(post(key, requestJSON("1", "hold", `{}`)))
			if got := s.res.Header; got.Get("Cache-Control") != "no-cache" ||
				got.Get("X-Accel-Buffering") != "no" {
				t.Errorf("headers: %v", got)
			}
			if first, _ := s.r.Peek(3); primes && string(first) == "id:" {
				s.want("1-0", "")
			}
			s.want("1-1", string(progressNotification(1).Raw()))
			s.want("1-2", resultJSON("1", "{}"))
			s.wantEnd()

			// After sseDelay.
			s = h.openStream(post(key, requestJSON("1", "hold", `{}`)))
			if primes {
				s.want("2-0", "")
			}
			(<-h.heldRequests).Reply([]byte("[\r\n1,\n2]"))
			s.want("2-1", resultJSON("1", "[  1, 2]"))
			s.wantEnd()
			h.stop()
		}
	})
}

// A client that prefers events gets them, even for a single immediate response, and can resume
// the stream.
func TestClientPrefersEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for accept, wants := range map[string]bool{
			"application/json, text/event-stream":           false,
			"text/event-stream, application/json":           true,
			"Text/Event-Stream,application/json;q=1.0":      true,
			"text/event-stream;q=0.5, application/json":     false,
			"application/json;q=0.5, text/event-stream;q=1": true,
			"*/*": false,
		} {
			h := newHarness(t, nil)
			key, _ := h.initialize("2025-11-25", nil)
			tr := testRequest{session: key, body: requestJSON("1", "ping", `{}`),
				header: map[string]string{"Accept": accept}}
			if !wants {
				h.want(tr, 200, resultJSON("1", "{}"))
				h.stop()
				continue
			}
			s := h.openStream(tr)
			if first, err := s.next(); err != nil || first.id != "1-0" ||
				first.retry != sseRetryMillis || first.data != "" {
				t.Errorf("%s: the first event is %+v, %v", accept, first, err)
			}
			s.want("1-1", resultJSON("1", "{}"))
			s.wantEnd()
			h.stop()
		}
	})
}

// Some clients send a byte order mark before the JSON text.
func TestByteOrderMark_F_DOOR_3(t *testing.T) {
	h := newHarness(t, nil)
	const mark = "\uFEFF"
	res := h.want(testRequest{body: mark + initializeRequest("2025-03-26")}, 200, "*")
	key := res.Header.Get("Mcp-Session-Id")
	h.want(post(key, mark+requestJSON("1", "echo", `{"a":1}`)), 200, resultJSON("1", `{"a":1}`))
	h.want(post(key, mark+"["+requestJSON("1", "echo", `{}`)+"]"), 200,
		"["+resultJSON("1", `{}`)+"]")
	stateless := statelessRequest("1", "echo", "")
	stateless.body = mark + stateless.body
	h.want(stateless, 200, "*")
	h.wantError(post(key, mark), 400, "null", -32700)
}

// A message with too many levels of nesting is rejected with its id.
func TestNestedTooDeep_F_DOOR_7(t *testing.T) {
	h := newHarness(t, nil)
	key, _ := h.initialize("2025-11-25", nil)
	deep := `{"arguments":` + strings.Repeat("[", 1100) + strings.Repeat("]", 1100) + "}"
	h.wantError(post(key, requestJSON(`"x"`, "tools/call", deep)), 400, `"x"`,
		wire.CodeInvalidRequest)
	h.wantError(post(key, "["+requestJSON("1", "tools/call", deep)+"]"), 400, "null",
		wire.CodeInvalidRequest)
}

// A client that accepts only one format gets that format, even if the response is late and there
// are other messages.
func TestSingleFormat_F_DOOR_4(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		json := map[string]string{"Accept": "application/json"}
		key, handler := h.initialize("2025-11-25", json)
		h.want(testRequest{session: key, body: requestJSON("1", "ping", "{}"), header: json}, 200,
			resultJSON("1", "{}"))
		own := h.openStream(testRequest{session: key, method: "GET"})
		own.want("0-0", "")
		go func() {
			r := <-h.heldRequests
			r.Notify(progressNotification(1))
			h.write(handler, wire.NewRequest("77", "sampling/createMessage", []byte("{}")),
				r.RemoteID())
			time.Sleep(time.Hour)
			r.Reply([]byte(`{"a":1}`))
		}()
		done := make(chan bool)
		go func() {
			res := h.want(testRequest{session: key, body: requestJSON("2", "hold", "{}"),
				header: json}, 200, resultJSON("2", `{"a":1}`))
			if kind := res.Header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("the response is %s", kind)
			}
			close(done)
		}()
		own.want("0-1", string(progressNotification(1).Raw()))
		own.want("0-2", `{"jsonrpc":"2.0","id":77,"method":"sampling/createMessage","params":{}}`)
		own.disconnect()
		<-done

		// The client cancels the request.
		done = make(chan bool)
		go func() {
			h.want(testRequest{session: key, body: requestJSON("3", "hold", "{}"), header: json},
				202, "")
			close(done)
		}()
		<-h.heldRequests
		h.want(testRequest{session: key, body: cancelJSON("3"), header: json}, 202, "")
		<-done

		// The session is closed.
		done = make(chan bool)
		go func() {
			h.wantError(testRequest{session: key, body: requestJSON("4", "hold", "{}"),
				header: json}, 200, "4", wire.CodeInternalError)
			close(done)
		}()
		<-h.heldRequests
		h.want(testRequest{session: key, method: "DELETE"}, 204, "")
		<-done

		// Without a session.
		go func() {
			r := <-h.heldRequests
			r.Notify(progressNotification(1))
			time.Sleep(time.Hour)
			r.Reply([]byte(`{"a":1}`))
		}()
		h.want(statelessRequest("5", "hold", "").withHeader("Accept", "application/json"), 200,
			resultJSON("5", `{"a":1}`))
		h.wantError(statelessRequest("6", methodListen, "").
			withHeader("Accept", "application/json"), 406, "6", wire.CodeInvalidRequest)
		s := h.openStream(statelessRequest("7", "echo", "").
			withHeader("Accept", "text/event-stream"))
		if ev, err := s.next(); err != nil || !strings.Contains(ev.data, `"id":7`) {
			t.Errorf("%+v %v", ev, err)
		}
		s.wantEnd()

		events := map[string]string{"Accept": "text/event-stream"}
		s = h.openStream(testRequest{body: initializeRequest("2025-11-25"), header: events})
		key = s.res.Header.Get("Mcp-Session-Id")
		for ev, err := s.next(); !strings.Contains(ev.data, `"id":"init"`); ev, err = s.next() {
			if err != nil {
				t.Fatal(err)
			}
		}
		s.wantEnd()
		s = h.openStream(testRequest{session: key, body: requestJSON("1", "ping", "{}"),
			header: events})
		s.want("2-0", "")
		s.want("2-1", resultJSON("1", "{}"))
		s.wantEnd()
	})
}

// An encoded body is rejected with an explanation.
func TestEncodedBodies_F_DOOR_4(t *testing.T) {
	h := newHarness(t, nil)
	key, _ := h.initialize("2025-11-25", nil)
	for _, coding := range []string{"gzip", "br", "GZIP", "deflate, gzip"} {
		for _, path := range []string{"/mcp", "/message?session=x"} {
			res, body := h.do(testRequest{path: path, session: key, body: "x",
				header: map[string]string{"Content-Encoding": coding}})
			if res.StatusCode != 415 || !strings.Contains(body, strings.ToLower(coding)) ||
				!strings.Contains(body, "Content-Encoding") ||
				res.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("%s: %s %v %s", coding, res.Status, res.Header, body)
			}
		}
	}
	h.want(testRequest{session: key, body: requestJSON("1", "echo", "{}"),
		header: map[string]string{"Content-Encoding": "identity"}}, 200, "*")
}
