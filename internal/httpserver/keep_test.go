package httpserver

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/wire"
)

// large is a message of some n bytes.
func large(i, n int) wire.Message {
	return wire.NewNotification("big", fmt.Appendf(nil, `{"i":%d,"x":"%s"}`, i, strings.Repeat("x", n)))
}

// TestEviction makes a session keep more than it may and sees what goes first:
// what was sent and has ended, what was sent, and only then what was not sent.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) { o.RetainLimit = 20000 })
		key, g := h.enter("2025-11-25", nil)
		open := func(id string) *events {
			s := h.stream(knock{session: key, body: call(id, "hold", "{}")})
			if _, err := s.next(); err != nil {
				t.Fatal(err)
			}
			return s
		}
		read := func(s *events, n int) {
			t.Helper()
			for range n {
				if ev, err := s.next(); err != nil || ev.data == "" {
					t.Fatalf("%+v %v", ev, err)
				}
			}
		}
		kept := func() int {
			synctest.Wait()
			n := g.keeps()
			if n > 20000 {
				t.Errorf("%d bytes are kept", n)
			}
			return n
		}
		running := open("1") // stream 1 goes on, its first event was sent
		r1 := <-h.held
		h.write(g, large(0, 3000), "1")
		read(running, 1)
		ended := open("2") // stream 2 has ended
		r2 := <-h.held
		h.write(g, large(0, 3000), "2")
		r2.Reply([]byte("{}"))
		read(ended, 2)
		ended.end()
		broken := open("3") // stream 3 has lost its connection, its second event was not sent
		r3 := <-h.held
		h.write(g, large(0, 3000), "3")
		read(broken, 1)
		broken.cut()
		synctest.Wait()
		h.write(g, large(1, 3000), "3")
		if n := kept(); n < 12000 {
			t.Errorf("%d bytes are kept", n)
		}
		own := h.stream(knock{verb: "GET", session: key})
		own.want("0-0", "")

		h.write(g, large(0, 3000), "") // first 2 goes
		h.write(g, large(1, 3000), "")
		read(own, 2)
		kept()
		h.wantError(lastSeen(key, "2-0"), 410, "null", wire.CodeInvalidRequest)
		for i := range 2 { // then what was sent of 1
			h.write(g, large(2+i, 3000), "")
			read(own, 1)
		}
		kept()
		h.wantError(lastSeen(key, "1-0"), 410, "null", wire.CodeInvalidRequest)
		for i := range 6 { // and of 3, and of the session's own
			h.write(g, large(4+i, 3000), "")
			read(own, 1)
			kept()
		}
		h.wantError(lastSeen(key, "3-0"), 410, "null", wire.CodeInvalidRequest)
		h.wantError(lastSeen(key, "0-0"), 410, "null", wire.CodeInvalidRequest)
		resumed := h.stream(lastSeen(key, "3-1")) // but not what was not sent
		if ev, _ := resumed.next(); ev.id != "3-2" {
			t.Errorf("%+v", ev)
		}
		r3.Reply([]byte("{}"))
		resumed.want("3-3", result("3", "{}"))
		resumed.end()
		r1.Reply([]byte("{}"))
		running.want("1-2", result("1", "{}"))
		running.end()
		own.cut()
	})
}

// What nobody fetches pushes itself out, but for the newest.
func TestNobodyFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) { o.RetainLimit = 10000 })
		key, g := h.enter("2025-11-25", nil)
		for i := range 100 {
			h.write(g, large(i, 1000), "")
		}
		s := h.stream(knock{verb: "GET", session: key})
		s.want("0-92", "")
		for i := 92; i < 100; i++ {
			s.want(fmt.Sprint("0-", i+1), string(large(i, 1000).Raw()))
		}
		s.cut()
		synctest.Wait()

		var answers []*events
		for i := range 4 { // answers that are larger than the bound, for clients that are gone
			s := h.stream(knock{session: key, body: call(fmt.Sprint(i), "hold", "{}")})
			s.want(fmt.Sprint(i+1, "-0"), "")
			answers = append(answers, s)
		}
		for _, s := range answers {
			s.cut()
		}
		synctest.Wait()
		for range 4 {
			(<-h.held).Reply([]byte(`"` + strings.Repeat("x", 20000) + `"`))
		}
		for _, id := range []string{"1-0", "2-0", "3-0"} {
			h.wantError(lastSeen(key, id), 410, "null", wire.CodeInvalidRequest)
		}
		s = h.stream(lastSeen(key, "4-0")) // the newest answer stays
		if ev, _ := s.next(); ev.id != "4-1" || len(ev.data) < 20000 {
			t.Errorf("%+.50v", ev)
		}
		s.end()
	})
}

// All sessions together keep 64 times what one may; those go first that began
// first.
func TestWhatAllSessionsKeepIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) { o.RetainLimit = 10000 })
		var keys []string
		for range 100 {
			key, g := h.enter("2025-11-25", nil)
			keys = append(keys, key)
			for i := range 20 {
				h.write(g, large(i, 1000), "")
			}
			if n := h.door.kept.Load(); n > 64*10000 {
				t.Fatalf("%d bytes are kept", n)
			}
		}
		if n := h.door.kept.Load(); n < 60*9000 {
			t.Errorf("only %d bytes are kept", n)
		}
		for i, key := range keys {
			s := h.stream(knock{verb: "GET", session: key})
			ev, err := s.next()
			if nothing := ev.id == "0-20"; err != nil || nothing != (i < 29) {
				t.Errorf("session %d: %+.30v, %v", i, ev, err)
			}
			s.cut()
		}
	})
}

func TestIdleSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) { o.IdleTimeout = time.Minute })
		ping := func(key string, status int) {
			t.Helper()
			h.want(knock{session: key, body: call("9", "ping", "{}")}, status, "*")
		}
		idle, g := h.enter("2025-11-25", nil)
		pinged, _ := h.enter("2025-11-25", nil)
		asking, _ := h.enter("2025-11-25", nil)
		listening, _ := h.enter("2025-11-25", nil)
		s := h.stream(knock{verb: "GET", session: listening})
		call := h.stream(knock{session: asking, body: call("1", "hold", "{}")})
		call.want("1-0", "")
		call.cut() // its request goes on, for as long as its client may come back
		go func() {
			for {
				if _, err := s.next(); err != nil {
					return
				}
			}
		}()
		time.Sleep(40 * time.Second)
		ping(pinged, 200)
		time.Sleep(21 * time.Second)
		ping(idle, 404)
		<-g.ended
		(<-h.held).Reply([]byte("{}"))
		ping(asking, 404)
		time.Sleep(30 * time.Second)
		ping(pinged, 200)
		time.Sleep(10 * time.Minute)
		ping(pinged, 404)
		ping(listening, 200)
		s.cut()
		time.Sleep(10 * time.Minute)
		ping(listening, 404)
	})
}

// A request that comes in the very moment in which its session has been idle for long enough is served, or is told that
// there is no such session. It is not taken and then lost.
func TestIdleSessionsEnd_NotUnderARequest(t *testing.T) {
	d := New(Options{IdleTimeout: time.Nanosecond, Log: slog.New(slog.DiscardHandler)})
	for range 20000 {
		s := d.newSession(0)
		var both sync.WaitGroup
		both.Go(func() { s.endIfIdle() })
		s.mu.Lock()
		refused := s.arriveLocked()
		s.unlock()
		both.Wait()
		if refused == nil && s.over {
			t.Fatal("a session has ended under a request that it has taken")
		}
	}
}

// Who holds a session is told once that it has ended, and why if neither side has closed it.
func TestWhyASessionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(h *house, key string, g *visitor)
		want string
	}{
		"idle":    {func(*house, string, *visitor) { time.Sleep(2 * time.Hour) }, "idle for 1h0m0s: limits.session_idle"},
		"deleted": {func(h *house, key string, _ *visitor) { h.want(knock{verb: "DELETE", session: key}, 204, "") }, "<nil>"},
		"closed":  {func(_ *house, _ string, g *visitor) { _ = g.Writer.Close() }, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, nil)
				key, g := h.enter("2025-11-25", nil)
				c.end(h, key, g)
				<-g.ended
				if got := fmt.Sprint(g.why); got != c.want {
					t.Errorf("it has ended since %s, want %s", got, c.want)
				}
			})
		})
	}
	t.Run("HTTP+SSE", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, nil)
			stream := h.stream(knock{verb: "GET", path: "/sse"})
			g := <-h.conns
			stream.cut()
			<-g.ended
			time.Sleep(2 * time.Hour)
			if len(g.ended) > 0 || g.why != nil {
				t.Errorf("it has ended twice, or since %v", g.why)
			}
		})
	})
}
