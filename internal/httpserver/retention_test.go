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

// largeNotification returns a message of about n bytes.
func largeNotification(i, n int) wire.Message {
	return wire.NewNotification("big",
		fmt.Appendf(nil, `{"i":%d,"x":"%s"}`, i, strings.Repeat("x", n)))
}

// TestEviction exceeds RetainLimit and checks the order of eviction: complete sent streams, sent
// events, and only then unsent events.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.RetainLimit = 20000 })
		key, handler := h.initialize("2025-11-25", nil)
		open := func(id string) *eventReader {
			s := h.openStream(post(key, requestJSON(id, "hold", "{}")))
			if _, err := s.next(); err != nil {
				t.Fatal(err)
			}
			return s
		}
		read := func(s *eventReader, n int) {
			t.Helper()
			for range n {
				if ev, err := s.next(); err != nil || ev.data == "" {
					t.Fatalf("%+v %v", ev, err)
				}
			}
		}
		retained := func() int {
			synctest.Wait()
			n := handler.retained()
			if n > 20000 {
				t.Errorf("%d bytes are retained", n)
			}
			return n
		}
		running := open("1") // stream 1 is open; its first event was sent
		r1 := <-h.heldRequests
		h.write(handler, largeNotification(0, 3000), "1")
		read(running, 1)
		ended := open("2") // stream 2 is complete
		r2 := <-h.heldRequests
		h.write(handler, largeNotification(0, 3000), "2")
		r2.Reply([]byte("{}"))
		read(ended, 2)
		ended.wantEnd()
		broken := open("3") // stream 3 is broken; its second event was not sent
		r3 := <-h.heldRequests
		h.write(handler, largeNotification(0, 3000), "3")
		read(broken, 1)
		broken.disconnect()
		synctest.Wait()
		h.write(handler, largeNotification(1, 3000), "3")
		if n := retained(); n < 12000 {
			t.Errorf("%d bytes are retained", n)
		}
		own := h.openStream(testRequest{method: "GET", session: key})
		own.want("0-0", "")

		h.write(handler, largeNotification(0, 3000), "") // evicts stream 2
		h.write(handler, largeNotification(1, 3000), "")
		read(own, 2)
		retained()
		h.wantError(lastSeen(key, "2-0"), 410, "null", wire.CodeInvalidRequest)
		for i := range 2 { // then the sent events of stream 1
			h.write(handler, largeNotification(2+i, 3000), "")
			read(own, 1)
		}
		retained()
		h.wantError(lastSeen(key, "1-0"), 410, "null", wire.CodeInvalidRequest)
		for i := range 6 { // then the sent events of stream 3 and of the standalone stream
			h.write(handler, largeNotification(4+i, 3000), "")
			read(own, 1)
			retained()
		}
		h.wantError(lastSeen(key, "3-0"), 410, "null", wire.CodeInvalidRequest)
		h.wantError(lastSeen(key, "0-0"), 410, "null", wire.CodeInvalidRequest)
		resumed := h.openStream(lastSeen(key, "3-1")) // but not the unsent events
		if ev, _ := resumed.next(); ev.id != "3-2" {
			t.Errorf("%+v", ev)
		}
		r3.Reply([]byte("{}"))
		resumed.want("3-3", resultJSON("3", "{}"))
		resumed.wantEnd()
		r1.Reply([]byte("{}"))
		running.want("1-2", resultJSON("1", "{}"))
		running.wantEnd()
		own.disconnect()
	})
}

// The oldest unread messages are evicted first. The newest one is never evicted.
func TestEvictionOfUnreadStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.RetainLimit = 10000 })
		key, handler := h.initialize("2025-11-25", nil)
		for i := range 100 {
			h.write(handler, largeNotification(i, 1000), "")
		}
		s := h.openStream(testRequest{method: "GET", session: key})
		s.want("0-92", "")
		for i := 92; i < 100; i++ {
			s.want(fmt.Sprint("0-", i+1), string(largeNotification(i, 1000).Raw()))
		}
		s.disconnect()
		synctest.Wait()

		var answers []*eventReader
		for i := range 4 { // responses larger than the limit, for disconnected clients
			s := h.openStream(post(key, requestJSON(fmt.Sprint(i), "hold", "{}")))
			s.want(fmt.Sprint(i+1, "-0"), "")
			answers = append(answers, s)
		}
		for _, s := range answers {
			s.disconnect()
		}
		synctest.Wait()
		for range 4 {
			(<-h.heldRequests).Reply([]byte(`"` + strings.Repeat("x", 20000) + `"`))
		}
		for _, id := range []string{"1-0", "2-0", "3-0"} {
			h.wantError(lastSeen(key, id), 410, "null", wire.CodeInvalidRequest)
		}
		s = h.openStream(lastSeen(key, "4-0")) // the newest response is retained
		if ev, _ := s.next(); ev.id != "4-1" || len(ev.data) < 20000 {
			t.Errorf("%+.50v", ev)
		}
		s.wantEnd()
	})
}

// All sessions together retain at most 64 times RetainLimit. The session that was the first to
// retain events is evicted first.
func TestRetainLimitOfAllSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.RetainLimit = 10000 })
		var keys []string
		for range 100 {
			key, handler := h.initialize("2025-11-25", nil)
			keys = append(keys, key)
			for i := range 20 {
				h.write(handler, largeNotification(i, 1000), "")
			}
			if n := h.retainedBytes(); n > 64*10000 {
				t.Fatalf("%d bytes are retained", n)
			}
		}
		if n := h.retainedBytes(); n < 60*9000 {
			t.Errorf("only %d bytes are retained", n)
		}
		for i, key := range keys {
			s := h.openStream(testRequest{method: "GET", session: key})
			ev, err := s.next()
			if nothing := ev.id == "0-20"; err != nil || nothing != (i < 29) {
				t.Errorf("session %d: %+.30v, %v", i, ev, err)
			}
			s.disconnect()
		}
	})
}

func TestIdleSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.IdleTimeout = time.Minute })
		ping := func(key string, status int) {
			t.Helper()
			h.want(post(key, requestJSON("9", "ping", "{}")), status, "*")
		}
		idle, handler := h.initialize("2025-11-25", nil)
		pinged, _ := h.initialize("2025-11-25", nil)
		asking, _ := h.initialize("2025-11-25", nil)
		listening, _ := h.initialize("2025-11-25", nil)
		s := h.openStream(testRequest{method: "GET", session: listening})
		call := h.openStream(post(asking, requestJSON("1", "hold", "{}")))
		call.want("1-0", "")
		call.disconnect() // the request stays open while the client may resume
		go func() {
			for {
				if _, err := s.next(); err != nil {
					return
				}
			}
		}()
		time.Sleep(40 * time.Second)
		ping(pinged, 200)
		time.Sleep(21 * time.Second)
		ping(idle, 404)
		<-handler.closed
		(<-h.heldRequests).Reply([]byte("{}"))
		ping(asking, 404)
		time.Sleep(30 * time.Second)
		ping(pinged, 200)
		time.Sleep(10 * time.Minute)
		ping(pinged, 404)
		ping(listening, 200)
		s.disconnect()
		time.Sleep(10 * time.Minute)
		ping(listening, 404)
	})
}

// A request that arrives at the moment at which its session expires is either served or gets
// status 404. It is never accepted and then lost.
func TestIdleSessionsEnd_ConcurrentRequest(t *testing.T) {
	srv := New(Options{IdleTimeout: time.Nanosecond, Log: slog.New(slog.DiscardHandler)})
	for range 20000 {
		s := newSession(&httpExchange{srv: srv}, false)
		var both sync.WaitGroup
		both.Go(func() { s.closeIfIdle() })
		s.mu.Lock()
		refused := s.beginExchangeLocked()
		s.enforceAndUnlock()
		both.Wait()
		if refused == nil && s.end != nil {
			t.Fatal("a session was closed during a request that it had accepted")
		}
	}
}

// Closed is called once, with a reason if neither the client nor the handler has closed the
// session.
func TestCloseReason(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(h *harness, key string, handler *testHandler)
		want string
	}{
		"idle": {func(*harness, string, *testHandler) {
			time.Sleep(2 * time.Hour)
		}, "idle for 1h0m0s: limits.session_idle"},
		"deleted": {func(h *harness, key string, _ *testHandler) {
			h.want(testRequest{method: "DELETE", session: key}, 204, "")
		}, "<nil>"},
		"closed": {func(_ *harness, _ string, handler *testHandler) {
			_ = handler.Writer.Close()
		}, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, nil)
				key, handler := h.initialize("2025-11-25", nil)
				c.end(h, key, handler)
				<-handler.closed
				if got := fmt.Sprint(handler.reason); got != c.want {
					t.Errorf("reason %s, want %s", got, c.want)
				}
			})
		})
	}
	t.Run("HTTP+SSE", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, nil)
			stream := h.openStream(testRequest{method: "GET", path: "/sse"})
			handler := <-h.handlers
			stream.disconnect()
			<-handler.closed
			time.Sleep(2 * time.Hour)
			if len(handler.closed) > 0 || handler.reason != nil {
				t.Errorf("Closed was called twice, or with %v", handler.reason)
			}
		})
	})
}

// A request that was delivered may have run when its session ends. Before its first event it got
// status 404 (503 at a shutdown), after which clients send a request again.
func TestSessionEndsDuringCall_OutcomeUnknown(t *testing.T) {
	for name, end := range map[string]func(h *harness, key string, handler *testHandler){
		"deleted": func(h *harness, key string, _ *testHandler) {
			h.want(testRequest{method: "DELETE", session: key}, 204, "")
		},
		"closed by the handler": func(_ *harness, _ string, handler *testHandler) {
			_ = handler.Writer.Close()
		},
		"shutdown": func(h *harness, _ string, _ *testHandler) { h.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, nil)
				key, handler := h.initialize("2025-11-25", nil)
				var call sync.WaitGroup
				call.Go(func() {
					res, body := h.do(post(key, requestJSON("1", "hold", "{}")))
					if res.StatusCode != 200 || !strings.Contains(body, `"id":1,`) ||
						!strings.Contains(body, "outcome unknown: the call may have run") {
						t.Errorf("status %d, %s", res.StatusCode, body)
					}
				})
				<-h.heldRequests
				end(h, key, handler)
				call.Wait()
			})
		})
	}
}
