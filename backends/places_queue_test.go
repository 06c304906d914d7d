package backends_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

func TestSessionsTakeTurnsInTheQueue(t *testing.T) {
	inHouse(t, withPlaces(1, time.Hour), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		h.ask("flood", "at")
		for i := range 900 {
			h.ask("flood", fmt.Sprint("f", i))
		}
		for i := range 2 {
			h.ask("one", fmt.Sprint("one", i))
			h.ask("two", fmt.Sprint("two", i))
		}
		want := []string{"at", "f0", "one0", "two0", "f1", "one1", "two1", "f2", "f3"}
		for _, name := range want {
			p.SendResult(wantTools(t, p, name)[0], "{}")
		}
	})
}

// A full queue is full for who fills it: whoever has less there gets in.
func TestAFullQueueIsFullForWhoFillsIt(t *testing.T) {
	inHouse(t, withPlaces(1, time.Hour), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		h.ask("flood", "at")
		var all []*caller
		for range 1000 {
			c, _ := h.ask("flood", "f")
			all = append(all, c)
		}
		const full = "busy: it takes 1 call at a time (max_in_flight), and 1000 wait already"
		c, _ := h.ask("flood", "f")
		c.want(t, full)
		all[999].want(t, "")
		other, _ := h.ask("one", "other")
		other.want(t, "")
		all[999].want(t, full)
		all[998].want(t, "")
		p.SendResult(wantTools(t, p, "at")[0], "{}")
		p.SendResult(wantTools(t, p, "f")[0], "{}")
		p.SendResult(wantTools(t, p, "other")[0], "{}")
		other.ok(t)
	})
	inHouse(t, withPlaces(1, time.Hour), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		h.ask("one", "at")
		for i := range 1000 {
			h.ask(fmt.Sprint(i), "f")
		}
		c, _ := h.ask("1000", "f") // nobody has more there than it would
		c.want(t, "busy: it takes 1 call at a time (max_in_flight), and 1000 wait already")
		wantTools(t, p, "at")
	})
}

// With more places than that, as many may wait.
func TestTheQueueIsAsLongAsThereArePlaces(t *testing.T) {
	inHouse(t, withPlaces(1200, time.Hour), func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		for range 2400 {
			h.ask("one", "t")
		}
		c, _ := h.ask("one", "t")
		c.want(t, "busy: it takes 1200 calls at a time (max_in_flight), and 1200 wait already")
	})
}

func TestTheEndOfASessionClearsItsQueue(t *testing.T) {
	inHouse(t, withPlaces(1, time.Hour), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		h.ask("two", "at")
		mine, _ := h.ask("one", "mine")
		theirs, _ := h.ask("two", "theirs")
		h.CloseSession("one")
		mine.want(t, "the session is over")
		theirs.want(t, "")
		p.SendResult(wantTools(t, p, "at")[0], "{}")
		wantTools(t, p, "theirs")
	})
}

func TestTheEndOfTheGatewayClearsTheQueue(t *testing.T) {
	inHouse(t, withPlaces(1, time.Hour), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		at, _ := h.ask("one", "at")
		var all []*caller
		for range 1000 {
			c, _ := h.ask("one", "t")
			all = append(all, c)
		}
		p.HandleRequest("tools/call")
		h.stop()
		<-h.done
		at.want(t, "context canceled")
		for i, c := range all {
			if len(c.ends) != 1 || !strings.HasSuffix(c.ends[0], ": the gateway is ending") {
				t.Fatalf("call %d ended with %q", i, c.ends)
			}
		}
	})
}

// shallow notes from how deep it was called.
type shallow struct {
	caller
	depth *int
}

func (s *shallow) OnResponse(m wire.Message, err error) {
	*s.depth = max(*s.depth, runtime.Callers(0, make([]uintptr, 1000)))
}

// A backend that cannot be started fails its queue at once, and not one of it within the
// failure of another.
func TestAQueueBeforeABackendThatIsGone(t *testing.T) {
	inHouse(t, withPlaces(1, time.Hour), func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("t")
		h.ask("one", "at")
		deepest := 0
		for range 999 {
			h.Send("a", wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)), &peer.Call{Handler: &shallow{depth: &deepest}})
		}
		last, _ := h.ask("two", "last")
		h.breakDial("a", errors.New("no such file"))
		p.Exit("exit 1", "")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(last.ends) != 1 || !strings.Contains(last.ends[0], "no such file") {
			t.Errorf("the last ended with %q", last.ends)
		}
		if deepest == 0 || deepest > 50 {
			t.Errorf("%d calls deep", deepest)
		}
	})
}
