package httpserver

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func lastSeen(key, id string) testRequest {
	return testRequest{method: "GET", session: key, header: map[string]string{"Last-Event-ID": id}}
}

func logMessage(n int) wire.Message {
	return wire.NewNotification("notifications/message", fmt.Appendf(nil, `{"n":%d}`, n))
}

func (h *harness) write(handler *testHandler, m wire.Message, relatedTo wire.ID) {
	h.Helper()
	if err := handler.Write(m, relatedTo); err != nil {
		h.Errorf("write %s: %v", m.Raw(), err)
	}
}

// Messages that belong to no request go to the standalone stream.
func TestStandaloneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		h.write(handler, logMessage(1), "")
		h.write(handler, logMessage(2), "77") // a message that is related to an unknown request
		s := h.openStream(testRequest{method: "GET", session: key})
		s.want("0-0", "")
		s.want("0-1", string(logMessage(1).Raw()))
		s.want("0-2", string(logMessage(2).Raw()))
		h.write(handler, logMessage(3), "")
		s.want("0-3", string(logMessage(3).Raw()))
		s.disconnect()
		synctest.Wait()
		h.write(handler, logMessage(4), "")
		s = h.openStream(testRequest{method: "GET", session: key})
		s.want("0-3", "")
		s.want("0-4", string(logMessage(4).Raw()))
		s.disconnect()
		synctest.Wait()
		s = h.openStream(lastSeen(key, "0-2"))
		s.want("0-3", string(logMessage(3).Raw()))
		s.want("0-4", string(logMessage(4).Raw()))
		h.want(testRequest{method: "DELETE", session: key}, 204, "")
		s.wantEnd()
		<-handler.closed
		if err := handler.Write(logMessage(5), ""); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("write: %v", err)
		}
	})
}

// A second standalone stream replaces the first, because the client of the first may have
// disappeared without any sign. No message is lost or skipped.
func TestNewStandaloneStreamTakesOver_F_DOOR_1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, date := range []string{"2025-03-26", "2025-11-25"} {
			h := newHarness(t, nil)
			key, handler := h.initialize(date, nil)
			var streams []*eventReader
			for n := range 5 {
				s := h.openStream(testRequest{method: "GET", session: key})
				if date == "2025-11-25" {
					s.want(fmt.Sprintf("0-%d", n), "")
				}
				if n > 0 {
					streams[n-1].wantEnd()
				}
				streams = append(streams, s)
				h.write(handler, logMessage(n), "")
				s.want(fmt.Sprintf("0-%d", n+1), string(logMessage(n).Raw()))
				synctest.Wait()
			}

			// The client of this stream reads nothing.
			hanging := h.openStream(testRequest{method: "GET", session: key})
			streams[4].wantEnd()
			for n := range 3 {
				h.write(handler, logMessage(100+n), "")
			}
			synctest.Wait()
			s := h.openStream(lastSeen(key, "0-5"))
			for n := range 3 {
				s.want(fmt.Sprintf("0-%d", 6+n), string(logMessage(100+n).Raw()))
			}
			h.write(handler, logMessage(200), "")
			s.want("0-9", string(logMessage(200).Raw()))
			h.want(post(key, requestJSON("1", "echo", "{}")), 200, resultJSON("1", "{}"))
			s.disconnect()
			hanging.disconnect()
			h.stop()
		}
	})
}

// A broken stream of a POST can be resumed, and only its own events are replayed. A disconnect
// does not cancel the request.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(post(key, requestJSON("1", "hold", `{}`)))
		other := h.openStream(post(key, requestJSON("2", "hold", `{}`)))
		r, r2 := <-h.heldRequests, <-h.heldRequests
		s.want("1-0", "")
		other.want("2-0", "")
		r.Notify(progressNotification(1))
		r.Notify(progressNotification(2))
		s.want("1-1", string(progressNotification(1).Raw()))
		s.disconnect()
		synctest.Wait()
		h.write(handler, logMessage(1), "")
		r2.Notify(progressNotification(7))
		r.Notify(progressNotification(3))

		s = h.openStream(lastSeen(key, "1-1"))
		s.want("1-2", string(progressNotification(2).Raw()))
		s.want("1-3", string(progressNotification(3).Raw()))
		r.Notify(progressNotification(4))
		s.want("1-4", string(progressNotification(4).Raw()))
		s.disconnect()
		synctest.Wait()
		if !r.Reply([]byte(`{"n":1}`)) {
			t.Error("the request was cancelled")
		}
		s = h.openStream(lastSeen(key, "1-0")) // from the start; all events are there now
		for i := 1; i <= 4; i++ {
			s.want(fmt.Sprint("1-", i), string(progressNotification(i).Raw()))
		}
		s.want("1-5", resultJSON("1", `{"n":1}`))
		s.wantEnd()
		s = h.openStream(lastSeen(key, "1-5")) // no events are left
		s.wantEnd()

		other.want("2-1", string(progressNotification(7).Raw()))
		r2.Reply([]byte("{}"))
		other.want("2-2", resultJSON("2", "{}"))
		other.wantEnd()
	})
}

// A stream can be resumed even if the server has not noticed that the old connection is dead.
func TestResumeOfOpenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(post(key, requestJSON("1", "hold", `{}`)))
		r := <-h.heldRequests
		s.want("1-0", "")
		r.Notify(progressNotification(1))
		s.want("1-1", string(progressNotification(1).Raw()))
		again := h.openStream(lastSeen(key, "1-0"))
		s.wantEnd()
		again.want("1-1", string(progressNotification(1).Raw()))

		r.Notify(progressNotification(2)) // blocks, because the client does not read
		synctest.Wait()
		third := h.openStream(lastSeen(key, "1-1"))
		third.want("1-2", string(progressNotification(2).Raw()))
		r.Reply([]byte("{}"))
		third.want("1-3", resultJSON("1", "{}"))
		third.wantEnd()
		again.disconnect()

		own := h.openStream(testRequest{method: "GET", session: key})
		own.want("0-0", "")
		h.write(handler, logMessage(1), "")
		own.want("0-1", string(logMessage(1).Raw()))
		ownAgain := h.openStream(lastSeen(key, "0-0"))
		own.wantEnd()
		ownAgain.want("0-1", string(logMessage(1).Raw()))
		ownAgain.disconnect()
	})
}

// In revisions without a priming event, a stream can be resumed only after its first event.
// Before that, nothing is retained.
func TestUnresumableResponseIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-06-18", nil)
		s := h.openStream(post(key, requestJSON("1", "hold", `{}`)))
		s.disconnect()
		synctest.Wait()
		r := <-h.heldRequests
		// The request is still in flight.
		h.wantError(post(key, requestJSON("1", "echo", "{}")), 400, "1", wire.CodeInvalidRequest)
		r.Reply([]byte(`"` + strings.Repeat("x", 1000) + `"`))
		if retained := handler.retained(); retained != 0 {
			t.Errorf("%d bytes are retained", retained)
		}
		h.wantError(lastSeen(key, "1-0"), 410, "null", wire.CodeInvalidRequest)
		h.want(post(key, requestJSON("1", "echo", "{}")), 200, resultJSON("1", "{}"))
	})
}

func TestCancelledRequestsGetNoResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-11-25", nil)
		cancel := func(id string) {
			h.want(post(key, cancelJSON(id)), 202, "")
		}
		s := h.openStream(post(key, requestJSON("1", "hold", `{}`)))
		s.want("1-0", "")
		r := <-h.heldRequests
		r.Notify(progressNotification(1))
		s.want("1-1", string(progressNotification(1).Raw()))
		cancel("1")
		s.wantEnd()
		r.Reply([]byte("{}"))
		s = h.openStream(lastSeen(key, "1-0"))
		s.want("1-1", string(progressNotification(1).Raw()))
		s.wantEnd()

		got := make(chan *eventReader)
		go func() { got <- h.openStream(post(key, requestJSON("2", "hold", `{}`))) }()
		<-h.heldRequests
		cancel("2") // before the HTTP header is sent
		(<-got).wantEnd()
		cancel("3") // unknown id
	})
}

// Concurrent messages are each sent on exactly one stream.
func TestEachMessageIsOnOneStream(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.MessageLimit, o.RetainLimit = 64<<20, 64<<20 })
	key, handler := h.initialize("2025-11-25", nil)
	const calls, each = 40, 25
	var mu sync.Mutex
	seen := make(map[string]int)
	where := make(map[string]string)
	read := func(s *eventReader, stream string) {
		for {
			ev, err := s.next()
			if err != nil {
				return
			}
			if ev.data != "" {
				mu.Lock()
				seen[ev.data]++
				where[ev.data] = stream
				mu.Unlock()
			}
		}
	}
	own := h.openStream(testRequest{method: "GET", session: key})
	var all, posts sync.WaitGroup
	all.Go(func() { read(own, "own") })
	for i := range calls {
		posts.Go(func() {
			id := fmt.Sprint(i)
			res := h.send(post(key, requestJSON(id, "hold", `{}`)))
			defer res.Body.Close()
			if res.Header.Get("Content-Type") == "application/json" {
				t.Errorf("%s: %s", id, res.Status)
				return
			}
			read(h.readEvents(res), id)
		})
	}
	for range calls {
		r := <-h.heldRequests
		posts.Go(func() {
			for n := range each {
				h.write(handler, wire.NewNotification("notifications/progress",
					fmt.Appendf(nil, `{"of":%s,"n":%d}`, r.RemoteID(), n)), r.RemoteID())
				h.write(handler, wire.NewNotification("notifications/message",
					fmt.Appendf(nil, `{"of":%s,"n":%d}`, r.RemoteID(), n)), "")
			}
			r.Reply([]byte("{}"))
		})
	}
	posts.Wait()
	h.want(testRequest{method: "DELETE", session: key}, 204, "")
	all.Wait()
	if len(seen) != calls*(2*each+1) {
		t.Errorf("%d messages arrived", len(seen))
	}
	for data, n := range seen {
		if n != 1 || strings.Contains(data, "/message") != (where[data] == "own") {
			t.Errorf("received %d times, last on %s: %s", n, where[data], data)
		}
	}
}

// Write does not wait for a client that does not read, and the backlog is limited.
func TestClientBacklogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit = 10000 })
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(testRequest{method: "GET", session: key})
		s.want("0-0", "")
		n := 0
		var err error
		for ; err == nil && n < 1000; n++ {
			err = handler.Write(logMessage(n), "")
		}
		if !errors.Is(err, transport.ErrFull) || n < 50 || n > 110 {
			t.Errorf("after %d: %v", n, err)
		}
		for i := range n - 1 {
			s.want(fmt.Sprint("0-", i+1), string(logMessage(i).Raw()))
		}
		synctest.Wait()
		h.write(handler, logMessage(n), "")
		s.want(fmt.Sprint("0-", n), string(logMessage(n).Raw()))
		handler.Writer.Close()
		s.wantEnd()
	})
}

// Close does not wait for a client that does not read; the client is disconnected later.
func TestCloseWithUnreadStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(post(key, requestJSON("1", "hold", "{}")))
		s.want("1-0", "")
		(<-h.heldRequests).Notify(wire.NewNotification("x",
			[]byte(`"`+strings.Repeat("x", 100000)+`"`)))
		synctest.Wait()
		began := time.Now()
		handler.Writer.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}
		time.Sleep(closeDrainTimeout + time.Second)
		if _, err := s.next(); err == nil {
			t.Error("the whole event arrived")
		}
		h.want(testRequest{method: "GET", path: "/healthz"}, 200, "ok\n")
	})
}

// A request gets an error when its session is closed.
func TestCloseWithOpenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(post(key, requestJSON("1", "hold", "{}")))
		s.want("1-0", "")
		done := make(chan bool)
		go func() {
			h.want(post(key, requestJSON("2", "hold", "{}")), 200,
				string(wire.NewErrorResponse("2", errSessionEnded).Raw()))
			close(done)
		}()
		<-h.heldRequests
		<-h.heldRequests
		handler.Writer.Close()
		<-done
		s.want("1-1", string(wire.NewErrorResponse("1", errSessionEnded).Raw()))
		s.wantEnd()
		h.wantError(lastSeen(key, "1-0"), 404, "null", codeSessionNotFound)
	})
}

func TestHTTP_05_And_HTTP_06_SilentStreamsAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		own := h.openStream(testRequest{method: "GET", session: key})
		posted := h.openStream(post(key, requestJSON("1", "hold", "{}")))
		r := <-h.heldRequests
		var all sync.WaitGroup
		var data [2]string
		for i, s := range []*eventReader{own, posted} {
			all.Go(func() {
				for last := time.Now(); ; last = time.Now() { // as seen by a proxy
					ev, err := s.next()
					if silent := time.Since(last); silent > 30*time.Second {
						t.Errorf("silent for %v", silent)
					}
					if err != nil {
						return
					}
					data[i] += ev.data
				}
			})
		}
		time.Sleep(10 * time.Minute)
		r.Reply([]byte("{}"))
		h.write(handler, logMessage(1), "")
		synctest.Wait()
		if data[0] != string(logMessage(1).Raw()) || data[1] != resultJSON("1", "{}") {
			t.Errorf("received %q", data)
		}
		own.disconnect()
		all.Wait()
	})
}
