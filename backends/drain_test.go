package backends_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// replace changes a backend, and returns the new server, which lists only the tool "new".
func (h *harness) replace(c config.Backend, others ...config.Backend) *mcptest.Peer {
	h.t.Helper()
	done := h.startApply(change(append([]config.Backend{c}, others...)...))
	p := h.nextProcess(c.Name)
	p.ServeStartup("new")
	<-done
	return p
}

// A progressRecorder is the handler of a call with progress.
type progressRecorder struct {
	callRecorder
	progress []string
}

// OnProgress implements contract.CallHandler.
func (c *progressRecorder) OnProgress(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = append(c.progress, string(m.Part(wire.PartParams)))
}

// CONFIG-09: an unchanged backend keeps its connection while another is changed. A call in flight
// at the changed backend completes over the old connection, with all its messages. After that the
// old connection ends.
func TestCONFIG_09_CallInFlightEndsOnOldBackend(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		h.OpenSession("one", nil, false)
		long := &progressRecorder{}
		h.NewCall("a", contract.BackendRequest{
			Message: wire.NewRequest("7", "tools/call",
				[]byte(`{"name":"t","_meta":{"progressToken":"mine"}}`)),
			Session: "one", ProgressToken: `"mine"`}, long).Send()
		call := a.WantRequest("tools/call")
		other := h.callFor("one", "b")
		next := h.replace(withEnv(all[0], "new"), all[1])
		h.wantNames("new", "u")

		time.Sleep(5 * time.Second)
		if a.Disconnected() {
			t.Fatal("the old backend ended during a call")
		}
		a.Sendf(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, call.Token())
		a.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		h.clients.want(t, "one requested by a: roots/list")
		h.clients.requests[0].Reply([]byte(`{"roots":[]}`))
		a.Want(result(`"q"`, `{"roots":[]}`))
		long.want(t, "")

		since := h.callFor("one", "a") // a call now goes to the new backend
		next.SendResult(next.WantRequest("tools/call").ID(), "{}")
		since.wantResult(t)
		a.WantNothing()

		a.SendResult(call.ID(), `{"content":[]}`)
		long.wantResult(t)
		if !slices.Equal(long.progress, []string{`{"progressToken":"mine","progress":1}`}) {
			t.Errorf("progress %q", long.progress)
		}
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}
		b.SendResult(b.WantRequest("tools/call").ID(), "{}")
		other.wantResult(t)
		if n := len(h.dialTimes("b")); n != 1 || b.Disconnected() {
			t.Errorf("b was started %d times", n)
		}
		if n := len(h.dialTimes("a")); n != 2 {
			t.Errorf("a was started %d times", n)
		}
		if warnings := h.log.Warnings(); len(warnings) > 0 {
			t.Errorf("logged %q", warnings)
		}
	})
}

// Calls in flight at a removed backend, and over per-session connections, also complete.
func TestApply_CallsEndOnSessionConnections(t *testing.T) {
	all := []config.Backend{perSessionBackend("a"), legacyBackends("b")[0]}
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		shared := h.nextProcess("a")
		shared.ServeStartup("t")
		h.nextProcess("b").ServeStartup("u")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		one := h.callFor("one", "a")
		p := h.nextProcess("a")
		p.ServeHandshake("")
		two := h.callFor("two", "a")
		q := h.nextProcess("a")
		q.ServeHandshake("")
		first, second := p.WantRequest("tools/call"), q.WantRequest("tools/call")
		<-h.startApply(change(all[1]))
		if !shared.Disconnected() || p.Disconnected() || q.Disconnected() {
			t.Error("the wrong connections ended")
		}
		p.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		h.clients.want(t, "one requested by a: roots/list")
		p.SendResult(first.ID(), "{}")
		one.wantResult(t)
		if !p.Disconnected() || q.Disconnected() {
			t.Error("the wrong connection ended")
		}
		h.callFor("one", "a").want(t, removed)
		q.SendResult(second.ID(), "{}")
		two.wantResult(t)
		if !q.Disconnected() {
			t.Error("the server of the session is still running")
		}
	})
}

// A session opens its own connection to the new backend on demand.
func TestApply_SessionConnectionsReconnectOnDemand(t *testing.T) {
	all := []config.Backend{perSessionBackend("a")}
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.OpenSession("one", nil, false)
		c := h.callFor("one", "a")
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.SendResult(p.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		h.replace(withEnv(all[0], "new"))
		if !p.Disconnected() {
			t.Error("the old server is still running")
		}
		if n := len(h.dialTimes("a")); n != 3 {
			t.Errorf("dialled %d times", n)
		}
		c = h.callFor("one", "a")
		q := h.nextProcess("a")
		q.ServeHandshake("")
		q.SendResult(q.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
	})
}

// Calls that are queued for a start go to the new backend, or end as not sent if there is none.
func TestApply_QueuedCallsAreRedirected(t *testing.T) {
	for _, kind := range []string{"shared", "own"} {
		t.Run(kind, func(t *testing.T) {
			c := legacyBackends("a")[0]
			if kind == "own" {
				c = perSessionBackend("a")
			}
			withHarness(t, backends.Options{Backends: []config.Backend{c, legacyBackends("b")[0]}},
				func(t *testing.T, h *harness) {
					old := h.nextProcess("a")
					h.OpenSession("one", nil, false)
					waits := h.callFor("one", "a")
					if kind == "own" {
						old = h.nextProcess("a")
					}
					waits.want(t, "")
					old.WantRequest("initialize") // the old process has received nothing else
					done := h.startApply(change(withEnv(c, "new"), legacyBackends("b")[0]))
					next := h.nextProcess("a")
					next.ServeStartup("new")
					<-done
					if kind == "own" {
						next = h.nextProcess("a")
						next.ServeHandshake("")
					}
					next.SendResult(next.WantRequest("tools/call").ID(), "{}")
					waits.wantResult(t)
					old.WantNothing()
					if !old.Disconnected() {
						t.Error("the old backend is still running")
					}
				})
			withHarness(t, backends.Options{Backends: []config.Backend{c}},
				func(t *testing.T, h *harness) {
					h.nextProcess("a")
					h.OpenSession("one", nil, false)
					waits := h.callFor("one", "a")
					<-h.startApply(change(legacyBackends("b")[0]))
					waits.want(t, removed)
				})
		})
	}
}

// Calls that are queued for a slot go to the new backend.
func TestApply_CallsQueuedForSlotAreRedirected(t *testing.T) {
	all := legacyBackends("a")
	all[0].MaxInFlight, all[0].QueueWait = 1, time.Hour
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		one, _ := h.call("a")
		call := a.WantRequest("tools/call")
		two, _ := h.call("a")
		three, _ := h.call("a")
		next := h.replace(withEnv(all[0], "new"))
		second := next.WantRequest("tools/call")
		next.WantNothing() // the new backend has one slot, like the old one
		next.SendResult(second.ID(), "{}")
		two.wantResult(t)
		next.SendResult(next.WantRequest("tools/call").ID(), "{}")
		three.wantResult(t)
		a.SendResult(call.ID(), "{}")
		one.wantResult(t)
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}
	})
}

// A call that holds a slot and is queued for a start also gets a slot at the new backend.
func TestApply_RedirectedCallsHoldSlots(t *testing.T) {
	all := legacyBackends("a")
	all[0].MaxInFlight, all[0].QueueWait = 1, time.Hour
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a") // a hangs
		one, _ := h.call("a")
		two, _ := h.call("a")
		next := h.replace(withEnv(all[0], "new"))
		three, _ := h.call("a")
		for _, c := range []*callRecorder{one, two, three} {
			call := next.WantRequest("tools/call")
			next.WantNothing()
			next.SendResult(call.ID(), "{}")
			c.wantResult(t)
		}
	})
}

func TestApply_RetriesAreRedirected(t *testing.T) {
	all := modernBackends(legacyBackends("a")...)
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeDiscover("")
		a.ServeToolsList(mcptest.ToolsResult("t"))
		waits, _ := h.call("a")
		late, _ := h.call("a")
		first, second := a.WantRequest("tools/call"), a.WantRequest("tools/call")
		a.SendError(first.ID(), `{"code":-32020,"message":"no"}`)
		a.WantRequest("tools/list") // the test sends no response
		waits.want(t, "")
		done := h.startApply(change(withEnv(all[0], "new")))
		next := h.nextProcess("a")
		next.ServeDiscover("")
		next.ServeToolsList(mcptest.ToolsResult("new"))
		<-done
		next.SendResult(next.WantRequest("tools/call").ID(), `{"resultType":"complete"}`)
		waits.wantResult(t)
		// a call that is refused now is also sent to the new server
		a.SendError(second.ID(), `{"code":-32020,"message":"no"}`)
		next.SendResult(next.WantRequest("tools/call").ID(), `{"resultType":"complete"}`)
		late.wantResult(t)
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}
	})
}

// The connection of a modern server ends with its calls, although there is a listen.
func TestApply_ModernServer(t *testing.T) {
	all := modernBackends(legacyBackends("a")...)
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.OpenSession("one", nil, false)
		a := h.startModernServer(t)
		a.acceptListen(nil)
		a.serveLists("t")
		sub := h.subscribe("one", "a", "x:y", true)
		a.takeCancel()
		a.acceptListen([]string{"x:y"})
		sub.wantResult(t)
		h.clients.want(t, "one notified by a: notifications/resources/updated")
		c := h.callFor("one", "a")
		call := a.takeRequest("tools/call")
		done := h.startApply(change(withEnv(all[0], "new")))
		next := h.startModernServer(t)
		next.acceptListen(nil)
		next.serveLists("new")
		<-done
		next.takeCancel() // the subscription moves with the session
		next.acceptListen([]string{"x:y"})
		h.clients.want(t, "one notified by a: notifications/resources/updated")
		if a.Disconnected() {
			t.Error("the old backend ended during a call")
		}
		a.SendResult(call.ID(), `{"resultType":"complete"}`)
		c.wantResult(t)
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}
	})
}

// A backend that ends during its last calls is not started again; the calls are lost.
func TestApply_DrainingBackendIsNotRestarted(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		c, _ := h.call("a")
		a.WantRequest("tools/call")
		h.replace(withEnv(all[0], "new"))
		a.Exit("exit 3", "")
		c.want(t, "exit 3")
		time.Sleep(time.Hour)
		if n := len(h.dialTimes("a")); n != 2 {
			t.Errorf("started %d times", n)
		}
	})
}

// A removed backend that is between two starts is not started again.
func TestApply_EndsRestartLoop(t *testing.T) {
	all := legacyBackends("a", "b")
	withFailingHarness(t, startErrors{"a": errors.New("no such file")},
		backends.Options{Backends: all}, func(t *testing.T, h *harness) {
			h.nextProcess("b").ServeStartup("u")
			time.Sleep(time.Second)
			n := len(h.dialTimes("a"))
			<-h.startApply(change(all[1]))
			time.Sleep(time.Hour)
			if again := len(h.dialTimes("a")); n == 0 || again != n {
				t.Errorf("started %d times, then %d", n, again)
			}
		})
}

// Calls at a draining backend may take a long time. At most four backends of one name are draining.
func TestApply_DrainingBackendsAreBounded(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		var calls []*callRecorder
		var generations []*mcptest.Peer
		for i := range 6 {
			c, _ := h.call("a")
			a.WantRequest("tools/call")
			calls, generations = append(calls, c), append(generations, a)
			a = h.replace(withEnv(all[0], fmt.Sprint(i)))
		}
		for i, c := range calls {
			want := ""
			if i < 2 {
				want = "the configuration was changed too often during the call"
			}
			c.want(t, want)
			if generations[i].Disconnected() != (i < 2) {
				t.Errorf("generation %d has ended: %v", i, i >= 2)
			}
		}
	})
}

// The end of the gateway ends draining backends and their calls.
func TestApply_ShutdownEndsDrainingBackends(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		c, _ := h.call("a")
		a.WantRequest("tools/call")
		next := h.replace(withEnv(all[0], "new"))
		h.stop()
		<-h.done
		c.want(t, "context canceled")
		if !a.Disconnected() || !next.Disconnected() {
			t.Error("a backend is still running")
		}
	})
}

func TestApply_CancelAtDrainingBackend(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		h.wantNames("t") // otherwise a gets a cancellation of tools/list
		c, pending := h.call("a")
		call := a.WantRequest("tools/call")
		<-h.startApply(change()) // the call can be cancelled although a is removed
		pending.Cancel(nil)
		c.want(t, "cancelled")
		m := a.WantNotification("notifications/cancelled")
		if id, _ := wire.Lookup(m.Part(wire.PartParams),
			"requestId"); string(id) != string(call.ID()) {
			t.Errorf("got %s", m.Raw())
		}
		if !a.Disconnected() {
			t.Error("the old server is still running")
		}
	})
}

func TestApply_CancelRedirectedCall(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a")
		c, pending := h.call("a")
		done := h.startApply(change(withBrokenCommand(all[0])))
		next := h.nextProcess("a")
		<-done // Apply returns within half a minute
		c.want(t, "")
		pending.Cancel(nil)
		c.want(t, "cancelled")
		next.ServeStartup("new")
		next.WantNothing()
	})
}

// When a session closes, its connections to draining backends also end.
func TestApply_CloseSessionAtDrainingBackend(t *testing.T) {
	all := []config.Backend{perSessionBackend("a")}
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.OpenSession("one", nil, false)
		c := h.callFor("one", "a")
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.WantRequest("tools/call")
		h.replace(withEnv(all[0], "new"))
		c.want(t, "")
		h.CloseSession("one")
		if !p.Disconnected() {
			t.Error("the server of the session is still running")
		}
	})
}

// A server with an exclusive port or lock file cannot start beside its predecessor. It is started
// again as soon as the predecessor is gone, and calls are queued for it.
func TestApply_ExclusiveServer(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		began := time.Now()
		done := h.startApply(change(withEnv(all[0], "new")))
		h.nextProcess("a").Exit("exit 1", "address in use")
		<-done
		c, _ := h.call("a")
		next := h.nextProcess("a")
		next.ServeHandshake("")
		next.SendResult(next.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("the restart took %v", took)
		}
		if !a.Disconnected() {
			t.Error("the old backend is still running")
		}
	})
}

// A slowCloseConn is a Conn whose Close takes time, like that of a process.
type slowCloseConn struct{ transport.Conn }

func (l slowCloseConn) Close() error {
	time.Sleep(100 * time.Millisecond)
	return l.Conn.Close()
}

// Calls are queued for the next try of a server even if its failure is known before its process has
// ended.
func TestApply_ExclusiveServerClosesSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := legacyBackends("a")
		processes := make(chan *mcptest.Peer, 10)
		h := newHarness(t, backends.Options{Backends: all,
			Dial: func(c config.Backend) (transport.Conn, error) {
				conn, p := mcptest.NewPeer(t, c.Name)
				processes <- p
				return slowCloseConn{conn}, nil
			}})
		h.Start()
		(<-processes).ServeStartup("t")
		done := h.startApply(change(withEnv(all[0], "new")))
		fails := <-processes
		fails.SendError(fails.WantRequest("initialize").ID(),
			`{"code":-32603,"message":"address in use"}`)
		<-done
		c, _ := h.call("a")
		next := <-processes
		next.ServeHandshake("")
		next.SendResult(next.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
	})
}

// While the predecessor runs a long call, the new server may fail many times. It is started at once
// when the predecessor has ended.
func TestApply_ExclusiveServerAndLongCall(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		long, _ := h.call("a")
		call := a.WantRequest("tools/call")
		h.breakDial("a", errors.New("address in use"))
		<-h.startApply(change(withEnv(all[0], "new")))
		waits, _ := h.call("a")
		waits.want(t, "") // the call waits for the next try, which is soon
		time.Sleep(10 * time.Minute)
		waits.want(t, "it did not start: address in use")
		refused, _ := h.call("a")
		refused.wantErrorPrefix(t, "it is not running: address in use; next try in ")
		h.breakDial("a", nil)
		a.SendResult(call.ID(), "{}")
		long.wantResult(t)
		c, _ := h.call("a")
		next := h.nextProcess("a")
		began := time.Now()
		next.ServeHandshake("")
		next.SendResult(next.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the restart took %v", took)
		}
	})
}

// A change does not start a backend that starts on demand, unless sessions are subscribed.
func TestApply_LazyBackendIsNotStarted(t *testing.T) {
	all := legacyBackends("a")
	all[0].Lazy = true
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a") // without a cache it is started
		a.ServeStartup("t")
		h.wantNames("t")
		next := all[0]
		next.CallTimeout = time.Minute
		began := time.Now()
		<-h.startApply(change(next))
		if took := time.Since(began); took > 0 {
			t.Errorf("Apply took %v", took)
		}
		h.wantNames("t")
		if !a.Disconnected() || len(h.dialTimes("a")) != 1 {
			t.Error("the wrong backend runs")
		}
		c, _ := h.call("a")
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.SendResult(p.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
	})
}
