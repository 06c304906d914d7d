package httpserver

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
)

// unsentBytes returns the number of unsent bytes of all connected clients.
func (h *harness) unsentBytes() int64 {
	synctest.Wait()
	h.server.backlogQuota.mu.Lock()
	defer h.server.backlogQuota.mu.Unlock()
	return h.server.backlogQuota.total
}

// When the unsent bytes of all clients exceed the limit, only the client with the largest backlog
// is disconnected and logged, with or without a session.
func TestBacklogOfAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.MessageLimit, o.BacklogLimit = 1<<20, 1<<20
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		stateless := h.openStream(statelessRequest("1", "hold", "")) // after keepAliveInterval
		<-h.heldRequests
		v := <-h.handlers
		var streams []*eventReader
		var handlers []*testHandler
		for range 3 { // sessions
			key, handler := h.initialize("2025-11-25", nil)
			s := h.openStream(testRequest{method: "GET", session: key})
			s.want("0-0", "")
			streams, handlers = append(streams, s), append(handlers, handler)
		}
		h.write(handlers[0], largeNotification(0, 200_000), "")
		h.write(handlers[1], largeNotification(0, 300_000), "")
		h.write(v, largeNotification(0, 500_000), "")
		synctest.Wait()
		if log.String() != "" {
			t.Fatalf("the log has %s", log.String())
		}
		// More than 1 MiB in total: the stateless request has the largest backlog.
		h.write(handlers[2], largeNotification(0, 100_000), "")
		synctest.Wait()
		isClosed := func(handler *testHandler) bool {
			return errors.Is(handler.Write(logMessage(1), ""), transport.ErrClosed)
		}
		if !isClosed(v) {
			t.Error("the client with the largest backlog is still connected")
		}
		if _, err := stateless.next(); err == nil {
			t.Error("its client received the message")
		}
		h.write(handlers[2], largeNotification(1, 350_000), "")
		h.write(handlers[0], largeNotification(1, 150_000), "")
		synctest.Wait()
		if !isClosed(handlers[2]) {
			t.Error("the session with the largest backlog is still open")
		}
		if _, err := streams[2].next(); err == nil {
			t.Error("its client received the message")
		}
		streams[0].want("0-1", string(largeNotification(0, 200_000).Raw()))
		streams[0].want("0-2", string(largeNotification(1, 150_000).Raw()))
		streams[1].want("0-1", string(largeNotification(0, 300_000).Raw()))
		if n := strings.Count(log.String(), "closed the slowest client"); n != 2 ||
			!strings.Contains(log.String(), "session="+handlers[2].ID) ||
			!strings.Contains(log.String(), "session="+v.ID) {
			t.Errorf("the log has\n%s", log.String())
		}
		for _, s := range streams {
			s.disconnect()
		}
		stateless.disconnect()
	})
}

// A closed session keeps the unsent messages of its client. Its client is disconnected before
// clients with a smaller backlog.
func TestBacklogOfAllClients_ClosedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit, o.BacklogLimit = 1<<20, 1<<20 })
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(post(key, requestJSON("1", "hold", "{}")))
		s.want("1-0", "")
		h.write(handler, largeNotification(0, 800_000), "1")
		synctest.Wait()
		handler.Writer.Close()
		other, og := h.initialize("2025-11-25", nil)
		os := h.openStream(testRequest{method: "GET", session: other})
		os.want("0-0", "")
		h.write(og, largeNotification(0, 400_000), "")
		os.want("0-1", string(largeNotification(0, 400_000).Raw()))
		if _, err := s.next(); err == nil {
			t.Error("the whole message arrived")
		}
		os.disconnect()
	})
}

// With 10,000 clients that have a backlog, each message costs a few map look-ups.
func BenchmarkBacklogQuota(b *testing.B) {
	o := backlogQuota{limit: 1 << 40}
	backlogs := make([]backlog, 10_000)
	for i := range backlogs {
		o.add(&backlogs[i], 1000)
	}
	b.ResetTimer()
	for i := range b.N {
		one := &backlogs[i%len(backlogs)]
		o.add(one, 500)
		o.add(one, -500)
	}
}

// A client that reads nothing for half a minute is disconnected, because its connection is
// probably broken. Its unsent messages are retained within the limit, and its session stays open.
func TestUnreadStreamIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(testRequest{method: "GET", session: key})
		s.want("0-0", "")
		h.write(handler, largeNotification(0, 100_000), "")
		time.Sleep(transferTimeout(100_000) - time.Second)
		synctest.Wait()
		if n := h.unsentBytes(); n < 100_000 {
			t.Errorf("%d bytes are unsent", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, retained := h.unsentBytes(), handler.retained(); n != 0 || retained < 100_000 {
			t.Errorf("%d bytes are unsent, %d bytes are retained", n, retained)
		}
		s.disconnect()
		again := h.openStream(lastSeen(key, "0-0"))
		again.want("0-1", string(largeNotification(0, 100_000).Raw()))
		time.Sleep(10 * time.Minute) // slowness does not matter while nothing is sent
		again.disconnect()
	})
}

// A client that does not read keep-alives is disconnected.
func TestUnreadStreamIsClosed_KeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-11-25", nil)
		s := h.openStream(testRequest{method: "GET", session: key})
		s.want("0-0", "")
		time.Sleep(keepAliveInterval + transferTimeout(0) + time.Second)
		synctest.Wait()
		// This fails if the stream is still attached.
		h.openStream(testRequest{method: "GET", session: key}).disconnect()
		s.disconnect()
	})
}

// A stateless client that does not read is disconnected, which cancels its request.
func TestUnreadStreamIsClosed_Stateless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		s := h.openStream(statelessRequest("1", methodListen, ""))
		<-h.heldRequests
		handler := <-h.handlers
		h.write(handler, largeNotification(0, 100_000), "")
		time.Sleep(transferTimeout(100_000) + time.Second)
		if n := h.unsentBytes(); n != 0 {
			t.Errorf("%d bytes are unsent", n)
		}
		if err := <-handler.closed; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("the exchange has ended: %v", err)
		}
		s.disconnect()
	})
}

// If unsent messages of a client are dropped, its HTTP response does not end like a complete one.
func TestDroppedMessages_ResponseIsIncomplete(t *testing.T) {
	big := []byte(`{"text":"` + strings.Repeat("x", 10<<10) + `"}`)
	for _, row := range []struct {
		name    string
		session bool
		accept  string
		begun   bool // an event was sent before
	}{
		{"both", false, "application/json, text/event-stream", false},
		{"events", false, "text/event-stream, application/json;q=0.1", false},
		{"JSON", false, "application/json", false},
		{"begun", false, "text/event-stream", true},
		{"session", true, "application/json, text/event-stream", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, func(o *Options) { o.BacklogLimit = 4 << 10 })
				tr := statelessRequest("1", "hold", "")
				if row.session {
					key, _ := h.initialize("2025-11-25", nil)
					tr = post(key, requestJSON("1", "hold", "{}"))
				}
				begun := make(chan struct{})
				go func() {
					r := <-h.heldRequests
					if row.begun {
						r.Notify(progressNotification(1))
						<-begun
					}
					r.Reply(big)
				}()
				res, err := h.client.Do(h.newRequest(tr.withHeader("Accept", row.accept)))
				if err != nil {
					return
				}
				defer res.Body.Close()
				if row.begun {
					if _, err := res.Body.Read(make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
					close(begun)
				}
				// the response may have been sent just before it would have been dropped
				body, err := io.ReadAll(res.Body)
				if err == nil && !strings.Contains(string(body), string(big)) {
					t.Errorf("complete response with %d bytes", len(body))
				}
			})
		})
	}
}

// A slow client that reads receives everything.
func TestSlowClientStaysConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(testRequest{method: "GET", session: key})
		s.want("0-0", "")
		for n := range 10 {
			h.write(handler, largeNotification(n, 100_000), "")
		}
		for n := range 10 {
			s.want(fmt.Sprint("0-", n+1), string(largeNotification(n, 100_000).Raw()))
			time.Sleep(25 * time.Second)
		}
		s.disconnect()
	})
}
