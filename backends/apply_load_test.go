package backends_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// servers are servers that respond by themselves. Each responds to a call with the name of its
// backend, and delays some responses until the next call or change.
type servers struct {
	running sync.WaitGroup

	mu      sync.Mutex
	started map[string]int
	held    []func()
	prompt  bool // no further response is delayed
}

func (f *servers) dial(c config.Backend) (transport.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started[c.Name]++
	ours, theirs := transport.Pipe()
	f.running.Go(func() { f.serve(theirs, c.Name) })
	return ours, nil
}

func (f *servers) serve(conn transport.Conn, name string) {
	defer conn.Close()
	for n := 0; ; n++ {
		m, _, err := conn.Read()
		if err != nil {
			return
		}
		// the remote side may be closed
		reply := func(result string) { _ = conn.Write(wire.NewResult(m.ID(), []byte(result)), "") }
		switch m.Method() {
		case "initialize":
			reply(mcptest.InitializeResult)
		case "tools/list":
			reply(mcptest.ToolsResult(name))
		case "tools/call":
			f.sendDelayed()
			answer := func() { reply(`{"by":"` + name + `"}`) }
			if n%3 != 0 || !f.delay(answer) {
				answer()
			}
		}
	}
}

// delay delays a response. It reports false if prompt is set, or if so many responses are delayed
// that all callers might wait.
func (f *servers) delay(answer func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.prompt || len(f.held) > 1 {
		return false
	}
	f.held = append(f.held, answer)
	return true
}

// sendDelayed sends the delayed responses.
func (f *servers) sendDelayed() {
	f.mu.Lock()
	held := f.held
	f.held = nil
	f.mu.Unlock()
	for _, answer := range held {
		answer()
	}
}

// CONFIG-08: two hundred changes while calls are made. Each call has one response, from a server of
// its backend. No call of a backend that stays configured is lost, refused or not found. The test
// does not run in a synctest bubble, because the race detector does not support that many
// goroutines in a bubble (golang/go#78156).
func TestCONFIG_08_ChangesUnderLoad(t *testing.T) {
	all := append(legacyBackends("same", "other", "passing"), perSessionBackend("own"))
	f := &servers{started: make(map[string]int)}
	h := newHarness(t, backends.Options{Backends: append(all[:2:2], all[3]), Dial: f.dial})
	h.Start()
	for v := h.View(); len(exposed(v)) < 3; v = h.View() {
		<-v.Changed
	}
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	count := make(map[string]int)
	var made [4]chan struct{} // signals each call, if there is a receiver
	for i := range made {
		made[i] = make(chan struct{})
		session := fmt.Sprint("s", i)
		h.OpenSession(session, nil, false)
		callers.Go(func() {
			defer close(made[i])
			for n := 0; ; n++ {
				name := all[(n+i)%len(all)].Name
				how, err := h.callOutcome(session, name, n%11 == 10)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				count[name+" "+how]++
				mu.Unlock()
				select {
				case <-stop:
					return
				case made[i] <- struct{}{}:
				default:
				}
			}
		})
	}
	for i := range 200 {
		next := []config.Backend{all[0], withEnv(all[1], fmt.Sprint(i)),
			withEnv(all[3], fmt.Sprint(i/3))}
		if i%2 == 0 {
			next = append(next, all[2])
		}
		if i%5 == 0 {
			slices.Reverse(next)
		}
		<-h.startApply(change(next...))
		f.sendDelayed()
		if v := h.View(); !slices.Contains(exposed(v), "same") {
			t.Errorf("listed %q", exposed(v))
		}
		for range 2 { // so that no call spans two changes
			for _, c := range made {
				<-c
			}
		}
	}
	close(stop)
	f.mu.Lock()
	f.prompt = true
	f.mu.Unlock()
	f.sendDelayed()
	callers.Wait()
	for _, want := range []string{"same ok", "other ok", "own ok", "passing ok", "passing absent"} {
		if count[want] < 50 {
			t.Errorf("counted %v", count)
			break
		}
	}
	h.stop()
	<-h.done
	f.running.Wait()
	if f.started["same"] != 1 || f.started["other"] < 200 {
		t.Errorf("started %v", f.started)
	}
}

// callOutcome makes a call, and may cancel it at once. It returns the outcome, or an error if the
// outcome is wrong.
func (h *harness) callOutcome(session, name string, cancel bool) (string, error) {
	w := make(backends.ResponseChan, 2)
	pending := h.SendCall(name, session,
		wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), w)
	if cancel {
		pending.Cancel(nil)
	}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	var a contract.BackendResponse
	select {
	case a = <-w:
	case <-limit.C:
		return "hangs", fmt.Errorf("a call to %s hangs", name)
	}
	switch {
	case len(w) > 0:
		return "twice", fmt.Errorf("a call to %s ended twice", name)
	case a.Err == nil && string(a.Message.Part(wire.PartResult)) == `{"by":"`+name+`"}`:
		return "ok", nil
	case a.Err == nil:
		return "wrong", fmt.Errorf("%s got the response %s", name, a.Message.Raw())
	case cancel && errors.Is(a.Err, peer.ErrCancelled):
		return "cancelled", nil
	case name == "passing" && strings.HasSuffix(a.Err.Error(), "the configuration"),
		name == "passing" && a.Err.Error() == "it is not configured":
		return "absent", nil
	}
	return "lost", fmt.Errorf("a call to %s ended with: %w", name, a.Err)
}
