package backends_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

// The status says since when a backend is in its state, how often it was started again, and its
// last error, which is also known when the backend is ready again.
func TestStatus_History(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		began := time.Now()
		p := h.startServer("a")
		if s := h.status("a"); s.State != backends.Ready || s.Since != began || s.Restarts != 0 ||
			s.LastError != nil || !s.LastErrorAt.IsZero() {
			t.Errorf("at first: %+v", s.History)
		}
		time.Sleep(time.Hour)
		ended := time.Now()
		p.Exit("exit status 3", "")
		synctest.Wait()
		if s := h.status("a"); s.State != backends.BackingOff || s.Since != ended ||
			s.LastErrorAt != ended || s.LastError == nil {
			t.Errorf("after the end: %s %+v", s.State, s.History)
		}
		h.startServer("a")
		if s := h.status("a"); s.State != backends.Ready || s.Err != nil || s.Restarts != 1 ||
			!s.Since.After(ended) || s.LastErrorAt != ended || s.LastError == nil ||
			s.LastError.Error() != "exit status 3" {
			t.Errorf("after the restart: %+v", s.History)
		}
		wantDone(t, control(h.control().Stop, "a"), "")
		if s := h.status("a"); !s.Since.Equal(time.Now()) {
			t.Errorf("stopped: %+v", s.History)
		}
		done := control(h.control().Start, "a")
		h.startServer("a")
		wantDone(t, done, "")
		if s := h.status("a"); s.Restarts != 0 || s.LastError != nil { // as with systemctl
			t.Errorf("after a start by the user: %+v", s.History)
		}
	})
}

// The status counts the calls in flight, the queued calls and the connections, also of sessions and
// of a former backend of the name.
func TestStatus_Usage(t *testing.T) {
	c := legacyBackends("a")[0]
	c.Sharing, c.MaxInFlight, c.QueueWait = config.SharingSession, 2, time.Minute
	withHarness(t, backends.Options{Backends: []config.Backend{c}},
		func(t *testing.T, h *harness) {
			want := func(inFlight, queued, connections int) {
				t.Helper()
				s := h.status("a")
				if s.InFlight != inFlight || s.Queued != queued || s.Connections != connections {
					t.Errorf("%d calls in flight, %d queued, %d connections; want %d, %d, %d",
						s.InFlight, s.Queued, s.Connections, inFlight, queued, connections)
				}
			}
			shared := h.nextProcess("a")
			shared.ServeHandshake("")
			list := shared.WantRequest("tools/list") // a call of the gateway itself is not counted
			want(0, 0, 1)
			shared.SendResult(list.ID(), `{"tools":[]}`)
			h.OpenSession("one", nil, false)
			for range 3 {
				h.callFor("one", "a")
			}
			own := h.nextProcess("a")
			want(0, 3, 1) // two wait for the connection, one for a slot
			own.ServeHandshake("")
			one, two := own.WantRequest("tools/call"), own.WantRequest("tools/call")
			want(2, 1, 2)
			control(h.control().Restart, "a")
			want(2, 1, 1) // at the former backend; the third call waits for the new one
			if n := len(h.dialTimes("a")); n != 2 {
				t.Errorf("%d processes", n)
			}
			own.SendResult(one.ID(), "{}")
			want(1, 1, 1)
			own.SendResult(two.ID(), "{}")
			want(0, 1, 0)
		})
}

// Instances are listed by principal. Their calls count for the backend.
func TestStatus_Instances(t *testing.T) {
	withHarness(t, backends.Options{Backends: ownLogins("a")}, func(t *testing.T, h *harness) {
		h.connect("b1", named("bob"))
		h.startServer("a")
		h.breakDial("a", errors.New("no login"))
		h.connect("a1", named("alice"))
		h.toolCall("a", "b1", "t")
		s := h.status("a")
		if len(s.Instances) != 2 || s.Instances[0].Principal != "alice" ||
			s.Instances[0].State == backends.Ready || s.Instances[0].Err == nil ||
			s.Instances[0].LastError == nil || s.Instances[1].Principal != "bob" ||
			s.Instances[1].State != backends.Ready || s.Connections != 1 || s.InFlight != 1 {
			t.Errorf("%+v", s.Usage)
		}
	})
}

// A change of the state of a backend closes the channel of StatusChanged. A call does not.
func TestStatusChanged(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
		var states []backends.State
		stop := make(chan struct{})
		done := make(chan struct{})
		wakeups := 0
		go func() {
			defer close(done)
			for {
				changed := h.StatusChanged()
				if s := h.Set.Status()[0].State; len(states) == 0 || states[len(states)-1] != s {
					states = append(states, s)
				}
				select {
				case <-changed:
					wakeups++
				case <-stop:
					return
				}
			}
		}()
		start := func() *mcptest.Peer {
			p := h.nextProcess("a")
			synctest.Wait() // so that each state is seen
			p.ServeStartup("t")
			synctest.Wait()
			return p
		}
		p := start()
		before := wakeups
		c, _ := h.call("a")
		p.SendResult(p.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		if wakeups != before {
			t.Errorf("a call has closed the channel")
		}
		p.Exit("exit status 1", "")
		synctest.Wait()
		start()
		wantDone(t, control(h.control().Stop, "a"), "")
		synctest.Wait()
		close(stop)
		<-done
		if want := []backends.State{backends.Starting, backends.Ready, backends.BackingOff,
			backends.Starting, backends.Ready,
			backends.StoppedByUser}; !slices.Equal(states[max(0, len(states)-len(want)):], want) {
			t.Errorf("states %q", states)
		}
	})
}
