package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// wantUnusable expects an error of the gateway that names a member.
func wantUnusable(t *testing.T, client *mcptest.Peer, member string) {
	t.Helper()
	m := client.NextMessage()
	e := wire.ReadError(m.Part(wire.PartError))
	ours := strings.HasPrefix(e.Message, "backend gh: its answer is unusable: ")
	if e.Code != -32603 || !ours || !strings.Contains(e.Message, member) {
		t.Errorf("got %s\nwant an error that names %s", m.Raw(), member)
	}
}

// forEachMember runs a test for each case. The error must name the member of the case.
func forEachMember(t *testing.T, of map[string]string,
	test func(t *testing.T, member, sent string)) {
	for sent, member := range of {
		t.Run(sent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, member, sent) })
		})
	}
}

// faultyInputs are members of a result in which a client could read other input requests than the
// gateway.
func faultyInputs() map[string]string {
	const good = `"method":"elicitation/create","params":{"message":"x"}`
	of := map[string]string{
		`"inputRequests":{"a":{` + good +
			`}},"InputRequests":{"a":{"method":"roots/list"}}`: `"InputRequests"`,
		`"InputRequests":{"a":{` + good +
			`}},"requestState":"s"`: `"InputRequests"`,
		`"inputRequests":{"a":{` + good +
			`}},"inputRequest\u017f":{}`: `"inputRequestſ"`,
		`"inputRequests":{"a":{` + good +
			`}},"inputRequests":{}`: `"inputRequests" occurs twice`,
		`"inputRequests":{"a":{` + good +
			`}},"requestState":"s","requestState":"t"`: `"requestState" occurs twice`,
		`"inputRequests":{"a":{` + good +
			`}},"RequestState":"t"`: `"RequestState"`,
		`"inputRequests":{"a":{` + good +
			`}},"ResultType":"complete"`: `"ResultType"`,
	}
	for more, member := range map[string]string{
		`,"Params":{"message":"y"}`: `"Params"`,
		`,"params":{"message":"y"}`: `"params" occurs twice`,
		`,"param\u017f":{}`:         `"paramſ"`, `,"Method":"ping"`: `"Method"`,
		`,"method":"ping"`: `"method" occurs twice`,
	} {
		of[`"inputRequests":{"b":{"method":"elicitation/create","params":{"message":"x"}},"a":{`+
			good+more+`}}`] = member
	}
	for params, member := range map[string]string{
		`{}`: `"message" is missing`, `null`: `"message" is missing`,
		`{"message":null}`:              `"message" in params`,
		`{"message":"x","message":"y"}`: `"message" occurs twice`,
		`{"message":"x","Message":"y"}`: `"Message"`,
	} {
		of[`"inputRequests":{"a":{"method":"elicitation/create","params":`+params+`}}`] = member
	}
	for request, member := range map[string]string{
		`"sampling/createMessage","params":{"messages":[],"name":1,"name":2}`:                         `"name" occurs twice`,
		`"roots/list","params":{"Cursor":1}`:                                                          `"Cursor"`,
		`"elicitation/create","params":{"message":"x","_meta":{"progressToken":1,"progressToken":2}}`: `"progressToken" occurs twice`,
	} {
		of[`"inputRequests":{"a":{"method":`+request+`}}`] = member
	}
	return of
}

// Ambiguous input requests of a modern backend end the call, for stateless clients, session
// clients and tasks.
func TestFaultyInputRequests_F_SEC_5(t *testing.T) {
	forEachMember(t, faultyInputs(), func(t *testing.T, member, sent string) {
		_, client, gh := openGeneration(t, "modern")
		client.Send(firstRequest("1"))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"input_required",`+sent+`}`)
		wantUnusable(t, client, member)
		gh.WantNothing()
	})
	forEachMember(t, faultyInputs(), func(t *testing.T, member, sent string) {
		_, client, gh, ofCall := openModern(t, "2025-11-25", allClientCaps)
		gh.SendResult(ofCall.ID(), `{"resultType":"input_required",`+sent+`}`)
		wantUnusable(t, client, member)
		gh.WantNothing()
	})
	forEachMember(t, faultyInputs(), func(t *testing.T, member, sent string) {
		client, gh, task, _ := openRelayedTask(t, `,"status":"working"`)
		getTask(client, gh, task, `{"taskId":"t1","status":"input_required",`+sent+`}`)
		wantUnusable(t, client, member)
		gh.WantNothing()
	})
	forEachMember(t, faultyInputs(), func(t *testing.T, member, sent string) {
		_, client, gh, ofCall := openModern(t, "2025-11-25", allClientCaps)
		gh.SendResult(ofCall.ID(), `{"resultType":"task","taskId":"t1","status":"working"}`)
		time.Sleep(time.Second)
		gh.SendResult(gh.WantRequest("tasks/get").ID(),
			`{"taskId":"t1","status":"input_required",`+sent+`}`)
		wantUnusable(t, client, member)
	})
}

// A task whose status is not input_required has no inputs: well-formed input requests are removed,
// and ambiguous input requests are rejected.
func TestInputRequestsOfTaskWithoutInputs_F_SEC_5(t *testing.T) {
	const asks = `{"a":{"method":"elicitation/create","params":{"message":"x"}}}`
	for _, status := range []string{`"working"`, `"cancelled"`, `"completed","result":{}`,
		`"failed","error":{}`} {
		synctest.Test(t, func(t *testing.T) {
			client, gh, task, _ := openRelayedTask(t, `,"status":"working"`)
			for _, faulty := range []string{`"InputRequests":` + asks,
				`"inputRequests":` + asks + `,"inputRequests":` + asks} {
				getTask(client, gh, task, `{"taskId":"t1",`+faulty+`,"status":`+status+`}`)
				wantUnusable(t, client, "nputRequests")
			}
			getTask(client, gh, task,
				`{"taskId":"t1","inputRequests":`+asks+`,"requestState":"s","status":`+status+`}`)
			if got := nextWithoutServerInfo(client); strings.Contains(got, "elicitation") ||
				!strings.Contains(got, `"status":`+status) {
				t.Errorf("got %s", got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		client, gh, task, _ := openRelayedTask(t, `,"status":"working"`)
		getTask(client, gh, task, `{"taskId":"t1","status":"completed",`+
			`"result":{"content":[],"ResultType":"input_required","inputRequests":`+asks+`}}`)
		wantUnusable(t, client, `"ResultType"`)
	})
}

// A result that the gateway reads as complete must not have another type for a client.
func TestResultTypeInAnotherCase_F_SEC_5(t *testing.T) {
	for _, generation := range []string{"legacy", "modern"} {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh := openGeneration(t, generation)
			client.Send(firstRequest("1"))
			gh.SendResult(gh.WantRequest("tools/call").ID(),
				`{"content":[],"ResultType":"input_required","re\u017fultType":"task","x":1.0}`)
			client.Want(completeResult("1", `"content":[],"x":1.0}`))
		})
	}
}

// The messages in a URLElicitationRequired error of 2025-11-25 get the backend's label. All other
// bytes of the error are unchanged.
func TestURLElicitationErrors_F_SEC_5(t *testing.T) {
	const failure = `{ "data":{"x":1.0, "elicitations":[ ` +
		`{"mode":"url","elicitationId":"e","url":"https://a.example/x","message" : "\u00e9"} ,` +
		`{"message":"%s","mode":"url"},` +
		`{"message":"%s","mode":"url"}]},"code":-32042,"message":"go" }`
	sent := strings.ReplaceAll(failure, "%s", "")
	newID := strings.Replace(strings.ReplaceAll(failure, "%s", "[gh] "), `"\u00e9"`,
		`"[gh] \u00e9"`, 1)
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, _, ofCall := startCallThatAsks(t, settings{}, allClientCaps)
		gh.SendError(ofCall.ID(), sent)
		client.Want(`{"jsonrpc":"2.0","id":1,"error":` + newID + `}`)
	})
	for _, date := range []string{"2025-11-25", "2025-06-18"} {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh, ofCall := openModern(t, date, `{"elicitation":{}}`)
			gh.SendError(ofCall.ID(), sent)
			client.Want(`{"jsonrpc":"2.0","id":1,"error":` + newID + `}`)
		})
	}
	synctest.Test(t, func(t *testing.T) { // result of a task
		h, _, gh := openTaskBackend(t, settings{})
		a, _ := h.connectClient()
		a.Initialize("2025-11-25", allClientCaps)
		listTools(t, a)
		makeTask(t, a, gh, "job", "t9")
		sendTaskRequest(a, "tasks/result", "t9")
		gh.SendError(gh.WantRequest("tasks/result").ID(), sent)
		a.Want(`{"jsonrpc":"2.0","id":"ask","error":` + newID + `}`)
	})
	for _, plain := range []string{
		`{"code":-32042,"message":"m"}`,
		`{"code":-32042,"message":"m","data":{"elicitations":null}}`,
		`{"code":-32042,"message":"m","data":{"elicitations":[]}}`,
		`{"code":-32602,"message":"m","data":{"elicitations":[{}]}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh, _, ofCall := startCallThatAsks(t, settings{}, allClientCaps)
			gh.SendError(ofCall.ID(), plain)
			client.Want(`{"jsonrpc":"2.0","id":1,"error":` + plain + `}`)
		})
	}
}

// If a URLElicitationRequired error is ambiguous, clients of both generations get an error of the
// gateway.
func TestFaultyURLElicitationErrors_F_SEC_5(t *testing.T) {
	const good = `{"mode":"url","url":"https://a.example/x","message":"m"}`
	of := map[string]string{
		`"code":-32042,"data":{"elicitations":[` + good +
			`],"Elicitations":[]}`: `"Elicitations"`,
		`"code":-32042,"data":{"Elicitations":[` + good +
			`]}`: `"Elicitations"`,
		`"code":-32042,"data":{"elicitations":[` + good +
			`],"elicitations":[]}`: `"elicitations" occurs twice`,
		`"code":-32042,"data":{},"Data":{"elicitations":[` + good +
			`]}`: `"Data"`,
		`"code":-32042,"data":{},"data":{"elicitations":[` + good +
			`]}`: `"data" occurs twice`,
		`"code":-1,"Code":-32042,"data":{"elicitations":[` + good +
			`]}`: `"Code"`,
		`"code":-32042,"data":{"elicitations":` + good +
			`}`: `"elicitations"`,
		`"code":-32042,"data":{"elicitations":[` + good +
			`,{"mode":"url","url":"a:b"}]}`: `"message" is missing`,
		`"code":-32042,"data":{"elicitations":[{"url":"a:b","message":null}]}`:             `"message" in`,
		`"code":-32042,"data":{"elicitations":[{"url":"a:b","message":"m","Message":""}]}`: `"Message"`,
		`"code":-32042,"data":{"elicitations":[{"url":"a:b","message":"m","url":"c:d"}]}`:  `"url" occurs twice`,
		`"code":-32042,"data":{"elicitations":[{"url":"a:b","message":"m","URL":"c:d"}]}`:  `"URL"`,
		`"code":-32042,"data":{"elicitations":[7]}`:                                        `"message" is missing`,
	}
	forEachMember(t, of, func(t *testing.T, member, sent string) {
		_, client, gh, _, ofCall := startCallThatAsks(t, settings{}, allClientCaps)
		gh.SendError(ofCall.ID(), `{"message":"go",`+sent+`}`)
		wantUnusable(t, client, member)
	})
	of[`"code":-32042,"data":{"elicitations":[{"url":"a:b","message":"m","name":1,"name":2}]}`] =
		`"name" occurs twice` // only an input request, not an error, may not have these members
	forEachMember(t, of, func(t *testing.T, member, sent string) {
		_, client, gh := openLegacy(t, urlElicitationCap)
		client.Send(modernRequest("1", "tools/call", `"name":"ask",`, urlElicitationCap))
		gh.SendError(gh.WantRequest("tools/call").ID(), `{"message":"go",`+sent+`}`)
		wantUnusable(t, client, member)
	})
}

// A task with members that must not be in params is returned, but no notification contains it.
func TestNotificationsOfAmbiguousTasks(t *testing.T) {
	for _, more := range []string{`"name":1,"name":2`, `"Level":1`,
		`"progressToken":"` + strings.Repeat("x", 5000) + `"`} {
		synctest.Test(t, func(t *testing.T) { // session client
			client, gh, task := openPolledTask(t)
			client.Send(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":` +
				task + `}}`)
			gh.SendResult(gh.WantRequest("tasks/get").ID(),
				`{"taskId":"t1","status":"completed","result":{"content":[]},`+more+`}`)
			client.Want(`{"jsonrpc":"2.0","id":2,"result":{"_meta":` +
				`{"io.modelcontextprotocol/related-task":{"taskId":` + task + `}},"content":[]}}`)
			client.WantNothing()
		})
		synctest.Test(t, func(t *testing.T) { // stateless client
			client, gh, task, _ := openRelayedTask(t, `,"status":"working"`)
			client.Send(modernRequest(`"sub"`, "subscriptions/listen",
				`"notifications":{"taskIds":[`+task+`]},`, tasksCap))
			client.WantNotification("notifications/subscriptions/acknowledged")
			for _, more := range []string{`"statusMessage":"a"`, more, `"statusMessage":"b"`} {
				gh.SendResult(gh.WantRequest("tasks/get").ID(),
					`{"resultType":"complete","taskId":"t1","status":"working",`+more+`}`)
			}
			m := client.WantNotification("notifications/tasks")
			if text, _ := wire.Lookup(m.Part(wire.PartParams), "statusMessage"); string(text) !=
				`"b"` {
				t.Errorf("got %s", m.Raw())
			}
		})
	}
}

// faultyTasks are members of a task in which a client could read another task.
var faultyTasks = map[string]string{
	`"taskId":"t1","taskId":"theirs","status":"working"`:        `"taskId" occurs twice`,
	`"taskId":"t1","TaskID":"theirs","status":"working"`:        `"TaskID"`,
	`"TASKID":"theirs","status":"working"`:                      `"TASKID"`,
	`"taskId":"t1","ta\u017fkId":"theirs","status":"working"`:   `"taſkId"`,
	`"taskId":"t1","status":"working","status":"completed"`:     `"status" occurs twice`,
	`"taskId":"t1","status":"working","Status":"completed"`:     `"Status"`,
	`"taskId":"t1","status":"working","tas\u212aId":"somebody"`: `differs from "taskId"`,
}

// In a backend's message, a client never reads another task than the gateway does.
func TestFaultyTasks_F_SEC_4(t *testing.T) {
	// Session client, legacy backend.
	opened := func(t *testing.T) (h *harness, client, gh *mcptest.Peer) {
		h, client, _, backends := openTwoClients(t, settings{}, "gh")
		return h, client, backends["gh"]
	}
	forEachMember(t, faultyTasks, func(t *testing.T, member, sent string) {
		h, client, gh := opened(t)
		making := func(result string) {
			client.Send(
				`{"jsonrpc":"2.0","id":"make","method":"tools/call","params":{"name":"gh","task":{}}}`)
			gh.SendResult(gh.WantRequest("tools/call").ID(), result)
		}
		making(`{"task":{` + sent + `}}`)
		wantUnusable(t, client, member)
		making(`{"task":{"taskId":"t1","status":"working"},"Task":{` + sent + `}}`)
		wantUnusable(t, client, `"Task"`)
		making(`{"task":{"taskId":"t1","status":"working"},"task":{` + sent + `}}`)
		wantUnusable(t, client, `"task" occurs twice`)
		makeTask(t, client, gh, "gh", "t1")
		for _, method := range []string{"tasks/get", "tasks/cancel"} {
			sendTaskRequest(client, method, "t1")
			gh.SendResult(gh.WantRequest(method).ID(), `{`+sent+`}`)
			wantUnusable(t, client, member)
		}
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`)
		gh.SendResult(gh.WantRequest("tasks/list").ID(),
			`{"tasks":[{"taskId":"t1","status":"working"},{`+sent+`}]}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"tasks":[]}}`)
		if lines := h.log.Lines("level=WARN", "backend=gh", "listing tasks failed"); len(lines) !=
			1 {
			t.Errorf("logged %q", lines)
		}
		gh.Send(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{` + sent + `}}`)
		client.WantNothing()
	})
	// Session client, modern backend.
	forEachMember(t, faultyTasks, func(t *testing.T, member, sent string) {
		_, client, gh, ofCall := openModern(t, "2025-11-25", allClientCaps)
		gh.SendResult(ofCall.ID(), `{"resultType":"task",`+sent+`}`)
		wantUnusable(t, client, member)
		client.Send(toolsCall("2", "ask"))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"task","taskId":"t1","status":"working"}`)
		time.Sleep(time.Second)
		gh.SendResult(gh.WantRequest("tasks/get").ID(), `{`+sent+`}`)
		wantUnusable(t, client, member)
	})
	// Stateless client, legacy backend.
	forEachMember(t, faultyTasks, func(t *testing.T, member, sent string) {
		_, client, gh := openTaskBackend(t, settings{})
		for _, result := range []string{`{"task":{` + sent + `}}`,
			`{"task":{"taskId":"t1","status":"working"},` + sent + `}`} {
			client.Send(modernRequest(`"make"`, "tools/call", `"name":"job",`, tasksCap))
			gh.SendResult(gh.WantRequest("tools/call").ID(), result)
			wantUnusable(t, client, member)
		}
		task := createTask(t, client, gh, "")
		getTask(client, gh, task, `{`+sent+`}`)
		wantUnusable(t, client, member)
		client.Send(taskRequest("1", "tasks/cancel", task, ""))
		gh.SendResult(gh.WantRequest("tasks/cancel").ID(), `{`+sent+`}`)
		wantUnusable(t, client, member)
	})
	// Stateless client, modern backend.
	forEachMember(t, faultyTasks, func(t *testing.T, member, sent string) {
		client, gh, task, _ := openRelayedTask(t, `,"status":"working"`)
		client.Send(modernRequest("1", "tools/call", `"name":"ask",`, tasksCap))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"resultType":"task",`+sent+`}`)
		wantUnusable(t, client, member)
		getTask(client, gh, task, `{`+sent+`}`)
		wantUnusable(t, client, member)
	})
}
