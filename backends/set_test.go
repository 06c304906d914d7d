package backends_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

func TestSTART08_NothingStartsBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{Backends: legacyBackends("a", "b")})
		c, _ := h.call("a")
		time.Sleep(time.Hour)
		if n := len(h.dialTimes("a")) + len(h.dialTimes("b")); n != 0 {
			t.Errorf("%d backends were dialled", n)
		}
		if s := h.status("a"); s.State != backends.Stopped || s.Settled {
			t.Errorf("status: %+v", s)
		}
		h.Start()
		h.Start()
		a := h.nextProcess("a")
		h.nextProcess("b")
		if n := len(h.dialTimes("a")) + len(h.dialTimes("b")); n != 2 {
			t.Errorf("%d backends were dialled", n)
		}
		a.ServeHandshake("") // earlier calls were queued
		a.WantRequest("tools/call")
		c.want(t, "")
	})
}

func TestUnstartedSetFailsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{Backends: legacyBackends("a")})
		c, _ := h.call("a")
		h.stop()
		<-h.done
		c.want(t, "it did not start: the gateway is ending")
		c, _ = h.call("a")
		c.want(t, "it is not running: the gateway is ending")
	})
}

func TestShutdownEndsBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{Backends: legacyBackends("ready", "starting",
			"broken")})
		h.breakDial("broken", errors.New("no such file"))
		h.Start()
		ready, starting := h.nextProcess("ready"), h.nextProcess("starting")
		ready.ServeStartup("t")
		sent, _ := h.call("ready")
		waits, _ := h.call("starting")
		ready.WantRequest("tools/call")
		h.stop()
		<-h.done
		sent.want(t, "context canceled")
		waits.want(t, "it did not start: the gateway is ending")
		if !ready.Disconnected() || !starting.Disconnected() {
			t.Error("a connection was not closed")
		}
		for _, s := range h.Status() {
			if s.State != backends.Stopped {
				t.Errorf("status: %+v", s)
			}
		}
		c, _ := h.call("ready")
		c.want(t, "it is not running: the gateway is ending")
		c, _ = h.call("nobody")
		c.want(t, "it is not configured")
	})
}

func TestBackendsStartInParallel(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("fails", "hangs", "nonsense", "strange", "good")}
	o.Backends = append(o.Backends, config.Backend{Name: "off", Command: "off"})
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, o)
		h.breakDial("fails", errors.New("no such file"))
		h.Start()
		nonsense, strange, good := h.nextProcess("nonsense"), h.nextProcess("strange"),
			h.nextProcess("good")
		h.nextProcess("hangs")
		nonsense.ServeHandshake("")
		nonsense.ServeToolsList(`{"tools":{"name":"x"}}`)
		strange.SendResult(strange.WantRequest("initialize").ID(), `"welcome"`)
		good.ServeStartup("one", "two")
		h.wantNames("one", "two")
		if v := h.View(); v.Settled || v.Complete {
			t.Error("the list is settled although one backend is still starting")
		}
		for _, name := range []string{"good", "hangs", "nonsense", "strange", "fails"} {
			if at := h.dialTimes(name); len(at) != 1 || at[0] != 0 {
				t.Errorf("%s was dialled at %v", name, at)
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if v := h.View(); !v.Settled || v.Complete {
			t.Errorf("after the wait: settled %v, complete %v", v.Settled, v.Complete)
		}
		for name, want := range map[string]string{
			"fails":    "no such file",
			"nonsense": `tools/list: the result of tools/list has no array "tools"`,
			"strange":  "initialize: the result is not an object",
		} {
			if lines := h.log.Lines("backend="+name, "level=WARN"); len(lines) == 0 ||
				!strings.Contains(strings.Join(lines, "\n"), strings.ReplaceAll(want, `"`, `\"`)) {
				t.Errorf("%s: logged %q, want %s", name, lines, want)
			}
		}
		if s := h.status("off"); len(h.Status()) != 6 || s.State != backends.Disabled ||
			s.Err != nil {
			t.Errorf("%d backends, and %+v", len(h.Status()), s)
		}
		if s := h.status("good"); s.State != backends.Ready || s.Counts[catalog.Tools] != 2 ||
			s.Server != "scripted/1" || s.Revision != "2025-11-25" || !s.Settled {
			t.Errorf("status: %+v", s)
		}
	})
}

// NOTIF-19: initialized comes before any request, including queued calls.
func TestNOTIF19_InitializedComesBeforeTheFirstRequest(t *testing.T) {
	for range 100 {
		withHarness(t, backends.Options{Backends: legacyBackends("a")},
			func(t *testing.T, h *harness) {
				for range 5 {
					h.call("a")
				}
				a := h.nextProcess("a")
				m := a.WantRequest("initialize")
				if want := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"clientInfo":{"name":"mcp-gateway","version":"test"},"protocolVersion":"2025-11-25"}}`; string(m.Raw()) != want {
					t.Errorf("got %s\nwant %s", m.Raw(), want)
				}
				go h.call("a")
				a.WantNothing() // no message before the response to initialize
				a.SendResult(m.ID(), mcptest.InitializeResult)
				go h.call("a")
				a.WantNotification("notifications/initialized")
				for range 7 {
					a.NextMessage() // seven of these eight: seven calls and tools/list
				}
			})
	}
}

// VERSION-04: each backend has its own revision, and unknown ones are accepted.
func TestVERSION04_RevisionsOfBackends(t *testing.T) {
	revisions := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2024-10-07", ""}
	var names []string
	for i := range revisions {
		names = append(names, fmt.Sprintf("b%d", i))
	}
	withHarness(t, backends.Options{Backends: legacyBackends(names...)},
		func(t *testing.T, h *harness) {
			for i, revision := range revisions {
				p := h.nextProcess(names[i])
				p.ServeHandshake(fmt.Sprintf(
					`{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"x","version":"1","title":7,"icons":[{"src":"i","sizes":"48x48"}]}}`, revision))
				p.ServeToolsList(mcptest.ToolsResult("t" + names[i]))
				if s := h.status(names[i]); s.State != backends.Ready || s.Revision != revision {
					t.Errorf("%s: %+v", revision, s)
				}
			}
			if warned := h.log.Lines("level=WARN", "unknown protocol revision"); len(warned) != 2 ||
				len(h.listedTools()) != len(names) {
				t.Errorf("logged %q; listed %q", warned, h.listedTools())
			}
		})
}

// F-LOG-1: backends that are not ready when the wait is over share one log record.
func TestLateBackendsShareOneRecord_F_LOG_1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, backends.Options{Backends: legacyBackends("a", "b", "c", "d", "e", "f",
			"g"), CatalogWait: time.Second})
		h.Start()
		h.nextProcess("a").ServeStartup("t")
		for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
			h.nextProcess(name)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		lines := h.log.Lines("not ready yet")
		if len(lines) != 1 || !strings.Contains(lines[0], `backend="b, c, d, e, f, …" records=6`) {
			t.Errorf("logged %q", lines)
		}
	})
}
