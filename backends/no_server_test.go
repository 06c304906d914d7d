package backends_test

import (
	"errors"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/transport"
)

// A program that sends back what it is sent is not a server, in any era. It gets no answer, and the
// error says what it does.
func TestAnEcho(t *testing.T) {
	for era, first := range map[string]string{"auto": "server/discover", "modern": "server/discover", "legacy": "initialize"} {
		t.Run(era, func(t *testing.T) {
			one := plain("a")
			one[0].Generation = era
			inHouse(t, backends.Options{Backends: one}, func(t *testing.T, h *house) {
				call, _ := h.call("a")
				p := h.next("a")
				p.Send(string(p.HandleRequest(first).Raw()))
				const echo = "it echoes its input: it is not an MCP server, or there is a terminal in between (docker run -t, ssh -t)"
				h.wantProblem("a", echo)
				call.want(t, "it did not start: "+echo)
				p.WantNothing()
				if at := h.dials("a"); len(at) != 1 {
					t.Errorf("dialled at %v", at)
				}
				if p := h.next("a"); era == "legacy" { // it is tried again as any other
					h.speaksClassic(p)
				} else {
					p.ServeDiscover("")
					h.speaksModern(p)
				}
			})
		})
	}
}

// Where there is no connection, the request that could not be sent says nothing about the server.
func TestNoConnection(t *testing.T) {
	inHouse(t, backends.Options{Backends: unasked(remote("a"))}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.FailRead(&transport.CallLostError{ID: p.HandleRequest("server/discover").ID(), Err: errors.New("no connection: dial tcp: connection refused")})
		h.wantProblem("a", "no connection: dial tcp: connection refused")
	})
	// The silence of a host that is not there does not say which revision it speaks.
	inHouse(t, backends.Options{Backends: unasked(remote("a"))}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.HandleRequest("server/discover")
		time.Sleep(5 * time.Second)
		p = h.next("a")
		p.FailRead(&transport.CallLostError{ID: p.HandleRequest("initialize").ID(), Err: errors.New("no connection: dial tcp: connection refused")})
		h.wantProblem("a", "no connection: dial tcp: connection refused")
	})
}
