package backends_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport/httpclient"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
)

// pong answers the ping that must come next.
func pong(p *mcptest.Peer) { p.SendResult(p.HandleRequest("ping").ID(), "{}") }

// A backend of the session era of which nothing was heard for a minute is pinged; whatever
// it says is as good as an answer.
func TestAnIdleBackendIsPinged(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(59 * time.Second)
		a.WantNothing()
		a.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		time.Sleep(59 * time.Second)
		a.WantNothing()
		time.Sleep(time.Second)
		a.SendError(a.HandleRequest("ping").ID(), `{"code":-32601,"message":"Method not found"}`) // which is an answer
		time.Sleep(59 * time.Second)
		a.WantNothing()
		time.Sleep(time.Second)
		pong(a)
		h.wantState("a", backends.Ready)
	})
}

// A server that has answered pings and does so no more hangs: calls go to it while there is
// hope, and then it is started again, with an error that says so.
func TestABackendThatHangsIsStartedAgain(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		pong(a)
		time.Sleep(time.Minute)
		a.HandleRequest("ping")
		h.wantState("a", backends.Ready)
		time.Sleep(10 * time.Second)
		h.wantState("a", backends.Degraded)
		h.wantProblem("a", "no response to ping: silent for 10s")
		a.HandleRequest("ping") // and nothing is said of the first
		time.Sleep(10 * time.Second)
		a.HandleRequest("ping")
		died := time.Now()
		time.Sleep(10*time.Second - 1)
		if a.Disconnected() {
			t.Error("it is ended too early")
		}
		h.next("a").ServeStartup("t")
		if took := time.Since(died); took > 10300*time.Millisecond {
			t.Errorf("it was started again after %v", took)
		}
		h.wantState("a", backends.Ready)
		if lines := h.log.Lines("level=WARN", "backend ended", "it hangs: 3 pings in a row got no response"); len(lines) != 1 {
			t.Errorf("logged %q", h.log.Warnings())
		}
	})
}

// Whatever is heard of it in time, it is well again.
func TestABackendThatWasSilentAndIsHeardIsWellAgain(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		pong(a)
		time.Sleep(time.Minute)
		late := a.HandleRequest("ping")
		time.Sleep(11 * time.Second)
		h.wantState("a", backends.Degraded)
		c, _ := h.call("a")
		a.HandleRequest("ping")
		call := a.HandleRequest("tools/call") // which goes to it all the same
		time.Sleep(time.Hour)
		a.WantNothing() // it is busy
		h.wantState("a", backends.Degraded)
		a.SendResult(late.ID(), "{}")
		time.Sleep(2 * time.Second)
		h.wantState("a", backends.Ready)
		a.SendResult(call.ID(), "{}")
		c.ok(t)
		if len(h.log.Lines("no longer degraded")) != 1 {
			t.Error("nobody says that it is well again")
		}
		time.Sleep(40 * time.Second)
		a.WantNothing()
	})
}

// A server that never answers pings is not started again for that, and asked once.
func TestAServerWithoutPings(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		a.HandleRequest("ping")
		time.Sleep(24 * time.Hour)
		a.WantNothing()
		h.wantState("a", backends.Ready)
		if len(h.dials("a")) != 1 || len(h.log.Warnings()) != 0 || len(h.log.Lines("does not respond to ping")) != 1 {
			t.Errorf("started %d times, logged %q", len(h.dials("a")), h.log.Warnings())
		}
	})
}

// PROC-11: a server that does one thing at a time is busy while it does it, and not dead: it
// is not pinged meanwhile, and not started again.
func TestPROC11_BusyIsNotDead(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		pong(a) // it does answer them
		for _, long := range []time.Duration{30 * time.Second, time.Hour} {
			c, _ := h.call("a")
			m := a.HandleRequest("tools/call")
			time.Sleep(long)
			a.WantNothing() // no ping meanwhile
			h.wantState("a", backends.Ready)
			a.SendResult(m.ID(), "{}")
			c.ok(t)
		}
		// A call behind a ping that it has not come to: it may be at the call by now.
		time.Sleep(time.Minute)
		ping := a.HandleRequest("ping")
		time.Sleep(5 * time.Second)
		c, _ := h.call("a")
		m := a.HandleRequest("tools/call")
		time.Sleep(10 * time.Minute)
		a.WantNothing()
		h.wantState("a", backends.Ready)
		a.SendResult(ping.ID(), "{}")
		a.SendResult(m.ID(), "{}")
		c.ok(t)
		if n := len(h.dials("a")); n != 1 {
			t.Errorf("it was started %d times", n)
		}
	})
}

// A server of the stateless era has no ping.
func TestTheStatelessEraHasNoPing(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(plain("a")[0], remote("b"))}, func(t *testing.T, h *house) {
		for _, name := range []string{"a", "b"} {
			p := h.next(name)
			p.ReceivePings()
			p.ServeDiscover("")
			p.ServeToolsList(mcptest.ToolsResult("t"))
			defer p.WantNothing()
		}
		time.Sleep(time.Hour)
	})
}

// A backend of 2026-07-28 behind a URL has no connection that could break. That it is gone
// shows in its calls; then it is asked whether it is back, and if so its lists are read anew.
func TestABackendWithoutConnectionThatIsGone(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(remote("a"))}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeDiscover("")
		a.ServeToolsList(mcptest.ToolsResult("t"))
		h.wantState("a", backends.Ready)
		lose := func(method string) {
			t.Helper()
			a.FailRead(&transport.CallLostError{ID: a.HandleRequest(method).ID(), Err: errors.New("connection refused")})
		}
		c, _ := h.call("a")
		lose("tools/call")
		c.want(t, "connection refused")
		h.wantState("a", backends.Degraded)
		h.wantProblem("a", "connection refused")
		for range 10 {
			lose("server/discover")
		}
		began := time.Now()
		lose("server/discover")
		lose("server/discover")
		if pause := time.Since(began); pause < 20*time.Second || pause > time.Minute {
			t.Errorf("asked again after %v", pause)
		}
		h.wantNames("t") // which it still has
		if loud := h.log.Warnings(); len(loud) != 1 || !strings.Contains(loud[0], "degraded; calls still go to it") {
			t.Errorf("logged %q", loud)
		}
		c, _ = h.call("a")
		lose("tools/call") // calls go to it all the same
		c.want(t, "connection refused")

		a.ServeDiscover("")
		a.ServeToolsList(mcptest.ToolsResult("t", "u"))
		h.wantState("a", backends.Ready)
		h.wantNames("t", "u")

		// It is back as soon as a call says so.
		h.call("a")
		lose("tools/call")
		lose("server/discover")
		lose("server/discover")
		lose("server/discover")
		synctest.Wait()
		h.wantState("a", backends.Degraded)
		c, _ = h.call("a")
		a.SendResult(a.HandleRequest("tools/call").ID(), `{"resultType":"complete","content":[]}`)
		c.ok(t)
		h.wantState("a", backends.Ready)
		back := time.Now()
		a.ServeToolsList(mcptest.ToolsResult("v"))
		if took := time.Since(back); took != 0 {
			t.Errorf("its lists were read after %v", took)
		}
		h.wantNames("v")
		time.Sleep(time.Hour)
		a.WantNothing()
	})
}

// A server that refuses a call, and one that broke off, is there.
func TestARefusalIsNotForLackOfAServer(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(remote("a"))}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeDiscover("")
		a.ServeToolsList(mcptest.ToolsResult("t"))
		for _, err := range []*transport.CallLostError{
			{Err: &httpclient.StatusError{Code: 401}}, {Err: &httpclient.StatusError{Code: 500}, MayHaveRun: true}, {Err: errors.New("cut off"), MayHaveRun: true},
		} {
			h.call("a")
			err.ID = a.HandleRequest("tools/call").ID()
			a.FailRead(err)
			h.wantState("a", backends.Ready)
		}
		h.call("a")
		a.FailRead(&transport.CallLostError{ID: a.HandleRequest("tools/call").ID(), Err: &httpclient.StatusError{Code: 503}})
		h.wantState("a", backends.Degraded)
	})
}

// With what it listens to: the listen that breaks says that the server is gone.
func TestABackendThatIsGoneIsMissedByTheListen(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(remote("a"))}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeDiscover(discovered(`{"tools":{"listChanged":true}}`))
		listen := a.HandleRequest("subscriptions/listen")
		a.Sendf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true}}}`)
		a.ServeToolsList(mcptest.ToolsResult("t"))
		h.wantState("a", backends.Ready)
		a.FailRead(&transport.CallLostError{ID: listen.ID(), Err: errors.New("cut off"), MayHaveRun: true})
		m := a.HandleRequest("subscriptions/listen")
		a.FailRead(&transport.CallLostError{ID: m.ID(), Err: errors.New("connection refused")})
		h.wantState("a", backends.Degraded)
		a.ServeDiscover(discovered(`{"tools":{"listChanged":true}}`))
		h.wantState("a", backends.Ready)
	})
}

// A server that was gone for a moment, and that then leaves its first ping unanswered, has none:
// it is not ill for that.
func TestAServerWithoutPingsThatWasGoneIsWellAgain(t *testing.T) {
	inHouse(t, backends.Options{Backends: []config.Backend{remote("a")}}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ReceivePings()
		a.ServeStartup("t")
		time.Sleep(time.Minute)
		a.FailRead(&transport.CallLostError{ID: a.HandleRequest("ping").ID(), Err: errors.New("connection refused")})
		h.wantState("a", backends.Degraded)
		a.HandleRequest("ping")
		time.Sleep(time.Hour)
		a.WantNothing()
		h.wantState("a", backends.Ready)
	})
}
