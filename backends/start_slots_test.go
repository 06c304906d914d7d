package backends_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
)

// The number of processes that start at one time is limited. A start that hangs counts for two
// seconds, and backends without a process need no slot.
func TestStartsAreLimited(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a", "b", "c", "d", "e"), StartParallel: 2}
	o.Backends = append(o.Backends, perSessionBackend("url"),
		config.Backend{Name: "demo", Embedded: "demo", Enabled: true, Generation: "legacy"})
	withHarness(t, o, func(t *testing.T, h *harness) {
		started := func(names ...string) {
			t.Helper()
			got := ""
			for _, c := range o.Backends {
				if len(h.dialTimes(c.Name)) > 0 {
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
		first := h.startedProcesses()
		started(append(first, "url", "demo")...)
		h.nextProcess(first[0]).ServeHandshake("") // it is ready, and releases its slot
		if n := h.startCount("a", "b", "c", "d", "e"); n != 3 {
			t.Errorf("%d are started", n)
		}
		time.Sleep(2*time.Second - time.Millisecond)
		if n := h.startCount("a", "b", "c", "d", "e"); n != 3 {
			t.Errorf("%d are started", n)
		}
		time.Sleep(time.Millisecond) // starts that hang no longer count
		if n := h.startCount("a", "b", "c", "d", "e"); n != 5 {
			t.Errorf("%d are started", n)
		}
	})
}

// A start that fails releases its slot at once. When a session closes, its process no longer waits
// for a slot. Starts of per-session processes also need slots.
func TestStartsOfSessionConnectionsAreLimited(t *testing.T) {
	c := legacyBackends("a")[0]
	c.Sharing = "session"
	withHarness(t, backends.Options{Backends: []config.Backend{c}, StartParallel: 1},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			var calls []*callRecorder
			for i := range 4 {
				session := fmt.Sprint("s", i)
				h.OpenSession(session, nil, false)
				calls = append(calls, h.callFor(session, "a"))
				h.startCount("a") // waits, so that the processes are started in this order
			}
			if n := h.startCount("a"); n != 2 {
				t.Errorf("%d were started", n)
			}
			h.CloseSession("s1")
			calls[1].want(t, "it did not start: the session is over")
			h.breakDial("a", errors.New("no more"))
			h.nextProcess("a").Exit("exit 1", "")
			calls[0].want(t, "it did not start: exit 1")
			calls[2].want(t, "it did not start: no more")
			calls[3].want(t, "it did not start: no more")
		})
}

// startedProcesses returns the backends that are processes and were started, in order, and checks
// that there are two.
func (h *harness) startedProcesses() (names []string) {
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if len(h.dialTimes(name)) > 0 {
			names = append(names, name)
		}
	}
	if len(names) != 2 {
		h.t.Fatalf("started %q, want two", names)
	}
	return names
}

// startCount returns the number of starts of backends.
func (h *harness) startCount(names ...string) (n int) {
	for _, name := range names {
		n += len(h.dialTimes(name))
	}
	return n
}
