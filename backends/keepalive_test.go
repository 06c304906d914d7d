package backends_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
)

// pong responds to the ping that must arrive next.
func pong(p *mcptest.Peer) { p.SendResult(p.WantRequest("ping").ID(), "{}") }

// A legacy backend is pinged after a minute of silence; any message counts as a response.
func TestPing_SilentBackend(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(59 * time.Second)
		a.WantNothing()
		a.Send(
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		time.Sleep(59 * time.Second)
		a.WantNothing()
		time.Sleep(time.Second)
		// the message counts as a response
		a.SendError(a.WantRequest("ping").ID(), `{"code":-32601,"message":"Method not found"}`)
		time.Sleep(59 * time.Second)
		a.WantNothing()
		time.Sleep(time.Second)
		pong(a)
		h.wantState("a", backends.Ready)
	})
}

// A server that has responded to pings and then stops responding is hanging: calls are still sent
// to it for some time, and then it is started again, with an error that contains the reason.
func TestPing_HangingBackendIsRestarted(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		pong(a)
		time.Sleep(time.Minute)
		a.WantRequest("ping")
		h.wantState("a", backends.Ready)
		time.Sleep(10 * time.Second)
		h.wantState("a", backends.Degraded)
		h.wantError("a", "no response to ping: silent for 10s")
		a.WantRequest("ping") // no cancellation of the first ping precedes it
		time.Sleep(10 * time.Second)
		a.WantRequest("ping")
		died := time.Now()
		time.Sleep(10*time.Second - 1)
		if a.Disconnected() {
			t.Error("the connection was ended too early")
		}
		h.nextProcess("a").ServeStartup("t")
		if took := time.Since(died); took > 10300*time.Millisecond {
			t.Errorf("the backend was started again after %v", took)
		}
		h.wantState("a", backends.Ready)
		if lines := h.log.Lines("level=WARN", "backend ended",
			"it hangs: 3 pings in a row got no response"); len(lines) != 1 {
			t.Errorf("logged %q", h.log.Warnings())
		}
	})
}

// Any message in time ends the degraded state.
func TestPing_AnyMessageEndsDegradedState(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		pong(a)
		time.Sleep(time.Minute)
		late := a.WantRequest("ping")
		time.Sleep(11 * time.Second)
		h.wantState("a", backends.Degraded)
		c, _ := h.call("a")
		a.WantRequest("ping")
		call := a.WantRequest("tools/call") // calls are still sent to the degraded backend
		time.Sleep(time.Hour)
		a.WantNothing() // no ping follows, because the backend works on a call
		h.wantState("a", backends.Degraded)
		a.SendResult(late.ID(), "{}")
		time.Sleep(2 * time.Second)
		h.wantState("a", backends.Ready)
		a.SendResult(call.ID(), "{}")
		c.wantResult(t)
		if len(h.log.Lines("no longer degraded")) != 1 {
			t.Error("the recovery is not logged")
		}
		time.Sleep(40 * time.Second)
		a.WantNothing()
	})
}

// A server that never responds to pings is pinged once, and is not restarted.
func TestPing_ServerWithoutPing(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		a.WantRequest("ping")
		time.Sleep(24 * time.Hour)
		a.WantNothing()
		h.wantState("a", backends.Ready)
		if len(h.dialTimes("a")) != 1 || len(h.log.Warnings()) != 0 ||
			len(h.log.Lines("no response to ping;")) != 1 {
			t.Errorf("started %d times, logged %q", len(h.dialTimes("a")), h.log.Warnings())
		}
	})
}

// PROC-11: a server that handles one request at a time is busy during a call, not dead: it is
// neither pinged nor restarted meanwhile.
func TestPROC11_BusyIsNotDead(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		pong(a) // the server supports pings
		for _, long := range []time.Duration{30 * time.Second, time.Hour} {
			c, _ := h.call("a")
			m := a.WantRequest("tools/call")
			time.Sleep(long)
			a.WantNothing() // no ping was sent meanwhile
			h.wantState("a", backends.Ready)
			a.SendResult(m.ID(), "{}")
			c.wantResult(t)
		}
		// A call after an unanswered ping: the server may be working on the call by now.
		time.Sleep(time.Minute)
		ping := a.WantRequest("ping")
		time.Sleep(5 * time.Second)
		c, _ := h.call("a")
		m := a.WantRequest("tools/call")
		time.Sleep(10 * time.Minute)
		a.WantNothing()
		h.wantState("a", backends.Ready)
		a.SendResult(ping.ID(), "{}")
		a.SendResult(m.ID(), "{}")
		c.wantResult(t)
		if n := len(h.dialTimes("a")); n != 1 {
			t.Errorf("the backend was started %d times", n)
		}
	})
}

// A modern server gets no ping.
func TestPing_NotForModernServers(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")[0],
		perSessionBackend("b"))}, func(t *testing.T, h *harness) {
		for _, name := range []string{"a", "b"} {
			p := h.nextProcess(name)
			p.ReceivePings()
			p.ServeDiscover("")
			p.ServeToolsList(mcptest.ToolsResult("t"))
			defer p.WantNothing()
		}
		time.Sleep(time.Hour)
	})
}

// A modern backend behind a URL has no connection that could break. Failed calls show that the
// backend is unreachable. Then server/discover is sent until the backend responds, and its lists
// are read again.
func TestUnreachableModernBackend(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			a := h.nextProcess("a")
			a.ServeDiscover("")
			a.ServeToolsList(mcptest.ToolsResult("t"))
			h.wantState("a", backends.Ready)
			lose := func(method string) {
				t.Helper()
				a.FailRead(&transport.CallLostError{ID: a.WantRequest(method).ID(),
					Err: errors.New("connection refused")})
			}
			c, _ := h.call("a")
			lose("tools/call")
			c.want(t, "connection refused")
			h.wantState("a", backends.Degraded)
			h.wantError("a", "connection refused")
			for range 10 {
				lose("server/discover")
			}
			began := time.Now()
			lose("server/discover")
			lose("server/discover")
			if pause := time.Since(began); pause < 20*time.Second || pause > time.Minute {
				t.Errorf("requested again after %v", pause)
			}
			h.wantNames("t") // t is listed from the cache
			if warnings := h.log.Warnings(); len(warnings) != 1 ||
				!strings.Contains(warnings[0], "degraded; calls still sent to it") {
				t.Errorf("logged %q", warnings)
			}
			c, _ = h.call("a")
			lose("tools/call") // calls are still sent to the degraded backend
			c.want(t, "connection refused")

			a.ServeDiscover("")
			a.ServeToolsList(mcptest.ToolsResult("t", "u"))
			h.wantState("a", backends.Ready)
			h.wantNames("t", "u")

			// A response ends the degraded state.
			h.call("a")
			lose("tools/call")
			lose("server/discover")
			lose("server/discover")
			lose("server/discover")
			synctest.Wait()
			h.wantState("a", backends.Degraded)
			c, _ = h.call("a")
			a.SendResult(a.WantRequest("tools/call").ID(),
				`{"resultType":"complete","content":[]}`)
			c.wantResult(t)
			h.wantState("a", backends.Ready)
			back := time.Now()
			a.ServeToolsList(mcptest.ToolsResult("v"))
			if took := time.Since(back); took != 0 {
				t.Errorf("the lists were read after %v", took)
			}
			h.wantNames("v")
			time.Sleep(time.Hour)
			a.WantNothing()
		})
}

// A server that refuses a call, or breaks the response off, is reachable.
func TestRefusalIsNotUnreachable(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			a := h.nextProcess("a")
			a.ServeDiscover("")
			a.ServeToolsList(mcptest.ToolsResult("t"))
			for _, err := range []*transport.CallLostError{
				{Err: &httpclient.StatusError{Code: 401}},
				{Err: &httpclient.StatusError{Code: 500}, MayHaveRun: true},
				{Err: errors.New("cut off"), MayHaveRun: true},
			} {
				h.call("a")
				err.ID = a.WantRequest("tools/call").ID()
				a.FailRead(err)
				h.wantState("a", backends.Ready)
			}
			h.call("a")
			a.FailRead(&transport.CallLostError{ID: a.WantRequest("tools/call").ID(),
				Err: &httpclient.StatusError{Code: 503}})
			h.wantState("a", backends.Degraded)
		})
}

// If a listen has ended and cannot be opened again, the server counts as unreachable.
func TestUnreachable_DetectedByListen(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(perSessionBackend("a"))},
		func(t *testing.T, h *harness) {
			a := h.nextProcess("a")
			a.ServeDiscover(discoverWith(`{"tools":{"listChanged":true}}`))
			listen := a.WantRequest("subscriptions/listen")
			a.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true}}}`)
			a.ServeToolsList(mcptest.ToolsResult("t"))
			h.wantState("a", backends.Ready)
			a.FailRead(&transport.CallLostError{ID: listen.ID(), Err: errors.New("cut off"),
				MayHaveRun: true})
			m := a.WantRequest("subscriptions/listen")
			a.FailRead(&transport.CallLostError{ID: m.ID(), Err: errors.New("connection refused")})
			h.wantState("a", backends.Degraded)
			a.ServeDiscover(discoverWith(`{"tools":{"listChanged":true}}`))
			h.wantState("a", backends.Ready)
		})
}

// A server that was gone for a moment, and then does not respond to its first ping, does not
// support pings. It does not remain degraded.
func TestUnreachable_ServerWithoutPingRecovers(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{perSessionBackend("a")}},
		func(t *testing.T, h *harness) {
			a := h.nextProcess("a")
			a.ReceivePings()
			a.ServeStartup("t")
			time.Sleep(time.Minute)
			a.FailRead(&transport.CallLostError{ID: a.WantRequest("ping").ID(),
				Err: errors.New("connection refused")})
			h.wantState("a", backends.Degraded)
			a.WantRequest("ping")
			time.Sleep(time.Hour)
			a.WantNothing()
			h.wantState("a", backends.Ready)
		})
}
