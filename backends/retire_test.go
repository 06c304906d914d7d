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
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// replace changes a backend, whose new server lists nothing but this tool, and returns that.
func (h *house) replace(c config.Backend, others ...config.Backend) *mcptest.Peer {
	h.t.Helper()
	done := h.apply(change(append([]config.Backend{c}, others...)...))
	p := h.next(c.Name)
	p.ServeStartup("new")
	<-done
	return p
}

// A hearer is the Asker of a call that wants progress.
type hearer struct {
	caller
	progress []string
}

// Progressed implements peer.ResponseHandler.
func (c *hearer) OnProgress(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = append(c.progress, string(m.Part(wire.PartParams)))
}

// CONFIG-09: who is not changed keeps its connection while another is; a call in flight on that
// one completes over the old connection, with all that belongs to it, and only then that ends.
func TestCONFIG_09_ACallInFlightEndsOnTheOldDefinition(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		h.OpenSession("one", nil, false)
		long := &hearer{}
		h.Send("a", wire.NewRequest("7", "tools/call", []byte(`{"name":"t","_meta":{"progressToken":"mine"}}`)),
			&peer.Call{Handler: long, SessionID: "one", Token: `"mine"`})
		call := a.HandleRequest("tools/call")
		other := h.callFor("one", "b")
		next := h.replace(edited(all[0], "new"), all[1])
		h.wantNames("new", "u")

		time.Sleep(5 * time.Second)
		if a.Disconnected() {
			t.Fatal("the old one ended while it was at a call")
		}
		a.Sendf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, call.Token())
		a.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		h.ear.want(t, "one asked by a: roots/list")
		h.ear.asked[0].Reply([]byte(`{"roots":[]}`))
		a.Want(result(`"q"`, `{"roots":[]}`))
		long.want(t, "")

		since := h.callFor("one", "a") // what is sent now goes to the new one
		next.SendResult(next.HandleRequest("tools/call").ID(), "{}")
		since.ok(t)
		a.WantNothing()

		a.SendResult(call.ID(), `{"content":[]}`)
		long.ok(t)
		if !slices.Equal(long.progress, []string{`{"progressToken":"mine","progress":1}`}) {
			t.Errorf("progress %q", long.progress)
		}
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}
		b.SendResult(b.HandleRequest("tools/call").ID(), "{}")
		other.ok(t)
		if n := len(h.dials("b")); n != 1 || b.Disconnected() {
			t.Errorf("b was started %d times", n)
		}
		if n := len(h.dials("a")); n != 2 {
			t.Errorf("a was started %d times", n)
		}
		if loud := h.log.Warnings(); len(loud) > 0 {
			t.Errorf("logged %q", loud)
		}
	})
}

// The same for a backend that is removed, and for the connections that are a session's own.
func TestApply_CallsOverOwnConnectionsEndThere(t *testing.T) {
	all := []config.Backend{remote("a"), plain("b")[0]}
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		shared := h.next("a")
		shared.ServeStartup("t")
		h.next("b").ServeStartup("u")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		one := h.callFor("one", "a")
		p := h.next("a")
		p.ServeHandshake("")
		two := h.callFor("two", "a")
		q := h.next("a")
		q.ServeHandshake("")
		first, second := p.HandleRequest("tools/call"), q.HandleRequest("tools/call")
		<-h.apply(change(all[1]))
		if !shared.Disconnected() || p.Disconnected() || q.Disconnected() {
			t.Error("the wrong connections ended")
		}
		p.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		h.ear.want(t, "one asked by a: roots/list")
		p.SendResult(first.ID(), "{}")
		one.ok(t)
		if !p.Disconnected() || q.Disconnected() {
			t.Error("the wrong connection ended")
		}
		h.callFor("one", "a").want(t, removed)
		q.SendResult(second.ID(), "{}")
		two.ok(t)
		if !q.Disconnected() {
			t.Error("it goes on")
		}
	})
}

// A session has a connection of its own to the new one when it needs it.
func TestApply_OwnConnectionsAreMadeAnewWhenTheyAreNeeded(t *testing.T) {
	all := []config.Backend{remote("a")}
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.OpenSession("one", nil, false)
		c := h.callFor("one", "a")
		p := h.next("a")
		p.ServeHandshake("")
		p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
		h.replace(edited(all[0], "new"))
		if !p.Disconnected() {
			t.Error("it goes on")
		}
		if n := len(h.dials("a")); n != 3 {
			t.Errorf("dialled %d times", n)
		}
		c = h.callFor("one", "a")
		q := h.next("a")
		q.ServeHandshake("")
		q.SendResult(q.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
	})
}

// What waits for a start goes to the new one, or ends if there is none. It was not sent.
func TestApply_WhatWaitsGoesToTheNewOne(t *testing.T) {
	for _, kind := range []string{"shared", "own"} {
		t.Run(kind, func(t *testing.T) {
			c := plain("a")[0]
			if kind == "own" {
				c = remote("a")
			}
			inHouse(t, backends.Options{Backends: []config.Backend{c, plain("b")[0]}}, func(t *testing.T, h *house) {
				old := h.next("a")
				h.OpenSession("one", nil, false)
				waits := h.callFor("one", "a")
				if kind == "own" {
					old = h.next("a")
				}
				waits.want(t, "")
				old.HandleRequest("initialize") // and that is all
				done := h.apply(change(edited(c, "new"), plain("b")[0]))
				next := h.next("a")
				next.ServeStartup("new")
				<-done
				if kind == "own" {
					next = h.next("a")
					next.ServeHandshake("")
				}
				next.SendResult(next.HandleRequest("tools/call").ID(), "{}")
				waits.ok(t)
				old.WantNothing()
				if !old.Disconnected() {
					t.Error("the old one goes on")
				}
			})
			inHouse(t, backends.Options{Backends: []config.Backend{c}}, func(t *testing.T, h *house) {
				h.next("a")
				h.OpenSession("one", nil, false)
				waits := h.callFor("one", "a")
				<-h.apply(change(plain("b")[0]))
				waits.want(t, removed)
			})
		})
	}
}

// So does what waits for a place, and for another try at a server of the stateless era.
func TestApply_WhatWaitsForAPlaceGoesToTheNewOne(t *testing.T) {
	all := plain("a")
	all[0].MaxInFlight, all[0].QueueWait = 1, time.Hour
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		one, _ := h.call("a")
		call := a.HandleRequest("tools/call")
		two, _ := h.call("a")
		three, _ := h.call("a")
		next := h.replace(edited(all[0], "new"))
		second := next.HandleRequest("tools/call")
		next.WantNothing() // it has one place, too
		next.SendResult(second.ID(), "{}")
		two.ok(t)
		next.SendResult(next.HandleRequest("tools/call").ID(), "{}")
		three.ok(t)
		a.SendResult(call.ID(), "{}")
		one.ok(t)
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}
	})
}

// What has a place and waits for a start has one at the new one, too.
func TestApply_PlacesAreOfTheNewOne(t *testing.T) {
	all := plain("a")
	all[0].MaxInFlight, all[0].QueueWait = 1, time.Hour
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a") // which hangs
		one, _ := h.call("a")
		two, _ := h.call("a")
		next := h.replace(edited(all[0], "new"))
		three, _ := h.call("a")
		for _, c := range []*caller{one, two, three} {
			call := next.HandleRequest("tools/call")
			next.WantNothing()
			next.SendResult(call.ID(), "{}")
			c.ok(t)
		}
	})
}

func TestApply_WhatIsSparedGoesToTheNewOne(t *testing.T) {
	all := modern(plain("a")...)
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeDiscover("")
		a.ServeToolsList(mcptest.ToolsResult("t"))
		waits, _ := h.call("a")
		late, _ := h.call("a")
		first, second := a.HandleRequest("tools/call"), a.HandleRequest("tools/call")
		a.SendError(first.ID(), `{"code":-32020,"message":"no"}`)
		a.HandleRequest("tools/list") // which is not answered
		waits.want(t, "")
		done := h.apply(change(edited(all[0], "new")))
		next := h.next("a")
		next.ServeDiscover("")
		next.ServeToolsList(mcptest.ToolsResult("new"))
		<-done
		next.SendResult(next.HandleRequest("tools/call").ID(), `{"resultType":"complete"}`)
		waits.ok(t)
		a.SendError(second.ID(), `{"code":-32020,"message":"no"}`) // one that is refused now goes there, too
		next.SendResult(next.HandleRequest("tools/call").ID(), `{"resultType":"complete"}`)
		late.ok(t)
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}
	})
}

// The connection of a server of the stateless era ends with its calls, though it is listened to.
func TestApply_AServerOfTheStatelessEra(t *testing.T) {
	all := modern(plain("a")...)
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		a := h.listens(t)
		a.heard(nil)
		a.lists("t")
		sub := h.subscribe("one", "a", "x:y", true)
		a.quits()
		a.heard([]string{"x:y"})
		sub.ok(t)
		h.ear.want(t, "one told by a: notifications/resources/updated")
		c := h.callFor("one", "a")
		call := a.await("tools/call")
		done := h.apply(change(edited(all[0], "new")))
		next := h.listens(t)
		next.heard(nil)
		next.lists("new")
		<-done
		next.quits() // the subscription comes with the session
		next.heard([]string{"x:y"})
		h.ear.want(t, "one told by a: notifications/resources/updated")
		if a.Disconnected() {
			t.Error("the old one ended while it was at a call")
		}
		a.SendResult(call.ID(), `{"resultType":"complete"}`)
		c.ok(t)
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}
	})
}

// A backend that dies while it is at its last calls is not started again; they are lost.
func TestApply_ARetiredOneIsNotStartedAgain(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		c, _ := h.call("a")
		a.HandleRequest("tools/call")
		h.replace(edited(all[0], "new"))
		a.Exit("exit 3", "")
		c.want(t, "exit 3")
		time.Sleep(time.Hour)
		if n := len(h.dials("a")); n != 2 {
			t.Errorf("started %d times", n)
		}
	})
}

// One that is between two starts is started no more.
func TestApply_ARestartLoopEnds(t *testing.T) {
	all := plain("a", "b")
	inBrokenHouse(t, startErrors{"a": errors.New("no such file")}, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("b").ServeStartup("u")
		time.Sleep(time.Second)
		n := len(h.dials("a"))
		<-h.apply(change(all[1]))
		time.Sleep(time.Hour)
		if again := len(h.dials("a")); n == 0 || again != n {
			t.Errorf("started %d times, then %d", n, again)
		}
	})
}

// What one of several generations is at may take long. There are four of them at most.
func TestApply_RetiredBackendsAreBounded(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		var calls []*caller
		var generations []*mcptest.Peer
		for i := range 6 {
			c, _ := h.call("a")
			a.HandleRequest("tools/call")
			calls, generations = append(calls, c), append(generations, a)
			a = h.replace(edited(all[0], fmt.Sprint(i)))
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

// With the gateway the calls end that are at retired backends, and these.
func TestApply_TheEndOfTheGatewayEndsRetiredOnes(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		c, _ := h.call("a")
		a.HandleRequest("tools/call")
		next := h.replace(edited(all[0], "new"))
		h.stop()
		<-h.done
		c.want(t, "context canceled")
		if !a.Disconnected() || !next.Disconnected() {
			t.Error("something goes on")
		}
	})
}

func TestApply_CancelFindsACallThatARetiredOneIsAt(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		h.wantNames("t") // else it is told that its list is of no interest any more
		c, pending := h.call("a")
		call := a.HandleRequest("tools/call")
		<-h.apply(change()) // be it that there is none of that name any more
		h.Cancel("a", pending, nil)
		c.want(t, "cancelled")
		m := a.HandleNotification("notifications/cancelled")
		if id, _ := wire.Lookup(m.Part(wire.PartParams), "requestId"); string(id) != string(call.ID()) {
			t.Errorf("told %s", m.Raw())
		}
		if !a.Disconnected() {
			t.Error("it goes on")
		}
	})
}

func TestApply_CancelFindsACallThatWasPassedOn(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a")
		c, pending := h.call("a")
		done := h.apply(change(broken(all[0])))
		next := h.next("a")
		<-done // in half a minute
		c.want(t, "")
		h.Cancel("a", pending, nil)
		c.want(t, "cancelled")
		next.ServeStartup("new")
		next.WantNothing()
	})
}

// When a session closes, its connections to retired backends end, too.
func TestApply_CloseEndsOwnConnectionsToRetiredOnes(t *testing.T) {
	all := []config.Backend{remote("a")}
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.OpenSession("one", nil, false)
		c := h.callFor("one", "a")
		p := h.next("a")
		p.ServeHandshake("")
		p.HandleRequest("tools/call")
		h.replace(edited(all[0], "new"))
		c.want(t, "")
		h.CloseSession("one")
		if !p.Disconnected() {
			t.Error("it goes on")
		}
	})
}

// A server that has a port or a lock file to itself cannot start beside the one before: it is
// tried again as soon as that is gone, and calls wait for it.
func TestApply_AServerOfWhichThereCanBeOne(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		began := time.Now()
		done := h.apply(change(edited(all[0], "new")))
		h.next("a").Exit("exit 1", "address in use")
		<-done
		c, _ := h.call("a")
		next := h.next("a")
		next.ServeHandshake("")
		next.SendResult(next.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if !a.Disconnected() {
			t.Error("the old one goes on")
		}
	})
}

// leisurely is a Conn that takes its time to close, as that of a process does.
type leisurely struct{ transport.Conn }

func (l leisurely) Close() error {
	time.Sleep(100 * time.Millisecond)
	return l.Conn.Close()
}

// It may be known that a server fails before it is gone; calls wait for its next try all the same.
func TestApply_AServerThatTakesItsTimeToFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := plain("a")
		processes := make(chan *mcptest.Peer, 10)
		h := newHouse(t, backends.Options{Backends: all, Dial: func(c config.Backend) (transport.Conn, error) {
			conn, p := mcptest.NewPeer(t, c.Name)
			processes <- p
			return leisurely{conn}, nil
		}})
		h.Start()
		(<-processes).ServeStartup("t")
		done := h.apply(change(edited(all[0], "new")))
		fails := <-processes
		fails.SendError(fails.HandleRequest("initialize").ID(), `{"code":-32603,"message":"address in use"}`)
		<-done
		c, _ := h.call("a")
		next := <-processes
		next.ServeHandshake("")
		next.SendResult(next.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
	})
}

// The same while the one before is at a long call: however often the new one has failed by
// then, it is tried at once.
func TestApply_AServerOfWhichThereCanBeOneAndALongCall(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		long, _ := h.call("a")
		call := a.HandleRequest("tools/call")
		h.breakDial("a", errors.New("address in use"))
		<-h.apply(change(edited(all[0], "new")))
		waits, _ := h.call("a")
		waits.want(t, "") // for the next try, which soon comes
		time.Sleep(10 * time.Minute)
		waits.want(t, "it did not start: address in use")
		refused, _ := h.call("a")
		refused.wantReason(t, "it is not running: address in use; next try in ")
		h.breakDial("a", nil)
		a.SendResult(call.ID(), "{}")
		long.ok(t)
		c, _ := h.call("a")
		next := h.next("a")
		began := time.Now()
		next.ServeHandshake("")
		next.SendResult(next.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A backend that is started when it is needed is not for a change's sake; what its sessions are
// subscribed to needs it.
func TestApply_ALazyOneIsNotStarted(t *testing.T) {
	all := plain("a")
	all[0].Lazy = true
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a := h.next("a") // nothing is known of it
		a.ServeStartup("t")
		h.wantNames("t")
		next := all[0]
		next.CallTimeout = time.Minute
		began := time.Now()
		<-h.apply(change(next))
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		h.wantNames("t")
		if !a.Disconnected() || len(h.dials("a")) != 1 {
			t.Error("the wrong one runs")
		}
		c, _ := h.call("a")
		p := h.next("a")
		p.ServeHandshake("")
		p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
		c.ok(t)
	})
}
