package backends_test

import (
	"errors"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/transport"
)

// A program that echoes its input is recognized with any configured generation. It gets no
// response, and the error names the reason.
func TestEcho(t *testing.T) {
	for generation, first := range map[string]string{"auto": "server/discover",
		"modern": "server/discover", "legacy": "initialize"} {
		t.Run(generation, func(t *testing.T) {
			one := legacyBackends("a")
			one[0].Generation = config.GenerationSetting(generation)
			withHarness(t, backends.Options{Backends: one}, func(t *testing.T, h *harness) {
				call, _ := h.call("a")
				p := h.nextProcess("a")
				p.Send(string(p.WantRequest(first).Raw()))
				const echo = "it echoes its input: it is not an MCP server, or there is a terminal in between (docker run -t, ssh -t)"
				h.wantError("a", echo)
				call.want(t, "it did not start: "+echo)
				p.WantNothing()
				if at := h.dialTimes("a"); len(at) != 1 {
					t.Errorf("dialled at %v", at)
				}
				// it is started again like any other backend
				if p := h.nextProcess("a"); generation == "legacy" {
					h.finishLegacyStart(p)
				} else {
					p.ServeDiscover("")
					h.finishModernStart(p)
				}
			})
		})
	}
}

// Without a connection, the failed request proves nothing about the server.
func TestNoConnection(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.FailRead(&transport.CallLostError{ID: p.WantRequest("server/discover").ID(),
				Err: errors.New("no connection: dial tcp: connection refused")})
			h.wantError("a", "no connection: dial tcp: connection refused")
		})
	// The silence of an absent host proves nothing about its revision.
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.WantRequest("server/discover")
			time.Sleep(5 * time.Second)
			p = h.nextProcess("a")
			p.FailRead(&transport.CallLostError{ID: p.WantRequest("initialize").ID(),
				Err: errors.New("no connection: dial tcp: connection refused")})
			h.wantError("a", "no connection: dial tcp: connection refused")
		})
}
