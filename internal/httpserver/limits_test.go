package httpserver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
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
