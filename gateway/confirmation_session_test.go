package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

const formCap = `{"elicitation":{}}`

// confirmSettings are the settings of a gateway in front of the backend gh, of this generation,
// whose tools del_* must be confirmed.
func confirmSettings(generation string) settings {
	return settings{singleClient: true, generation: map[string]string{"gh": generation},
		tools: map[string]config.ToolSettings{"gh": {Confirm: []string{"del_*"}}}}
}

// openConfirm starts a gateway with confirmSettings, and opens a session with these client
// capabilities. The backend has the tools del_a and get.
func openConfirm(t *testing.T, o settings, revision,
	caps string) (h *harness, client, gh *mcptest.Peer) {
	t.Helper()
	h = newHarness(t, o, "gh")
	client, _ = h.connectClient()
	client.Initialize(revision, caps)
	gh = h.nextProcess("gh")
	serveTools(gh, o.generation["gh"])
	listTools(t, client)
	return h, client, gh
}

// serveTools serves the startup of a backend with the tools del_a and get.
func serveTools(gh *mcptest.Peer, generation string) {
	if generation == "modern" {
		gh.ServeDiscover("")
		gh.ServeToolsList(mcptest.ToolsResult("del_a", "get"))
		return
	}
	gh.ServeStartup("del_a", "get")
}

func callDel(id string) string {
	return `{"jsonrpc":"2.0","id":` + id +
		`,"method":"tools/call","params":{"name":"del_a","arguments":{"n": 1.0}}}`
}

// wantQuestion expects the gateway's question and returns it.
func wantQuestion(t *testing.T, client *mcptest.Peer) wire.Message {
	t.Helper()
	m := client.WantRequest("elicitation/create")
	if message := paramAt(t, m, "message"); !strings.HasPrefix(message,
		`"The gateway requires that you confirm this call before it runs:\n\n    backend: gh\n`) {
		t.Errorf("the question is %s", message)
	}
	return m
}

// wantRefusal expects a tool result with isError that says that the call did not run, and why.
func wantRefusal(t *testing.T, client *mcptest.Peer, why string) {
	t.Helper()
	m := client.NextMessage()
	for m.Kind() == wire.Notification {
		m = client.NextMessage()
	}
	want := `The call did not run: the user has to confirm calls of del_a at backend gh ` +
		`(tools.confirm), and ` + why
	if !m.IsToolError() || !strings.Contains(string(m.Raw()), want) {
		t.Errorf("got %s, want a refusal: %s", m.Raw(), want)
	}
}

const confirmed = `{"action":"accept","content":{"confirm":true}}`

func wantRecord(t *testing.T, h *harness, want ...string) {
	t.Helper()
	records := h.auditRecords()
	for _, one := range want {
		if !strings.Contains(strings.Join(records, "\n"), one) {
			t.Errorf("the audit log has no %s:\n%s", one, strings.Join(records, "\n"))
		}
	}
}

// The client is asked by form elicitation, showing backend, tool and arguments. The call runs with
// these arguments when the user has confirmed it. Other tools are not asked about.
func TestConfirm_SessionIsAskedByForm(t *testing.T) {
	for _, generation := range []string{"legacy", "modern"} {
		for _, revision := range []string{"2025-06-18", "2025-11-25"} {
			synctest.Test(t, func(t *testing.T) {
				h, client, gh := openConfirm(t, confirmSettings(generation), revision, formCap)
				client.Send(callDel("1"))
				gh.WantNothing()
				m := wantQuestion(t, client)
				if want := `{"message":"The gateway requires that you confirm this call before it runs:\n\n    backend: gh\n    tool: \"del_a\"\n    arguments: {\"n\":1.0}\n",` +
					`"requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean","title":"Run this call?","description":"Yes runs the call once, with these arguments."}},"required":["confirm"]}}`; string(m.Part(wire.PartParams)) != want {
					t.Errorf("the params are %s", m.Part(wire.PartParams))
				}
				client.SendResult(m.ID(), confirmed)
				call := gh.WantRequest("tools/call")
				if got := paramAt(t, call, "arguments"); got != `{"n": 1.0}` {
					t.Errorf("the arguments are %s", got)
				}
				result := `{"content":[]}`
				if generation == "modern" {
					result = `{"resultType":"complete","content":[]}`
				}
				gh.SendResult(call.ID(), result)
				client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
				wantRecord(t, h, "outcome=ok confirmation=accepted")

				client.Send(toolsCall("2", "get"))
				gh.SendResult(gh.WantRequest("tools/call").ID(), result)
				client.Want(`{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`)
				wantRecord(t, h, "backend_tool=get outcome=ok bytes_in")
			})
		}
	}
}

// If the client declines, the call is refused and did not run. Accepting the form without choosing
// yes is a refusal too.
func TestConfirm_SessionDeclines(t *testing.T) {
	for _, c := range []struct{ response, why, record string }{
		{`{"action":"decline"}`, "the user has declined", "declined"},
		{`{"action":"cancel"}`, "the user has dismissed the question", "cancelled"},
		{`{"action":"accept","content":{"confirm":false}}`, "the user has declined", "declined"},
		{`{"action":"accept","content":{"confirm":"true"}}`, "the user has declined", "declined"},
		{`{"action":"accept","content":{"confirm":[true]}}`, "the user has declined", "declined"},
		{`{"action":"accept","content":{"Confirm":true}}`, "the user has declined", "declined"},
		{`{"action":"accept","content":null}`, "the user has declined", "declined"},
		{`{"action":"accept"}`, "the user has declined", "declined"},
		{`{"action":"ACCEPT","content":{"confirm":true}}`, "the user has dismissed", "cancelled"},
		{`{"content":{"confirm":true}}`, "the user has dismissed the question", "cancelled"},
		{`[]`, "there is no answer: the result is not an object", "unanswered"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
			client.Send(callDel("1"))
			client.SendResult(wantQuestion(t, client).ID(), c.response)
			wantRefusal(t, client, c.why)
			gh.WantNothing()
			wantRecord(t, h, `outcome=rejected reason="the user has to confirm calls of del_a `+
				`at backend gh (tools.confirm), and `+c.why, "confirmation="+c.record)
		})
	}
}

// If the client cannot be asked, the call is refused and did not run, and the text says what to do.
func TestConfirm_SessionCannotBeAsked(t *testing.T) {
	for _, c := range []struct{ revision, caps, why string }{
		{"2025-11-25", `{}`, "this client cannot be asked: elicitation/create: the client has not declared the capability elicitation"},
		{"2025-11-25", `{"elicitation":{"url":{}}}`, "this client cannot be asked: elicitation/create: the client has not declared the capability elicitation.form"},
		{"2025-03-26", formCap, "this client cannot be asked: it uses MCP 2025-03-26, which has no elicitation"},
		{"2024-11-05", formCap, "this client cannot be asked: it uses MCP 2024-11-05, which has no elicitation"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, client, gh := openConfirm(t, confirmSettings("legacy"), c.revision, c.caps)
			client.Send(callDel("1"))
			wantRefusal(t, client, c.why+". Use a client that supports elicitation, or ask the "+
				"operator of the gateway to change the configuration")
			gh.WantNothing()
			wantRecord(t, h, "outcome=rejected", "confirmation=impossible")
		})
	}
}

// In a batch of 2025-03-26 only the call that needs a confirmation is refused.
func TestConfirm_Batch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-03-26", formCap)
		client.Send(`[` + callDel("1") + `,` + toolsCall("2", "get") + `]`)
		call := gh.WantRequest("tools/call")
		gh.SendResult(call.ID(), `{"content":[]}`)
		gh.WantNothing()
		m := client.Next()
		if !strings.Contains(m, `{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`) ||
			!strings.Contains(m, `did not run`) {
			t.Errorf("got %s", m)
		}
	})
}

// Nobody answers: the call is refused after ten minutes, and the question is withdrawn.
func TestConfirm_SessionDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := confirmSettings("legacy")
		o.callTimeout = map[string]time.Duration{"gh": time.Second} // does not concern the question
		h, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		client.Send(callDel("1"))
		id := wantQuestion(t, client).ID()
		time.Sleep(10*time.Minute - 10*time.Second)
		client.WantNothing()
		time.Sleep(time.Minute)
		withdrawn := client.WantNotification("notifications/cancelled")
		if got := paramAt(t, withdrawn, "requestId"); got != string(id) {
			t.Errorf("the request %s is withdrawn", got)
		}
		wantRefusal(t, client, "there is no answer")
		client.SendResult(id, confirmed) // too late
		gh.WantNothing()
		wantRecord(t, h, "outcome=rejected", "confirmation=unanswered")
	})
}

// A client that answers with an error is not asked again.
func TestConfirm_SessionAnswersWithError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
		client.Send(callDel("1"))
		client.SendError(wantQuestion(t, client).ID(), `{"code":-32000,"message":"no window"}`)
		wantRefusal(t, client, "there is no answer: no window")
		gh.WantNothing()
	})
}

// The call_timeout begins when the call is sent, not while the user is asked.
func TestConfirm_TimeoutBeginsAfterQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := confirmSettings("legacy")
		o.callTimeout = map[string]time.Duration{"gh": time.Minute}
		_, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		client.Send(callDel("1"))
		id := wantQuestion(t, client).ID()
		time.Sleep(5 * time.Minute)
		client.SendResult(id, confirmed)
		call := gh.WantRequest("tools/call")
		time.Sleep(50 * time.Second)
		gh.SendResult(call.ID(), `{}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

// When the client cancels the call while it is asked, the question is withdrawn and the call does
// not run, even if the answer arrives later.
func TestConfirm_SessionCancelsWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
		client.Send(callDel("1"))
		id := wantQuestion(t, client).ID()
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		client.WantNotification("notifications/cancelled")
		client.SendResult(id, confirmed)
		gh.WantNothing()
		client.WantNothing()
		wantRecord(t, h, "outcome=cancelled", "confirmation=asked")
	})
}

// The client answers and cancels in one burst: the call is cancelled at most once at the backend,
// and nothing else happens.
func TestConfirm_SessionCancelsWithItsAnswer(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			h, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
			client.Send(callDel("1"))
			client.SendResult(wantQuestion(t, client).ID(), confirmed)
			client.Send(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			synctest.Wait()
			lines := gh.TakeAll()
			if n := len(lines); n != 0 && (n != 2 ||
				!strings.Contains(lines[1], "notifications/cancelled")) {
				t.Errorf("the backend got %q", lines)
			}
			wantRecord(t, h, "outcome=cancelled")
		})
	}
}

// The client is gone, or has closed its side, while it is asked: the call does not run. If the
// client still reads, it gets the refusal.
func TestConfirm_SessionEndsWhileAsked(t *testing.T) {
	for _, reads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { testConfirmSessionEnds(t, reads) })
	}
}

func testConfirmSessionEnds(t *testing.T, reads bool) {
	h := newHarness(t, confirmSettings("legacy"), "gh")
	client, served := h.connectClient()
	client.Initialize("2025-11-25", formCap)
	gh := h.nextProcess("gh")
	serveTools(gh, "legacy")
	listTools(t, client)
	client.Send(callDel("1"))
	wantQuestion(t, client)
	if reads {
		client.CloseSend()
		wantRefusal(t, client, "there is no answer")
	} else {
		client.Close()
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	gh.WantNothing()
	if records := h.auditRecords(); len(records) != 1 ||
		!strings.Contains(records[0], "outcome=cancelled") &&
			!strings.Contains(records[0], "outcome=rejected") {
		t.Errorf("the audit log has %q", records)
	}
}

// The gateway drains while the client is asked: the client may still answer, and the call runs.
// After the drain timeout it ends without having run.
func TestConfirm_DrainWhileAsked(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			o := confirmSettings("legacy")
			o.drain = 10 * time.Second
			h := newHarness(t, o, "gh")
			conn, client := mcptest.NewPeer(t, "client")
			ctx, stop := context.WithCancel(context.Background())
			served := make(chan error, 1)
			go func() { served <- h.gateway.Serve(ctx, "", nil, conn) }()
			client.Initialize("2025-11-25", formCap)
			gh := h.nextProcess("gh")
			serveTools(gh, "legacy")
			listTools(t, client)
			client.Send(callDel("1"))
			id := wantQuestion(t, client).ID()
			stop()
			time.Sleep(time.Second)
			if answers {
				client.SendResult(id, confirmed)
				gh.SendResult(gh.WantRequest("tools/call").ID(), `{}`)
				client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			gh.WantNothing()
		})
	}
}

// serveRestart serves the next process of a backend, for which a call is queued.
func serveRestart(gh *mcptest.Peer) {
	gh.ServeHandshake("")
	for range 2 {
		m := gh.NextMessage()
		gh.SendResult(m.ID(), map[string]string{"tools/call": `{}`,
			"tools/list": mcptest.ToolsResult("del_a", "get")}[m.Method()])
	}
}

// The backend restarts while the client is asked: the confirmed call waits for the next process.
func TestConfirm_BackendRestartsWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
		client.Send(callDel("1"))
		id := wantQuestion(t, client).ID()
		gh.Exit("exit 1", "")
		again := h.nextProcess("gh")
		client.SendResult(id, confirmed)
		serveRestart(again)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		again.WantNothing()
	})
}

// A call that is queued for a starting backend is asked about at once, and is queued after that.
func TestConfirm_QueuedForStartingBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := confirmSettings("legacy")
		o.stateDir = t.TempDir()
		h, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		gh.Exit("exit 1", "")
		again := h.nextProcess("gh") // the handshake is still open
		client.Send(callDel("1"))
		client.SendResult(wantQuestion(t, client).ID(), confirmed)
		serveRestart(again)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

// A denied tool is not asked about.
func TestConfirm_DeniedToolIsNotAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		o := confirmSettings("legacy")
		o.backendSet = &set
		_, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		applyTools(t, set, "legacy", config.ToolSettings{
			Deny: []string{"del_a"}, Confirm: []string{"*"}})
		client.WantNotification("notifications/tools/list_changed")
		client.Send(callDel("1"))
		client.Want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: del_a"}}`)
		gh.WantNothing()
	})
}

// No spelling of a name avoids the confirmation: unprefixed, prefixed, or shortened.
func TestConfirm_EverySpellingOfName(t *testing.T) {
	const own = "del_a_file_with_a_long_name"
	asked := 0
	for _, prefix := range []catalog.Prefix{catalog.PrefixOnCollision, catalog.PrefixAlways,
		catalog.PrefixNever} {
		for _, limit := range []int{50, 20} {
			synctest.Test(t, func(t *testing.T) {
				o := confirmSettings("legacy")
				o.prefix, o.nameLimit = prefix, limit
				h := newHarness(t, o, "gh")
				client, _ := h.connectClient()
				client.Initialize("2025-11-25", formCap)
				gh := h.nextProcess("gh")
				gh.ServeStartup(own)
				tools, _ := wire.Lookup([]byte(listTools(t, client)), "tools")
				listed, _ := wire.Lookup(wire.Elements(tools)[0], "name")
				for _, name := range []string{wire.Unquote(listed), own, "gh__" + own} {
					client.Send(toolsCall("1", name))
					m := client.NextMessage()
					switch {
					case m.Kind() == wire.Request:
						asked++
						client.SendResult(m.ID(), `{"action":"decline"}`)
						if m := client.NextMessage(); !m.IsToolError() {
							t.Errorf("%s: %s", name, m.Raw())
						}
					case !strings.Contains(string(m.Raw()), "Unknown tool"):
						t.Errorf("%s: %s", name, m.Raw())
					}
					gh.WantNothing()
				}
			})
		}
	}
	if asked < 12 {
		t.Errorf("the client was asked %d times", asked)
	}
}

// The backend asks the client during a confirmed call, in both generations: the user is not asked
// for another confirmation.
func TestConfirm_BackendAsksDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
		client.Send(callDel("1"))
		client.SendResult(wantQuestion(t, client).ID(), confirmed)
		call := gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}`)
		m := client.WantRequest("elicitation/create")
		if got := paramAt(t, m, "message"); got != `"[gh] m"` {
			t.Errorf("the request is %s", got)
		}
		client.SendResult(m.ID(), `{"action":"accept"}`)
		gh.Want(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`)
		gh.SendResult(call.ID(), `{}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, confirmSettings("modern"), "2025-11-25", formCap)
		client.Send(callDel("1"))
		client.SendResult(wantQuestion(t, client).ID(), confirmed)
		for range 3 {
			gh.SendResult(gh.WantRequest("tools/call").ID(),
				`{"resultType":"input_required","inputRequests":{"x":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"S"}`)
			m := client.WantRequest("elicitation/create")
			if got := paramAt(t, m, "message"); got != `"[gh] m"` {
				t.Errorf("the request is %s", got)
			}
			client.SendResult(m.ID(), `{"action":"accept"}`)
		}
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"resultType":"complete","content":[]}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
}

// While the client is asked, the call is not at the backend: a request of the backend without a
// stream does not belong to it.
func TestConfirm_BackendRequestWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
		client.Send(callDel("1"))
		id := wantQuestion(t, client).ID()
		gh.Send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}`)
		m := client.WantRequest("elicitation/create")
		client.SendResult(id, `{"action":"decline"}`)
		wantRefusal(t, client, "the user has declined")
		client.SendResult(m.ID(), `{"action":"accept"}`)
		gh.Want(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`)
	})
}

// A call that asks for a task is asked about first. The task is created after that. A refusal is an
// error, because the client expects a task.
func TestConfirm_TaskOfSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, confirmSettings("legacy"), "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", formCap)
		gh := h.nextProcess("gh")
		gh.ServeHandshake(tasksHandshake)
		gh.ServeToolsList(`{"tools":[{"name":"del_a","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}]}`)
		listTools(t, client)
		const call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"del_a","task":{}}}`
		client.Send(fmt.Sprintf(call, 1))
		client.SendResult(wantQuestion(t, client).ID(), confirmed)
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"task":{"taskId":"t","status":"working","ttl":60000}}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t","status":"working","ttl":60000}}}`)
		client.Send(fmt.Sprintf(call, 2))
		client.SendResult(wantQuestion(t, client).ID(), `{"action":"decline"}`)
		if e := wire.ReadError(client.NextMessage().Part(wire.PartError)); e.Code != -32603 ||
			!strings.HasPrefix(e.Message, "The call did not run: the user has to confirm") {
			t.Errorf("got %v", e)
		}
		gh.WantNothing()
	})
}

// Many calls are asked about at one time. At the limit of unanswered requests further calls are
// refused.
func TestConfirm_QuestionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
		var ids []wire.ID
		for i := range 256 {
			client.Send(callDel(fmt.Sprint(i)))
			ids = append(ids, wantQuestion(t, client).ID())
		}
		client.Send(callDel("256"))
		wantRefusal(t, client, "there is no answer: The client has 256 unanswered requests")
		for _, id := range ids {
			client.SendResult(id, `{"action":"decline"}`)
			wantRefusal(t, client, "the user has declined")
		}
		client.Send(callDel("257"))
		wantQuestion(t, client)
		gh.WantNothing()
		wantRecord(t, h, "confirmation=unanswered")
	})
}
