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

// If a server has other capabilities when it is discovered again, its lists are read, and the
// listen is replaced by one that requests changes of them.
func TestRediscover_NewCapabilities(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			b := h.startModernServer(t)
			b.acceptListen(nil)
			b.serveLists("t")
			call := h.callFor("one", "a")
			b.SendError(b.WantRequest("tools/call").ID(), refusal(`"2026-07-28"`))
			b.ServeDiscover(discoverWith(`{"tools":{"listChanged":true},` +
				`"prompts":{"listChanged":true},"resources":{"subscribe":true}}`))
			requested, prompts := "", 0
			serve := func() {
				for _, line := range b.TakeAll() {
					m, _ := wire.Parse([]byte(line))
					switch m.Method() {
					case "subscriptions/listen":
						if prompts != 1 {
							t.Errorf("the prompts were read %d times before the listen", prompts)
						}
						filter, _ := wire.Lookup(m.Part(wire.PartParams), "notifications")
						requested = string(filter)
						b.acknowledge(m.ID(), nil)
					case "notifications/cancelled": // of the old listen
					case "prompts/list":
						prompts++
						fallthrough
					default:
						b.SendResult(m.ID(), `{"resultType":"complete","tools":[],"prompts":[],`+
							`"resources":[],"resourceTemplates":[]}`)
					}
				}
			}
			for range 100 {
				serve()
				time.Sleep(100 * time.Millisecond)
			}
			call.wantResult(t)
			if requested != `{"promptsListChanged":true,"toolsListChanged":true}` {
				t.Errorf("the listen requests %s", requested)
			}
			if prompts != 2 { // a change before the listen may have been missed
				t.Errorf("the prompts were read %d times", prompts)
			}
		})
}
