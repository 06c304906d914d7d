package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/wire"
)

// setRate sets the rate limit of the backend gh, with nothing used of it; "" = no limit.
func setRate(l *ratelimit.RateLimiter, limit config.RateLimit) {
	l.SetBackends(nil)
	l.SetBackends(map[string]config.Rate{"gh": {Limit: limit}})
}

// rateSettings are confirmSettings with a rate limit of the backend gh.
func rateSettings(generation string, limit config.RateLimit) settings {
	o := confirmSettings(generation)
	o.rates = new(ratelimit.RateLimiter)
	setRate(o.rates, limit)
	return o
}

func callGet(id string) string { return toolsCall(id, "get") }

func modernGet(id string) string {
	return modernRequest(id, "tools/call", `"name":"get",`, formCap)
}

// wantLimited expects the error of a request with this id that exceeds a rate limit.
func wantLimited(t *testing.T, client *mcptest.Peer, id, limit, wait string, ms int) {
	t.Helper()
	reason := "the rate limit of " + limit + " is reached: try again in " + wait
	client.Want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":`+
		`"backend gh: %s; the call did not run","data":{"backend":"gh","reason":%q,`+
		`"retryAfterMs":%d}}}`, id, reason, reason, ms))
}

// isLimited reports whether a message is the error of a request that exceeds a rate limit.
func isLimited(m wire.Message) bool {
	failure := wire.ReadError(m.Part(wire.PartError))
	return failure != nil && strings.Contains(failure.Message, "the rate limit of")
}

// A call that exceeds a rate limit is refused at once, in all combinations of generations. The
// backend does not get it. The error says when to try again, and then the call passes.
func TestRates_RefusedCall(t *testing.T) {
	for _, generation := range []string{"legacy", "modern"} {
		for _, modernClient := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				o, call := rateSettings(generation, "2/m"), callGet
				var h *harness
				var client, gh *mcptest.Peer
				if modernClient {
					call = modernGet
					h, client, gh = openStatelessConfirm(t, o)
				} else {
					h, client, gh = openConfirm(t, o, "2025-11-25", formCap)
				}
				for _, id := range []string{"1", "2"} {
					client.Send(call(id))
					gh.SendResult(gh.WantRequest("tools/call").ID(), completed(generation))
					client.NextMessage()
				}
				client.Send(call("3"))
				wantLimited(t, client, "3", "this backend (2/m)", "30.001s", 30001)
				gh.WantNothing()
				time.Sleep(30001 * time.Millisecond)
				client.Send(call("4"))
				gh.SendResult(gh.WantRequest("tools/call").ID(), completed(generation))
				client.NextMessage()
				client.Send(call("5"))
				if m := client.NextMessage(); !isLimited(m) {
					t.Errorf("got %s", m.Raw())
				}
				wantRecord(t, h, `outcome=rejected reason="backend gh: the rate `+
					`limit of this backend (2/m) is reached: try again in 30.001s; the call did not run"`)
				logged := h.log.Lines("rate limit reached")
				if len(logged) != 1 || !strings.Contains(logged[0], "backend=gh") ||
					!strings.Contains(logged[0], "method=tools/call") ||
					!strings.Contains(logged[0], "records=1") {
					t.Errorf("the log has %q", logged)
				}
			})
		}
	}
}

const everyCapability = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},` +
	`"resources":{"subscribe":true},"completions":{},"logging":{},"tasks":{"list":{},"cancel":{},` +
	`"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"x","version":"1"}}`

// openEverything starts a gateway with a backend that has every capability, and opens a session.
// The backend responds to each request; requests receives the methods.
func openEverything(t *testing.T, o settings, who *principal.Principal) (
	client *mcptest.Peer, requests func() []string,
) {
	t.Helper()
	h := newHarness(t, o, "gh")
	client, _ = h.connectAs(who)
	client.Initialize("2025-11-25", `{}`)
	gh := h.nextProcess("gh")
	gh.ServeHandshake(everyCapability)
	requests = func() (methods []string) {
		synctest.Wait()
		for _, line := range gh.TakeAll() {
			m, err := wire.Parse([]byte(line))
			if err != nil || m.Kind() != wire.Request {
				continue
			}
			methods = append(methods, m.Method())
			result := map[string]string{
				"tools/list":               mcptest.ToolsResult("get"),
				"prompts/list":             `{"prompts":[{"name":"p"}]}`,
				"resources/list":           `{"resources":[{"uri":"x:a","name":"a"}]}`,
				"resources/templates/list": `{"resourceTemplates":[]}`,
				"prompts/get":              `{"messages":[]}`,
				"resources/read":           `{"contents":[]}`,
				"completion/complete":      `{"completion":{"values":[]}}`,
				"tasks/list":               `{"tasks":[]}`,
				"tasks/get":                `{"taskId":"t1","status":"working","ttl":60000,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"}`,
				"tasks/result":             `{"content":[]}`,
				"tasks/cancel":             `{"taskId":"t1","status":"cancelled","ttl":60000,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"}`,
			}[m.Method()]
			if m.Method() == "tools/call" {
				result = `{"content":[]}`
				if paramAt(t, m, "task") != "" {
					result = `{"task":{"taskId":"t1","status":"working","ttl":60000,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"}}`
				}
			}
			if result == "" {
				result = `{}`
			}
			gh.SendResult(m.ID(), result)
		}
		synctest.Wait()
		return methods
	}
	for len(requests()) > 0 { // the lists
	}
	listTools(t, client)
	return client, requests
}

// The requests that a backend serves count, and no others. Requests about tasks, and
// resources/unsubscribe, do not use up the limit of calls.
func TestRates_WhatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := principal.FromToken(principal.TokenIdentity{Name: "ann"})
		o := settings{singleClient: true, rates: new(ratelimit.RateLimiter)}
		client, requests := openEverything(t, o, who)
		client.Send(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"get","task":{}}}`)
		requests()
		task, _ := wire.Lookup(client.NextMessage().Part(wire.PartResult), "task", "taskId")
		if len(task) == 0 {
			t.Fatal("no task")
		}
		for _, c := range []struct {
			method, params   string
			counts, forToken bool // for the backend; for the token
		}{
			{"tools/call", `{"name":"get"}`, true, true},
			{"prompts/get", `{"name":"p"}`, true, true},
			{"resources/read", `{"uri":"x:a"}`, true, true},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"}}`, true, true},
			{"resources/subscribe", `{"uri":"x:a"}`, true, true},
			{"logging/setLevel", `{"level":"info"}`, false, true},
			{"resources/unsubscribe", `{"uri":"x:a"}`, false, false},
			{"tasks/get", `{"taskId":` + string(task) + `}`, false, false},
			{"tasks/result", `{"taskId":` + string(task) + `}`, false, false},
			{"tasks/cancel", `{"taskId":` + string(task) + `}`, false, false},
			{"tasks/list", `{}`, false, false},
			{"tools/list", `{}`, false, false},
			{"prompts/list", `{}`, false, false},
			{"resources/list", `{}`, false, false},
			{"resources/templates/list", `{}`, false, false},
			{"ping", `{}`, false, false},
			{"tools/call", `{"name":"unknown"}`, false, false},
			{"prompts/get", `{"name":"unknown"}`, false, false},
		} {
			send := func(id string) { // sends the request, which must pass
				t.Helper()
				client.Sendf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, c.method, c.params)
				requests()
				if m := client.NextMessage(); string(m.ID()) != id || isLimited(m) {
					t.Errorf("%s: got %s", c.method, m.Raw())
				}
			}
			for _, limited := range []string{"backend", "token"} {
				counts := c.counts
				if limited == "token" {
					counts = c.forToken
					o.rates.SetBackends(nil)
					o.rates.SetTokens(nil)
					o.rates.SetTokens(map[string]config.Rate{who.Key(): {Limit: "1/h"}})
				} else {
					o.rates.SetTokens(nil)
					setRate(o.rates, "1/h")
				}
				send("1")
				client.Send(callGet("2"))
				reached := len(requests()) > 0
				if m := client.NextMessage(); isLimited(m) != counts || reached == counts {
					t.Errorf("limit of the %s: after %s, a call gets %s", limited, c.method, m.Raw())
				}
				if !counts { // nor is it refused
					send("3")
				}
			}
		}
	})
}

// All sessions and all requests without a session of one token share its limit. Other tokens are
// not affected.
func TestRates_SessionsShareLimitOfToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := func(name string) *principal.Principal {
			return principal.FromToken(principal.TokenIdentity{Name: name})
		}
		o := rateSettings("legacy", "")
		o.singleClient = false
		o.rates.SetTokens(map[string]config.Rate{"token:ann": {Limit: "3/h"}, "token:bob": {Limit: "1/h"}})
		h := newHarness(t, o, "gh")
		first, _ := h.connectAs(token("ann"))
		first.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		serveTools(gh, "legacy")
		listTools(t, first)
		second, _ := h.connectAs(token("ann"))
		second.Initialize("2025-06-18")
		modern, _ := h.connectAs(token("ann"))
		pass := func(client *mcptest.Peer, call string) {
			t.Helper()
			client.Send(call)
			gh.SendResult(gh.WantRequest("tools/call").ID(), completed("legacy"))
			client.NextMessage()
		}
		pass(first, callGet("1"))
		pass(second, callGet("1"))
		pass(modern, modernGet("1"))
		for _, client := range []*mcptest.Peer{first, second} {
			client.Send(callGet("2"))
			wantLimited(t, client, "2", "this token (3/h)", "20m0.001s", 1200001)
		}
		modern.Send(modernGet("2"))
		wantLimited(t, modern, "2", "this token (3/h)", "20m0.001s", 1200001)
		gh.WantNothing()
		for _, name := range []string{"bob", "eve"} {
			other, _ := h.connectAs(token(name))
			pass(other, modernGet("1"))
		}
		if logged := h.log.Lines("rate limit reached"); len(logged) != 1 ||
			!strings.Contains(logged[0], "principal=ann") {
			t.Errorf("the log has %q", logged)
		}
	})
}

// A limit that a reload removes is no limit for open sessions, and one that it adds applies to
// them.
func TestRates_ReloadAppliesToOpenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := rateSettings("legacy", "1/h")
		_, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		pass := func() {
			t.Helper()
			client.Send(callGet("1"))
			gh.SendResult(gh.WantRequest("tools/call").ID(), completed("legacy"))
			client.NextMessage()
		}
		pass()
		client.Send(callGet("2"))
		wantLimited(t, client, "2", "this backend (1/h)", "1h0m0.001s", 3600001)
		o.rates.SetBackends(nil)
		for range 10 {
			pass()
		}
		setRate(o.rates, "2/h")
		pass()
		pass()
		o.rates.SetBackends(map[string]config.Rate{"gh": {Limit: "60/m"}})
		client.Send(callGet("3"))
		wantLimited(t, client, "3", "this backend (60/m)", "1.001s", 1001)
	})
}

// A call is counted before it is queued: calls beyond the limit do not wait for a start of the
// backend. A cancelled call stays counted.
func TestRates_CallsAreCountedBeforeQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := rateSettings("legacy", "2/h")
		o.stateDir = t.TempDir()
		h, client, gh := openConfirm(t, o, "2025-11-25", formCap)
		gh.Exit("exit 1", "")
		again := h.nextProcess("gh")
		client.Send(callGet("1"))
		client.Send(callGet("2"))
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		client.Send(callGet("3"))
		wantLimited(t, client, "3", "this backend (2/h)", "30m0.001s", 1800001)
		again.ServeHandshake("")
		again.SendResult(again.WantRequest("tools/call").ID(), `{}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		again.ServeToolsList(mcptest.ToolsResult("del_a", "get"))
		again.WantNothing()
	})
}

// A call that the user has to confirm counts once, whether it is confirmed or not.
func TestRates_ConfirmedCallCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, rateSettings("legacy", "2/h"), "2025-11-25", formCap)
		client.Send(callDel("1"))
		client.SendResult(wantQuestion(t, client).ID(), confirmed)
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		client.Send(callDel("2"))
		client.SendResult(wantQuestion(t, client).ID(), `{"action":"decline"}`)
		wantRefusal(t, client, "the user has declined")
		client.Send(callDel("3")) // refused without a question
		wantLimited(t, client, "3", "this backend (2/h)", "30m0.001s", 1800001)
		gh.WantNothing()
	})
	for _, generation := range []string{"legacy", "modern"} {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh := openStatelessConfirm(t, rateSettings(generation, "1/h"))
			client.Send(modernDel("1", ""))
			state := wantInputRequired(t, client, "q1")
			client.Send(modernDel("2", "")) // another call
			wantLimited(t, client, "2", "this backend (1/h)", "1h0m0.001s", 3600001)
			client.Send(retryDel("3", confirmedQ1, state))
			gh.SendResult(gh.WantRequest("tools/call").ID(), completed(generation))
			wantComplete(t, client, "3")
			client.Send(retryDel("4", confirmedQ1, state)) // not a second time
			wantState(t, client)
			gh.WantNothing()
		})
	}
}

// The rounds that the gateway makes for a session client count once together.
func TestRates_RoundsForSessionCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, rateSettings("modern", "1/h"), "2025-11-25", formCap)
		client.Send(callGet("1"))
		for range 3 {
			gh.SendResult(gh.WantRequest("tools/call").ID(), fmt.Sprintf(oneInput, `,"requestState":"S"`))
			client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"accept"}`)
		}
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"resultType":"complete","content":[]}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		client.Send(callGet("2"))
		wantLimited(t, client, "2", "this backend (1/h)", "1h0m0.001s", 3600001)
	})
}

// Each retry of a client of 2026-07-28 is a new request to a modern backend, and counts. A retry
// that is refused leaves its state valid.
func TestRates_RetriesOfStatelessClientCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openStatelessConfirm(t, rateSettings("modern", "1/s"))
		retry := func(id, state string) string {
			return modernRequest(id, "tools/call", `"name":"get","inputResponses":{"x":{"action":"accept"}},"requestState":`+
				state+`,`, formCap)
		}
		client.Send(modernGet("1"))
		gh.SendResult(gh.WantRequest("tools/call").ID(), fmt.Sprintf(oneInput, `,"requestState":"S"`))
		state := wantInputRequired(t, client, "x")
		client.Send(retry("2", state))
		wantLimited(t, client, "2", "this backend (1/s)", "1.001s", 1001)
		time.Sleep(1001 * time.Millisecond)
		client.Send(retry("3", state))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"resultType":"complete","content":[]}`)
		wantComplete(t, client, "3")
		client.Send(retry("4", state))
		wantLimited(t, client, "4", "this backend (1/s)", "1.001s", 1001)
		gh.WantNothing()
	})
}

// A retry that continues a suspended call at a legacy backend is no new request to it, and does not
// count.
func TestRates_SuspendedCallCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{singleClient: true, rates: new(ratelimit.RateLimiter)}
		setRate(o.rates, "1/h")
		h := newHarness(t, o, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", clientCaps))
		gh := h.nextProcess("gh")
		gh.ServeStartup("ask")
		client.NextMessage()
		client.Send(firstRequest("1"))
		call := gh.WantRequest("tools/call")
		for n := range 3 {
			gh.Send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`)
			time.Sleep(time.Second)
			state := wantInputRequired(t, client)
			client.Send(retryRequest("2", fmt.Sprintf(`{"q%d":{"action":"accept","content":{}}}`,
				n+1), state))
			gh.NextMessage()
		}
		gh.SendResult(call.ID(), `{"content":[]}`)
		client.NextMessage()
		client.Send(firstRequest("3"))
		wantLimited(t, client, "3", "this backend (1/h)", "59m57.001s", 3597001)
	})
}

// A call that the gateway itself sends again counts once: here a modern backend has refused the
// form of the request.
func TestRates_RetryOfGatewayCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, rateSettings("modern", "1/h"), "2025-11-25", formCap)
		client.Send(callGet("1"))
		gh.SendError(gh.WantRequest("tools/call").ID(), `{"code":-32020,"message":"no"}`)
		gh.ServeToolsList(mcptest.ToolsResult("del_a", "get"))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"resultType":"complete","content":[]}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		client.Send(callGet("2"))
		wantLimited(t, client, "2", "this backend (1/h)", "1h0m0.001s", 3600001)
	})
}

// Polls of a task do not use up the limit of calls, and calls do not keep a client from the result
// of its task. Polls have a limit of their own, so that they are no way around the limit.
func TestRates_PollsOfTasks(t *testing.T) {
	for _, limit := range []config.RateLimit{"2/h", "50/s"} {
		synctest.Test(t, func(t *testing.T) {
			o := settings{singleClient: true, rates: new(ratelimit.RateLimiter)}
			_, client, gh := openTaskBackend(t, o)
			setRate(o.rates, limit)
			task := createTask(t, client, gh, "")
			passed := 0
			for passed < 5000 {
				client.Send(taskRequest(`"get"`, "tasks/get", task, ""))
				synctest.Wait()
				lines := gh.TakeAll()
				if len(lines) == 0 {
					break
				}
				m, _ := wire.Parse([]byte(lines[0]))
				gh.SendResult(m.ID(), `{"taskId":"t1","status":"working","ttl":60000}`)
				client.NextMessage()
				passed++
			}
			want := max(100, 10*config.Rate{Limit: limit}.Capacity())
			if m := client.NextMessage(); !isLimited(m) || passed != want {
				t.Errorf("%s: after %d polls, want %d, one gets %s", limit, passed, want, m.Raw())
			}
			client.Send(modernRequest("1", "tools/call", `"name":"plain",`, tasksCap))
			gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
			client.NextMessage()
			if limit == "2/h" {
				client.Send(modernRequest("2", "tools/call", `"name":"plain",`, tasksCap))
				if m := client.NextMessage(); !isLimited(m) {
					t.Errorf("a third call gets %s", m.Raw())
				}
			}
			time.Sleep(time.Second)
			client.Send(taskRequest(`"get"`, "tasks/get", task, ""))
			gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"taskId":"t1","status":"completed","ttl":60000}`)
			gh.SendResult(gh.WantRequest("tasks/result").ID(), `{"content":[]}`)
			if m := client.NextMessage(); m.Part(wire.PartResult) == nil {
				t.Errorf("the result of the task is %s", m.Raw())
			}
		})
	}
}

// Each resource of a subscriptions/listen counts. Those beyond the limit are omitted from the
// acknowledgement. If nothing is left, the request ends with the error.
func TestRates_ListenCountsResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{rates: new(ratelimit.RateLimiter)}
		h := newHarness(t, o, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "prompts/list", "", `{}`))
		gh := h.nextProcess("gh")
		gh.ServeHandshake(completionServer)
		for range 4 {
			m := gh.NextMessage()
			gh.SendResult(m.ID(), map[string]string{
				"tools/list": `{"tools":[]}`, "prompts/list": `{"prompts":[]}`,
				"resources/list":           `{"resources":[{"uri":"x:a","name":"a"},{"uri":"x:b","name":"b"},{"uri":"x:c","name":"c"}]}`,
				"resources/templates/list": `{"resourceTemplates":[]}`,
			}[m.Method()])
		}
		client.NextMessage()
		setRate(o.rates, "2/h")
		client.Send(listenFor(`1`, `{"resourceSubscriptions":["x:a","x:b","x:c"]}`))
		for range 2 {
			gh.SendResult(gh.WantRequest("resources/subscribe").ID(), `{}`)
		}
		wantAcknowledged(t, client, `1`, `{"resourceSubscriptions":["x:a","x:b"]}`)
		client.Send(listenFor(`2`, `{"resourceSubscriptions":["x:c"]}`))
		wantLimited(t, client, "2", "this backend (2/h)", "30m0.001s", 1800001)
		gh.WantNothing()
	})
}

// However many clients of both generations call at once, no more than burst + rate × t of their
// calls reach the backend, and each call ends once.
func TestRates_ConcurrentClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := rateSettings("legacy", "100/s")
		o.singleClient, o.inFlight = false, 10_000
		h, _, gh := openConfirm(t, o, "2025-11-25", formCap)
		const clients, calls = 8, 100
		var all sync.WaitGroup
		peers := make([]*mcptest.Peer, clients)
		for i := range peers {
			peers[i], _ = h.connectClient()
			if i%2 == 0 {
				peers[i].Initialize("2025-11-25")
				listTools(t, peers[i])
			}
		}
		began := time.Now()
		for i, p := range peers {
			all.Go(func() {
				for n := range calls {
					if id := fmt.Sprint(n); i%2 == 0 {
						p.Send(callGet(id))
					} else {
						p.Send(modernGet(id))
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		most := 100 + int(100*time.Since(began).Seconds()) + 1
		reached := gh.TakeAll()
		if len(reached) > most || len(reached) < most-2 {
			t.Errorf("%d of %d calls reached the backend, want %d", len(reached), clients*calls, most)
		}
		for _, line := range reached {
			m, _ := wire.Parse([]byte(line))
			gh.SendResult(m.ID(), `{"content":[]}`)
		}
		synctest.Wait()
		limited := 0
		for _, p := range peers {
			lines := p.TakeAll()
			if len(lines) != calls {
				t.Errorf("%d responses to %d calls", len(lines), calls)
			}
			for _, line := range lines {
				if m, _ := wire.Parse([]byte(line)); isLimited(m) {
					limited++
				}
			}
		}
		if limited != clients*calls-len(reached) {
			t.Errorf("%d calls were refused, %d reached the backend", limited, len(reached))
		}
	})
}
