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
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// withMaxInFlight returns Options with a backend a that has this max_in_flight and queue_wait.
func withMaxInFlight(most int, wait time.Duration) backends.Options {
	o := backends.Options{Backends: legacyBackends("a")}
	o.Backends[0].MaxInFlight, o.Backends[0].QueueWait = most, wait
	return o
}

// callTool sends a session's tools/call to the backend a.
func (h *harness) callTool(session, tool string) (*callRecorder, contract.BackendCall) {
	c := &callRecorder{}
	p := h.SendCall("a", session, wire.NewRequest("0", "tools/call", []byte(`{"name":"`+tool+`"}`)), c)
	return c, p
}

// takeToolCalls returns the names and ids of the tools/call requests since the last takeToolCalls.
func takeToolCalls(p *mcptest.Peer) (names []string, ids []wire.ID) {
	for _, line := range p.TakeAll() {
		if m, _ := wire.Parse([]byte(line)); m.Method() == "tools/call" {
			names, ids = append(names, m.Name()), append(ids, m.ID())
		}
	}
	return names, ids
}

// wantToolCalls checks the tools/call requests since the last takeToolCalls, and returns their ids.
func wantToolCalls(t *testing.T, p *mcptest.Peer, want ...string) []wire.ID {
	t.Helper()
	names, ids := takeToolCalls(p)
	if !slices.Equal(names, want) {
		t.Fatalf("called %q, want %q", names, want)
	}
	return ids
}

func TestLimiter_FIFO(t *testing.T) {
	withHarness(t, withMaxInFlight(2, time.Minute), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		var all []*callRecorder
		for i := range 5 {
			c, _ := h.callTool("one", fmt.Sprint("t", i))
			all = append(all, c)
		}
		ids := wantToolCalls(t, p, "t0", "t1")
		p.SendResult(ids[1], "{}")
		next := wantToolCalls(t, p, "t2")
		all[1].wantResult(t)
		all[0].want(t, "")
		p.SendResult(ids[0], "{}")
		p.SendError(next[0], `{"code":1,"message":"no"}`)
		wantToolCalls(t, p, "t3", "t4")
	})
}

// A rejected call was not sent, and its error names the setting.
func TestLimiter_QueueWaitExpires(t *testing.T) {
	for most, words := range map[int]string{1: "busy: it takes 1 call at a time",
		16: "busy: it takes 16 calls at a time"} {
		withHarness(t, withMaxInFlight(most, 30*time.Second), func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeStartup("t")
			for range most {
				h.callTool("one", "t")
			}
			late := make(backends.ResponseChan, 1)
			h.SendCall("a", "", wire.NewRequest("0", "tools/call", []byte(`{"name":"late"}`)),
				late)
			time.Sleep(30*time.Second - 1)
			if len(late) > 0 {
				t.Fatal("the call is refused early")
			}
			time.Sleep(time.Nanosecond)
			lost, _ := errors.AsType[*transport.CallLostError]((<-late).Err)
			if want := words +
				" (max_in_flight), and this one's turn did not come within 30s (queue_wait)"; lost == nil || lost.MayHaveRun || !errors.Is(lost, contract.ErrQueueFull) ||
				lost.Error() != want {
				t.Errorf("ended with %v, want %s", lost, want)
			}
			names, ids := takeToolCalls(p)
			p.SendResult(ids[0], "{}")
			p.WantNothing()
			c, _ := h.callTool("two", "next") // the slot is free
			if wantToolCalls(t, p, "next"); len(names) != most {
				t.Errorf("called %q", names)
			}
			c.want(t, "")
		})
	}
}

func TestLimiter_NoQueue(t *testing.T) {
	withHarness(t, withMaxInFlight(2, 0), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		h.callTool("one", "t")
		last, _ := h.callTool("one", "t")
		c, _ := h.callTool("two", "t")
		c.want(t,
			"busy: it takes 2 calls at a time (max_in_flight), and none may wait (queue_wait: 0s)")
		ids := wantToolCalls(t, p, "t", "t")
		p.SendResult(ids[1], "{}")
		last.wantResult(t)
		h.callTool("one", "again")
		wantToolCalls(t, p, "again")
	})
}

// chainedCalls makes another call after each response: calls one after the other need one slot.
type chainedCalls struct {
	callRecorder
	h    *harness
	left int
}

func (a *chainedCalls) OnResponse(r contract.BackendResponse) {
	if a.left--; r.Err == nil && a.left > 0 {
		a.h.SendCall("a", "", wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)),
			a)
		return
	}
	a.callRecorder.OnResponse(r)
}

func TestLimiter_SlotIsReleasedBeforeResponse(t *testing.T) {
	withHarness(t, withMaxInFlight(1, 0), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		a := &chainedCalls{h: h, left: 3}
		h.SendCall("a", "", wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)),
			a)
		for range 3 {
			p.SendResult(p.WantRequest("tools/call").ID(), "{}")
		}
		a.wantResult(t)
	})
}

func TestLimiter_CancelQueuedCall(t *testing.T) {
	withHarness(t, withMaxInFlight(1, time.Minute), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		_, at := h.callTool("one", "at")
		first, one := h.callTool("one", "first")
		second, _ := h.callTool("one", "second")
		one.Cancel(nil)
		one.Cancel(nil)
		first.want(t, "cancelled")
		second.want(t, "")
		wantToolCalls(t, p, "at")
		at.Cancel(nil) // which releases its slot
		wantToolCalls(t, p, "second")
		time.Sleep(time.Hour)
		second.want(t, "")
		first.want(t, "cancelled")
	})
}

func TestLimiter_CallTimeoutStartsWithSlot(t *testing.T) {
	o := withMaxInFlight(1, time.Minute)
	o.Backends[0].CallTimeout = 10 * time.Second
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		first, _ := h.callTool("one", "first")
		second, _ := h.callTool("one", "second")
		time.Sleep(10 * time.Second)
		first.want(t, "no answer within 10s")
		wantToolCalls(t, p, "first", "second")
		time.Sleep(10*time.Second - 1)
		second.want(t, "")
		time.Sleep(time.Nanosecond)
		second.want(t, "no answer within 10s")
		h.callTool("one", "third")
		wantToolCalls(t, p, "third")
	})
}

// Calls that are queued for a start hold slots, and keep them over a restart, so that the limit
// also applies to these calls.
func TestLimiter_CallsQueuedForStartHoldSlots(t *testing.T) {
	withHarness(t, withMaxInFlight(2, time.Minute), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		var all []*callRecorder
		for i := range 4 {
			c, _ := h.callTool("one", fmt.Sprint("t", i))
			all = append(all, c)
		}
		p.ServeHandshake("")
		wantToolCalls(t, p, "t0", "t1")
		p.Exit("exit 1", "") // its calls end, and the next two are queued for the next start
		for i, want := range []string{"exit 1", "exit 1", "", ""} {
			all[i].want(t, want)
		}
		late, _ := h.callTool("one", "t4")
		p = h.nextProcess("a")
		p.ServeHandshake("")
		wantToolCalls(t, p, "t2", "t3")
		time.Sleep(time.Minute)
		late.want(t,
			"busy: it takes 2 calls at a time (max_in_flight), and this one's turn did not come within 1m0s (queue_wait)")
	})
}

// Each kind of end of the calls that hold all slots releases the slots, once.
func TestLimiter_EveryEndReleasesSlot(t *testing.T) {
	const most = 3
	type ends func(h *harness, p *mcptest.Peer, calls []contract.BackendCall,
		ids []wire.ID) *mcptest.Peer
	for name, end := range map[string]ends{
		"responses": func(_ *harness, p *mcptest.Peer, _ []contract.BackendCall,
			ids []wire.ID) *mcptest.Peer {
			for _, id := range ids {
				p.SendResult(id, "{}")
				p.SendResult(id, "{}") // a second response releases no slot
			}
			return p
		},
		"cancellations": func(h *harness, p *mcptest.Peer, calls []contract.BackendCall,
			ids []wire.ID) *mcptest.Peer {
			for i, c := range calls {
				c.Cancel(nil)
				c.Cancel(nil)
				p.SendResult(ids[i], "{}")
			}
			return p
		},
		"timeouts": func(_ *harness, p *mcptest.Peer, _ []contract.BackendCall,
			_ []wire.ID) *mcptest.Peer {
			time.Sleep(time.Minute)
			return p
		},
		"death": func(h *harness, p *mcptest.Peer, _ []contract.BackendCall,
			_ []wire.ID) *mcptest.Peer {
			p.Exit("exit 1", "")
			p = h.nextProcess("a")
			p.ServeStartup("t")
			return p
		},
		"a failed start": func(h *harness, p *mcptest.Peer, calls []contract.BackendCall,
			_ []wire.ID) *mcptest.Peer {
			p.Exit("exit 1", "")
			synctest.Wait()
			for range most {
				h.callTool("two", "waits")
			}
			h.nextProcess("a").Exit("exit 2", "")
			p = h.nextProcess("a")
			p.ServeStartup("t")
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := withMaxInFlight(most, 0)
			o.Backends[0].CallTimeout = time.Minute
			withHarness(t, o, func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.ServeStartup("t")
				var calls []contract.BackendCall
				for range most {
					_, c := h.callTool("one", "t")
					calls = append(calls, c)
				}
				p = end(h, p, calls, wantToolCalls(t, p, "t", "t", "t"))
				p.TakeAll()
				for range most + 1 {
					h.callTool("one", "u")
				}
				wantToolCalls(t, p, "u", "u", "u")
			})
		})
	}
}

// The limit applies to all processes of a backend together.
func TestLimiter_CountsAllConnections(t *testing.T) {
	o := withMaxInFlight(2, time.Minute)
	o.Backends[0].Sharing = "session"
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		of := make(map[string]*mcptest.Peer)
		for _, session := range []string{"one", "two", "three"} {
			h.OpenSession(session, nil, false)
			h.callTool(session, session)
			if session != "three" {
				of[session] = h.nextProcess("a")
				of[session].ServeHandshake("")
				of[session].WantRequest("tools/call")
			}
		}
		if n := len(h.dialTimes("a")); n != 3 {
			t.Errorf("dialled %d times", n)
		}
		h.CloseSession("two") // its connection ends with its call
		p := h.nextProcess("a")
		p.ServeHandshake("")
		wantToolCalls(t, p, "three")
	})
}

// A call that is sent once more keeps its slot, and takes no second slot.
func TestLimiter_RetryKeepsSlot(t *testing.T) {
	o := withMaxInFlight(1, time.Minute)
	o.Backends = modernBackends(o.Backends...)
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeDiscover("")
		p.ServeToolsList(mcptest.ToolsResult("t"))
		twice, _ := h.callTool("one", "twice")
		next, _ := h.callTool("one", "next")
		p.SendError(wantToolCalls(t, p, "twice")[0],
			`{"code":-32020,"message":"Mcp-Param-X is missing"}`)
		p.ServeToolsList(mcptest.ToolsResult("t"))
		ids := wantToolCalls(t, p, "twice")
		next.want(t, "")
		p.SendResult(ids[0], `{"resultType":"complete"}`)
		twice.wantResult(t)
		wantToolCalls(t, p, "next")
	})
}

// Requests about tasks, subscriptions, log levels and lists need no slot.
func TestLimiter_RequestsWithoutSlot(t *testing.T) {
	o := withMaxInFlight(1, 0)
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.OpenSession("one", nil, false)
		p := h.nextProcess("a")
		p.ServeHandshake(loggingServer)
		h.serveLists(p)
		h.callTool("one", "at")
		p.WantRequest("tools/call")
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			h.SendCall("a", "one", wire.NewRequest("0", method, []byte(`{"taskId":"x"}`)),
				&callRecorder{})
			p.WantRequest(method)
		}
		h.subscribe("one", "a", "u", true)
		p.WantRequest("resources/subscribe")
		h.SetLevel("one", "debug", func() {})
		p.WantRequest("logging/setLevel")
		p.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		p.WantRequest("tools/list")
		c, _ := h.callTool("one", "t")
		c.want(t,
			"busy: it takes 1 call at a time (max_in_flight), and none may wait (queue_wait: 0s)")
	})
}

// Responses, crashes, cancellations, timeouts and new calls at the same moments: each call ends
// once, the limit is never exceeded, and at the end all slots are free.
func TestLimiter_Race(t *testing.T) {
	const most = 4
	for round := range 40 {
		o := withMaxInFlight(most, 150*time.Millisecond)
		o.Backends[0].CallTimeout = 400 * time.Millisecond
		if round%4 == 3 {
			o.Backends[0].Sharing = "session"
		}
		withHarness(t, o, func(t *testing.T, h *harness) {
			dice := rand.New(rand.NewPCG(uint64(round), 0))
			sessions := []string{"s0", "s1", "s2"}
			for _, s := range sessions {
				h.OpenSession(s, nil, false)
			}
			over := make(chan struct{})
			var playing sync.WaitGroup
			playing.Go(func() { h.serveRandomly(over, uint64(round)) })
			var all [90]*callRecorder
			for i := range all {
				c, p := h.callTool(sessions[dice.IntN(3)], "t")
				all[i] = c
				if dice.IntN(3) == 0 {
					go func() {
						time.Sleep(time.Duration(i%7) * 30 * time.Millisecond)
						p.Cancel(nil)
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
				if len(c.results) != 1 {
					t.Errorf("round %d: call %d ended with %q", round, i, c.results)
				}
			}
			for i := range most + 1 {
				all[i], _ = h.callTool("s0", "t")
			}
			time.Sleep(150 * time.Millisecond)
			for _, c := range all[:most] {
				c.want(t, "")
			}
			all[most].want(t,
				"busy: it takes 4 calls at a time (max_in_flight), and this one's turn did not come within 150ms (queue_wait)")
		})
	}
}

// serveRandomly plays the backend a, in all of its processes, until over is closed: each server
// responds late, ends, or stays silent.
func (h *harness) serveRandomly(over chan struct{}, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	var up []*mcptest.Peer
	for {
		select {
		case <-over:
			return
		case p := <-h.processes("a"):
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

// Neither malformed output nor log messages of a server fill the log or a record.
func TestMalformedOutputIsRateLimitedAndCut(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeStartup("t")
		a.Send(
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` +
				strings.Repeat("x", 1<<20) + `"}}`)
		for range 5000 {
			a.FailRead(transport.NewMalformedError([]byte("noise"), wire.Message{},
				errors.New("no JSON")))
		}
		synctest.Wait()
		if n := len(h.log.Lines("skipped output")); n < 100 || n > 500 {
			t.Errorf("%d records", n)
		}
		if lines := h.log.Lines("log message of the backend"); len(lines) != 1 ||
			len(lines[0]) > 9<<10 {
			t.Errorf("%d records", len(lines))
		}
		a.WantNothing()
	})
}

// A flood of messages of one backend affects only that backend: others respond meanwhile, and the
// records of the flood do not fill the log.
func TestFloodOfOneBackendIsIsolated(t *testing.T) {
	o := backends.Options{Backends: []config.Backend{legacyBackends("a")[0],
		legacyBackends("b")[0]}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("t")
		b.ServeStartup("u")
		h.OpenSession("one", nil, false)
		h.callFor("one", "a")
		a.WantRequest("tools/call")
		const flood = 5000
		for i := range flood {
			a.Send(
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			a.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			if i%500 == 0 {
				c := h.callFor("one", "b")
				b.SendResult(b.WantRequest("tools/call").ID(), "{}")
				c.wantResult(t)
			}
		}
		time.Sleep(10 * time.Second)
		reports, lists := 0, 0
		h.clients.mu.Lock()
		for _, line := range h.clients.messages {
			if strings.HasSuffix(line, "notifications/message") {
				reports++
			}
		}
		h.clients.mu.Unlock()
		for _, line := range a.TakeAll() {
			if strings.Contains(line, `"tools/list"`) {
				lists++
			}
		}
		if reports == 0 || lists > 1 {
			t.Errorf("%d notifications, %d lists", reports, lists)
		}
		if n := len(h.log.Lines("log message of the backend")); n > 1000 {
			t.Errorf("%d records of %d", n, flood)
		}
	})
}
