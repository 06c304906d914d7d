package backends_test

import (
	"errors"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// While a server is unreachable, it is tried again with growing pauses, also if the TTL of a list
// has passed. The list is read again when the server is reachable.
func TestRediscover_ListExpiresWhileUnreachable(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			h.OpenSession("one", nil, false)
			p := h.nextProcess("a")
			p.ServeDiscover("")
			list := `{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[]}`
			p.ServeToolsList(list)
			refuse := func(id wire.ID) {
				p.FailRead(&transport.CallLostError{ID: id, Err: errors.New("connection refused")})
			}
			h.callFor("one", "a")
			refuse(p.WantRequest("tools/call").ID())
			discovers := 0
			for began := time.Now(); time.Since(began) < 10*time.Minute && discovers < 100; {
				for _, line := range p.TakeAll() {
					m, _ := wire.Parse([]byte(line))
					if m.Method() != "server/discover" {
						t.Errorf("got %s", line)
					}
					discovers++
					refuse(m.ID())
				}
				time.Sleep(100 * time.Millisecond)
			}
			if discovers > 60 {
				t.Errorf("discovered %d times", discovers)
			}
			p.ServeDiscover("")
			p.ServeToolsList(list)
			time.Sleep(60 * time.Second)
			p.ServeToolsList(list)
		})
}
