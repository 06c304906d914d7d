package backends_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
)

// Only so many processes are started at one time; one that hangs counts for two seconds, and
// what is no process needs no place.
func TestStartsAreLimited(t *testing.T) {
	o := backends.Options{Backends: plain("a", "b", "c", "d", "e"), StartParallel: 2}
	o.Backends = append(o.Backends, remote("url"), config.Backend{Name: "demo", Embedded: "demo", Enabled: true, Generation: "legacy"})
	inHouse(t, o, func(t *testing.T, h *house) {
		started := func(names ...string) {
			t.Helper()
			got := ""
			for _, c := range o.Backends {
				if len(h.dials(c.Name)) > 0 {
					got += c.Name + " "
				}
			}
			want := ""
			for _, name := range names {
				want += name + " "
			}
			if got != want {
				t.Errorf("started %s, want %s", got, want)
			}
		}
		first := h.first()
		started(append(first, "url", "demo")...)
		h.next(first[0]).ServeHandshake("") // it is ready, and makes room for one
		if n := h.running("a", "b", "c", "d", "e"); n != 3 {
			t.Errorf("%d are started", n)
		}
		time.Sleep(2*time.Second - time.Millisecond)
		if n := h.running("a", "b", "c", "d", "e"); n != 3 {
			t.Errorf("%d are started", n)
		}
		time.Sleep(time.Millisecond) // those that hang count no more
		if n := h.running("a", "b", "c", "d", "e"); n != 5 {
			t.Errorf("%d are started", n)
		}
	})
}

// A start that fails makes room at once, and so does a session that leaves while its own
// process waits for its turn; own processes count, too.
func TestStartsOfOwnLinesAreLimited(t *testing.T) {
	c := plain("a")[0]
	c.Sharing = "session"
	inHouse(t, backends.Options{Backends: []config.Backend{c}, StartParallel: 1}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		var calls []*caller
		for i := range 4 {
			session := fmt.Sprint("s", i)
			h.OpenSession(session, nil, false)
			calls = append(calls, h.callFor(session, "a"))
			h.running("a") // they come in this order
		}
		if n := h.running("a"); n != 2 {
			t.Errorf("%d were started", n)
		}
		h.CloseSession("s1")
		calls[1].want(t, "it did not start: the session is over")
		h.breakDial("a", errors.New("no more"))
		h.next("a").Exit("exit 1", "")
		calls[0].want(t, "it did not start: exit 1")
		calls[2].want(t, "it did not start: no more")
		calls[3].want(t, "it did not start: no more")
	})
}

// first returns the backends that are processes and were started, in their order.
func (h *house) first() (names []string) {
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if len(h.dials(name)) > 0 {
			names = append(names, name)
		}
	}
	if len(names) != 2 {
		h.t.Fatalf("started %q, want two", names)
	}
	return names
}

// running returns how often backends were started.
func (h *house) running(names ...string) (n int) {
	for _, name := range names {
		n += len(h.dials(name))
	}
	return n
}
