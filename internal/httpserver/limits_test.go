package httpserver

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// The size of HTTP headers is limited.
func TestHeaderLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		tr := testRequest{method: "GET", path: "/healthz",
			header: map[string]string{"X-Long": strings.Repeat("x", 30<<10)}}
		h.want(tr, 200, "ok\n")
		tr.header["X-Long"] = strings.Repeat("x", 40<<10)
		h.want(tr, 431, "*")
	})
}

// The size limit of a message without a session is lower.
func TestInitializeBodyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit = 4 << 20 })
		initBody := func(n int) string {
			return strings.Replace(initializeRequest("2025-11-25"), `"t"`,
				`"`+strings.Repeat("x", n)+`"`, 1)
		}
		h.want(testRequest{body: initBody(1<<20 - 300)}, 200, "*")
		h.want(testRequest{body: initBody(1 << 20)}, 413, "*")
		key, _ := h.initialize("2025-11-25", nil)
		h.want(post(key, largeRequest("1", "echo", 1<<20)), 200, "*")
	})
}

// The number of requests and HTTP exchanges of a session is limited.
func TestSessionRequestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-03-26", nil)
		batch := make([]string, maxOpenRequests)
		for i := range batch {
			batch[i] = requestJSON(fmt.Sprint(i), "hold", "{}")
		}
		s := h.openStream(post(key, "["+strings.Join(batch, ",")+"]"))
		if res := h.want(post(key, requestJSON(`"one"`, "echo", "{}")), 429,
			"*"); res.Header.Get("Retry-After") != "1" {
			t.Errorf("headers: %v", res.Header)
		}
		s.disconnect()
		synctest.Wait()
		for range maxOpenRequests {
			(<-h.heldRequests).Reply([]byte("{}"))
		}
		h.want(post(key, requestJSON(`"one"`, "echo", "{}")), 200, "*")

		one := handler.Writer.(*httpSession) // the maximum number of exchanges
		one.mu.Lock()
		one.activity.exchanges += maxOpenRequests
		one.mu.Unlock()
		h.want(post(key, requestJSON(`"one"`, "echo", "{}")), 429, "*")
		h.want(testRequest{method: "GET", session: key}, 429, "*")
	})
}

// The limits of requests and sessions are equal and independent.
func TestTooManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MaxSessions = 2 })
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { h.want(statelessRequest("1", "hold", ""), 200, resultJSON("1", "{}")) })
		}
		a, b := <-h.heldRequests, <-h.heldRequests
		res := h.wantError(statelessRequest("7", "echo", ""), 503, "7", wire.CodeInvalidRequest)
		if res.Header.Get("Retry-After") != "1" {
			t.Errorf("%v", res.Header)
		}
		// An invalid request is rejected before the limit is applied.
		h.wantError(statelessRequest("7", "echo", "").withRevision("2025-11-25"), 400, "7",
			protocol.CodeHeaderMismatch)
		for range 2 {
			h.want(testRequest{body: initializeRequest("2025-11-25")}, 200, "*")
		}
		a.Reply([]byte("{}"))
		synctest.Wait()
		h.want(statelessRequest("7", "echo", ""), 200, "*")
		b.Reply([]byte("{}"))
		all.Wait()
	})
}

// One token gets at most half of the slots, and all tokens together get at most all slots.
func TestRequestsPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		h := newHarness(t, func(o *Options) {
			o.MaxSessions, o.Tokens = 4, bearerTokens("a", "b", "c")
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		by := func(token string, tr testRequest) testRequest {
			return tr.withHeader("Authorization", "Bearer "+token)
		}
		refused := func(token, text string) {
			t.Helper()
			res, body := h.do(by(token, statelessRequest("7", "echo", "")))
			if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" ||
				!strings.Contains(body, `"id":7,"error":{"code":-32600,"message":"`+text+`"}`) {
				t.Errorf("%s: %d %v %s", token, res.StatusCode, res.Header, body)
			}
		}
		var all sync.WaitGroup
		hold := func(token string) *peer.Request {
			all.Go(func() {
				h.want(by(token, statelessRequest("1", "hold", "")), 200, resultJSON("1", "{}"))
			})
			return <-h.heldRequests
		}
		held := []*peer.Request{hold("a"), hold("a")}
		refused("a", "Too many requests are open under this token")
		h.want(by("b", statelessRequest("7", "echo", "")), 200, "*")
		synctest.Wait() // the slot is free shortly after the response
		held = append(held, hold("b"), hold("b"))
		for range 100 {
			refused("a", "Too many requests are open")
			refused("c", "Too many requests are open")
		}
		if n := strings.Count(log.String(), "too many requests without a session"); n != 1 ||
			!strings.Contains(log.String(), "principal=1") {
			t.Errorf("the log has\n%s", log.String())
		}
		held[0].Reply([]byte("{}"))
		synctest.Wait()
		refused("b", "Too many requests are open under this token")
		h.want(by("c", statelessRequest("7", "echo", "")), 200, "*")
		synctest.Wait()
		h.want(by("a", statelessRequest("7", "echo", "")), 200, "*")
		for _, r := range held[1:] {
			r.Reply([]byte("{}"))
		}
		all.Wait()
	})
}
