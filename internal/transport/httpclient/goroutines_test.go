package httpclient

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/wire"
)

// After many concurrent POSTs a few goroutines remain and send the next messages.
func TestPostingGoroutinesAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, resultOf(m, `{}`))
		}
		c := ready(t, s, nil)
		conn := c.Conn.(*streamable)
		goroutines := func() (running, spare int) {
			conn.goroutines.mu.Lock()
			defer conn.goroutines.mu.Unlock()
			return conn.goroutines.running, conn.goroutines.idle
		}
		const calls = 3 * maxIdle // more than the remaining goroutines
		first, _ := goroutines()
		for round := range 3 {
			for i := range calls {
				if err := c.Write(wire.NewRequest(wire.ID(fmt.Sprint(calls*round+i+1000)), "call",
					nil), ""); err != nil {
					t.Fatal(err)
				}
			}
			for range calls {
				if m := c.read(); m.Kind() != wire.Response {
					t.Fatalf("read %s", m.Raw())
				}
			}
			synctest.Wait()
			if running, spare := goroutines(); spare != maxIdle || running > first+maxIdle {
				t.Errorf("round %d: %d goroutines, %d of them idle; want %d idle besides %d", round,
					running, spare, maxIdle, first)
			}
		}
	})
}
