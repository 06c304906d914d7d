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

// meta is the _meta of a request of the stateless era; more is further members of it.
func meta(can, more string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + can +
		`,"io.modelcontextprotocol/clientInfo":{"name":"guest","version":"9"}` + more + `}`
}

// request is one of the stateless era. Params are members, each with a comma behind it.
func request(id, method, params, can string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, params, meta(can, ""))
}

const info = `{"name":"mcp-gateway","version":"test"}`

// complete is what a result of a session-era backend becomes.
func complete(id, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":%s},%s}`, id, info, result)
}

// visiting opens a gateway whose only backend is of the session era and has the tool ask, and
// the client of which can do a thing.
func visiting(t *testing.T, can string) (h *house, client, gh *mcptest.Peer) {
	t.Helper()
	h = newHouse(t, settings{solo: true}, "gh")
	client, _ = h.client()
	client.Send(request("0", "tools/list", "", can))
	gh = h.backend("gh")
	gh.ServeStartup("ask")
	client.Want(`{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":` + info +
		`},"ttlMs":0,"cacheScope":"private","tools":[{"name":"ask","inputSchema":{"type":"object"}}]}}`)
	return h, client, gh
}

// state takes an answer that asks for input, and returns its requestState as it stands
// there.
func state(t *testing.T, client *mcptest.Peer, keys ...string) string {
	t.Helper()
	m := client.NextMessage()
	result := m.Part(wire.PartResult)
	if kind, _ := wire.Lookup(result, "resultType"); string(kind) != `"input_required"` {
		t.Fatalf("not asked for input: %s", m.Raw())
	}
	for _, key := range keys {
		if one, _ := wire.Lookup(result, "inputRequests", key); one == nil {
			t.Fatalf("no question %s in %s", key, m.Raw())
		}
	}
	text, _ := wire.Lookup(result, "requestState")
	if len(text) < 3 {
		t.Fatalf("no requestState in %s", m.Raw())
	}
	return string(text)
}

const able = `{"elicitation":{},"sampling":{},"roots":{}}`

func retry(id, responses, state string) string {
	return request(id, "tools/call", `"name":"ask","arguments":{"n":9007199254740993},"inputResponses":`+responses+`,"requestState":`+state+`,`, able)
}

func first(id string) string {
	return request(id, "tools/call", `"name":"ask","arguments":{"n":9007199254740993},`, able)
}

// What a backend of the session era asks in mid-call a client without a session hears in
// the answer, and answers in its next request. The call runs once.
func TestParked_AskedAndAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := visiting(t, able)
		client.Send(first("1"))
		asked := gh.HandleRequest("tools/call")
		if want := `{"name":"ask","arguments":{"n":9007199254740993},"_meta":{}}`; string(asked.Part(wire.PartParams)) != want {
			t.Errorf("the backend was asked with %s", asked.Part(wire.PartParams))
		}
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object"},"elicitationId":"x","_meta":{"progressToken":1,"vendor/a":1.0}}}`)
		gh.Send(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		m := client.NextMessage()
		wantPrefix := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required",`
		if !strings.HasPrefix(string(m.Raw()), wantPrefix) && !strings.Contains(string(m.Raw()), `"resultType":"input_required"`) {
			t.Fatalf("answered with %s", m.Raw())
		}
		requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
		if want := `{"q1":{"method":"elicitation/create","params":{"_meta":{"vendor/a":1.0},"message":"[gh] Who?","requestedSchema":{"type":"object"}}},"q2":{"method":"roots/list","params":{}}}`; string(requests) != want {
			t.Errorf("asked %s", requests)
		}
		ticket, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		gh.WantNothing()

		// One answer alone: the other is asked for again.
		client.Send(retry("2", `{"q1":{"action":"accept","content":{"name":"<é>","n":1.0}},"other":{}}`, string(ticket)))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept","content":{"name":"<é>","n":1.0}}}`)
		again := state(t, client, "q2")
		client.Send(retry("3", `{"q2":{"roots":[]}}`, again))
		gh.Want(`{"jsonrpc":"2.0","id":"r","result":{"roots":[]}}`)
		gh.SendResult(asked.ID(), `{"content":[],"x":9007199254740993}`)
		client.Want(complete("3", `"content":[],"x":9007199254740993}`))
		gh.WantNothing()

		// It is over: the ticket is good for nothing any more, and nothing runs again.
		client.Send(retry("4", `{"q2":{"roots":[]}}`, again))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code != -32602 {
			t.Errorf("a call that is over goes on: %+v", failure)
		}
		gh.WantNothing()
		if n := h.gateway.Parked(); n != 0 {
			t.Errorf("%d calls are parked", n)
		}
		records := h.audit()
		if len(records) != 4 || !strings.Contains(records[0], "outcome=input_required") || !strings.Contains(records[1], "outcome=input_required") ||
			!strings.Contains(records[2], "outcome=ok") || !strings.Contains(records[3], "outcome=rejected") {
			t.Errorf("the audit log has\n%s", strings.Join(records, "\n"))
		}
	})
}

// A client that does not come back: the backend is told, once, and a retry that comes too
// late runs nothing.
func TestParked_ExpiresAndIsNeverRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := visiting(t, able)
		client.Send(first("1"))
		asked := gh.HandleRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := state(t, client, "q1")
		gh.Send(`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`) // while it is parked
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"cancel"}}`)
		if failure := gh.NextMessage(); failure.ID() != `"s"` || failure.Part(wire.PartError) == nil {
			t.Errorf("sampling was answered with %s", failure.Raw())
		}
		if note := gh.HandleNotification("notifications/cancelled"); note.RequestID() != asked.ID() {
			t.Errorf("cancelled %s", note.Raw())
		}
		client.Send(retry("2", `{"q1":{"action":"accept"}}`, ticket))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code != -32602 || !strings.Contains(failure.Message, "expired") {
			t.Errorf("%+v", failure)
		}
		gh.WantNothing()
		if n := h.gateway.Parked(); n != 0 {
			t.Errorf("%d calls are parked", n)
		}
	})
}

// The backend may answer while nobody waits: the client finds it when it comes back.
func TestParked_AnsweredMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(first("1"))
		asked := gh.HandleRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := state(t, client, "q1")
		gh.SendResult(asked.ID(), `{"content":[]}`)
		gh.NextMessage() // the question is answered all the same
		client.Send(retry("2", `{"q1":{"action":"accept"}}`, ticket))
		client.Want(complete("2", `"content":[]}`))
	})
}

// A ticket is good for the call for which it was given out, and as it was given out.
func TestParked_TicketsAreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(first("1"))
		gh.HandleRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := state(t, client, "q1")
		inner := strings.Trim(ticket, `"`)
		const answers = `"inputResponses":{"q1":{"action":"accept"}},"requestState":`
		for what, text := range map[string]string{
			"other arguments": request("2", "tools/call", `"name":"ask","arguments":{"n":1},`+answers+ticket+`,`, able),
			"another tool":    request("2", "tools/call", `"name":"gh__ask","arguments":{"n":9007199254740993},`+answers+ticket+`,`, able),
			"another method":  request("2", "resources/read", `"uri":"ask","arguments":{"n":9007199254740993},`+answers+ticket+`,`, able),
			"a longer one":    retry("2", `{"q1":{"action":"accept"}}`, `"`+inner+`-TAMPERED"`),
			"a changed one":   retry("2", `{"q1":{"action":"accept"}}`, `"`+inner[:20]+flip(inner[20])+inner[21:]+`"`),
			"an empty one":    retry("2", `{"q1":{"action":"accept"}}`, `""`),
			"no string":       retry("2", `{"q1":{"action":"accept"}}`, `17`),
		} {
			client.Send(text)
			if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code != -32602 {
				t.Errorf("%s: %+v", what, failure)
			}
		}
		gh.WantNothing()
		client.Send(retry("3", `{"q1":{"action":"decline"}}`, ticket)) // and is good still
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"decline"}}`)
	})
}

func flip(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}

// Of two requests that go on with the same call one does.
func TestParked_OneGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(first("1"))
		asked := gh.HandleRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
		ticket := state(t, client, "q1")
		client.Send(retry("2", `{"q1":{"action":"accept"}}`, ticket))
		client.Send(retry("3", `{"q1":{"action":"accept"}}`, ticket))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
		if m := client.NextMessage(); m.ID() != "3" || wire.ReadError(m.Part(wire.PartError)).Code != -32602 {
			t.Errorf("the second got %s", m.Raw())
		}
		gh.SendResult(asked.ID(), `{"content":[]}`)
		client.Want(complete("2", `"content":[]}`))
	})
}

// The client takes back the request that goes on with a call, or its connection ends: the
// call ends at the backend.
func TestParked_TakenBack(t *testing.T) {
	for what, take := range map[string]func(*mcptest.Peer){
		"cancelled": func(client *mcptest.Peer) {
			client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		},
		"gone": func(client *mcptest.Peer) { client.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, client, gh := visiting(t, able)
				client.Send(first("1"))
				asked := gh.HandleRequest("tools/call")
				gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?"}}`)
				ticket := state(t, client, "q1")
				client.Send(retry("2", `{"q1":{"action":"accept"}}`, ticket))
				gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
				take(client)
				if note := gh.HandleNotification("notifications/cancelled"); note.RequestID() != asked.ID() {
					t.Errorf("told %s", note.Raw())
				}
				synctest.Wait() // the backend is told first
				if n := h.gateway.Parked(); n != 0 {
					t.Errorf("%d calls are parked", n)
				}
			})
		})
	}
}

// A client that cannot be asked is told what it lacks, and the call is taken back.
func TestGuest_MissingCapability(t *testing.T) {
	for question, required := range map[string]string{
		`"sampling/createMessage","params":{}`:                                   `{"sampling":{}}`,
		`"sampling/createMessage","params":{"tools":[]}`:                         `{"sampling":{"tools":{}}}`,
		`"sampling/createMessage","params":{"toolChoice":{}}`:                    `{"sampling":{"tools":{}}}`,
		`"elicitation/create","params":{"message":"m","mode":"url","url":"x:y"}`: `{"elicitation":{"url":{}}}`,
		`"elicitation/create","params":{"message":"m"}`:                          `{"elicitation":{"form":{}}}`,
		`"roots/list"`: `{"roots":{}}`,
	} {
		t.Run(question, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client, gh := visiting(t, `{}`)
				client.Send(request("1", "tools/call", `"name":"ask",`, `{}`))
				gh.HandleRequest("tools/call")
				gh.Send(`{"jsonrpc":"2.0","id":"q","method":` + question + `}`)
				failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
				if failure.Code != -32021 {
					t.Errorf("%+v", failure)
				}
				if got, _ := wire.Lookup(failure.Data, "requiredCapabilities"); string(got) != required {
					t.Errorf("it lacks %s, want %s", got, required)
				}
				gh.NextMessage() // the question is answered
				gh.HandleNotification("notifications/cancelled")
			})
		})
	}
}

// -32042 of 2025-11-25: the user is sent elsewhere, and the call sent anew after that.
func TestGuest_SentElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const can = `{"elicitation":{"url":{}}}`
		_, client, gh := visiting(t, can)
		first := request("1", "tools/call", `"name":"ask",`, can)
		client.Send(first)
		gh.SendError(gh.HandleRequest("tools/call").ID(), `{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a.example/x","message":"Sign in"}]}}`)
		m := client.NextMessage()
		requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
		if want := `{"q1":{"method":"elicitation/create","params":{"mode":"url","message":"[gh] Sign in","url":"https://a.example/x"}}}`; string(requests) != want {
			t.Errorf("asked %s", requests)
		}
		ticket, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		client.Send(request("2", "tools/call", `"name":"ask","inputResponses":{"q1":{"action":"accept"}},"requestState":`+string(ticket)+`,`, can))
		again := gh.HandleRequest("tools/call")
		if want := `{"name":"ask","_meta":{}}`; string(again.Part(wire.PartParams)) != want {
			t.Errorf("sent anew with %s", again.Part(wire.PartParams))
		}
		gh.SendResult(again.ID(), `{"content":[]}`)
		client.Want(complete("2", `"content":[]}`))
		client.Send(request("3", "tools/call", `"name":"ask","inputResponses":{"q1":{"action":"decline"}},"requestState":`+string(ticket)+`,`, can))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code != -32602 {
			t.Errorf("a ticket that was used: %+v", failure)
		}
		gh.WantNothing()
	})
}

// A backend of the session era is told what the client can do, whatever it asks first; and one
// that can do something else, or says so later, has a connection of its own.
func TestGuest_BackendsAreToldWhatItCanDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{solo: true}, "gh")
		client, _ := h.client()
		client.Send(request("0", "tools/list", "", able))
		gh := h.backend("gh")
		m := gh.HandleRequest("initialize")
		if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) != able {
			t.Errorf("the backend is told %s", got)
		}
		gh.SendResult(m.ID(), mcptest.InitializeResult)
		gh.HandleNotification("notifications/initialized")
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		client.NextMessage()
		client.Send(request("1", "tools/call", `"name":"ask",`, able))
		gh.SendResult(gh.HandleRequest("tools/call").ID(), `{}`)
		client.NextMessage()
		client.Send(request("2", "tools/call", `"name":"ask",`, `{"roots":{}}`))
		own := h.backend("gh")
		m = own.HandleRequest("initialize")
		if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) != `{"roots":{}}` {
			t.Errorf("the other one is told %s", got)
		}
		own.SendResult(m.ID(), mcptest.InitializeResult)
		own.HandleNotification("notifications/initialized")
		own.SendResult(own.HandleRequest("tools/call").ID(), `{}`)
		client.NextMessage()
		gh.WantNothing()
	})
}

// A key of _meta is the same key however it is written.
func TestGuest_EscapedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		text := strings.ReplaceAll(first("1"), "io.modelcontextprotocol/", `io.modelcontextprotocol\/`)
		client.Send(strings.Replace(text, "clientInfo", `\u0063lientInfo`, 1))
		m := gh.HandleRequest("tools/call")
		if got := string(m.Part(wire.PartMeta)); got != `{}` {
			t.Errorf("the backend is sent the _meta %s", got)
		}
		gh.SendResult(m.ID(), `{}`)
		client.NextMessage()
	})
}

// A question that no request waits for is not put to an errand that is over at the
// backend, but to one that is not.
func TestParked_AskedPastTheAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(first("1"))
		gh.HandleRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"a","method":"elicitation/create","params":{"message":"A?"}}`)
		ticket := state(t, client, "q1")
		client.Send(first("2"))
		two := gh.HandleRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"b","method":"elicitation/create","params":{"message":"B?"}}`)
		state(t, client, "q1")
		gh.SendResult(two.ID(), `{"content":[]}`) // while it is parked; b was for the first, then
		gh.WantNothing()
		gh.Send(`{"jsonrpc":"2.0","id":"c","method":"elicitation/create","params":{"message":"C?"}}`)
		gh.WantNothing()
		client.Send(retry("3", `{"q1":{"action":"accept"}}`, ticket))
		gh.Want(`{"jsonrpc":"2.0","id":"a","result":{"action":"accept"}}`)
		state(t, client, "q2", "q3")
	})
}

// On a connection that has one stream for everything a question may be another call's: it goes
// to the oldest that has none yet, and on to another when that is taken back.
func TestParked_QuestionsThatNameNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(first("1"))
		one := gh.HandleRequest("tools/call")
		client.Send(first("2"))
		two := gh.HandleRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"a","method":"roots/list"}`)
		synctest.Wait() // it belongs to the first call now
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if note := gh.HandleNotification("notifications/cancelled"); note.RequestID() != one.ID() {
			t.Errorf("told %s", note.Raw())
		}
		m := client.NextMessage() // the question is not lost with it
		if m.ID() != "2" {
			t.Fatalf("asked with %s", m.Raw())
		}
		ticket, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		client.Send(retry("3", `{"q1":{"roots":[]}}`, string(ticket)))
		gh.Want(`{"jsonrpc":"2.0","id":"a","result":{"roots":[]}}`)
		gh.SendResult(two.ID(), `{"content":[]}`)
		client.Want(complete("3", `"content":[]}`))
		gh.WantNothing()
	})
}

// A client that cannot be sent elsewhere is told so, and not in words of another era.
func TestGuest_CannotBeSentElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, `{"elicitation":{}}`)
		client.Send(request("1", "tools/call", `"name":"ask",`, `{"elicitation":{}}`))
		gh.SendError(gh.HandleRequest("tools/call").ID(), `{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","url":"https://a.example/x","message":"m"}]}}`)
		failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
		if failure.Code != -32021 || string(failure.Data) != `{"requiredCapabilities":{"elicitation":{"url":{}}}}` {
			t.Errorf("%+v", failure)
		}
	})
}

// A question that may have been another call's goes to that when its own is over, once: of
// many that end it would be moved by each, and be open for as long.
func TestParked_MovedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		for i := range 3 {
			client.Send(first(fmt.Sprint(i + 1)))
			gh.HandleRequest("tools/call")
			gh.Sendf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"Who?"}}`, i)
			state(t, client, "q1")
			time.Sleep(time.Minute)
		}
		time.Sleep(7*time.Minute + time.Second)
		gh.HandleNotification("notifications/cancelled")
		gh.WantNothing() // the question is the second's now
		time.Sleep(time.Minute)
		gh.Want(`{"jsonrpc":"2.0","id":0,"result":{"action":"cancel"}}`)
		gh.HandleNotification("notifications/cancelled")
		gh.WantNothing()
		time.Sleep(time.Minute)
		for range 2 {
			gh.NextMessage()
		}
		gh.HandleNotification("notifications/cancelled")
		gh.WantNothing()
	})
}

// What a client says of itself in a cancellation is not for the backend.
func TestGuest_CancelsWithoutItsStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(first("1"))
		asked := gh.HandleRequest("tools/call")
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"<é>",` + meta(able, "") + `}}`)
		gh.Want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(asked.ID()) + `,"reason":"<é>"}}`)
	})
}

// What backends answer while nobody waits is kept within a bound; beyond it the client learns
// that there was an answer, and that the call may have run.
func TestParked_AnswersAreKeptWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		large := `{"content":[],"x":"` + strings.Repeat("x", 40<<20) + `"}`
		var tickets []string
		for _, id := range []string{"1", "2"} {
			client.Send(first(id))
			asked := gh.HandleRequest("tools/call")
			gh.Sendf(`{"jsonrpc":"2.0","id":"q%s","method":"roots/list"}`, id)
			tickets = append(tickets, state(t, client, "q1"))
			gh.SendResult(asked.ID(), large)
			gh.NextMessage() // the question is answered all the same
		}
		client.Send(retry("4", `{"q1":{"roots":[]}}`, tickets[1]))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code != -32603 || !strings.Contains(failure.Message, "may have run") {
			t.Errorf("the second: %+v", failure)
		}
		client.Send(retry("3", `{"q1":{"roots":[]}}`, tickets[0]))
		if m := client.NextMessage(); len(m.Part(wire.PartResult)) < 40<<20 {
			t.Errorf("the first: %.100s", m.Raw())
		}
	})
}

// as is a request of the client that says that it is of version n.
func as(n int, request string) string {
	return strings.Replace(request, `"version":"9"`, fmt.Sprintf(`"version":"%d"`, n), 1)
}

// Clients of one principal, however many they say that they are, leave room for others.
func TestGuest_OnePrincipalLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{inFlight: 20_000}, "gh")
		conn, crowd := mcptest.NewPeer(t, "crowd")
		go func() { _ = h.gateway.Serve(t.Context(), "", "crowd", conn) }()
		say := func(p *mcptest.Peer, n int) { // a call that waits for its backend to start
			p.Send(as(n, request(fmt.Sprint(n), "tools/call", `"name":"ask",`, `{}`)))
		}
		for n := range 5000 {
			say(crowd, n)
		}
		crowd.WantNothing()
		say(crowd, 5000)
		if m := crowd.NextMessage(); m.ID() != "5000" || !strings.Contains(string(m.Raw()), "too many different clients") {
			t.Errorf("one more got %s", m.Raw())
		}
		other, alone := mcptest.NewPeer(t, "alone")
		go func() { _ = h.gateway.Serve(t.Context(), "", "alone", other) }()
		say(alone, 1)
		alone.WantNothing()
		crowd.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		say(crowd, 5001) // who has nothing in flight any more makes room, though its connection stays
		crowd.WantNothing()
	})
}

// Members of a client's capabilities that are null are not declared, and no backend is told of them, for
// clients with and without a session.
func TestCapabilitiesThatAreNull_F_DOOR_9(t *testing.T) {
	const declared = `{"roots":{"listChanged":null},"sampling":null,"elicitation":{"form":{},"url":null},"x":[null,{"y":null}],"experimental":{"a":{"b":null,"c":1.0}}}`
	const told = `{"roots":{},"elicitation":{"form":{}},"x":[null,{"y":null}],"experimental":{"a":{"c":1.0}}}`
	for name, first := range map[string]string{
		"with a session":    `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + declared + `,"clientInfo":{"name":"c","version":"1"}}}`,
		"without a session": request("0", "tools/list", "", declared),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, settings{solo: true}, "gh")
				client, _ := h.client()
				client.Send(first)
				gh := h.backend("gh")
				m := gh.HandleRequest("initialize")
				if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) != told {
					t.Errorf("the backend is told %s", got)
				}
			})
		})
	}
}
