package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

const listRequest = `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`

// list asks for the tools and returns the result.
func list(t *testing.T, client *mcptest.Peer) string {
	t.Helper()
	client.Send(listRequest)
	m := client.Message()
	if m.ID() != `"list"` || m.Part(wire.PartResult) == nil {
		t.Fatalf("tools/list was answered with %s", m.Raw())
	}
	return string(m.Part(wire.PartResult))
}

func call(id, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q}}`, id, tool)
}

func TestMission_A_VERSION04_NegotiationEchoesWhatIsKnown(t *testing.T) {
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05",
		"2025-03-26": "2025-03-26",
		"2025-06-18": "2025-06-18",
		"2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", // never by initialize
		"1999-01-01": "2025-11-25",
		"":           "2025-11-25",
	} {
		t.Run(asked, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, settings{})
				client, _ := h.client()
				if got := client.Initialize(asked); !strings.Contains(got, `"protocolVersion":"`+want+`"`) {
					t.Errorf("asked for %s, got %s", asked, got)
				}
				synctest.Wait()
				if lines := h.log.Lines("level=INFO", "client=tester/1", "revision="+want, "asked="); len(lines) != 1 {
					t.Errorf("logged %q", h.log.Lines())
				}
			})
		})
	}
}

func TestMission_A_NoTwoSessionsShareAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(observer)
		h := newHouse(t, settings{observer: seen})
		const n = 50
		for range n {
			client, served := h.client()
			client.Send(call("1", "x"))
			client.Next()
			client.End()
			<-served
		}
		ids := make(map[string]bool)
		for id := range seen {
			ids[id[:strings.Index(id, "/")]] = true
			if len(id) < 32 {
				t.Errorf("the id %s is short", id)
			}
		}
		if len(ids) != n {
			t.Errorf("%d ids for %d sessions", len(ids), n)
		}
	})
}

// What the gateway says of itself, and what its backends say to a client: of
// those that are known at that moment.
func TestMission_C_InitializeAnswersWithWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{state: t.TempDir()}
		for range 2 {
			h := newHouse(t, o, "gh")
			client, served := h.client()
			got := client.Initialize("2025-06-18")
			p := h.backend("gh")
			p.Greet(`{"protocolVersion":"2024-11-05","instructions":"Use <search>."}`)
			p.List(mcptest.Tools("search"))
			list(t, client)
			want := `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"mcp-gateway","version":"test"}`
			if o.grace != 0 {
				want += `,"instructions":"## gh\n\nUse <search>."`
			}
			if got != want+"}" {
				t.Errorf("got %s\nwant %s}", got, want)
			}
			client.End()
			<-served
			o.grace = time.Second // the second time round
		}
	})
}

func TestMission_C_ACollisionIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{}, "gh", "docs")
		client, _ := h.client()
		client.Initialize("2025-06-18")
		h.backend("gh").Ready("search", "own")
		docs := h.backend("docs")
		docs.Ready("search")
		if got := list(t, client); got != `{"tools":[{"name":"search","inputSchema":{"type":"object"}},{"name":"own","inputSchema":{"type":"object"}},{"name":"docs__search","inputSchema":{"type":"object"}}]}` {
			t.Errorf("got %s", got)
		}
		docs.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		docs.List(mcptest.Tools("search", "more"))
		synctest.Wait()
		if lines := h.log.Lines("another name"); len(lines) != 1 || !strings.Contains(lines[0], "backend=docs tool=search as=docs__search") {
			t.Errorf("logged %q", lines)
		}
	})
}

func TestSTART01_START07_InitializeWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9"} // none ever answers
		h := newHouse(t, settings{}, names...)
		client, _ := h.client()
		began := time.Now()
		client.Initialize("2025-06-18")
		if took := time.Since(began); took != 0 {
			t.Errorf("initialize took %v", took)
		}
		if got := list(t, client); got != `{"tools":[]}` {
			t.Errorf("got %s", got)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the first list took %v, want catalog.wait", took)
		}
		list(t, client)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the second list took %v more", took-3*time.Second)
		}
	})
}

func TestSTART08_AProbedCopyStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{}, "gh")
		client, served := h.client()
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)
		client.Next()
		client.Send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		client.Next()
		began := time.Now()
		client.End()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		if len(h.queues["gh"]) != 0 {
			t.Error("a backend was started")
		}
	})
}

// With the tools on disk the first list is there at once, though no backend is; a
// backend that has not changed is no news, one that has is.
func TestKnownCatalogsAreListedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{state: t.TempDir()}
		first := newHouse(t, o, "gh", "docs")
		client, _ := first.client()
		client.Initialize("2025-06-18")
		first.backend("gh").Ready("search")
		first.backend("docs").Ready("search")
		want := list(t, client)

		h := newHouse(t, o, "gh", "docs")
		client, _ = h.client()
		client.Initialize("2025-06-18")
		began := time.Now()
		if got := list(t, client); got != want || time.Since(began) != 0 {
			t.Errorf("after %v: %s\nwant %s", time.Since(began), got, want)
		}
		client.Send(call("1", "docs__search")) // waits for its backend
		client.WantNothing()
		gh, docs := h.backend("gh"), h.backend("docs")
		docs.Greet("")
		m := docs.Asked("tools/call")
		docs.Reply(m.ID(), `{"docs":1}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"docs":1}}`)
		docs.List(mcptest.Tools("search"))
		time.Sleep(time.Second)
		client.WantNothing()
		gh.Ready("search", "more")
		client.Told("notifications/tools/list_changed")
		time.Sleep(time.Second)
		client.WantNothing()
	})
}

// A call to a backend whose tools are known and that cannot be started says why, at
// once; nothing of it can have run.
func TestACallToABackendThatDidNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := t.TempDir()
		h := newHouse(t, settings{state: state}, "gh")
		client, _ := h.client()
		client.Initialize("2025-06-18")
		h.backend("gh").Ready("search")
		list(t, client)

		log, logger := mcptest.NewLog()
		journal, auditor := mcptest.NewLog()
		fails := func(string) (transport.Conn, error) { return nil, errors.New("exit 127; its last words: boom") }
		g := open(t, settings{state: state}, []string{"gh"}, fails, logger, auditor)
		conn, client := mcptest.Open(t, "client")
		go g.Serve(t.Context(), conn)
		client.Initialize("2025-06-18")
		list(t, client)
		time.Sleep(100 * time.Millisecond) // the backend has failed to start
		client.Send(call("1", "search"))
		client.Want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"backend gh: it is not running: exit 127; its last words: boom",` +
			`"data":{"backend":"gh","reason":"it is not running: exit 127; its last words: boom"}}}`)
		time.Sleep(mcptest.Gather)
		if records := journal.Lines("outcome=backend_lost", "tool=search"); len(records) != 1 {
			t.Errorf("recorded %q", journal.Lines())
		}
		if loud := log.Loud(); len(loud) != 1 {
			t.Errorf("logged %q", loud)
		}
	})
}

func TestSecretsAreMaskedInWhatAClientReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mask := func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
		h := newHouse(t, settings{mask: mask}, "gh")
		client, _ := h.client()
		client.Initialize("2025-06-18")
		gh := h.backend("gh")
		gh.Ready("search")
		list(t, client)
		client.Send(call("1", "search"))
		gh.Asked("tools/call")
		gh.Exit("exit 1", "bad token hunter2")
		if got := client.Next(); strings.Contains(got, "hunter2") || !strings.Contains(got, "bad token ***") {
			t.Errorf("got %s", got)
		}
	})
}

// FRAME-08, FRAME-09: a backend that takes calls and never answers costs its own
// callers their time limit and nobody else anything.
func TestCONC01_FRAME09_ASlowBackendCostsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{callTimeout: map[string]time.Duration{"slow": 2 * time.Second}}, "slow", "quick")
		client, _ := h.client()
		client.Initialize("2025-06-18")
		h.backend("slow").Ready("hang")
		quick := h.backend("quick")
		quick.Ready("go")
		list(t, client)
		began := time.Now()
		for i := range 3 {
			client.Send(call(fmt.Sprint(i), "hang"))
		}
		client.Send(call(`"q"`, "go"))
		quick.Reply(quick.Asked("tools/call").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":"q","result":{}}`)
		client.Send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		client.Want(`{"jsonrpc":"2.0","id":"p","result":{}}`)
		list(t, client)
		if took := time.Since(began); took != 0 {
			t.Errorf("the others took %v", took)
		}
		for range 3 {
			if got := client.Next(); !strings.Contains(got, "no answer within 2s") {
				t.Errorf("got %s", got)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the time limit took %v", took)
		}
	})
}

// Two clients with the same ids, tokens and tools share a backend and nothing
// else.
func TestSessionsAreStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{}, "gh")
		a, aServed := h.client()
		b, _ := h.client()
		a.Initialize("2025-03-26")
		b.Initialize("2025-11-25")
		gh := h.backend("gh")
		gh.Ready("slow")
		list(t, a)
		list(t, b)
		const line = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":1}}}`
		a.Send(line)
		ofA := gh.Asked("tools/call")
		b.Send(line)
		ofB := gh.Asked("tools/call")
		gh.Sendf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, ofB.Token())
		b.Told("notifications/progress")
		a.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if m := gh.Told("notifications/cancelled"); m.RequestID() != ofA.ID() {
			t.Errorf("cancelled %s, want %s", m.RequestID(), ofA.ID())
		}
		gh.Reply(ofB.ID(), `"b"`)
		b.Want(`{"jsonrpc":"2.0","id":1,"result":"b"}`)
		a.Send(line)
		ofA = gh.Asked("tools/call")
		b.End() // the end of one is not the end of the other
		gh.Reply(ofA.ID(), `"a"`)
		a.Want(`{"jsonrpc":"2.0","id":1,"result":"a"}`)
		a.WantNothing()
		a.Send(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`) // a's revision is its own
		a.Want(`[{"jsonrpc":"2.0","id":1,"result":{}}]`)
		a.End()
		if err := <-aServed; err != nil {
			t.Error(err)
		}
	})
}

// A client that stops reading is hung up on, and its backend serves on.
func TestMission_C_AClientThatDoesNotReadIsHungUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{}, "gh")
		good, _ := h.client()
		good.Initialize("2025-06-18")
		gh := h.backend("gh")
		gh.Ready("big")
		list(t, good)

		conn, deaf := mcptest.OpenDeaf(t, "deaf client")
		served := make(chan error, 1)
		go func() { served <- h.gateway.Serve(context.Background(), conn) }()
		deaf.Send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"deaf","version":"1"}}}`)
		deaf.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		large := string(wire.Quote(strings.Repeat("x", 1<<20)))
		n := 0
		for ; len(served) == 0 && n < 100; n++ {
			deaf.Send(call(fmt.Sprint(n), "big"))
			gh.Reply(gh.Asked("tools/call").ID(), large)
			synctest.Wait()
		}
		if err := <-served; !errors.Is(err, transport.ErrFull) {
			t.Errorf("Serve: %v", err)
		}
		if n > 66 {
			t.Errorf("hung up after %d MiB", n)
		}
		deaf.Listen()
		good.Send(call("1", "big"))
		gh.Reply(gh.Asked("tools/call").ID(), "{}")
		good.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestPingIsAnsweredWhileTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{}, "gh")
		conn, client := mcptest.Open(t, "client")
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- h.gateway.Serve(ctx, conn) }()
		client.Initialize("2025-06-18")
		gh := h.backend("gh")
		gh.Ready("slow")
		list(t, client)
		client.Send(call("1", "slow"))
		m := gh.Asked("tools/call")
		stop() // a signal
		synctest.Wait()
		client.Send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		for i, request := range []string{call("3", "slow"), listRequest, `{"jsonrpc":"2.0","id":5,"method":"initialize"}`} {
			client.Send(request)
			if got := client.Next(); !strings.Contains(got, `"error":{"code":-32603,"message":"The gateway is ending"}`) {
				t.Errorf("request %d: got %s", i, got)
			}
		}
		began := time.Now()
		time.Sleep(400 * time.Millisecond)
		gh.Reply(m.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if took := time.Since(began); took != 400*time.Millisecond {
			t.Errorf("it went on for %v", took-400*time.Millisecond)
		}
		if !client.Over() {
			t.Error("the client was not hung up on")
		}
		if records := h.audit(); len(records) != 2 {
			t.Errorf("recorded %q", records)
		}
	})
}

// Told to end, the gateway gives what is in flight half a second.
func TestASignalHurriesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{}, "gh")
		conn, client := mcptest.Open(t, "client")
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- h.gateway.Serve(ctx, conn) }()
		client.Initialize("2025-06-18")
		gh := h.backend("gh")
		gh.Ready("slow")
		list(t, client)
		client.Send(call("1", "slow"))
		gh.Asked("tools/call")
		client.End() // grace: 4 s
		synctest.Wait()
		began := time.Now()
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the end took %v", took)
		}
		gh.Told("notifications/cancelled")
		if records := h.audit(); len(records) != 1 || !strings.Contains(records[0], "outcome=cancelled") {
			t.Errorf("recorded %q", records)
		}
	})
}

// What waits for backends is let go at the end of the session, and a call that
// was taken back waits for none.
func TestNobodyWaitsForBackendsBeyondTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{wait: time.Hour, startTimeout: time.Hour, grace: time.Second}, "gh")
		client, served := h.client()
		client.Initialize("2025-06-18")
		client.Send(listRequest)
		client.Send(call("1", "search"))
		client.Send(call("2", "search"))
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		began := time.Now()
		client.End()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the end took %v", took)
		}
		client.WantNothing()
		records := h.audit()
		if len(records) != 2 || slices.ContainsFunc(records, func(r string) bool { return !strings.Contains(r, "outcome=cancelled") }) {
			t.Errorf("recorded %q", records)
		}
	})
}

// A call that is taken back while it waits for its backend leaves nothing behind.
func TestACallTakenBackWaitsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{wait: time.Hour, startTimeout: time.Hour}, "gh")
		client, _ := h.client()
		client.Initialize("2025-06-18")
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 100 {
			client.Send(call("1", "search"))
			client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		}
		client.WantNothing()
		if more := runtime.NumGoroutine() - before; more > 5 {
			t.Errorf("%d goroutines are left", more)
		}
	})
}

// A call is taken back at the moment at which its backend is ready: it is not sent,
// or the backend is told.
func TestACancelMeetsABackendThatHasJustStarted(t *testing.T) {
	sent, not := 0, 0
	for round := range 60 {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, settings{}, "gh")
			client, _ := h.client()
			client.Initialize("2025-06-18")
			const n = 6
			for i := range n {
				client.Send(call(fmt.Sprint(i), "search"))
			}
			gh := h.backend("gh")
			gh.Greet("")
			m := gh.Asked("tools/list")
			go func() {
				time.Sleep(time.Second)
				for i := range n {
					client.Sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, (i+round)%n)
				}
			}()
			time.Sleep(time.Second)
			gh.Reply(m.ID(), mcptest.Tools("search"))
			running := make(map[wire.ID]bool)
			for _, line := range gh.Taken() {
				switch m, _ := wire.Parse([]byte(line)); m.Method() {
				case "tools/call":
					running[m.ID()] = true
					sent++
				case "notifications/cancelled":
					delete(running, m.RequestID())
				}
			}
			if len(running) != 0 {
				t.Errorf("%d calls run on that nobody waits for", len(running))
			}
			not += n
			client.WantNothing()
			if records := h.audit(); len(records) != n {
				t.Errorf("%d records, want %d", len(records), n)
			}
		})
	}
	t.Logf("%d of %d were sent", sent, not)
}

// What waits for initialized is let go when the client has sent its last.
func TestTheEndLetsGoOfWhatWaitsForInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{})
		client, served := h.client()
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		client.Next()
		client.Send(call("2", "search"))
		began := time.Now()
		client.End()
		client.Want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"The gateway is ending"}}`)
		if err := <-served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		if records := h.audit(); len(records) != 1 || !strings.Contains(records[0], "outcome=rejected") {
			t.Errorf("recorded %q", records)
		}
	})
}

// Each change that a client does not know of is told once: not again when
// something else has changed, and again when it had been gone in between.
func TestNOTIF07_AChangeIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{}, "gh")
		client, _ := h.client()
		client.Initialize("2025-06-18")
		gh := h.backend("gh")
		gh.Ready("a")
		list(t, client)
		change := func(name string) {
			t.Helper()
			gh.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			gh.List(mcptest.Tools(name))
			synctest.Wait()
		}
		change("b")
		time.Sleep(time.Second)
		client.Told("notifications/tools/list_changed")
		change("c") // and back within the time in which changes are gathered
		change("b")
		time.Sleep(time.Second)
		client.WantNothing()
		list(t, client) // b
		change("c")
		list(t, client) // before it is told of
		time.Sleep(time.Second)
		client.WantNothing()
		change("b")
		time.Sleep(time.Second)
		client.Told("notifications/tools/list_changed")
		client.WantNothing()
	})
}

func TestServeReportsAConnThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{})
		client, served := h.client()
		failure := errors.New("read |0: input/output error")
		client.Break(failure)
		if err := <-served; !errors.Is(err, failure) {
			t.Errorf("Serve: %v", err)
		}
	})
}

// PAGE-03, and a page that a client cannot ask for.
func TestPAGE03_AllPagesAreListedAndCallable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{}, "gh")
		client, _ := h.client()
		client.Initialize("2025-06-18")
		gh := h.backend("gh")
		gh.Greet("")
		var names []string
		for i := range 101 {
			names = append(names, fmt.Sprintf("t%03d", i))
		}
		for page := range 3 {
			m := gh.Asked("tools/list")
			want := []string{"", `"c\u0031"`, `""`}[page]
			if got := string(m.Part(wire.PartCursor)); got != want {
				t.Errorf("page %d was asked for with the cursor %s, want %s", page, got, want)
			}
			result := mcptest.Tools(names[page*50 : min(page*50+50, 101)]...)
			if page < 2 {
				result = strings.TrimSuffix(result, "}") + `,"nextCursor":` + []string{`"c\u0031"`, `""`}[page] + "}"
			}
			gh.Reply(m.ID(), result)
		}
		if got := list(t, client); got != mcptest.Tools(names...) {
			t.Errorf("got %s", got)
		}
		client.Send(call("1", "t100"))
		gh.Reply(gh.Asked("tools/call").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestADamagedMemoryIsAsGoodAsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{state: t.TempDir()}
		h := newHouse(t, o, "gh")
		client, _ := h.client()
		client.Initialize("2025-06-18")
		h.backend("gh").Ready("search")
		want := list(t, client)
		files, _ := filepath.Glob(filepath.Join(o.state, "*"))
		if len(files) != 1 {
			t.Fatalf("files: %q", files)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		// JSON all right, but for one byte that no client could be sent.
		if err := os.WriteFile(files[0], []byte(strings.Replace(string(text), "search", "sear\xff", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		h = newHouse(t, o, "gh")
		client, _ = h.client()
		client.Initialize("2025-06-18")
		client.Send(listRequest)
		client.WantNothing()
		h.backend("gh").Ready("search")
		client.Want(`{"jsonrpc":"2.0","id":"list","result":` + want + `}`)
		if loud := h.log.Loud(); len(loud) != 1 || !strings.Contains(loud[0], "damaged") {
			t.Errorf("logged %q", loud)
		}
	})
}
