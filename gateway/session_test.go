package gateway_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

const listRequest = `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`

// listTools requests the tools and returns the result.
func listTools(t *testing.T, client *mcptest.Peer) string {
	t.Helper()
	client.Send(listRequest)
	m := client.NextMessage()
	if m.ID() != `"list"` || m.Part(wire.PartResult) == nil {
		t.Fatalf("tools/list was answered with %s", m.Raw())
	}
	return string(m.Part(wire.PartResult))
}

func toolsCall(id, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q}}`, id,
		tool)
}

func TestMission_A_VERSION_04_NegotiationEchoesKnownRevision(t *testing.T) {
	for requested, want := range map[string]string{
		"2024-11-05": "2024-11-05",
		"2025-03-26": "2025-03-26",
		"2025-06-18": "2025-06-18",
		"2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", // never negotiated by initialize
		"1999-01-01": "2025-11-25",
		"":           "2025-11-25",
	} {
		t.Run(requested, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, settings{})
				client, _ := h.connectClient()
				if got := client.Initialize(requested); !strings.Contains(got,
					`"protocolVersion":"`+want+`"`) {
					t.Errorf("asked for %s, got %s", requested, got)
				}
				synctest.Wait()
				if lines := h.log.Lines("level=INFO", "client=tester/1", "revision="+want,
					"asked="); len(lines) != 1 {
					t.Errorf("logged %q", h.log.Lines())
				}
			})
		})
	}
}

func TestMission_A_NoTwoSessionsShareAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(beginCounter)
		h := newHarness(t, settings{observer: seen})
		const n = 50
		for range n {
			client, served := h.connectClient()
			client.Send(toolsCall("1", "x"))
			client.Next()
			client.CloseSend()
			<-served
		}
		ids := make(map[string]bool)
		for id := range seen {
			ids[id[:strings.Index(id, "/")]] = true
			if len(id) < 32 {
				t.Errorf("the id %s is too short", id)
			}
		}
		if len(ids) != n {
			t.Errorf("%d ids for %d sessions", len(ids), n)
		}
	})
}

// The tools of a backend are cached, but the backend cannot be started: a call fails at once, with
// the reason and the text that the call did not run.
func TestCallToBackendThatFailedToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := t.TempDir()
		h := newHarness(t, settings{stateDir: state}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		h.nextProcess("gh").ServeStartup("search")
		listTools(t, client)

		log, logger := mcptest.NewLog()
		journal, auditor := mcptest.NewLog()
		fails := func(string) (transport.Conn, error) {
			return nil, errors.New("exit 127; its last words: boom")
		}
		g := newGateway(t, settings{stateDir: state}, []string{"gh"}, fails, logger, auditor)
		conn, client := mcptest.NewPeer(t, "client")
		go g.Serve(t.Context(), "", nil, conn)
		client.Initialize("2025-06-18")
		listTools(t, client)
		time.Sleep(100 * time.Millisecond) // the backend has failed to start
		client.Send(toolsCall("1", "search"))
		client.Want(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"backend gh: it is not running: exit 127; its last words: boom; next try in 1s; the call did not run",` +
				`"data":{"backend":"gh","reason":"it is not running: exit 127; its last words: boom; next try in 1s"}}}`)
		time.Sleep(mcptest.JournalDelay)
		if records := journal.Lines("outcome=not_run", "tool=search"); len(records) != 1 {
			t.Errorf("recorded %q", journal.Lines())
		}
		if loud := log.Warnings(); len(loud) != 1 {
			t.Errorf("logged %q", loud)
		}
	})
}

func TestSecretsAreMaskedForClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mask := func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
		h := newHarness(t, settings{mask: mask}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("search")
		listTools(t, client)
		client.Send(toolsCall("1", "search"))
		gh.WantRequest("tools/call")
		gh.Exit("exit 1", "bad token hunter2")
		if got := client.Next(); strings.Contains(got, "hunter2") ||
			!strings.Contains(got, "bad token ***") {
			t.Errorf("got %s", got)
		}
	})
}

// FRAME-08, FRAME-09: calls to a backend that never responds time out. Calls to other backends are
// not affected.
func TestCONC_01_FRAME_09_SlowBackendBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{callTimeout: map[string]time.Duration{"slow": 2 * time.Second}},
			"slow", "quick")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		h.nextProcess("slow").ServeStartup("hang")
		quick := h.nextProcess("quick")
		quick.ServeStartup("go")
		listTools(t, client)
		began := time.Now()
		for i := range 3 {
			client.Send(toolsCall(fmt.Sprint(i), "hang"))
		}
		client.Send(toolsCall(`"q"`, "go"))
		quick.SendResult(quick.WantRequest("tools/call").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":"q","result":{}}`)
		client.Send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		client.Want(`{"jsonrpc":"2.0","id":"p","result":{}}`)
		listTools(t, client)
		if took := time.Since(began); took != 0 {
			t.Errorf("the other requests took %v", took)
		}
		for range 3 {
			if got := client.Next(); !strings.Contains(got, "no answer within 2s") {
				t.Errorf("got %s", got)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the timeout took %v", took)
		}
	})
}

// Two clients with equal request ids, tokens and tools share only a backend.
func TestSessionsAreIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		a, aServed := h.connectClient()
		b, _ := h.connectClient()
		a.Initialize("2025-03-26")
		b.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeStartup("slow")
		listTools(t, a)
		listTools(t, b)
		const line = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":1}}}`
		a.Send(line)
		callOfA := gh.WantRequest("tools/call")
		b.Send(line)
		callOfB := gh.WantRequest("tools/call")
		gh.Sendf(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, callOfB.Token())
		b.WantNotification("notifications/progress")
		a.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if m := gh.WantNotification("notifications/cancelled"); m.RequestID() != callOfA.ID() {
			t.Errorf("cancelled %s, want %s", m.RequestID(), callOfA.ID())
		}
		gh.SendResult(callOfB.ID(), `{"of":"b"}`)
		b.Want(`{"jsonrpc":"2.0","id":1,"result":{"of":"b"}}`)
		a.Send(line)
		callOfA = gh.WantRequest("tools/call")
		b.CloseSend() // the end of one does not end the other
		gh.SendResult(callOfA.ID(), `{"of":"a"}`)
		a.Want(`{"jsonrpc":"2.0","id":1,"result":{"of":"a"}}`)
		a.WantNothing()
		a.Send(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`) // each session has its own revision
		a.Want(`[{"jsonrpc":"2.0","id":1,"result":{}}]`)
		a.CloseSend()
		if err := <-aServed; err != nil {
			t.Error(err)
		}
	})
}

// A call that is cancelled while it waits for its backend leaves no goroutine.
func TestCancelledCallStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{catalogWait: time.Hour, startTimeout: time.Hour}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 100 {
			client.Send(toolsCall("1", "search"))
			client.Send(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		}
		client.WantNothing()
		more := runtime.NumGoroutine() - before
		// The count is wrong while the runtime moves dead goroutines between its free lists, for as
		// long as the kernel has suspended the thread that moves them.
		for range 1_000_000 {
			if more = runtime.NumGoroutine() - before; more <= 5 {
				break
			}
			runtime.Gosched()
		}
		if more > 5 {
			t.Errorf("%d goroutines are left", more)
		}
	})
}

// A call is cancelled exactly when its backend becomes ready: the call is not sent, or it is
// cancelled at the backend.
func TestCancelRacesBackendStart(t *testing.T) {
	sent, not := 0, 0
	for round := range 60 {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, settings{}, "gh")
			client, _ := h.connectClient()
			client.Initialize("2025-06-18")
			const n = 6
			for i := range n {
				client.Send(toolsCall(fmt.Sprint(i), "search"))
			}
			gh := h.nextProcess("gh")
			gh.ServeHandshake("")
			m := gh.WantRequest("tools/list")
			go func() {
				time.Sleep(time.Second)
				for i := range n {
					client.Sendf(
						`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, (i+round)%n)
				}
			}()
			time.Sleep(time.Second)
			gh.SendResult(m.ID(), mcptest.ToolsResult("search"))
			running := make(map[wire.ID]bool)
			for _, line := range gh.TakeAll() {
				switch m, _ := wire.Parse([]byte(line)); m.Method() {
				case "tools/call":
					running[m.ID()] = true
					sent++
				case "notifications/cancelled":
					delete(running, m.RequestID())
				}
			}
			if len(running) != 0 {
				t.Errorf("%d abandoned calls are still running", len(running))
			}
			not += n
			client.WantNothing()
			if records := h.auditRecords(); len(records) != n {
				t.Errorf("%d records, want %d", len(records), n)
			}
		})
	}
	t.Logf("%d of %d were sent", sent, not)
}

// F-CLI-10: a disconnect is logged once, with the client's name and the duration of the session.
func TestClientDisconnectIsLogged_F_CLI_10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{})
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		synctest.Wait()
		if lines := h.log.Lines(`msg="client disconnected"`); len(lines) != 0 {
			t.Errorf("the session still exists, and logged %q", lines)
		}
		client.CloseSend()
		synctest.Wait()
		if lines := h.log.Lines("level=INFO", `msg="client disconnected"`, "session=S",
			"client=tester/1"); len(lines) != 1 {
			t.Errorf("logged %q", h.log.Lines())
		}
	})
}

// outcomeRecorder records the outcomes of calls.
type outcomeRecorder struct{ ended []gateway.Outcome }

func (*outcomeRecorder) Begin(*gateway.CallInfo) {}

func (*outcomeRecorder) Routed(*gateway.CallInfo) {}
func (o *outcomeRecorder) End(_ *gateway.CallInfo,
	e gateway.Outcome) {
	o.ended = append(o.ended, e)
}

// F-CLI-10: the time for which a call waits for its backend to start is recorded separately from
// the time at the backend.
func TestQueuedTimeIsSeparateFromDur_F_CLI_10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		times := &outcomeRecorder{}
		h.gateway.Observers = append(h.gateway.Observers, times)
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}`)
		time.Sleep(2 * time.Second)
		gh.ServeStartup("search")
		call := gh.WantRequest("tools/call")
		time.Sleep(time.Second)
		gh.SendResult(call.ID(), `{}`)
		synctest.Wait()
		if len(times.ended) != 1 || times.ended[0].Queued != 2*time.Second ||
			times.ended[0].Dur != time.Second {
			t.Errorf("ended: %+v", times.ended)
		}
	})
}
