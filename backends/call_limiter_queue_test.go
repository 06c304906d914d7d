package backends_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

func TestLimiter_SessionsTakeTurns(t *testing.T) {
	withHarness(t, withMaxInFlight(1, time.Hour), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		h.callTool("flood", "at")
		for i := range 900 {
			h.callTool("flood", fmt.Sprint("f", i))
		}
		for i := range 2 {
			h.callTool("one", fmt.Sprint("one", i))
			h.callTool("two", fmt.Sprint("two", i))
		}
		want := []string{"at", "f0", "one0", "two0", "f1", "one1", "two1", "f2", "f3"}
		for _, name := range want {
			p.SendResult(wantToolCalls(t, p, name)[0], "{}")
		}
	})
}

// For sessions with fewer queued calls, a full queue evicts calls of the session with the longest
// queue.
func TestLimiter_FullQueueRejectsLongestSession(t *testing.T) {
	withHarness(t, withMaxInFlight(1, time.Hour), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		h.callTool("flood", "at")
		var all []*callRecorder
		for range 1000 {
			c, _ := h.callTool("flood", "f")
			all = append(all, c)
		}
		const full = "busy: it takes 1 call at a time (max_in_flight), and 1000 wait already"
		c, _ := h.callTool("flood", "f")
		c.want(t, full)
		all[999].want(t, "")
		other, _ := h.callTool("one", "other")
		other.want(t, "")
		all[999].want(t, full)
		all[998].want(t, "")
		p.SendResult(wantToolCalls(t, p, "at")[0], "{}")
		p.SendResult(wantToolCalls(t, p, "f")[0], "{}")
		p.SendResult(wantToolCalls(t, p, "other")[0], "{}")
		other.wantResult(t)
	})
	withHarness(t, withMaxInFlight(1, time.Hour), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		h.callTool("one", "at")
		for i := range 1000 {
			h.callTool(fmt.Sprint(i), "f")
		}
		c, _ := h.callTool("1000", "f") // no session has more calls queued
		c.want(t, "busy: it takes 1 call at a time (max_in_flight), and 1000 wait already")
		wantToolCalls(t, p, "at")
	})
}

// If max_in_flight is above 1000, max_in_flight calls may be queued.
func TestLimiter_QueueLimitGrowsWithSlots(t *testing.T) {
	withHarness(t, withMaxInFlight(1200, time.Hour), func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		for range 2400 {
			h.callTool("one", "t")
		}
		c, _ := h.callTool("one", "t")
		c.want(t, "busy: it takes 1200 calls at a time (max_in_flight), and 1200 wait already")
	})
}

func TestLimiter_SessionEndClearsQueue(t *testing.T) {
	withHarness(t, withMaxInFlight(1, time.Hour), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		h.OpenSession("one", nil, false)
		h.OpenSession("two", nil, false)
		h.callTool("two", "at")
		mine, _ := h.callTool("one", "mine")
		theirs, _ := h.callTool("two", "theirs")
		h.CloseSession("one")
		mine.want(t, "the session is over")
		theirs.want(t, "")
		p.SendResult(wantToolCalls(t, p, "at")[0], "{}")
		wantToolCalls(t, p, "theirs")
	})
}

func TestLimiter_ShutdownClearsQueue(t *testing.T) {
	withHarness(t, withMaxInFlight(1, time.Hour), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		at, _ := h.callTool("one", "at")
		var all []*callRecorder
		for range 1000 {
			c, _ := h.callTool("one", "t")
			all = append(all, c)
		}
		p.WantRequest("tools/call")
		h.stop()
		<-h.done
		at.want(t, "context canceled")
		for i, c := range all {
			if len(c.results) != 1 || !strings.HasSuffix(c.results[0], ": the gateway is ending") {
				t.Fatalf("call %d ended with %q", i, c.results)
			}
		}
	})
}

// stackDepth records the greatest depth of the stack in OnResponse.
type stackDepth struct {
	callRecorder
	depth *int
}

func (s *stackDepth) OnResponse(contract.BackendResponse) {
	*s.depth = max(*s.depth, runtime.Callers(0, make([]uintptr, 1000)))
}

// If a backend cannot be started, its queued calls fail one after the other, without nested
// failures.
func TestLimiter_FailsLongQueueWithoutRecursion(t *testing.T) {
	withHarness(t, withMaxInFlight(1, time.Hour), func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("t")
		h.callTool("one", "at")
		deepest := 0
		for range 999 {
			h.SendCall("a", "", wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)),
				&stackDepth{depth: &deepest})
		}
		last, _ := h.callTool("two", "last")
		h.breakDial("a", errors.New("no such file"))
		p.Exit("exit 1", "")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(last.results) != 1 || !strings.Contains(last.results[0], "no such file") {
			t.Errorf("the last ended with %q", last.results)
		}
		if deepest == 0 || deepest > 50 {
			t.Errorf("%d calls deep", deepest)
		}
	})
}
