package door

import (
	"testing"
	"testing/synctest"
)

func TestAnswersComeAsJSON(t *testing.T) {
	h := newHouse(t, nil)
	key, _ := h.enter("2025-11-25", nil)
	h.want(knock{session: key, body: call("7", "echo", `{ "a":1.0,"b":"<\u00e9>"}`)}, 200, result("7", `{ "a":1.0,"b":"<\u00e9>"}`))
	h.want(knock{session: key, body: call("null", "echo", `{}`)}, 200, result("null", `{}`))
	h.want(knock{session: key, body: call("1", "ping", `{}`)}, 200, result("1", `{}`))
	res := h.want(knock{session: key, body: `{"jsonrpc":"2.0","id":9,"method":"what"}`}, 200, "*")
	if kind := res.Header.Get("Content-Type"); kind != "application/json" || res.Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("headers: %v", res.Header)
	}
	h.want(knock{session: key, body: `{"jsonrpc":"2.0","id":9,"result":{}}`}, 202, "")
	h.want(knock{session: key, verb: "DELETE"}, 204, "")
	h.wantError(knock{session: key, body: call("3", "ping", `{}`)}, 404, "3", codeSessionNotFound)
}

// What comes before the answer, or an answer that takes its time, makes a stream
// of events of it.
func TestAnswersComeAsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for date, primes := range map[string]bool{"2025-03-26": false, "2025-06-18": false, "2025-11-25": true} {
			h := newHouse(t, nil)
			key, _ := h.enter(date, nil)
			go func() {
				r := <-h.held
				r.Tell(progress(1))
				r.Reply([]byte(`{}`))
			}()
			s := h.stream(knock{session: key, body: call("1", "hold", `{}`)})
			if got := s.res.Header; got.Get("Cache-Control") != "no-cache" || got.Get("X-Accel-Buffering") != "no" {
				t.Errorf("headers: %v", got)
			}
			if first, _ := s.r.Peek(3); primes && string(first) == "id:" {
				s.want("1-0", "")
			}
			s.want("1-1", string(progress(1).Raw()))
			s.want("1-2", result("1", "{}"))
			s.end()

			s = h.stream(knock{session: key, body: call("1", "hold", `{}`)}) // after 200 ms
			if primes {
				s.want("2-0", "")
			}
			(<-h.held).Reply([]byte("[\r\n1,\n2]"))
			s.want("2-1", result("1", "[  1, 2]"))
			s.end()
			h.stop()
		}
	})
}

// A client that would rather have events gets them, be there one answer and be
// it at once, and is told how to come back for what it misses.
func TestWhoNamesEventsFirstGetsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for accept, wants := range map[string]bool{
			"application/json, text/event-stream":           false,
			"text/event-stream, application/json":           true,
			"Text/Event-Stream,application/json;q=1.0":      true,
			"text/event-stream;q=0.5, application/json":     false,
			"application/json;q=0.5, text/event-stream;q=1": true,
			"*/*": false,
		} {
			h := newHouse(t, nil)
			key, _ := h.enter("2025-11-25", nil)
			v := knock{session: key, body: call("1", "ping", `{}`), header: map[string]string{"Accept": accept}}
			if !wants {
				h.want(v, 200, result("1", "{}"))
				h.stop()
				continue
			}
			s := h.stream(v)
			if first, err := s.next(); err != nil || first.id != "1-0" || first.retry != comeBack || first.data != "" {
				t.Errorf("%s: the first event is %+v, %v", accept, first, err)
			}
			s.want("1-1", result("1", "{}"))
			s.end()
			h.stop()
		}
	})
}
