package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// openStatelessConfirm starts a gateway with confirmSettings, and connects a stateless client over
// a pipe. Its capabilities are formCap, unless others are given.
func openStatelessConfirm(t *testing.T, o settings,
	caps ...string) (h *harness, client, gh *mcptest.Peer) {
	t.Helper()
	h = newHarness(t, o, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", append(caps, formCap)[0]))
	gh = h.nextProcess("gh")
	serveTools(gh, o.generation["gh"])
	client.NextMessage()
	return h, client, gh
}

func modernDel(id, more string) string {
	return modernRequest(id, "tools/call", `"name":"del_a","arguments":{"n": 1.0},`+more, formCap)
}

// retryDel returns the retry of modernDel with these responses.
func retryDel(id, responses, state string) string {
	return modernDel(id, `"inputResponses":`+responses+`,"requestState":`+state+`,`)
}

const confirmedQ1 = `{"q1":` + confirmed + `}`

// completed returns the result of a tool, of a backend of this generation.
func completed(generation string) string {
	if generation == "modern" {
		return `{"resultType":"complete","content":[]}`
	}
	return `{"content":[]}`
}

func wantComplete(t *testing.T, client *mcptest.Peer, id string) {
	t.Helper()
	m := client.NextMessage()
	if kind, _ := wire.Lookup(m.Part(wire.PartResult), "resultType"); string(m.ID()) != id ||
		string(kind) != `"complete"` || m.IsToolError() {
		t.Errorf("got %s, want a result for %s", m.Raw(), id)
	}
}

func wantState(t *testing.T, client *mcptest.Peer) {
	t.Helper()
	m := client.NextMessage()
	if e := wire.ReadError(m.Part(wire.PartError)); e.Code != -32602 ||
		!strings.Contains(e.Message, "requestState") {
		t.Errorf("got %s, want an error about the requestState", m.Raw())
	}
}

// A client without a session gets the question as an input request. Its retry is sent, once,
// without the members of the retry.
func TestConfirm_StatelessIsAskedByForm(t *testing.T) {
	for _, generation := range []string{"legacy", "modern"} {
		synctest.Test(t, func(t *testing.T) {
			h, client, gh := openStatelessConfirm(t, confirmSettings(generation))
			client.Send(modernDel("1", ""))
			m := client.NextMessage()
			requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
			if want := `{"q1":{"method":"elicitation/create","params":{"message":"The gateway requires that you confirm this call before it runs:\n\n    backend: gh\n    tool: \"del_a\"\n    arguments: {\"n\":1.0}\n",` +
				`"requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean","title":"Run this call?","description":"Yes runs the call once, with these arguments."}},"required":["confirm"]}}}}`; string(requests) != want {
				t.Errorf("the requests are %s", requests)
			}
			state, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
			gh.WantNothing()
			client.Send(retryDel("2", confirmedQ1, string(state)))
			call := gh.WantRequest("tools/call")
			if strings.Contains(string(call.Raw()), "inputResponses") ||
				strings.Contains(string(call.Raw()), "requestState") ||
				paramAt(t, call, "arguments") != `{"n": 1.0}` {
				t.Errorf("the call is %s", call.Raw())
			}
			gh.SendResult(call.ID(), completed(generation))
			wantComplete(t, client, "2")
			wantRecord(t, h, "outcome=input_required confirmation=asked",
				"outcome=ok confirmation=accepted")
		})
	}
}

// A user who declines ends the call. A later acceptance has no effect.
func TestConfirm_StatelessDeclines(t *testing.T) {
	for _, c := range []struct{ response, why, record string }{
		{`{"action":"decline"}`, "the user has declined", "declined"},
		{`{"action":"cancel"}`, "the user has dismissed the question", "cancelled"},
		{`{"action":"accept","content":{"confirm":false}}`, "the user has declined", "declined"},
		{`{"action":"accept","content":{}}`, "the user has declined", "declined"},
		{`{"action":"accept"}`, "the user has declined", "declined"},
		{`{"action":"explode","content":{"confirm":true}}`, "the user has dismissed", "cancelled"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, client, gh := openStatelessConfirm(t, confirmSettings("legacy"))
			client.Send(modernDel("1", ""))
			state := wantInputRequired(t, client, "q1")
			client.Send(retryDel("2", `{"q1":`+c.response+`}`, state))
			wantRefusal(t, client, c.why)
			client.Send(retryDel("3", confirmedQ1, state))
			wantState(t, client)
			gh.WantNothing()
			wantRecord(t, h, `outcome=rejected reason="the user has to confirm calls of del_a `+
				`at backend gh (tools.confirm), and `+c.why, "confirmation="+c.record)
		})
	}
}

// A client without a session that has not declared form elicitation gets -32021 with the
// capability.
func TestConfirm_StatelessCannotBeAsked(t *testing.T) {
	for _, caps := range []string{`{}`, `{"elicitation":{"url":{}}}`} {
		synctest.Test(t, func(t *testing.T) {
			h, client, gh := openStatelessConfirm(t, confirmSettings("legacy"))
			client.Send(strings.Replace(modernDel("1", ""), formCap, caps, 1))
			m := client.NextMessage()
			e := wire.ReadError(m.Part(wire.PartError))
			if e.Code != -32021 || string(e.Data) !=
				`{"requiredCapabilities":{"elicitation":{"form":{}}}}` ||
				!strings.HasPrefix(e.Message, "Missing client capability: the call did not run: "+
					"the user has to confirm calls of del_a at backend gh (tools.confirm), and "+
					"this client cannot be asked: ") {
				t.Errorf("got %s", m.Raw())
			}
			gh.WantNothing()
			wantRecord(t, h, "outcome=rejected", "confirmation=impossible")
		})
	}
}

// The confirmation is used once, whether the retries arrive together or one after the other.
func TestConfirm_StateIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openStatelessConfirm(t, confirmSettings("legacy"))
		client.Send(modernDel("1", ""))
		state := wantInputRequired(t, client, "q1")
		for id := range 11 {
			client.Send(retryDel(fmt.Sprint(id+2), confirmedQ1, state))
		}
		call := gh.WantRequest("tools/call")
		gh.WantNothing()
		for range 10 {
			wantState(t, client)
		}
		gh.SendResult(call.ID(), `{"content":[]}`)
		wantComplete(t, client, "2")
		client.Send(retryDel("20", confirmedQ1, state))
		wantState(t, client)
		time.Sleep(11 * time.Minute)
		client.Send(retryDel("21", confirmedQ1, state))
		wantState(t, client)
		gh.WantNothing()
	})
}

// What the user has confirmed is what runs: the state is not valid for other arguments, another
// tool, another method, another principal, or after ten minutes.
func TestConfirm_StateIsBoundToCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openStatelessConfirm(t, confirmSettings("legacy"))
		client.Send(modernDel("1", ""))
		state := wantInputRequired(t, client, "q1")
		retry := retryDel("2", confirmedQ1, state)
		for _, one := range []string{
			strings.Replace(retry, `{"n": 1.0}`, `{"n": 1}`, 1),
			strings.Replace(retry, `{"n": 1.0}`, `{"n": 1.0,"m":2}`, 1),
			strings.Replace(retry, `"arguments":{"n": 1.0},`, ``, 1),
			strings.Replace(retry, `"del_a"`, `"get"`, 1),
			strings.Replace(retry, `"del_a"`, `"gh__del_a"`, 1),
			strings.Replace(retry, state, state[:20]+flipped(state[20])+state[21:], 1),
		} {
			client.Send(one)
			wantState(t, client)
		}
		conn, other := mcptest.NewPeer(t, "other")
		go func() { _ = h.gateway.Serve(t.Context(), "", named("other"), conn) }()
		other.Send(retry)
		wantState(t, other)
		gh.WantNothing()

		time.Sleep(9 * time.Minute)
		client.Send(retryDel("3", `{}`, state)) // asked again, with the same expiry
		again := wantInputRequired(t, client, "q1")
		time.Sleep(2 * time.Minute)
		for _, expired := range []string{state, again} {
			client.Send(retryDel("4", confirmedQ1, expired))
			wantState(t, client)
		}
		gh.WantNothing()
	})
}

// Input responses without a state, or of another shape, confirm nothing.
func TestConfirm_ResponsesWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openStatelessConfirm(t, confirmSettings("modern"))
		client.Send(modernDel("1", `"inputResponses":`+confirmedQ1+`,`))
		wantState(t, client)
		client.Send(modernDel("2", `"inputResponses":{"x":`+confirmed+`},`))
		state := wantInputRequired(t, client, "q1")
		for _, responses := range []string{`{}`, `null`, `17`, `{"x":` + confirmed + `}`,
			`{"q1":true}`, `{"q1":{"action":1}}`} {
			client.Send(retryDel("3", responses, state))
			state = wantInputRequired(t, client, "q1")
		}
		gh.WantNothing()
		client.Send(retryDel("4", confirmedQ1, state))
		gh.SendResult(gh.WantRequest("tools/call").ID(), completed("modern"))
		wantComplete(t, client, "4")
	})
}

const oneInput = `{"resultType":"input_required","inputRequests":{"x":{"method":"elicitation/create","params":{"message":"m"}}}%s}`

// A modern backend asks for input during a confirmed call, with or without a state of its own: the
// confirmation is valid for the following rounds, each of which can be continued once.
func TestConfirm_ModernBackendAsksDuringCall(t *testing.T) {
	for _, more := range []string{`,"requestState":"S\u0031"`, ``} {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh := openStatelessConfirm(t, confirmSettings("modern"))
			client.Send(modernDel("1", ""))
			client.Send(retryDel("2", confirmedQ1, wantInputRequired(t, client, "q1")))
			for range 2 {
				gh.SendResult(gh.WantRequest("tools/call").ID(), fmt.Sprintf(oneInput, more))
				state := wantInputRequired(t, client, "x")
				for id := range 5 {
					client.Send(retryDel(fmt.Sprint(id+3), `{"x":{"action":"accept"}}`, state))
				}
				for range 4 {
					wantState(t, client)
				}
			}
			call := gh.WantRequest("tools/call")
			gh.WantNothing()
			if got := paramAt(t, call, "requestState"); got != `"S\u0031"` && more != "" ||
				got != "" && more == "" {
				t.Errorf("the state is %s", got)
			}
			if got := paramAt(t, call, "inputResponses"); got != `{"x":{"action":"accept"}}` {
				t.Errorf("the responses are %s", got)
			}
			gh.SendResult(call.ID(), completed("modern"))
			wantComplete(t, client, "3")
		})
	}
}

// A legacy backend asks the client during a confirmed call: the call is suspended and continued.
func TestConfirm_LegacyBackendAsksDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openStatelessConfirm(t, confirmSettings("legacy"))
		client.Send(modernDel("1", ""))
		client.Send(retryDel("2", confirmedQ1, wantInputRequired(t, client, "q1")))
		call := gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}`)
		state := wantInputRequired(t, client, "q1")
		client.Send(retryDel("3", `{"q1":{"action":"accept"}}`, state))
		gh.Want(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`)
		gh.SendResult(call.ID(), `{"content":[]}`)
		wantComplete(t, client, "3")
		gh.WantNothing()
		wantRecord(t, h, "outcome=input_required confirmation=asked",
			"outcome=input_required confirmation=accepted", "outcome=ok confirmation=accepted")
	})
}

// A legacy backend requires URL elicitations for a confirmed call, before or after a suspension:
// the call is sent again, and the user is not asked for another confirmation.
func TestConfirm_URLElicitationDuringCall(t *testing.T) {
	const both = `{"elicitation":{"form":{},"url":{}}}`
	for _, suspended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh := openStatelessConfirm(t, confirmSettings("legacy"), both)
			send := func(line string) { client.Send(strings.Replace(line, formCap, both, 1)) }
			send(modernDel("1", ""))
			send(retryDel("2", confirmedQ1, wantInputRequired(t, client, "q1")))
			call := gh.WantRequest("tools/call")
			if suspended {
				gh.Send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}`)
				send(retryDel("3", `{"q1":{"action":"accept"}}`, wantInputRequired(t, client, "q1")))
				gh.NextMessage()
			}
			gh.SendError(call.ID(), `{"code":-32042,"message":"go","data":{"elicitations":[{"url":"https://a.example/x","message":"Pay"}]}}`)
			state := wantInputRequired(t, client, "q1")
			send(retryDel("4", `{"q1":{"action":"accept"}}`, state))
			gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
			wantComplete(t, client, "4")
			send(retryDel("5", `{"q1":{"action":"accept"}}`, state))
			wantState(t, client)
			gh.WantNothing()
		})
	}
}

// The client cancels the confirmed retry while it is queued: the call does not run, and the
// confirmation is used.
func TestConfirm_StatelessCancelsQueuedRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := confirmSettings("legacy")
		o.stateDir = t.TempDir()
		h, client, gh := openStatelessConfirm(t, o)
		client.Send(modernDel("1", ""))
		state := wantInputRequired(t, client, "q1")
		gh.Exit("exit 1", "")
		again := h.nextProcess("gh")
		client.Send(retryDel("2", confirmedQ1, state))
		synctest.Wait()
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		synctest.Wait()
		serveTools(again, "legacy")
		again.WantNothing()
		client.Send(retryDel("3", confirmedQ1, state))
		wantState(t, client)
	})
}

// A client that has declared the tasks extension is asked before the backend is asked for a task.
func TestConfirm_TaskOfStatelessClient(t *testing.T) {
	const can = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, confirmSettings("legacy"), "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", can))
		gh := h.nextProcess("gh")
		gh.ServeHandshake(tasksHandshake)
		gh.ServeToolsList(`{"tools":[{"name":"del_a","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}]}`)
		client.Next()
		send := func(line string) { client.Send(strings.Replace(line, formCap, can, 1)) }
		send(modernDel("1", ""))
		send(retryDel("2", confirmedQ1, wantInputRequired(t, client, "q1")))
		call := gh.WantRequest("tools/call")
		if !call.HasTask() {
			t.Errorf("the call is %s", call.Raw())
		}
		gh.SendResult(call.ID(), `{"task":{"taskId":"t","status":"working","ttl":60000}}`)
		nextTaskID(t, client)
		gh.WantNothing()
	})
}
