package backends_test

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// A callStage is a place where a call may be when it is cancelled.
type callStage struct {
	backend config.Backend
	// enter sends the call, and returns when it is at the stage. The function leave lets it move on
	enter func(h *harness, send func()) (leave func())
	// the request that the call sends, "" = tools/call
	method string
}

// slots returns c with one slot, and with a queue for it.
func slots(c config.Backend) config.Backend {
	c.MaxInFlight, c.QueueWait = 1, time.Minute
	return c
}

var callStages = map[string]callStage{
	"not sent yet": {backend: legacyBackends("a")[0],
		enter: func(h *harness, send func()) func() {
			h.nextProcess("a").ServeStartup("t")
			return send
		}},
	"queue of the limiter": {backend: slots(legacyBackends("a")[0]),
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			p.ServeStartup("t")
			h.callTool("two", "at")
			id := p.WantRequest("tools/call").ID()
			send()
			return func() { p.SendResult(id, "{}") }
		}},
	"start of the shared connection": {backend: slots(legacyBackends("a")[0]),
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			send()
			return func() { p.ServeHandshake("") }
		}},
	"failing start": {backend: slots(legacyBackends("a")[0]),
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			send()
			return func() { p.Exit("exit 1", "") }
		}},
	"start of a session's connection": {backend: slots(perSessionBackend("a")),
		enter: func(h *harness, send func()) func() {
			h.nextProcess("a").ServeStartup("t")
			send()
			p := h.nextProcess("a")
			return func() { p.ServeHandshake("") }
		}},
	"end of a session": {backend: slots(perSessionBackend("a")),
		enter: func(h *harness, send func()) func() {
			h.nextProcess("a").ServeStartup("t")
			send()
			h.nextProcess("a")
			return func() { h.CloseSession("one") }
		}},
	"merge into the shared connection": {
		backend: slots(withUnknownGeneration(perSessionBackend("a"))[0]),
		enter: func(h *harness, send func()) func() {
			h.nextProcess("a")
			send()
			own := h.nextProcess("a")
			return func() { own.ServeDiscover("") }
		}},
	"start of a modern backend": {backend: slots(modernBackends(perSessionBackend("a"))[0]),
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			send()
			return func() { p.ServeDiscover("") }
		}},
	"in flight": {backend: slots(legacyBackends("a")[0]),
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			p.ServeStartup("t")
			send()
			id := p.WantRequest("tools/call").ID()
			return func() { p.SendResult(id, "{}") }
		}},
	"end of the connection": {backend: slots(legacyBackends("a")[0]),
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			p.ServeStartup("t")
			send()
			p.WantRequest("tools/call")
			return func() { p.Exit("exit 1", "") }
		}},
	"refused": {backend: slots(modernBackends(perSessionBackend("a"))[0]),
		enter: func(h *harness, send func()) func() {
			p, id := h.callModern(send)
			return func() { p.SendError(id, `{"code":-32020,"message":"no"}`) }
		}},
	"queue for a retry": {backend: slots(modernBackends(perSessionBackend("a"))[0]),
		enter: func(h *harness, send func()) func() {
			p, id := h.callModern(send)
			p.SendError(id, `{"code":-32020,"message":"no"}`)
			id = p.WantRequest("tools/list").ID()
			return func() { p.SendResult(id, mcptest.ToolsResult("t")) }
		}},
	"end of the connection during a retry": {
		backend: slots(modernBackends(perSessionBackend("a"))[0]),
		enter: func(h *harness, send func()) func() {
			p, id := h.callModern(send)
			p.SendError(id, `{"code":-32020,"message":"no"}`)
			p.WantRequest("tools/list")
			return func() {
				p.Exit("exit 1", "")
				h.nextProcess("a").ServeDiscover("")
			}
		}},
	"subscribe before the start": {backend: modernBackends(perSessionBackend("a"))[0],
		method: "resources/subscribe",
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			send()
			return func() { p.ServeDiscover(discoverWith(changeCapabilities)) }
		}},
	"subscribe without a listen": {backend: modernBackends(perSessionBackend("a"))[0],
		method: "resources/subscribe",
		enter: func(h *harness, send func()) func() {
			b := h.startModernServer(h.t)
			b.acceptListen(nil)
			b.serveLists("t")
			send()
			id := b.takeListen([]string{"x:y"})
			return func() { b.acknowledge(id, []string{"x:y"}) }
		}},
	"subscribe without a listen, at the end of the connection": {
		backend: modernBackends(perSessionBackend("a"))[0], method: "resources/subscribe",
		enter: func(h *harness, send func()) func() {
			b := h.startModernServer(h.t)
			b.acceptListen(nil)
			b.serveLists("t")
			send()
			b.takeListen([]string{"x:y"})
			return func() { b.Exit("exit 1", "") }
		}},
	"subscribe in flight": {backend: legacyBackends("a")[0], method: "resources/subscribe",
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			p.ServeHandshake(loggingServer)
			h.serveLists(p)
			send()
			id := p.WantRequest("resources/subscribe").ID()
			return func() { p.SendResult(id, "{}") }
		}},
	"redirect of a call that waits for the start": {backend: slots(legacyBackends("a")[0]),
		enter: func(h *harness, send func()) func() {
			h.nextProcess("a")
			send()
			return h.replaceAtOnce(slots(legacyBackends("a")[0]))
		}},
	"redirect of a call that waits for a slot": {backend: slots(legacyBackends("a")[0]),
		enter: func(h *harness, send func()) func() {
			p := h.nextProcess("a")
			p.ServeStartup("t")
			h.callTool("two", "at")
			p.WantRequest("tools/call")
			send()
			return h.replaceAtOnce(slots(legacyBackends("a")[0]))
		}},
	"removal of the backend": {backend: slots(legacyBackends("a")[0]),
		enter: func(h *harness, send func()) func() {
			h.nextProcess("a")
			send()
			return func() { <-h.startApply(change()) }
		}},
}

// callModern starts the modern backend a and sends a call, and returns the id of the call.
func (h *harness) callModern(send func()) (*mcptest.Peer, wire.ID) {
	p := h.nextProcess("a")
	p.ServeDiscover("")
	p.ServeToolsList(mcptest.ToolsResult("t"))
	send()
	return p, p.WantRequest("tools/call").ID()
}

// replaceAtOnce begins to replace the backend a. The function that it returns lets the new backend
// settle, and so the old one drain.
func (h *harness) replaceAtOnce(c config.Backend) func() {
	h.t.Helper()
	done := h.startApply(change(withEnv(c, "new")))
	next := h.nextProcess("a")
	next.ServeHandshake("")
	id := next.WantRequest("tools/list").ID()
	return func() {
		next.SendResult(id, mcptest.ToolsResult("t"))
		<-done
	}
}

// A cancelled call ends once, wherever it is, and its slot is free after that.
func TestCancel_AtEveryStage(t *testing.T) {
	for name, stage := range callStages {
		t.Run(name, func(t *testing.T) {
			stage.run(t, func(call contract.BackendCall, leave func(), c *callRecorder) {
				call.Cancel(nil)
				call.Cancel(nil)
				if name == "not sent yet" {
					c.want(t, "")
					leave()
				}
				c.want(t, "cancelled")
				if name != "not sent yet" {
					leave()
				}
				c.want(t, "cancelled")
			})
		})
	}
}

// A call that is cancelled while it moves on ends once, whatever happens first.
func TestCancel_WhileTheCallMovesOn(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 3
	}
	for name, stage := range callStages {
		t.Run(name, func(t *testing.T) {
			for round := range rounds {
				dice := rand.New(rand.NewPCG(uint64(round), 0))
				stage.run(t, func(call contract.BackendCall, leave func(), c *callRecorder) {
					var cancelling sync.WaitGroup
					for range 2 {
						turns := dice.IntN(1 + 20*round)
						cancelling.Go(func() {
							for range turns {
								runtime.Gosched()
							}
							call.Cancel(nil)
						})
					}
					leave()
					cancelling.Wait()
				})
			}
		})
	}
}

// run brings a call to the stage, calls the function test, and checks that the call has ended once
// and that its slot is free.
func (s callStage) run(t *testing.T,
	test func(call contract.BackendCall, leave func(), c *callRecorder)) {
	o := backends.Options{Backends: []config.Backend{s.backend}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		c := &callRecorder{}
		m := wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`))
		if s.method != "" {
			m = wire.NewRequest("7", s.method, []byte(`{"uri":"x:y"}`))
		}
		call := h.NewCall("a", contract.BackendRequest{Message: m, Session: "one"}, c)
		leave := s.enter(h, call.Send)
		test(call, leave, c)
		synctest.Wait()
		c.mu.Lock()
		ends := len(c.results)
		c.mu.Unlock()
		if ends != 1 {
			t.Errorf("the call ended with %q", c.results)
		}
		next, _ := h.callTool("one", "next")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		next.mu.Lock()
		defer next.mu.Unlock()
		if len(next.results) > 1 || len(next.results) == 1 &&
			strings.HasPrefix(next.results[0], "busy") {
			t.Errorf("the next call ended with %q", next.results)
		}
	})
}
