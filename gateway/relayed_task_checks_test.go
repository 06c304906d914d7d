package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

const taskTimes = `"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":60000`

// openRelayedTask starts a gateway whose only backend is modern and has created the task t1 for a
// call of the client. More contains further members of the backend's response. openRelayedTask
// returns the client, the backend, the client's task id as JSON, and the other members of the
// result that the client got.
func openRelayedTask(t *testing.T, more string) (client, gh *mcptest.Peer, task, made string) {
	t.Helper()
	h := newHarness(t, settings{generation: map[string]string{"gh": "modern"}}, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", tasksCap))
	gh = h.nextProcess("gh")
	gh.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `"tools":{}`,
		`"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1))
	gh.ServeToolsList(mcptest.ToolsResult("ask"))
	client.NextMessage()
	client.Send(modernRequest("1", "tools/call", `"name":"ask",`, tasksCap))
	gh.SendResult(gh.WantRequest("tools/call").ID(),
		`{"resultType":"task","taskId":"t1",`+taskTimes+more+`}`)
	m := client.NextMessage()
	rest := wire.EditObject(m.Part(wire.PartResult),
		func(key string) bool { return key == "_meta" || key == "taskId" })
	return client, gh, taskIDIn(t, m), string(rest)
}

// A modern backend's task is forwarded only with allowed members: without an unsealed state, with
// no id except the client's id, and with no terminal status without its outcome.
func TestRelayedTask_ResponsesAreChecked(t *testing.T) {
	const (
		elicit = `{"method":"elicitation/create","params":{"message":"m"}}`
		sample = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`
		roots  = `{"method":"roots/list"}`
	)
	for _, of := range []struct{ sent, want string }{
		{`"resultType":"complete","taskId":"t1","status":"working","x":1.0,` + taskTimes,
			`{"resultType":"complete","taskId":"T","status":"working","x":1.0,` + taskTimes + `}`},
		{`"resultType":"task","taskId":"t1","status":"working"`,
			`{"resultType":"complete","taskId":"T","status":"working"}`},
		{`"taskId":"t9","status":"cancelled"`,
			`{"resultType":"complete","taskId":"T","status":"cancelled"}`},
		{`"status":"working"`, `{"resultType":"complete","taskId":"T","status":"working"}`},
		{`"status":"working","taskId":"t1","taskId":"t1"`, `"taskId" occurs twice in its task`},
		{`"taskId":"t1","status":"completed","result":{ "content":[] ,"n":1.50}`,
			`{"resultType":"complete","taskId":"T","status":"completed","result":{ "content":[] ,"n":1.50}}`},
		{`"taskId":"t1","status":"failed","error":{"code":-32042,"message":"m"}`,
			`{"resultType":"complete","taskId":"T","status":"failed","error":{"code":-32603,"message":"m"}}`},
		{`"taskId":"t1","status":"input_required","inputRequests":{"a":` + elicit + `,"b":` +
			sample + `}`,
			`{"resultType":"complete","taskId":"T","status":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"[gh] m"}},"b":` + sample + `}}`},
		{`"taskId":"t1","status":"working","requestState":"RAW","inputRequests":{"a":` + roots +
			`},"result":{},"error":{}`,
			`{"resultType":"complete","taskId":"T","status":"working"}`},

		{`"resultType":"input_required","inputRequests":{"a":` + elicit + `},"requestState":"RAW"`,
			`its resultType "input_required" is not allowed for this request`},
		{`"resultType":"banana","taskId":"t1","status":"working"`,
			`its resultType "banana" is not allowed for this request`},
		{`"resultType":5,"taskId":"t1","status":"working"`, `its resultType is not a string: 5`},
		{`"taskId":"t1","status":"completed"`,
			`its status is completed, but its result or error is missing`},
		{`"taskId":"t1","status":"completed","result":{"resultType":"input_required","requestState":"RAW"}`, `it has completed with a result that is not complete`},
		{`"taskId":"t1","status":"failed"`,
			`its status is failed, but its result or error is missing`},
		{`"taskId":"t1","status":"banana"`, `its status is \"banana\"`},
		{`"taskId":"t1","status":"input_required"`,
			`it has neither inputRequests nor a requestState`},
		{`"taskId":"t1","status":"input_required","inputRequests":{"a":5}`,
			`an entry of its inputRequests has no method`},
		{`"taskId":"t1","status":"input_required","inputRequests":{"a":{"method":"tools/call","params":{}}}`, `its inputRequests contain tools/call, which is not allowed there`},
		{`"taskId":"t1","status":"input_required","inputRequests":{"a":` + elicit + `,"b":` +
			roots + `}`,
			`{"code":-32021,"message":"Missing client capability: backend gh requests roots/list: the client has not declared the capability roots","data":{"requiredCapabilities":{"roots":{}}}}`},
	} {
		t.Run(of.sent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, gh, task, _ := openRelayedTask(t, `,"status":"working"`)
				getTask(client, gh, task, `{`+of.sent+`}`)
				got := strings.ReplaceAll(nextWithoutServerInfo(client), task, `"T"`)
				switch {
				case of.want[0] == '{':
					if !sameMembers(got, of.want) {
						t.Errorf("got %s\nwant %s", got, of.want)
					}
				case !strings.HasPrefix(got,
					`{"code":-32603,"message":"backend gh: its answer is unusable: `) ||
					!strings.Contains(got, strings.ReplaceAll(strings.ReplaceAll(of.want, `\"`,
						`"`), `"`, `\"`)):
					t.Errorf("got %s\nwant %s", got, of.want)
				}
				client.WantNothing()
				gh.WantNothing()
			})
		})
	}
}

// sameMembers reports whether two objects have the same members, in any order.
func sameMembers(a, b string) bool {
	n := 0
	same := true
	wire.Members([]byte(a), func(key string, value []byte, _ int) {
		other, _ := wire.Lookup([]byte(b), key)
		same = same && string(other) == string(value)
		n++
	})
	wire.Members([]byte(b), func(string, []byte, int) { n-- })
	return same && n == 0
}

// The acknowledgements of tasks/update and tasks/cancel have no input requests, no state and no
// task id except the client's. A result of another type is an error.
func TestRelayedTask_Acknowledgements(t *testing.T) {
	for _, method := range []string{"tasks/update", "tasks/cancel"} {
		for sent, want := range map[string]string{
			`{}`:                                `{"resultType":"complete"}`,
			`{"resultType":"complete","x":1.0}`: `{"resultType":"complete","x":1.0}`,
			`{"taskId":"t1","resultType":"complete"}`:                                                              `{"taskId":"T","resultType":"complete"}`,
			`{"inputRequests":{"a":{"method":"elicitation/create"}},"requestState":"RAW","resultType":"complete"}`: `{"resultType":"complete"}`,
			`{"resultType":"task","taskId":"t77","status":"working"}`:                                              `its resultType \"task\" is not`,
			`{"resultType":"input_required","requestState":"RAW"}`:                                                 `its resultType \"input_required\" is not`,
			`{"resultType":"banana","x":1}`:                                                                        `its resultType \"banana\" is not`,
			`{"resultType":"complete","resultType":"complete"}`:                                                    `\"resultType\" occurs twice in its task`,
			`null`: `{"code":-32603,"message":"the result is not an object: null","data":null}`,
		} {
			t.Run(method+sent, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, gh, task, _ := openRelayedTask(t, `,"status":"working"`)
					client.Send(taskRequest("1", method, task, `"inputResponses":{"a":{}},`))
					gh.SendResult(gh.WantRequest(method).ID(), sent)
					got := strings.ReplaceAll(nextWithoutServerInfo(client), task, `"T"`)
					if want[0] == '{' && got != want ||
						want[0] != '{' && !strings.HasPrefix(got,
							`{"code":-32603,"message":"backend gh: its answer is unusable: `+want) {
						t.Errorf("got %s\nwant %s", got, want)
					}
				})
			})
		}
	}
}

// A CreateTaskResult contains neither an outcome nor input requests.
func TestRelayedTask_CreateTaskResult(t *testing.T) {
	for more, want := range map[string]string{
		`,"status":"working","x":1.0`: `"working","x":1.0`,
		`,"status":"cancelled"`:       `"cancelled"`,
		`,"status":"completed"`:       `"working"`,
		`,"status":"input_required","requestState":"RAW","inputRequests":{"a":{"method":"tools/call"}},"result":{},"error":{}`: `"working"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			_, _, _, made := openRelayedTask(t, more)
			if want := `{"resultType":"task",` + taskTimes + `,"status":` + want + `}`; made !=
				want {
				t.Errorf("got %s\nwant %s", made, want)
			}
		})
	}
}

// A task's input requests are sent to a client only if the current request, which may be a
// subscriptions/listen, declares the required capabilities. Otherwise the client gets an error and
// may retry. Forbidden input requests are sent to no client. The same holds for backends of both
// generations.
func TestRelayedTask_CapabilitiesOfEachRequest(t *testing.T) {
	const less = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	const asks = `{"taskId":"t1","status":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}}`
	synctest.Test(t, func(t *testing.T) {
		client, gh, task, _ := openRelayedTask(t, `,"status":"working"`)
		ask := func(caps string) string {
			client.Send(modernRequest("1", "tasks/get", `"taskId":`+task+`,`, caps))
			gh.SendResult(gh.WantRequest("tasks/get").ID(), asks)
			return nextWithoutServerInfo(client)
		}
		if got := ask(less); !strings.Contains(got, `"code":-32021`) ||
			!strings.Contains(got, `"data":{"requiredCapabilities":{"sampling":{}}}`) {
			t.Errorf("got %s", got)
		}
		if got := ask(tasksCap); !strings.Contains(got,
			`"inputRequests":{"a":{"method":"sampling`) {
			t.Errorf("got %s", got)
		}
		client.Send(modernRequest(`"l"`, "subscriptions/listen",
			`"notifications":{"taskIds":[`+task+`]},`, less))
		gh.SendResult(gh.WantRequest("tasks/get").ID(), asks)
		client.WantNotification("notifications/subscriptions/acknowledged")
		client.WantNothing()
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{"taskId":"t1","status":"cancelled"}`)
		if m := client.WantNotification("notifications/tasks"); !strings.Contains(string(m.Raw()),
			`"cancelled"`) {
			t.Errorf("got %s", m.Raw())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, "")
		getTask(client, gh, task, `{"taskId":"t1","status":"banana"}`)
		if got := nextWithoutServerInfo(client); !strings.Contains(got,
			`"code":-32603,"message":"backend gh: its answer is unusable: its status is`) {
			t.Errorf("got %s", got)
		}
		getTask(client, gh, task, `{"taskId":"t1","status":"input_required"}`)
		gh.WantRequest("tasks/result")
		gh.Send(
			`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`)
		if got := nextWithoutServerInfo(client); !strings.Contains(got, `"inputRequests":{"q1"`) {
			t.Errorf("got %s", got)
		}
		client.Send(modernRequest("1", "tasks/get", `"taskId":`+task+`,`, less))
		gh.SendResult(gh.WantRequest("tasks/get").ID(),
			`{"taskId":"t1","status":"input_required"}`)
		if got := nextWithoutServerInfo(client); !strings.Contains(got, `"code":-32021`) {
			t.Errorf("got %s", got)
		}
	})
}

// A legacy backend that reports a terminal status but no result does not block the client: the
// status is working until the result is known. If a tasks/result that was sent earlier gets no
// response, the gateway sends a new one.
func TestRelayedTask_CompletedWithoutResult(t *testing.T) {
	const ended = `{"taskId":"t1","status":"completed"}`
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, "")
		works := `{"resultType":"complete","status":"working","ttlMs":null,"taskId":` + task + `}`
		began := time.Now()
		getTask(client, gh, task, ended)
		result := gh.WantRequest("tasks/result")
		wantText(t, "unknown", nextWithoutServerInfo(client), works)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("notified after %v", waited)
		}
		getTask(client, gh, task, ended) // a tasks/result sent after the end stays open
		wantText(t, "still unknown", nextWithoutServerInfo(client), works)
		gh.WantNothing()
		gh.SendResult(result.ID(), `{"content":[],"resultType":"input_required","n":1.50}`)
		getTask(client, gh, task, ended)
		wantText(t, "known", nextWithoutServerInfo(client),
			`{"resultType":"complete","result":{"content":[],"resultType":"complete","n":1.50},"status":"completed","ttlMs":null,"taskId":`+task+`}`)
		gh.WantNothing()
	})
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, "")
		works := `{"resultType":"complete","status":"working","ttlMs":null,"taskId":` + task + `}`
		getTask(client, gh, task, `{"taskId":"t1","status":"input_required"}`)
		early := gh.WantRequest("tasks/result")
		wantText(t, "no inputs", nextWithoutServerInfo(client), works)
		getTask(client, gh, task, ended)
		time.Sleep(time.Second / 2)
		client.Send(taskRequest(`"too"`, "tasks/get", task, ""))
		gh.SendResult(gh.WantRequest("tasks/get").ID(), ended)
		wantText(t, "unknown", nextWithoutServerInfo(client), works)
		if m := gh.WantNotification("notifications/cancelled"); m.RequestID() != early.ID() {
			t.Errorf("cancelled %s", m.Raw())
		}
		// for the waiting request
		gh.SendResult(gh.WantRequest("tasks/result").ID(), `{"content":[]}`)
		wantText(t, "known", nextWithoutServerInfo(client),
			`{"resultType":"complete","result":{"content":[]},"status":"completed","ttlMs":null,"taskId":`+task+`}`)
		gh.WantNothing()
	})
}

// The error code of a failed legacy task is translated.
func TestRelayedTask_ErrorCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openTaskBackend(t, settings{singleClient: true})
		task := createTask(t, client, gh, "")
		getTask(client, gh, task, `{"taskId":"t1","status":"failed"}`)
		gh.SendError(gh.WantRequest("tasks/result").ID(),
			`{"code":-32042,"message":"own words","data":{}}`)
		wantText(t, "failed", nextWithoutServerInfo(client),
			`{"resultType":"complete","error":{"code":-32603,"message":"own words","data":{}},"status":"failed","ttlMs":null,"taskId":`+task+`}`)
	})
}

// The result may arrive exactly when one tasks/get gets the status working and another tasks/get
// arrives. Both get a correct response, and the result is requested once.
func TestRelayedTask_EndsDuringPoll(t *testing.T) {
	const ended = `{"taskId":"t1","status":"completed"}`
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh := openTaskBackend(t, settings{singleClient: true})
			task := createTask(t, client, gh, "")
			getTask(client, gh, task, `{"taskId":"t1","status":"input_required"}`)
			early := gh.WantRequest("tasks/result")
			nextWithoutServerInfo(client)
			go func() {
				time.Sleep(time.Second)
				gh.SendResult(early.ID(), `{"content":[]}`)
			}()
			getTask(client, gh, task, ended)
			time.Sleep(time.Second / 2)
			client.Send(taskRequest(`"too"`, "tasks/get", task, ""))
			gh.SendResult(gh.WantRequest("tasks/get").ID(), ended)
			time.Sleep(2 * time.Second)
			gh.TakeAll()
			client.TakeAll()
			client.Send(taskRequest(`"z"`, "tasks/get", task, ""))
			synctest.Wait()
			if m := gh.TakeAll(); len(m) > 0 { // abandoned before it arrived
				return
			}
			wantText(t, "known", nextWithoutServerInfo(client),
				`{"resultType":"complete","result":{"content":[]},"status":"completed","ttlMs":null,"taskId":`+task+`}`)
		})
	}
}
