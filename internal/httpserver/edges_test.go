package httpserver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// Headers have a bound.
func TestHeadersHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		v := knock{verb: "GET", path: "/healthz", header: map[string]string{"X-Long": strings.Repeat("x", 30<<10)}}
		h.want(v, 200, "ok\n")
		v.header["X-Long"] = strings.Repeat("x", 40<<10)
		h.want(v, 431, "*")
	})
}

// Who has no session yet needs no long message.
func TestAStrangersBodyHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) { o.MessageLimit = 4 << 20 })
		hello := func(n int) string {
			return strings.Replace(initialize("2025-11-25"), `"t"`, `"`+strings.Repeat("x", n)+`"`, 1)
		}
		h.want(knock{body: hello(1<<20 - 300)}, 200, "*")
		h.want(knock{body: hello(1 << 20)}, 413, "*")
		key, _ := h.enter("2025-11-25", nil)
		h.want(knock{session: key, body: bulky("1", "echo", 1<<20)}, 200, "*")
	})
}

// A session has so many requests open, and HTTP exchanges, and no more.
func TestASessionsRequestsHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		key, g := h.enter("2025-03-26", nil)
		batch := make([]string, maxOpen)
		for i := range batch {
			batch[i] = call(fmt.Sprint(i), "hold", "{}")
		}
		s := h.stream(knock{session: key, body: "[" + strings.Join(batch, ",") + "]"})
		if res := h.want(knock{session: key, body: call(`"one"`, "echo", "{}")}, 429, "*"); res.Header.Get("Retry-After") != "1" {
			t.Errorf("headers: %v", res.Header)
		}
		s.cut()
		synctest.Wait()
		for range maxOpen {
			(<-h.held).Reply([]byte("{}"))
		}
		h.want(knock{session: key, body: call(`"one"`, "echo", "{}")}, 200, "*")

		one := g.Writer.(*session) // which has as many exchanges
		one.mu.Lock()
		one.busy += maxOpen
		one.mu.Unlock()
		h.want(knock{session: key, body: call(`"one"`, "echo", "{}")}, 429, "*")
		h.want(knock{verb: "GET", session: key}, 429, "*")
	})
}
