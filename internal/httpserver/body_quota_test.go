package httpserver

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// largeRequest returns a request with n bytes of params.
func largeRequest(id, method string, n int) string {
	return requestJSON(id, method, `{"x":"`+strings.Repeat("x", n)+`"}`)
}

// heldBytes returns the number of posted bytes in use.
func (h *harness) heldBytes() int64 {
	synctest.Wait()
	h.server.posts.quota.mu.Lock()
	defer h.server.posts.quota.mu.Unlock()
	return h.server.posts.quota.total
}

// Posted bytes count until their requests are answered, even if the client has disconnected or
// the response is sent on another stream.
func TestBodyLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		want := func(low int64, what string) {
			t.Helper()
			if n := h.heldBytes(); n < low || n > low+1000 {
				t.Errorf("%s: %d bytes are in use, want %d", what, n, low)
			}
		}
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(post(key, largeRequest("1", "hold", 100_000)))
		r := <-h.heldRequests
		want(100_000, "in flight")
		s.disconnect()
		want(100_000, "client disconnected")
		r.Reply([]byte("{}"))
		want(0, "answered")

		s = h.openStream(post(key, largeRequest("2", "hold", 100_000)))
		<-h.heldRequests
		h.want(post(key, cancelJSON("2")), 202, "")
		s.disconnect()
		want(0, "cancelled")

		s = h.openStream(post(key, largeRequest("3", "hold", 100_000)))
		<-h.heldRequests
		handler.Writer.Close()
		s.disconnect()
		want(0, "session closed")

		h.want(post("unknown", largeRequest("4", "hold", 100_000)), 404, "*")
		h.want(testRequest{body: "[[]]"}, 400, "*")
		want(0, "refused")
	})
}

func TestBodyLease_Batch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-03-26", nil)
		s := h.openStream(post(key,
			"["+largeRequest("1", "hold", 100_000)+","+largeRequest("2", "hold", 10)+"]"))
		a, b := <-h.heldRequests, <-h.heldRequests
		a.Reply([]byte("{}"))
		if n := h.heldBytes(); n < 100_000 {
			t.Errorf("%d bytes are in use", n)
		}
		b.Reply([]byte("{}"))
		s.disconnect()
		if n := h.heldBytes(); n != 0 {
			t.Errorf("%d bytes are in use", n)
		}
	})
}

func TestBodyLease_SSE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		s := h.openStream(testRequest{method: "GET", path: "/sse"})
		ev, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		postSSE := func(body string) {
			t.Helper()
			h.want(testRequest{path: ev.data, body: body}, 202, "")
		}
		postSSE(initializeRequest("2025-03-26"))
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
		postSSE(largeRequest("1", "hold", 100_000))
		postSSE(largeRequest("2", "hold", 100_000))
		postSSE("[" + largeRequest("3", "hold", 100_000) + "]")
		one, _, three := <-h.heldRequests, <-h.heldRequests, <-h.heldRequests
		if n := h.heldBytes(); n < 300_000 {
			t.Errorf("%d bytes are in use", n)
		}
		one.Reply([]byte("{}"))
		s.want("", resultJSON("1", "{}"))
		three.Reply([]byte("{}"))
		s.want("", "["+resultJSON("3", "{}")+"]")
		postSSE(cancelJSON("2"))
		if n := h.heldBytes(); n != 0 {
			t.Errorf("%d bytes are in use", n)
		}
		s.disconnect()
	})
}

// The bytes of a stateless request count until its end, for its principal.
func TestBodyLease_Stateless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) {
			o.MessageLimit, o.BacklogLimit, o.Tokens = 1<<20, 2<<20, bearerTokens("a", "b")
		})
		by := func(token, id string, n int) testRequest {
			return statelessRequest(id, "hold", `"x":"`+strings.Repeat("x", n)+`"`).
				withHeader("Authorization", "Bearer "+token)
		}
		ended := make(chan bool)
		go func() {
			h.want(by("a", "1", 1<<20-1000), 200, resultJSON("1", "{}"))
			close(ended)
		}()
		r := <-h.heldRequests
		if n := h.heldBytes(); n < 1<<20-1000 {
			t.Errorf("%d bytes are in use", n)
		}
		if res := h.want(by("a", "2", 100_000), 503, "*"); res.Header.Get("Retry-After") != "1" {
			t.Errorf("headers: %v", res.Header)
		}
		go func() { (<-h.heldRequests).Reply([]byte("{}")) }()
		h.want(by("b", "3", 100_000), 200, resultJSON("3", "{}"))
		r.Reply([]byte("{}"))
		<-ended
		if n := h.heldBytes(); n != 0 {
			t.Errorf("%d bytes are in use", n)
		}
	})
}

// A slot becomes free shortly after the client has received its response. The next request of the
// client is not rejected because of this delay.
func TestSlotIsFreeAfterResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) {
			o.MaxSessions = 1
			o.ServeRequest = func(_ SessionInfo, m wire.Message, out transport.Writer) func() {
				_ = out.Write(wire.NewResult(m.ID(), []byte("{}")), "")
				return func() {}
			}
		})
		for range 100 {
			h.want(statelessRequest("1", "echo", ""), 200, resultJSON("1", "{}"))
		}
	})
}

// Memory is allocated for the received bytes, and not for the announced length.
func TestAnnouncedLengthAllocatesNothing(t *testing.T) {
	for _, contentLength := range []int64{100, 1 << 20, 1 << 30} {
		from := &unreadBody{}
		_, herr := readBody(httptest.NewRecorder(), from, contentLength, 1<<30)
		if herr == nil || from.bufSize > 2*smallBody {
			t.Errorf("Content-Length %d: %v, buffer of %d bytes", contentLength, herr, from.bufSize)
		}
	}
}

// unreadBody is a body that does not arrive. It records the size of the read buffer.
type unreadBody struct{ bufSize int }

func (l *unreadBody) Read(b []byte) (int, error) {
	l.bufSize = len(b)
	return 0, io.ErrUnexpectedEOF
}

// If the very first body was rejected by its length, releasing its lease caused a panic, because
// the quota had no entries.
func TestFirstBodyTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.Log = slog.New(slog.NewTextHandler(&log,
				&slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		h.want(testRequest{body: strings.Repeat(" ", 2<<20)}, 413, "*")
		h.stop()
		if strings.Contains(log.String(), "panic") {
			t.Error(log.String())
		}
	})
}

// A token that was the only token at the start becomes one of several principals: then its sessions
// share one quota.
func TestOnlyTokenBecomesOneOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) {
			o.Tokens, o.MessageLimit, o.BacklogLimit = bearerTokens("alpha"), 100_000, 300_000
		})
		by := func(token string) map[string]string {
			return map[string]string{"Authorization": "Bearer " + token}
		}
		hold := func(id, token, key string) testRequest {
			return testRequest{session: key, body: largeRequest(id, "hold", 80_000),
				header: by(token)}
		}
		one, _ := h.initialize("2025-11-25", by("alpha"))
		two, _ := h.initialize("2025-11-25", by("alpha"))
		h.server.UpdateAccess(AccessRules{Tokens: bearerTokens("alpha", "beta")})
		beta, _ := h.initialize("2025-11-25", by("beta"))
		s := h.openStream(hold("1", "alpha", one))
		if res, _ := h.do(hold("2", "alpha", two)); res.StatusCode != 503 {
			t.Errorf("a second session has its own quota: %s", res.Status)
		}
		h.openStream(hold("3", "beta", beta)).disconnect()
		s.disconnect()
	})
}

// A batch finds its requests even if a response in it nests deeper than a received message may.
func TestBatchWithDeepResponse(t *testing.T) {
	deep := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	m := wire.NewBatch([]wire.Message{wire.NewResult("7", []byte(`{"x":`+deep+`}`))})
	leases := leaseTable{"7": &bodyLease{quota: &bodyQuota{byKey: map[quotaKey]int64{}}, refs: 1}}
	leases.noteResponse(m)
	if len(leases) != 0 {
		t.Error("the lease of the request is not released")
	}
	st := &sseStream{}
	streams := streamSet{openRequests: map[wire.ID]*sseStream{"7": st}}
	if streams.route(m, "") != st {
		t.Error("the batch has no stream")
	}
}
