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
	"mcpgateway/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/peer"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// A fleet is the servers of a test that plays them itself, each as long as its connection
// is open. They answer a call with the name of their backend, at once or a little later.
type fleet struct {
	running sync.WaitGroup

	mu      sync.Mutex
	started map[string]int
}

func (f *fleet) dial(c config.Backend) (transport.Conn, error) {
	f.mu.Lock()
	f.started[c.Name]++
	f.mu.Unlock()
	ours, theirs := transport.Pipe()
	f.running.Go(func() { f.serve(theirs, c.Name) })
	return ours, nil
}

func (f *fleet) serve(conn transport.Conn, name string) {
	defer conn.Close()
	for n := 0; ; n++ {
		m, _, err := conn.Read()
		if err != nil {
			return
		}
		if m.Kind() != wire.Request {
			continue
		}
		answer, wait := `"`+name+`"`, time.Duration(n%3)*time.Millisecond
		switch m.Method() {
		case "initialize":
			answer, wait = mcptest.Hello, time.Duration(n%2)*time.Millisecond
		case "tools/list":
			answer = mcptest.Tools(name)
		}
		f.running.Add(1)
		time.AfterFunc(wait, func() {
			defer f.running.Done()
			_ = conn.Write(wire.NewResult(m.ID(), []byte(answer)), "") // who is gone reads nothing
		})
	}
}

// CONFIG-08: two hundred changes while calls are made. Each call has one answer, of a server
// of the backend that it is for, and none of one that is configured all the time is lost,
// refused or not found.
func TestCONFIG_08_ChangesUnderLoad(t *testing.T) {
	all := append(plain("same", "other", "passing"), remote("own"))
	f := &fleet{started: make(map[string]int)}
	inHouse(t, backends.Options{Backends: append(all[:2:2], all[3]), Dial: f.dial}, func(t *testing.T, h *house) {
		time.Sleep(time.Second)
		h.wantNames("same", "other", "own")
		stop := make(chan struct{})
		var callers sync.WaitGroup
		var mu sync.Mutex
		count := make(map[string]int)
		for i := range 8 {
			session := fmt.Sprint("s", i)
			h.Open(session, nil, false)
			callers.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration((n+i)%3) * time.Millisecond):
					}
					name := all[(n+i)%len(all)].Name
					how, err := h.outcome(session, name, n%11 == 10)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					count[name+" "+how]++
					mu.Unlock()
				}
			})
		}
		for i := range 200 {
			next := []config.Backend{all[0], edited(all[1], fmt.Sprint(i)), edited(all[3], fmt.Sprint(i/3))}
			if i%2 == 0 {
				next = append(next, all[2])
			}
			if i%5 == 0 {
				slices.Reverse(next)
			}
			<-h.apply(change(next...))
			if v := h.View(); !slices.Contains(exposed(v), "same") {
				t.Errorf("listed %q", exposed(v))
			}
			time.Sleep(time.Duration(1+i%4) * time.Millisecond)
		}
		close(stop)
		callers.Wait()
		for _, want := range []string{"same ok", "other ok", "own ok", "passing ok", "passing absent"} {
			if count[want] < 20 {
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
	})
}

// outcome makes a call, and perhaps takes it back at once. It returns what became of it, or
// what should not have.
func (h *house) outcome(session, name string, cancel bool) (string, error) {
	w := make(peer.Waiter, 2)
	pending := &peer.Pending{To: w, Owner: session}
	h.Send(name, wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`)), pending)
	if cancel {
		h.Cancel(name, pending, nil)
	}
	var a peer.Answer
	select {
	case a = <-w:
	case <-time.After(time.Minute):
		return "hangs", fmt.Errorf("a call to %s hangs", name)
	}
	switch {
	case len(w) > 0:
		return "twice", fmt.Errorf("a call to %s ended twice", name)
	case a.Err == nil && string(a.Part(wire.PartResult)) == `"`+name+`"`:
		return "ok", nil
	case a.Err == nil:
		return "wrong", fmt.Errorf("%s was answered with %s", name, a.Raw())
	case cancel && errors.Is(a.Err, peer.ErrCancelled):
		return "cancelled", nil
	case name == "passing" && strings.HasSuffix(a.Err.Error(), "the configuration"), name == "passing" && a.Err.Error() == "is not configured":
		return "absent", nil
	}
	return "lost", fmt.Errorf("a call to %s ended with: %w", name, a.Err)
}
