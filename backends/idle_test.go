package backends_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// An idle backend is stopped, its tools stay listed, and the next call starts it.
func TestIdle_BackendIsStopped(t *testing.T) {
	for _, generation := range []string{"legacy", "modern"} {
		t.Run(generation, func(t *testing.T) {
			o := backends.Options{Backends: []config.Backend{withIdleStop("a")}}
			o.Backends[0].Generation = config.GenerationSetting(generation)
			withHarness(t, o, func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				start := func() {
					if generation == "modern" {
						p.ServeDiscover(discoverWith(`{"tools":{"listChanged":true}}`))
					} else {
						p.ServeHandshake("")
					}
				}
				rest := func() {
					if generation == "modern" { // the listen of the gateway is always open
						p.WantRequest("subscriptions/listen")
						p.Send(
							`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true}}}`)
					}
					p.ServeToolsList(mcptest.ToolsResult("t"))
				}
				start()
				rest()
				time.Sleep(50 * time.Second)
				c, _ := h.call("a")
				m := p.WantRequest("tools/call")
				time.Sleep(5 * time.Minute) // the backend works on a call
				h.wantState("a", backends.Ready)
				p.SendResult(m.ID(), `{"content":[]}`)
				c.wantResult(t)
				time.Sleep(59 * time.Second)
				h.wantState("a", backends.Ready)
				time.Sleep(time.Second)
				if !p.Disconnected() {
					t.Error("the process was not ended")
				}
				h.wantState("a", backends.Stopped)
				if s := h.status("a"); s.Err != nil || !s.NextTry.IsZero() ||
					s.Counts[catalog.Tools] != 1 {
					t.Errorf("status: %+v", s)
				}
				time.Sleep(time.Hour)
				if len(h.dialTimes("a")) != 1 {
					t.Error("the backend was started without demand")
				}
				h.wantNames("t")
				c, _ = h.call("a")
				p = h.nextProcess("a")
				start()
				p.SendResult(p.WantRequest("tools/call").ID(), `{"content":[]}`)
				c.wantResult(t)
				rest()
				h.wantState("a", backends.Ready)
				if warnings := h.log.Warnings(); len(warnings) != 0 {
					t.Errorf("logged %q", warnings)
				}
			})
		})
	}
}

// Demand before the start does not start the backend again after the stop.
func TestIdle_StoppedBackendStaysStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{Backends: []config.Backend{withIdleStop("a")}})
		c, _ := h.call("a")
		synctest.Wait()
		h.Start()
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.SendResult(p.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		p.ServeToolsList(mcptest.ToolsResult("t"))
		time.Sleep(time.Hour)
		h.wantState("a", backends.Stopped)
		if n := len(h.dialTimes("a")); n != 1 {
			t.Errorf("the backend was started %d times", n)
		}
	})
}

// Neither pings nor the gateway's own refreshes count as use; a subscription, an open server
// request and a task do.
func TestIdle_WhatCountsAsUse(t *testing.T) {
	for name, c := range map[string]struct {
		does func(h *harness, p *mcptest.Peer) (end func())
	}{
		"a subscription": {func(h *harness, p *mcptest.Peer) func() {
			a := h.subscribe("one", "a", "x:y", true)
			p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
			a.wantResult(h.t)
			return func() {
				a := h.subscribe("one", "a", "x:y", false)
				p.SendResult(p.WantRequest("resources/unsubscribe").ID(), "{}")
				a.wantResult(h.t)
			}
		}},
		"a server request": {func(h *harness, p *mcptest.Peer) func() {
			p.Send(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}`)
			synctest.Wait()
			return func() {
				h.clients.requests[0].Reply([]byte("{}"))
				p.NextMessage()
				p.Send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
			}
		}},
		"a call": {func(h *harness, p *mcptest.Peer) func() {
			h.callFor("one", "a")
			m := p.WantRequest("tools/call")
			return func() { p.SendResult(m.ID(), "{}") }
		}},
		"progress after a call": {func(h *harness, p *mcptest.Peer) func() {
			t := &relayingHandler{}
			t.call = h.SendCall("a", "one", wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), t)
			p.SendResult(p.WantRequest("tools/call").ID(), `{"task":{"taskId":"1"}}`)
			synctest.Wait()
			return func() {
				t.stop()
				p.Send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: []config.Backend{withIdleStop("a")}},
				func(t *testing.T, h *harness) {
					p := h.nextProcess("a")
					p.ServeHandshake(loggingServer)
					h.serveLists(p)
					h.OpenSession("one", nil, false)
					end := c.does(h, p)
					time.Sleep(time.Hour)
					h.wantState("a", backends.Ready)
					end()
					time.Sleep(59 * time.Second)
					h.wantState("a", backends.Ready)
					time.Sleep(10 * time.Second)
					h.wantState("a", backends.Stopped)
				})
		})
	}
	t.Run("pings and refreshes do not count", func(t *testing.T) {
		c := withIdleStop("a")
		c.IdleStop = 5 * time.Minute
		withHarness(t, backends.Options{Backends: []config.Backend{c}},
			func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.ReceivePings()
				p.ServeHandshake("")
				p.SendError(p.WantRequest("tools/list").ID(),
					`{"code":-32603,"message":"not yet"}`)
				time.Sleep(time.Second)
				p.ServeToolsList(mcptest.ToolsResult("t"))
				for range 4 {
					time.Sleep(30 * time.Second)
					pong(p)
				}
				h.wantState("a", backends.Ready)
				time.Sleep(time.Minute)
				h.wantState("a", backends.Stopped)
			})
	})
}

// A relayingHandler relays progress after its response.
type relayingHandler struct {
	call contract.BackendCall
	stop func() // ends the relay
}

func (t *relayingHandler) OnProgress(wire.Message) {}

func (t *relayingHandler) OnResponse(contract.BackendResponse) {
	t.stop = t.call.RelayProgress(func(wire.Message) {})
}

// A first list that takes longer than idle_stop is awaited.
func TestIdle_NotBeforeFirstList(t *testing.T) {
	c := withIdleStop("a")
	c.IdleStop = time.Second
	withHarness(t, backends.Options{Backends: []config.Backend{c}}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake("")
		m := p.WantRequest("tools/list")
		time.Sleep(30 * time.Second)
		p.SendResult(m.ID(), mcptest.ToolsResult("t"))
		h.wantNames("t")
		time.Sleep(2 * time.Second)
		h.wantState("a", backends.Stopped)
		h.wantNames("t")
	})
}

// A session's own process is also stopped, and is started by the session's next call. A process
// with a subscription is not stopped.
func TestIdle_SessionConnectionIsStopped(t *testing.T) {
	c := withIdleStop("a")
	c.Sharing = "session"
	withHarness(t, backends.Options{Backends: []config.Backend{c}}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		h.SetLevel("one", "error", func() {})
		call := h.callFor("one", "a")
		one := h.nextProcess("a")
		one.ServeHandshake(loggingServer)
		one.SendResult(one.WantRequest("logging/setLevel").ID(), "{}")
		one.SendResult(one.WantRequest("tools/call").ID(), "{}")
		call.wantResult(t)
		sub := h.subscribe("two", "a", "x:y", true)
		two := h.nextProcess("a")
		two.ServeHandshake(loggingServer)
		two.SendResult(two.WantRequest("resources/subscribe").ID(), "{}")
		sub.wantResult(t)
		time.Sleep(2 * time.Minute)
		if !one.Disconnected() || two.Disconnected() {
			t.Error("the wrong connection was stopped")
		}
		h.wantState("a", backends.Stopped) // the shared connection is also stopped
		n := len(h.dialTimes("a"))
		call = h.callFor("one", "a")
		one = h.nextProcess("a")
		one.ServeHandshake(loggingServer)
		// The log level of the session is restored.
		one.SendResult(one.WantRequest("logging/setLevel").ID(), "{}")
		one.SendResult(one.WantRequest("tools/call").ID(), "{}")
		call.wantResult(t)
		if len(h.dialTimes("a")) != n+1 {
			t.Errorf("started %d times", len(h.dialTimes("a"))-n)
		}
		// An announcement of the session's process causes a refresh over the shared connection.
		one.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		shared := h.nextProcess("a")
		shared.ServeStartup("new")
		shared.ServeToolsList(mcptest.ToolsResult("new"))
		h.wantNames("new")
	})
}

// A call at the moment of the stop is queued for the next start: no call is lost or sent twice.
func TestIdle_ConcurrentCallIsNotLost(t *testing.T) {
	for _, sharing := range []string{"shared", "session"} {
		for round := range 100 {
			c := withIdleStop("a")
			c.Sharing = config.Sharing(sharing)
			withHarness(t, backends.Options{Backends: []config.Backend{c}},
				func(t *testing.T, h *harness) {
					var calling sync.WaitGroup
					h.OpenSession("one", nil, false)
					shared := h.nextProcess("a")
					shared.ServeStartup("t")
					p := shared
					if sharing == "session" {
						first := h.callFor("one", "a")
						p = h.nextProcess("a")
						p.ServeHandshake("")
						p.SendResult(p.WantRequest("tools/call").ID(), "{}")
						first.wantResult(t)
					}
					time.Sleep(time.Minute - time.Nanosecond)
					var calls [8]*callRecorder
					for i := range calls {
						calling.Go(func() {
							time.Sleep(time.Nanosecond) // at the moment of the stop
							for range (round + i) % 7 {
								runtime.Gosched() // before or after the stop
							}
							calls[i] = h.callFor("one", "a")
						})
					}
					calling.Wait()
					synctest.Wait()
					live := p
					if p.Disconnected() {
						for _, line := range p.TakeAll() {
							if strings.Contains(line, "tools/call") {
								t.Errorf("round %d: sent to a stopping backend: %s", round, line)
							}
						}
						live = h.nextProcess("a")
						live.ServeHandshake("")
					}
					for range calls {
						live.SendResult(live.WantRequest("tools/call").ID(), "{}")
					}
					for _, c := range calls {
						c.wantResult(t)
					}
				})
		}
	}
}

// A backend whose tools could not be listed yet is not stopped, because no call could start it
// again.
func TestIdle_NotBeforeListingSucceeds(t *testing.T) {
	withHarness(t, backends.Options{Backends: []config.Backend{withIdleStop("a")}},
		func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeHandshake("")
			ready := time.Now().Add(5 * time.Minute)
			for {
				m := p.WantRequest("tools/list")
				if time.Now().After(ready) {
					p.SendResult(m.ID(), mcptest.ToolsResult("t"))
					break
				}
				p.SendError(m.ID(), `{"code":-32603,"message":"not logged in yet"}`)
			}
			h.wantNames("t")
			time.Sleep(time.Hour)
			h.wantState("a", backends.Stopped)
		})
}

// Lists that a server has announced as changed are read before the server is stopped, even after a
// delay.
func TestIdle_NotBeforeChangesAreRead(t *testing.T) {
	c := withIdleStop("a")
	c.IdleStop = time.Second
	withHarness(t, backends.Options{Backends: []config.Backend{c}}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		for range 12 { // the backend announces changes without end
			synctest.Wait()
			p.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			p.ServeToolsList(mcptest.ToolsResult("t"))
		}
		synctest.Wait()
		p.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		p.ServeToolsList(mcptest.ToolsResult("new"))
		h.wantNames("new")
	})
}

// The subscriptions of a session move from its own connection to the shared connection when the
// handshake has shown that the server is modern. The shared connection is started if it was
// stopped.
func TestIdle_MergedSubscriptionsStartSharedConnection(t *testing.T) {
	c := withIdleStop("a")
	c.Sharing, c.Generation = "session", ""
	withHarness(t, backends.Options{Backends: []config.Backend{c}}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.SendError(p.WantRequest("server/discover").ID(),
			`{"code":-32601,"message":"Method not found"}`)
		p.ServeStartup("t")
		h.OpenSession("one", nil, false)
		sub := h.subscribe("one", "a", "x:y", true)
		own := h.nextProcess("a")
		own.ServeHandshake(
			`{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"x","version":"1"}}`)
		own.SendResult(own.WantRequest("resources/subscribe").ID(), "{}")
		sub.wantResult(t)
		time.Sleep(2 * time.Minute)
		h.wantState("a", backends.Stopped) // the shared connection is stopped
		own.Exit("killed", "")
		own = h.nextProcess("a")
		own.SendError(own.WantRequest("initialize").ID(),
			`{"code":-32601,"message":"Method not found"}`)
		own = h.nextProcess("a")
		own.ServeDiscover(discoverWith(`{"tools":{},"resources":{"subscribe":true}}`))
		synctest.Wait()
		if n := len(h.dialTimes("a")); n != 5 {
			t.Fatalf("dialled %d times", n)
		}
		shared := h.nextProcess("a")
		shared.ServeDiscover(discoverWith(`{"tools":{},"resources":{"subscribe":true}}`))
		shared.WantRequest("subscriptions/listen")
	})
}

// A backend is stopped when idle_stop has passed since its last call.
func TestIdle_CountsFromLastCall(t *testing.T) {
	for _, idle := range []time.Duration{3 * time.Second, 30 * time.Second} {
		c := withIdleStop("a")
		c.IdleStop = idle
		withHarness(t, backends.Options{Backends: []config.Backend{c}},
			func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.ServeStartup("t")
				p.ReceivePings()
				time.Sleep(idle / 2)
				call, _ := h.call("a")
				p.SendResult(p.WantRequest("tools/call").ID(), "{}")
				call.wantResult(t)
				time.Sleep(idle - time.Millisecond)
				if p.Disconnected() {
					t.Errorf("%v: the backend was stopped too soon", idle)
				}
				time.Sleep(2 * time.Millisecond)
				h.wantState("a", backends.Stopped)
			})
	}
}
