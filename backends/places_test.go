package backends_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

// withPlaces returns a backend a with so many places, for which a call waits so long.
func withPlaces(most int, wait time.Duration) backends.Options {
	o := backends.Options{Backends: plain("a")}
	o.Backends[0].MaxInFlight, o.Backends[0].QueueWait = most, wait
	return o
}

// ask sends a session's call of a tool to the backend a.
func (h *house) ask(session, tool string) (*caller, *peer.Call) {
	c := &caller{}
	p := &peer.Call{Handler: c, SessionID: session}
	h.Send("a", wire.NewRequest("0", "tools/call", []byte(`{"name":"`+tool+`"}`)), p)
	return c, p
}

// tools returns which tools were called since the last time, and under which ids.
func tools(p *mcptest.Peer) (names []string, ids []wire.ID) {
	for _, line := range p.TakeAll() {
		if m, _ := wire.Parse([]byte(line)); m.Method() == "tools/call" {
			names, ids = append(names, m.Name()), append(ids, m.ID())
		}
	}
	return names, ids
}

// wantTools wants these to have been called since the last time, and returns the ids.
func wantTools(t *testing.T, p *mcptest.Peer, want ...string) []wire.ID {
	t.Helper()
	names, ids := tools(p)
	if !slices.Equal(names, want) {
		t.Fatalf("called %q, want %q", names, want)
	}
	return ids
}

func TestCallsWaitForAPlaceInTheirOrder(t *testing.T) {
	inHouse(t, withPlaces(2, time.Minute), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		var all []*caller
		for i := range 5 {
			c, _ := h.ask("one", fmt.Sprint("t", i))
			all = append(all, c)
		}
		ids := wantTools(t, p, "t0", "t1")
		p.SendResult(ids[1], "{}")
		next := wantTools(t, p, "t2")
		all[1].ok(t)
		all[0].want(t, "")
		p.SendResult(ids[0], "{}")
		p.SendError(next[0], `{"code":1,"message":"no"}`)
		wantTools(t, p, "t3", "t4")
	})
}

// What is refused was not sent, and says what to turn.
func TestACallThatFindsNoPlaceIsRefused(t *testing.T) {
	for most, words := range map[int]string{1: "busy: it takes 1 call at a time", 16: "busy: it takes 16 calls at a time"} {
		inHouse(t, withPlaces(most, 30*time.Second), func(t *testing.T, h *house) {
			p := h.next("a")
			p.ServeStartup("t")
			for range most {
				h.ask("one", "t")
			}
			late := make(peer.ResponseChan, 1)
			h.Send("a", wire.NewRequest("0", "tools/call", []byte(`{"name":"late"}`)), &peer.Call{Handler: late})
			time.Sleep(30*time.Second - 1)
			if len(late) > 0 {
				t.Fatal("it is refused early")
			}
			time.Sleep(time.Nanosecond)
			lost, _ := errors.AsType[*transport.CallLostError]((<-late).Err)
			if want := words + " (max_in_flight), and this one's turn did not come within 30s (queue_wait)"; lost == nil || lost.MayHaveRun || !errors.Is(lost, peer.ErrQueueFull) || lost.Error() != want {
				t.Errorf("ended with %v, want %s", lost, want)
			}
			names, ids := tools(p)
			p.SendResult(ids[0], "{}")
			p.WantNothing()
			c, _ := h.ask("two", "next") // the place is nobody's
			if wantTools(t, p, "next"); len(names) != most {
				t.Errorf("called %q", names)
			}
			c.want(t, "")
		})
	}
}

func TestWithoutAQueueACallIsRefusedAtOnce(t *testing.T) {
	inHouse(t, withPlaces(2, 0), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		h.ask("one", "t")
		last, _ := h.ask("one", "t")
		c, _ := h.ask("two", "t")
		c.want(t, "busy: it takes 2 calls at a time (max_in_flight), and none may wait (queue_wait: 0s)")
		ids := wantTools(t, p, "t", "t")
		p.SendResult(ids[1], "{}")
		last.ok(t)
		h.ask("one", "again")
		wantTools(t, p, "again")
	})
}

// again calls anew when it is answered: who goes on one by one needs one place.
type again struct {
	caller
	h    *house
	left int
}

func (a *again) OnResponse(m wire.Message, err error) {
	if a.left--; err == nil && a.left > 0 {
		a.h.Send("a", wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)), &peer.Call{Handler: a})
		return
	}
	a.caller.OnResponse(m, err)
}

func TestAPlaceIsFreeBeforeItsCallerHears(t *testing.T) {
	inHouse(t, withPlaces(1, 0), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		a := &again{h: h, left: 3}
		h.Send("a", wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)), &peer.Call{Handler: a})
		for range 3 {
			p.SendResult(p.HandleRequest("tools/call").ID(), "{}")
		}
		a.ok(t)
	})
}

func TestACallThatWaitsForAPlaceIsTakenBack(t *testing.T) {
	inHouse(t, withPlaces(1, time.Minute), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		_, at := h.ask("one", "at")
		first, one := h.ask("one", "first")
		second, _ := h.ask("one", "second")
		h.Cancel("a", one, nil)
		h.Cancel("a", one, nil)
		first.want(t, "cancelled")
		second.want(t, "")
		wantTools(t, p, "at")
		h.Cancel("a", at, nil) // which gives its place away
		wantTools(t, p, "second")
		time.Sleep(time.Hour)
		second.want(t, "")
		first.want(t, "cancelled")
	})
}

func TestCallTimeoutBeginsWithThePlace(t *testing.T) {
	o := withPlaces(1, time.Minute)
	o.Backends[0].CallTimeout = 10 * time.Second
	inHouse(t, o, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		first, _ := h.ask("one", "first")
		second, _ := h.ask("one", "second")
		time.Sleep(10 * time.Second)
		first.want(t, "no answer in time")
		wantTools(t, p, "first", "second")
		time.Sleep(10*time.Second - 1)
		second.want(t, "")
		time.Sleep(time.Nanosecond)
		second.want(t, "no answer in time")
		h.ask("one", "third")
		wantTools(t, p, "third")
	})
}

// Calls that wait for a start have their places, and keep them over a restart: the bound is
// one of the waiting, too.
func TestWhoWaitsForAStartHasAPlace(t *testing.T) {
	inHouse(t, withPlaces(2, time.Minute), func(t *testing.T, h *house) {
		p := h.next("a")
		var all []*caller
		for i := range 4 {
			c, _ := h.ask("one", fmt.Sprint("t", i))
			all = append(all, c)
		}
		p.ServeHandshake("")
		wantTools(t, p, "t0", "t1")
		p.Exit("exit 1", "") // they end, and the next two wait for the next start
		for i, want := range []string{"exit 1", "exit 1", "", ""} {
			all[i].want(t, want)
		}
		late, _ := h.ask("one", "t4")
		p = h.next("a")
		p.ServeHandshake("")
		wantTools(t, p, "t2", "t3")
		time.Sleep(time.Minute)
		late.want(t, "busy: it takes 2 calls at a time (max_in_flight), and this one's turn did not come within 1m0s (queue_wait)")
	})
}

// Whatever ends the calls that have all places, those are free again, once.
func TestEveryEndGivesThePlaceBack(t *testing.T) {
	const most = 3
	type ends func(h *house, p *mcptest.Peer, calls []*peer.Call, ids []wire.ID) *mcptest.Peer
	for name, end := range map[string]ends{
		"answers": func(_ *house, p *mcptest.Peer, _ []*peer.Call, ids []wire.ID) *mcptest.Peer {
			for _, id := range ids {
				p.SendResult(id, "{}")
				p.SendResult(id, "{}") // the second is none
			}
			return p
		},
		"cancellations": func(h *house, p *mcptest.Peer, calls []*peer.Call, ids []wire.ID) *mcptest.Peer {
			for i, c := range calls {
				h.Cancel("a", c, nil)
				h.Cancel("a", c, nil)
				p.SendResult(ids[i], "{}")
			}
			return p
		},
		"timeouts": func(_ *house, p *mcptest.Peer, _ []*peer.Call, _ []wire.ID) *mcptest.Peer {
			time.Sleep(time.Minute)
			return p
		},
		"death": func(h *house, p *mcptest.Peer, _ []*peer.Call, _ []wire.ID) *mcptest.Peer {
			p.Exit("exit 1", "")
			p = h.next("a")
			p.ServeStartup("t")
			return p
		},
		"a failed start": func(h *house, p *mcptest.Peer, calls []*peer.Call, _ []wire.ID) *mcptest.Peer {
			p.Exit("exit 1", "")
			synctest.Wait()
			for range most {
				h.ask("two", "waits")
			}
			h.next("a").Exit("exit 2", "")
			p = h.next("a")
			p.ServeStartup("t")
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := withPlaces(most, 0)
			o.Backends[0].CallTimeout = time.Minute
			inHouse(t, o, func(t *testing.T, h *house) {
				p := h.next("a")
				p.ServeStartup("t")
				var calls []*peer.Call
				for range most {
					_, c := h.ask("one", "t")
					calls = append(calls, c)
				}
				p = end(h, p, calls, wantTools(t, p, "t", "t", "t"))
				p.TakeAll()
				for range most + 1 {
					h.ask("one", "u")
				}
				wantTools(t, p, "u", "u", "u")
			})
		})
	}
}

// The places are the backend's, whatever the number of its processes.
func TestPlacesAreCountedOverAllConnections(t *testing.T) {
	o := withPlaces(2, time.Minute)
	o.Backends[0].Sharing = "session"
	inHouse(t, o, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		of := make(map[string]*mcptest.Peer)
		for _, session := range []string{"one", "two", "three"} {
			h.OpenSession(session, nil, false)
			h.ask(session, session)
			if session != "three" {
				of[session] = h.next("a")
				of[session].ServeHandshake("")
				of[session].HandleRequest("tools/call")
			}
		}
		if n := len(h.dials("a")); n != 3 {
			t.Errorf("dialled %d times", n)
		}
		h.CloseSession("two") // its connection ends, and with it its call
		p := h.next("a")
		p.ServeHandshake("")
		wantTools(t, p, "three")
	})
}

// What is sent once more has the place that it had, and takes no second one.
func TestACallThatIsSentAgainKeepsItsPlace(t *testing.T) {
	o := withPlaces(1, time.Minute)
	o.Backends = modern(o.Backends...)
	inHouse(t, o, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeDiscover("")
		p.ServeToolsList(mcptest.ToolsResult("t"))
		twice, _ := h.ask("one", "twice")
		next, _ := h.ask("one", "next")
		p.SendError(wantTools(t, p, "twice")[0], `{"code":-32020,"message":"Mcp-Param-X is missing"}`)
		p.ServeToolsList(mcptest.ToolsResult("t"))
		ids := wantTools(t, p, "twice")
		next.want(t, "")
		p.SendResult(ids[0], `{"resultType":"complete"}`)
		twice.ok(t)
		wantTools(t, p, "next")
	})
}

// What a backend's calls go on by, and what is no call, needs no place.
func TestWhatNeedsNoPlace(t *testing.T) {
	o := withPlaces(1, 0)
	inHouse(t, o, func(t *testing.T, h *house) {
		h.OpenSession("one", nil, false)
		p := h.next("a")
		p.ServeHandshake(logger)
		h.lists(p)
		h.ask("one", "at")
		p.HandleRequest("tools/call")
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			h.Send("a", wire.NewRequest("0", method, []byte(`{"taskId":"x"}`)), &peer.Call{Handler: &caller{}, SessionID: "one"})
			p.HandleRequest(method)
		}
		h.Subscribe("a", "u", true, wire.NewRequest("0", "resources/subscribe", []byte(`{"uri":"u"}`)), &peer.Call{Handler: &caller{}, SessionID: "one"})
		p.HandleRequest("resources/subscribe")
		h.SetLevel("one", "debug", func() {})
		p.HandleRequest("logging/setLevel")
		p.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		p.HandleRequest("tools/list")
		c, _ := h.ask("one", "t")
		c.want(t, "busy: it takes 1 call at a time (max_in_flight), and none may wait (queue_wait: 0s)")
	})
}

// Answers, deaths, cancellations, deadlines and new calls at the same moments: each call ends
// once, never are more at the backend than may be, and at the end all places are free.
func TestPlacesUnderARace(t *testing.T) {
	const most = 4
	for round := range 40 {
		o := withPlaces(most, 150*time.Millisecond)
		o.Backends[0].CallTimeout = 400 * time.Millisecond
		if round%4 == 3 {
			o.Backends[0].Sharing = "session"
		}
		inHouse(t, o, func(t *testing.T, h *house) {
			dice := rand.New(rand.NewPCG(uint64(round), 0))
			sessions := []string{"s0", "s1", "s2"}
			for _, s := range sessions {
				h.OpenSession(s, nil, false)
			}
			over := make(chan struct{})
			var playing sync.WaitGroup
			playing.Go(func() { h.respond(over, uint64(round)) })
			var all [90]*caller
			for i := range all {
				c, p := h.ask(sessions[dice.IntN(3)], "t")
				all[i] = c
				if dice.IntN(3) == 0 {
					go func() {
						time.Sleep(time.Duration(i%7) * 30 * time.Millisecond)
						h.Cancel("a", p, nil)
					}()
				}
				if dice.IntN(4) == 0 {
					time.Sleep(time.Duration(dice.IntN(60)) * time.Millisecond)
				}
			}
			time.Sleep(time.Minute)
			close(over)
			playing.Wait()
			for i, c := range all {
				if len(c.ends) != 1 {
					t.Errorf("round %d: call %d ended with %q", round, i, c.ends)
				}
			}
			for i := range most + 1 {
				all[i], _ = h.ask("s0", "t")
			}
			time.Sleep(150 * time.Millisecond)
			for _, c := range all[:most] {
				c.want(t, "")
			}
			all[most].want(t, "busy: it takes 4 calls at a time (max_in_flight), and this one's turn did not come within 150ms (queue_wait)")
		})
	}
}

// respond is the backend a, in all of its processes, until over is closed: it answers late, or
// dies, or says nothing.
func (h *house) respond(over chan struct{}, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	var up []*mcptest.Peer
	for {
		select {
		case <-over:
			return
		case p := <-h.queue("a"):
			up = append(up, p)
		case <-time.After(time.Duration(1+dice.IntN(20)) * time.Millisecond):
		}
		for _, p := range up {
			for _, line := range p.TakeAll() {
				m, _ := wire.Parse([]byte(line))
				switch {
				case m.Kind() != wire.Request:
				case m.Method() == "initialize":
					p.SendResult(m.ID(), mcptest.InitializeResult)
				case m.Method() == "tools/list":
					p.SendResult(m.ID(), mcptest.ToolsResult("t"))
				case dice.IntN(12) == 0:
					p.Exit("exit 1", "")
				case dice.IntN(4) > 0:
					p.SendResult(m.ID(), "{}")
				}
			}
		}
	}
}

// What is no message, and what a server wants logged, fills neither the log nor a line of it.
func TestNoiseIsLoggedAtABoundedRateAndCut(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.ServeStartup("t")
		a.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 1<<20) + `"}}`)
		for range 5000 {
			a.FailRead(transport.NewMalformedError([]byte("noise"), wire.Message{}, errors.New("no JSON")))
		}
		synctest.Wait()
		if n := len(h.log.Lines("skipped output")); n < 100 || n > 500 {
			t.Errorf("%d records", n)
		}
		if lines := h.log.Lines("log message of the backend"); len(lines) != 1 || len(lines[0]) > 9<<10 {
			t.Errorf("%d records", len(lines))
		}
		a.WantNothing()
	})
}

// A storm of what one backend says is that backend's alone: others answer meanwhile, and no
// record of it fills the log.
func TestAStormOfOneBackendIsItsOwn(t *testing.T) {
	o := backends.Options{Backends: []config.Backend{plain("a")[0], plain("b")[0]}}
	inHouse(t, o, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		h.OpenSession("one", nil, false)
		h.callFor("one", "a")
		a.HandleRequest("tools/call")
		const storm = 5000
		for i := range storm {
			a.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			a.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			if i%500 == 0 {
				c := h.callFor("one", "b")
				b.SendResult(b.HandleRequest("tools/call").ID(), "{}")
				c.ok(t)
			}
		}
		time.Sleep(10 * time.Second)
		told, lists := 0, 0
		h.ear.mu.Lock()
		for _, line := range h.ear.heard {
			if strings.HasSuffix(line, "notifications/message") {
				told++
			}
		}
		h.ear.mu.Unlock()
		for _, line := range a.TakeAll() {
			if strings.Contains(line, `"tools/list"`) {
				lists++
			}
		}
		if told == 0 || lists > 1 {
			t.Errorf("%d told, %d lists", told, lists)
		}
		if n := len(h.log.Lines("log message of the backend")); n > 1000 {
			t.Errorf("%d records of %d", n, storm)
		}
	})
}
