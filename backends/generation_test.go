package backends_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/transport"
)

const discoverBoth = `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],` +
	`"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":` +
	`{"name":"scripted","version":"1"}}}`

const methodNotFound = `{"code":-32601,"message":"Method not found"}`

// A server that names a legacy revision in its DiscoverResult, but refuses initialize, is used as
// modern, also after a restart.
func TestGeneration_BothNamedButInitializeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{SingleClient: true,
			Backends: withUnknownGeneration(legacyBackends("a")...)})
		h.OpenSession("one", nil, false)
		h.Start()
		p := h.nextProcess("a")
		p.SendError(p.WantRequest("initialize").ID(), methodNotFound)
		p = h.nextProcess("a")
		p.ServeDiscover(discoverBoth)
		h.finishModernStart(p)
		p.Exit("exit 1", "")
		p = h.nextProcess("a")
		p.ServeDiscover(discoverBoth)
		h.finishModernStart(p)
	})
}

// The same for the connection of a session, with sharing: session: the session uses the shared
// connection.
func TestGeneration_BothNamedButSessionInitializeRefused(t *testing.T) {
	c := withUnknownGeneration(legacyBackends("a")...)
	c[0].Sharing = "session"
	withHarness(t, backends.Options{Backends: c}, func(t *testing.T, h *harness) {
		shared := h.nextProcess("a")
		shared.ServeDiscover(discoverBoth)
		h.finishModernStart(shared)
		h.OpenSession("one", nil, false)
		call := h.callFor("one", "a")
		p := h.nextProcess("a")
		p.SendError(p.WantRequest("initialize").ID(), methodNotFound)
		p = h.nextProcess("a")
		p.ServeDiscover(discoverBoth)
		shared.SendResult(shared.WantRequest("tools/call").ID(), `{"resultType":"complete"}`)
		call.wantResult(t)
		time.Sleep(time.Hour)
		if n := len(h.dialTimes("a")); n != 3 {
			t.Errorf("dialled %d times", n)
		}
	})
}

// The end of a session during the start of its connection says nothing about the generation of the
// server.
func TestGeneration_KeptWhenSessionEndsDuringStart(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			probe := h.nextProcess("a")
			probe.SendError(probe.WantRequest("server/discover").ID(), methodNotFound)
			shared := h.nextProcess("a")
			shared.ServeHandshake(loggingServer)
			h.serveLists(shared)
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			h.callFor("one", "a")
			h.nextProcess("a").WantRequest("initialize")
			h.CloseSession("one")
			synctest.Wait()
			h.callFor("two", "a")
			h.nextProcess("a").WantRequest("initialize")
		})
}

// server/discover is inconclusive, so initialize is only tried. If the session ends during that
// try, nothing is known: the next connection must send server/discover again.
func TestGeneration_GuessIsForgottenWhenTheSessionEnds(t *testing.T) {
	withHarness(t, backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			refuse := refusals["HTTP 500 Internal Server Error"]
			p := h.nextProcess("a") // shared: fails, so the generation is unknown
			refuse(p, p.WantRequest("server/discover").ID())
			p = h.nextProcess("a")
			p.FailRead(&transport.CallLostError{ID: p.WantRequest("initialize").ID(),
				Err: errors.New("boom"), MayHaveRun: true})
			synctest.Wait()
			h.OpenSession("one", nil, false)
			h.OpenSession("two", nil, false)
			h.callFor("one", "a")
			p = h.nextProcess("a")
			refuse(p, p.WantRequest("server/discover").ID())
			p = h.nextProcess("a")
			p.WantRequest("initialize") // only tried
			h.CloseSession("one")
			synctest.Wait()
			h.callFor("two", "a")
			p = h.nextProcess("a")
			p.WantRequest("server/discover")
		})
}
