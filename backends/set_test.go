package backends_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/wire"
)

func TestSTART08_NothingStartsBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, backends.Options{Backends: plain("a", "b")})
		c, _ := h.call("a")
		time.Sleep(time.Hour)
		if n := len(h.dials("a")) + len(h.dials("b")); n != 0 {
			t.Errorf("%d backends were dialled", n)
		}
		if s := h.status("a"); s.State != backends.Stopped || s.Answered {
			t.Errorf("status: %+v", s)
		}
		h.Start()
		h.Start()
		a := h.next("a")
		h.next("b")
		if n := len(h.dials("a")) + len(h.dials("b")); n != 2 {
			t.Errorf("%d backends were dialled", n)
		}
		a.Greet("") // what was asked before has waited
		a.Asked("tools/call")
		c.want(t, "")
	})
}

func TestASetThatNeverStartsLeavesNoCallBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, backends.Options{Backends: plain("a")})
		c, _ := h.call("a")
		h.stop()
		<-h.done
		c.want(t, "it did not start: the gateway is ending")
		c, _ = h.call("a")
		c.want(t, "it is not running: the gateway is ending")
	})
}

func TestTheEndOfASetEndsItsBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, backends.Options{Backends: plain("ready", "starting", "broken")})
		h.breakDial("broken", errors.New("no such file"))
		h.Start()
		ready, starting := h.next("ready"), h.next("starting")
		ready.Ready("t")
		sent, _ := h.call("ready")
		waits, _ := h.call("starting")
		ready.Asked("tools/call")
		h.stop()
		<-h.done
		sent.want(t, "context canceled")
		waits.want(t, "it did not start: the gateway is ending")
		if !ready.Over() || !starting.Over() {
			t.Error("a backend was not hung up on")
		}
		for _, s := range h.Status() {
			if s.State != backends.Stopped {
				t.Errorf("status: %+v", s)
			}
		}
		c, _ := h.call("ready")
		c.want(t, "it is not running: the gateway is ending")
		c, _ = h.call("nobody")
		c.want(t, "is not configured")
	})
}

func TestBackendsStartSideBySideAndCostEachOtherNothing(t *testing.T) {
	o := backends.Options{Backends: plain("fails", "hangs", "nonsense", "strange", "good")}
	o.Backends = append(o.Backends, config.Backend{Name: "off", Command: "off"})
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, o)
		h.breakDial("fails", errors.New("no such file"))
		h.Start()
		nonsense, strange, good := h.next("nonsense"), h.next("strange"), h.next("good")
		h.next("hangs")
		nonsense.Greet("")
		nonsense.List(`{"tools":{"name":"x"}}`)
		strange.Reply(strange.Asked("initialize").ID(), `"welcome"`)
		good.Ready("one", "two")
		h.wantNames("one", "two")
		if v := h.View(); v.Settled || v.Complete {
			t.Error("the list is settled though one backend is still to come")
		}
		for _, name := range []string{"good", "hangs", "nonsense", "strange", "fails"} {
			if at := h.dials(name); len(at) != 1 || at[0] != 0 {
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
			"strange":  "initialize: its answer is no InitializeResult",
		} {
			if lines := h.log.Lines("backend="+name, "level=WARN"); len(lines) == 0 || !strings.Contains(lines[0], strings.ReplaceAll(want, `"`, `\"`)) {
				t.Errorf("%s: logged %q, want %s", name, lines, want)
			}
		}
		if len(h.Status()) != 5 {
			t.Errorf("%d backends, want those that are enabled", len(h.Status()))
		}
		if s := h.status("good"); s.State != backends.Ready || s.Tools != 2 || s.Server != "scripted/1" || s.Revision != "2025-11-25" || !s.Answered {
			t.Errorf("status: %+v", s)
		}
	})
}

// PARTIAL-05: no tools and no answer are two things.
func TestPARTIAL05_NoToolsIsNoFailure(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("empty", "without", "failing")}, func(t *testing.T, h *house) {
		empty, without, failing := h.next("empty"), h.next("without"), h.next("failing")
		empty.Ready()
		without.Greet(`{"protocolVersion":"2024-11-05","capabilities":{}}`)
		without.Fail(without.Asked("tools/list").ID(), `{"code":-32601,"message":"Method not found"}`)
		failing.Greet("")
		failing.Fail(failing.Asked("tools/list").ID(), `{"code":-32603,"message":"database is locked"}`)
		for name, want := range map[string]string{"empty": "<nil>", "without": "<nil>", "failing": "tools/list: database is locked"} {
			if s := h.status(name); s.State != backends.Ready || s.Tools != 0 || !s.Answered || fmt.Sprint(s.Err) != want {
				t.Errorf("%s: %+v, want %s", name, s, want)
			}
		}
		if !h.View().Complete {
			t.Error("the catalog is not complete")
		}
	})
}

func TestPARTIAL08_AFailedListIsAskedForAgain(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.Greet("")
		began := time.Now()
		for i := range 3 {
			a.Fail(a.Asked("tools/list").ID(), `{"code":-32603,"message":"not yet"}`)
			if took := time.Since(began); i > 0 && took > time.Second {
				t.Errorf("asked again after %v", took)
			}
		}
		a.List(mcptest.Tools("t"))
		h.wantNames("t")
		if s := h.status("a"); s.Err != nil || s.Tools != 1 {
			t.Errorf("status: %+v", s)
		}
		time.Sleep(time.Hour)
		a.WantNothing()
		// A list that fails later leaves the last one as it was.
		a.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		a.Reply(a.Asked("tools/list").ID(), `"nonsense"`)
		h.wantNames("t")
		c, _ := h.call("a")
		m := a.Asked("tools/call")
		a.Reply(m.ID(), "{}")
		c.want(t, result(string(m.ID()), "{}"))
	})
}

func TestAListThatIsNeverAnsweredIsGivenUp(t *testing.T) {
	o := backends.Options{Backends: plain("a")}
	o.Backends[0].StartTimeout = 10 * time.Second
	inHouse(t, o, func(t *testing.T, h *house) {
		a := h.next("a")
		a.Greet("")
		began := time.Now()
		m := a.Asked("tools/list")
		if note := a.Told("notifications/cancelled"); note.RequestID() != m.ID() {
			t.Errorf("cancelled %s", note.RequestID())
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("given up after %v", took)
		}
		if s := h.status("a"); s.State != backends.Ready || !s.Answered || s.Err == nil || !h.View().Complete {
			t.Errorf("status: %+v, complete: %v", s, h.View().Complete)
		}
		a.List(mcptest.Tools("t")) // asked again
		h.wantNames("t")
	})
}

// NOTIF-19: initialized comes before any request, the calls that waited included.
func TestNOTIF19_InitializedComesBeforeTheFirstRequest(t *testing.T) {
	for range 20 {
		inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
			for range 5 {
				h.call("a")
			}
			a := h.next("a")
			m := a.Asked("initialize")
			if want := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"clientInfo":{"name":"mcp-gateway","version":"test"},"protocolVersion":"2025-11-25"}}`; string(m.Raw()) != want {
				t.Errorf("got %s\nwant %s", m.Raw(), want)
			}
			go h.call("a")
			a.WantNothing() // before initialize is answered
			a.Reply(m.ID(), mcptest.Hello)
			go h.call("a")
			a.Told("notifications/initialized")
			for range 7 {
				a.Message() // five that waited and two; or the list among them
			}
		})
	}
}

// VERSION-04: each backend speaks its own revision, and a strange one is borne.
func TestVERSION04_BackendsSpeakTheirOwnRevisions(t *testing.T) {
	revisions := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2024-10-07", ""}
	var names []string
	for i := range revisions {
		names = append(names, fmt.Sprintf("b%d", i))
	}
	inHouse(t, backends.Options{Backends: plain(names...)}, func(t *testing.T, h *house) {
		for i, revision := range revisions {
			p := h.next(names[i])
			p.Greet(fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"x","version":"1","title":7,"icons":[{"src":"i","sizes":"48x48"}]}}`, revision))
			p.List(mcptest.Tools("t" + names[i]))
			if s := h.status(names[i]); s.State != backends.Ready || s.Revision != revision {
				t.Errorf("%s: %+v", revision, s)
			}
		}
		if warned := h.log.Lines("level=WARN", "revision that is not known"); len(warned) != 2 || len(h.names()) != len(names) {
			t.Errorf("logged %q; listed %q", warned, h.names())
		}
	})
}

func TestStartTimeout(t *testing.T) {
	o := backends.Options{Backends: plain("a", "unbound")}
	o.Backends[0].StartTimeout = 10 * time.Second
	o.Backends[1].StartTimeout = 0
	inHouse(t, o, func(t *testing.T, h *house) {
		c, _ := h.call("a")
		unbound, _ := h.call("unbound")
		first, slow := h.next("a"), h.next("unbound")
		time.Sleep(9999 * time.Millisecond)
		c.want(t, "")
		time.Sleep(time.Millisecond)
		c.want(t, "it did not start: it was not ready within 10s (start_timeout)")
		if !first.Over() {
			t.Error("it was not ended")
		}
		first.Asked("initialize")
		first.WantNothing() // "The initialize request MUST NOT be cancelled by clients"
		c, _ = h.call("a")
		c.want(t, "it is not running: it was not ready within 10s (start_timeout)")
		h.next("a").Ready("t")
		h.wantNames("t")

		time.Sleep(time.Hour) // start_timeout: 0 is none
		unbound.want(t, "")
		slow.Greet("")
		slow.Asked("tools/call")
	})
}

func TestABackendIsStartedAgainWithGrowingPauses(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		h.next("a").Exit("exit 1", "")
		h.breakDial("a", errors.New("no such file"))
		time.Sleep(10 * time.Minute)
		at := h.dials("a")
		for i := 1; i < len(at); i++ {
			pause := at[i] - at[i-1]
			least := min(200*time.Millisecond<<(i-1), 30*time.Second)
			if pause < least || pause > least*5/4 {
				t.Errorf("pause %d was %v, want %v and up to a quarter more", i, pause, least)
			}
		}
		if len(at) < 15 || len(at) > 30 {
			t.Errorf("dialled %d times in 10 minutes", len(at))
		}
	})
}

// Who has run for long begins with the short pause again.
func TestThePausesBeginAnew(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		for range 5 {
			h.next("a").Exit("exit 1", "")
		}
		a := h.next("a")
		a.Ready("t")
		time.Sleep(31 * time.Second)
		a.Exit("exit 1", "")
		died := time.Now()
		h.next("a")
		if pause := time.Since(died); pause > 250*time.Millisecond {
			t.Errorf("the pause was %v", pause)
		}
	})
}

func TestPROC06_DeathFailsCallsInFlightAndOthersWait(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a", "b")}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.Ready("t")
		b.Ready("u")
		one, _ := h.call("a")
		two, _ := h.call("a")
		other, _ := h.call("b")
		a.Exit("signal: killed", "boom")
		one.want(t, "signal: killed; its last words: boom")
		two.want(t, "signal: killed; its last words: boom")
		other.want(t, "")
		waits, _ := h.call("a")
		back, pending := h.call("a")
		waits.want(t, "")
		h.Cancel("a", pending, nil)
		back.want(t, "cancelled")
		if s := h.status("a"); s.State != backends.Failed || s.Tools != 1 {
			t.Errorf("status: %+v", s)
		}
		h.wantNames("t", "u") // PROC-08: tools stay listed
		again := h.next("a")
		again.Greet("")
		m := again.Asked("tools/call")
		again.Reply(m.ID(), "{}")
		waits.want(t, result("2", "{}"))
		again.List(mcptest.Tools("t"))
		again.WantNothing() // the call that was taken back is not sent, and none is sent twice
	})
}

func TestCallsAfterAFailedStartFailAtOnceWithTheReason(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		waits, _ := h.call("a")
		h.next("a").Exit("exit 127", "sh: npx: not found")
		waits.want(t, "it did not start: initialize: exit 127; its last words: sh: npx: not found")
		h.breakDial("a", errors.New("no such file"))
		c, _ := h.call("a")
		c.want(t, "it is not running: initialize: exit 127; its last words: sh: npx: not found")
		if lines := h.log.Lines("level=WARN", "exit 127; its last words: sh: npx: not found"); len(lines) != 1 {
			t.Errorf("logged %q", h.log.Loud())
		}
		if !h.View().Complete || !h.View().Settled {
			t.Error("who has failed is still waited for")
		}
	})
}

// FRAME-08: what a backend does not take fails, and only that.
func TestFRAME08_ABackendThatReadsNothing(t *testing.T) {
	o := backends.Options{Backends: plain("a")}
	o.Backends[0].CallTimeout = time.Second
	inHouse(t, o, func(t *testing.T, h *house) {
		a := h.next("a")
		a.Ready("t")
		began := time.Now()
		c, _ := h.call("a")
		time.Sleep(time.Second)
		c.want(t, "no answer in time")
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestListChangesAreReadAndBurstsCoalesced(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.Greet("")
		for range 10 { // before the first list is answered
			a.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		m := a.Asked("tools/list")
		a.WantNothing()
		a.Reply(m.ID(), mcptest.Tools("one"))
		a.List(mcptest.Tools("two"))
		a.WantNothing()
		h.wantNames("two")
		view := h.View()
		for range 10 {
			a.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		m = a.Asked("tools/list")
		a.Reply(m.ID(), mcptest.Tools("two")) // the same: no news
		if extra := a.Taken(); len(extra) > 1 {
			t.Errorf("asked %d times more", len(extra))
		} else if len(extra) == 1 {
			last, _ := wire.Parse([]byte(extra[0]))
			a.Reply(last.ID(), mcptest.Tools("two"))
		}
		synctest.Wait()
		if h.View() != view {
			t.Error("a list that is the same made a new View")
		}
	})
}

func TestPagesThatRunInACircleEnd(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.Greet("")
		for i := range 3 {
			a.Reply(a.Asked("tools/list").ID(), fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}],"nextCursor":"c%d"}`, i, i%2))
		}
		a.WantNothing()
		h.wantNames("t0", "t1", "t2")
		if lines := h.log.Lines("level=WARN", "circle"); len(lines) != 1 {
			t.Errorf("logged %q", h.log.Loud())
		}
	})
}

func TestPagesAndToolsHaveBounds(t *testing.T) {
	t.Run("pages", func(t *testing.T) {
		inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
			a := h.next("a")
			a.Greet("")
			for i := range 1000 {
				a.Reply(a.Asked("tools/list").ID(), fmt.Sprintf(`{"tools":[],"nextCursor":"c%d"}`, i))
			}
			a.WantNothing()
			if lines := h.log.Lines("level=WARN", "too many pages"); len(lines) != 1 || !h.View().Complete {
				t.Errorf("logged %q", h.log.Loud())
			}
		})
	})
	t.Run("tools", func(t *testing.T) {
		inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
			a := h.next("a")
			a.Greet("")
			for page := range 11 {
				names := make([]string, 1000)
				for i := range names {
					names[i] = fmt.Sprintf("t%d_%d", page, i)
				}
				list := strings.TrimSuffix(mcptest.Tools(names...), "}") + fmt.Sprintf(`,"nextCursor":"c%d"}`, page)
				a.Reply(a.Asked("tools/list").ID(), list)
			}
			a.WantNothing()
			if n := len(h.names()); n != 10000 {
				t.Errorf("%d tools are listed", n)
			}
			if lines := h.log.Lines("level=WARN", "too many tools"); len(lines) != 1 {
				t.Errorf("logged %q", h.log.Loud())
			}
		})
	})
}

// The death of a backend that has just been asked for its tools is told as a
// death, not as a list that failed.
func TestDeathWhileListing(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.Greet("")
		a.Asked("tools/list")
		a.Exit("exit 1", "")
		synctest.Wait()
		c, _ := h.call("a")
		c.want(t, "")
		if loud := h.log.Loud(); len(loud) != 1 || !strings.Contains(loud[0], "backend ended") {
			t.Errorf("logged %q", loud)
		}
		if !h.View().Complete {
			t.Error("it is still waited for")
		}
		h.next("a").Greet("")
	})
}

// So is a death right behind the handshake, whatever of it is noticed first.
func TestDeathRightAfterTheHandshake(t *testing.T) {
	for range 100 {
		inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
			a := h.next("a")
			m := a.Asked("initialize")
			a.Reply(m.ID(), mcptest.Hello)
			a.Exit("exit 1", "")
			synctest.Wait()
			if loud := h.log.Loud(); len(loud) != 1 || !strings.Contains(loud[0], `msg="backend ended; it will be started again" backend=a err="exit 1"`) &&
				!strings.Contains(loud[0], `err="initialize: exit 1"`) {
				t.Fatalf("logged %q", loud)
			}
			h.next("a").Ready("t")
			h.wantNames("t")
		})
	}
}

func TestToolMendsAreLogged(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		a := h.next("a")
		a.Greet("")
		a.List(`{"tools":[{"name":"mended"},{"name":"bad","inputSchema":[]},{"name":"good","inputSchema":{"type":"object"}}]}`)
		h.wantNames("mended", "good")
		if mended := h.log.Lines("level=INFO", "mended a tool", "backend=a", "tool=mended"); len(mended) != 1 {
			t.Errorf("logged %q", h.log.Lines())
		}
		if out := h.log.Lines("level=WARN", "left out a tool", "backend=a", "tool=bad"); len(out) != 1 {
			t.Errorf("logged %q", h.log.Lines())
		}
	})
}

func TestNewNamesAreLoggedOnce(t *testing.T) {
	for _, c := range []struct {
		prefix catalog.Prefix
		want   string
	}{
		{catalog.Collision, `msg="tool appears under another name" backend=b tool=t as=b__t`},
		{catalog.Never, `msg="tool not listed: another backend has its name" backend=b tool=t`},
		{catalog.Always, ""},
	} {
		t.Run(string(c.prefix), func(t *testing.T) {
			o := backends.Options{Backends: plain("a", "b"), Catalog: catalog.Options{Prefix: c.prefix}}
			inHouse(t, o, func(t *testing.T, h *house) {
				h.next("a").Ready("t")
				b := h.next("b")
				b.Ready("t")
				for i := range 3 {
					b.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
					b.List(mcptest.Tools("t", fmt.Sprint("more", i)))
				}
				synctest.Wait()
				lines := slices.Concat(h.log.Lines("another name"), h.log.Lines("not listed"))
				if c.want == "" && len(lines) != 0 || c.want != "" && (len(lines) != 1 || !strings.Contains(lines[0], c.want)) {
					t.Errorf("logged %q, want %s once", lines, c.want)
				}
			})
		})
	}
}

// A restarting backend, calls and cancellations at the same moments: every call
// ends once, and nothing of it is left.
func TestCallsRestartsAndCancellationsRace(t *testing.T) {
	for round := range 60 {
		inHouse(t, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
			var all [24]*caller
			for i := range all {
				go func() {
					time.Sleep(time.Duration(i%3) * 100 * time.Millisecond)
					c, p := h.call("a")
					all[i] = c
					if i%2 == 0 {
						time.Sleep(time.Duration(i%5) * 50 * time.Millisecond)
						h.Cancel("a", p, nil)
					}
				}()
			}
			a := h.next("a")
			if round%3 == 0 {
				a.Exit("exit 1", "") // it does not start
				a = h.next("a")
			}
			a.Greet("")
			time.Sleep(time.Duration(round%4) * 50 * time.Millisecond)
			a.Exit("exit 2", "")
			a = h.next("a")
			a.Greet("")
			time.Sleep(time.Second)
			for _, line := range a.Taken() {
				if m, _ := wire.Parse([]byte(line)); m.Kind() == wire.Request {
					a.Reply(m.ID(), `{"tools":[]}`)
				}
			}
			synctest.Wait()
			for i, c := range all {
				if len(c.ends) != 1 {
					t.Errorf("round %d: call %d ended %d times", round, i, len(c.ends))
				}
			}
		})
	}
}
