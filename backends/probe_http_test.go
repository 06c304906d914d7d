package backends_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// Failures over HTTP that prove nothing about the generation: no authorization, no connection.
func TestProbe_UndecidedOverHTTP(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			lose := func(err error) {
				p := h.nextProcess("a")
				p.FailRead(&transport.CallLostError{ID: p.WantRequest("server/discover").ID(),
					Err: err})
				synctest.Wait()
				p.WantNothing()
			}
			for _, code := range []int{401, 403} {
				lose(&httpclient.StatusError{Code: code})
			}
			lose(errors.New("connection refused"))
			at := h.dialTimes("a")
			for i := 1; i < len(at); i++ {
				if at[i]-at[i-1] < 200*time.Millisecond {
					t.Errorf("dialled at %v", at)
				}
			}
			// The statuses 400, 404 and 405 without a modern response show at once that the server
			// is legacy.
			lose(fmt.Errorf("%w: 404", httpclient.ErrNotStateless))
			h.finishLegacyStart(h.nextProcess("a"))
		})
}

// refusals are the ways in which server/discover fails at legacy servers over HTTP, by the reason
// in the error.
var refusals = map[string]func(p *mcptest.Peer, id wire.ID){
	"HTTP 500 Internal Server Error": func(p *mcptest.Peer, id wire.ID) {
		p.FailRead(&transport.CallLostError{ID: id, Err: &httpclient.StatusError{Code: 500},
			MayHaveRun: true})
	},
	"HTTP 415 Unsupported Media Type": func(p *mcptest.Peer, id wire.ID) {
		p.FailRead(&transport.CallLostError{ID: id, Err: &httpclient.StatusError{Code: 415}})
	},
	"HTTP 202 Accepted": func(p *mcptest.Peer, id wire.ID) {
		p.FailRead(&transport.CallLostError{ID: id, Err: &httpclient.StatusError{Code: 202},
			MayHaveRun: true})
	},
	"unexpected EOF": func(p *mcptest.Peer, id wire.ID) {
		p.FailRead(&transport.CallLostError{ID: id, Err: io.ErrUnexpectedEOF, MayHaveRun: true})
	},
	"no answer within 5s": func(*mcptest.Peer, wire.ID) { time.Sleep(5 * time.Second) },
}

// After a failure of server/discover at a URL, initialize is sent at once, and calls are queued for
// the handshake. Only a silent server is remembered for the next start.
func TestProbe_DiscoverFailsOverHTTP_F_HTTP_3(t *testing.T) {
	for reason, refuse := range refusals {
		t.Run(reason, func(t *testing.T) {
			o := backends.Options{Backends: withUnknownGeneration(perSessionBackend("a")),
				StateDir: t.TempDir()}
			o.Backends[0].Sharing = "shared"
			withHarness(t, o, func(t *testing.T, h *harness) {
				waits, _ := h.call("a")
				p := h.nextProcess("a")
				refuse(p, p.WantRequest("server/discover").ID())
				p = h.nextProcess("a")
				p.ServeHandshake("")
				p.SendResult(p.WantRequest("tools/call").ID(), "{}")
				waits.wantResult(t)
				p.ServeToolsList(mcptest.ToolsResult("t"))
				if records := h.log.Lines("level=INFO", "era: legacy"); len(records) != 1 {
					t.Errorf("logged %q", records)
				}
				p.Exit("gone", "")
				h.finishLegacyStart(h.nextProcess("a")) // the server is not probed again
			})
			withHarness(t, o, func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				if reason != "no answer within 5s" {
					p.SendError(p.WantRequest("server/discover").ID(),
						`{"code":-32601,"message":"no"}`)
					p = h.nextProcess("a")
				}
				h.finishLegacyStart(p)
			})
		})
		t.Run(reason+", and initialize fails", func(t *testing.T) {
			withHarness(t,
				backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
				func(t *testing.T, h *harness) {
					for range 2 {
						waits, _ := h.call("a")
						p := h.nextProcess("a")
						refuse(p, p.WantRequest("server/discover").ID())
						p = h.nextProcess("a")
						p.FailRead(&transport.CallLostError{ID: p.WantRequest("initialize").ID(),
							Err: errors.New("boom"), MayHaveRun: true})
						why := "boom (server/discover failed first: " + reason +
							"; if the server does not know this method, set `era: legacy`)"
						waits.want(t, "it did not start: "+why)
						h.wantError("a", why)
						time.Sleep(time.Second)
					}
					p := h.nextProcess("a") // this process is probed again
					p.ServeDiscover("")
					h.finishModernStart(p)
				})
		})
	}
}

// If a backend was modern and server/discover fails once during its restart, the backend is probed
// once more.
func TestProbe_ModernServerRestarts_F_HTTP_3(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeDiscover("")
			h.finishModernStart(p)
			p.Exit("gone", "")
			p = h.nextProcess("a")
			refusals["HTTP 500 Internal Server Error"](p, p.WantRequest("server/discover").ID())
			p = h.nextProcess("a")
			p.ServeDiscover("")
			h.finishModernStart(p)
			p.Exit("gone", "")
			p = h.nextProcess("a")
			refusals["HTTP 500 Internal Server Error"](p, p.WantRequest("server/discover").ID())
			p = h.nextProcess("a")
			refusals["HTTP 500 Internal Server Error"](p, p.WantRequest("server/discover").ID())
			h.finishLegacyStart(h.nextProcess("a"))
		})
}

// A server behind a URL that accepts neither generation is not tried again at once.
func TestProbe_NeitherGeneration(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.SendError(p.WantRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
			p = h.nextProcess("a")
			p.SendError(p.WantRequest("initialize").ID(), `{"code":-32601,"message":"no"}`)
			if at := h.dialTimes("a"); len(at) != 2 {
				t.Errorf("dialled at %v", at)
			}
			if err := h.status("a").Err; err == nil || err.Error() != "initialize: no" {
				t.Errorf("the backend failed with %v", err)
			}
			p = h.nextProcess("a")
			p.ServeDiscover("") // this process is probed, because the server may have been replaced
			h.finishModernStart(p)
		})
}
