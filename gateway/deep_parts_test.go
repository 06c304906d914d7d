package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// deepest returns text, in which "DEEP" is replaced by nested arrays so that a message of one line
// with this text nests as deep as the gateway accepts.
func deepest(text string) string {
	before, after, ok := strings.Cut(text, `"DEEP"`)
	if !ok {
		return text
	}
	open := strings.Count(before, "{") + strings.Count(before, "[") -
		strings.Count(before, "}") - strings.Count(before, "]")
	return before + strings.Repeat("[", 1000-open) + strings.Repeat("]", 1000-open) + after
}

// wantDeep expects a line with these fragments, in which "DEEP" stands for the arrays that deepest
// writes into so many other arrays and objects. The line itself may nest too deep for NextMessage.
// wantDeep returns the line.
func wantDeep(t *testing.T, to *mcptest.Peer, outside int, fragments ...string) []byte {
	t.Helper()
	line := to.Next()
	deep := strings.Repeat("[", 1000-outside) + strings.Repeat("]", 1000-outside)
	for _, fragment := range fragments {
		if !strings.Contains(line, strings.ReplaceAll(fragment, `"DEEP"`, deep)) {
			t.Errorf("got %.300s…, which does not contain %s", line, fragment)
		}
	}
	return []byte(line)
}

// sendDeepResult sends the response to the request in a line.
func sendDeepResult(to *mcptest.Peer, request []byte, result string) {
	id, _ := wire.Lookup(request, "id")
	to.Send(deepest(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`))
}

// A part of a message that nests as deep as the gateway accepts can be put deeper into another
// message, in both directions and for clients of both generations.
func TestDeepPartsAreForwarded(t *testing.T) {
	for result, want := range map[string]string{
		`{"content":[],"structuredContent":"DEEP"}`:                                     `"structuredContent":{"result":"DEEP"}`,
		`{"content":[{"type":"audio","mimeType":"a/b","data":"DEEP"}],"isError":false}`: `"blob":"DEEP"`,
	} {
		synctest.Test(t, func(t *testing.T) { // result of a legacy backend, for a session client
			h := newHarness(t, settings{}, "gh")
			client, _ := h.connectClient()
			client.Initialize("2024-11-05", `{}`)
			gh := h.nextProcess("gh")
			gh.ServeStartup("ask")
			listTools(t, client)
			client.Send(toolsCall("1", "ask"))
			sendDeepResult(gh, []byte(gh.Next()), result)
			outside := 2
			if strings.Contains(result, "audio") {
				outside = 4
			}
			wantDeep(t, client, outside, want)
		})
	}
	synctest.Test(t, func(t *testing.T) { // result of a session client, for a modern backend
		_, client, gh, ofCall := openModern(t, "2025-06-18", `{"elicitation":{}}`)
		gh.SendResult(ofCall.ID(), `{"resultType":"input_required","inputRequests":{"k":`+
			`{"method":"elicitation/create","params":{"message":"m"}}}}`)
		const answer = `{"action":"accept","content":{},"_meta":{"x":"DEEP"}}`
		sendDeepResult(client, []byte(client.Next()), answer)
		again := wantDeep(t, gh, 3, `"inputResponses":{"k":`+answer+`}`)
		sendDeepResult(gh, again, `{"resultType":"complete","content":[]}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
	synctest.Test(t, func(t *testing.T) { // capabilities of a session client, for a modern backend
		h := newHarness(t, settings{singleClient: true,
			generation: map[string]string{"gh": "modern"}}, "gh")
		client, _ := h.connectClient()
		const caps = `"elicitation":{},"experimental":{"x":"DEEP"}`
		client.Send(deepest(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{` +
			`"capabilities":{` + caps + `},"protocolVersion":"2025-06-18",` +
			`"clientInfo":{"name":"c","version":"1"}}}`))
		client.Next()
		client.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		gh := h.nextProcess("gh")
		sendDeepResult(gh, []byte(gh.Next()), mcptest.DiscoverResult)
		sendDeepResult(gh, []byte(gh.Next()), mcptest.ToolsResult("ask"))
		listTools(t, client)
		client.Send(toolsCall("1", "ask"))
		sendDeepResult(gh, wantDeep(t, gh, 4, `"tools/call"`, caps),
			`{"resultType":"complete","content":[]}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
	synctest.Test(t, func(t *testing.T) { // request of a legacy backend, for a stateless client
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		ofCall := gh.WantRequest("tools/call")
		gh.Send(deepest(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create",` +
			`"params":{"message":"m","_meta":{"x":"DEEP"}}}`))
		line := wantDeep(t, client, 3, `"params":{"_meta":{"x":"DEEP"},"message":"[gh] m"`)
		state, _ := wire.Lookup(line, "result", "requestState")
		client.Send(deepest(modernRequest("2", "tools/call",
			`"name":"ask","arguments":{"n":9007199254740993},"requestState":`+string(state)+
				`,"inputResponses":{"q1":{"action":"decline","x":"DEEP"}},`, clientCaps)))
		wantDeep(t, gh, 4, `"result":{"action":"decline","x":"DEEP"}`)
		gh.SendResult(ofCall.ID(), `{"content":[]}`)
		client.Want(completeResult("2", `"content":[]}`))
	})
	synctest.Test(t, func(t *testing.T) { // result of a legacy task, for a stateless client
		_, client, gh := openTaskBackend(t, settings{})
		task := createTask(t, client, gh, "")
		getTask(client, gh, task, `{"taskId":"t1","status":"completed","ttl":60000}`)
		const result = `{"content":[],"_meta":{"x":"DEEP"}}`
		sendDeepResult(gh, []byte(gh.Next()), result)
		wantDeep(t, client, 3, `"result":`+result)
	})
	synctest.Test(t, func(t *testing.T) { // a modern task, in the list of a session client
		client, gh, task := openPolledTask(t)
		client.Send(`{"jsonrpc":"2.0","id":"list","method":"tasks/list"}`)
		sendDeepResult(gh, []byte(gh.Next()), `{"taskId":"t1","status":"working","x":"DEEP"}`)
		wantDeep(t, client, 2, `"tasks":[{`, `"taskId":`+task, `"x":"DEEP"`)
	})
}

// openPolledTask connects a session client to a modern backend whose tool has become a task t1. It
// returns the client's id of the task, as JSON.
func openPolledTask(t *testing.T) (client, gh *mcptest.Peer, task string) {
	t.Helper()
	h := newHarness(t, settings{generation: map[string]string{"gh": "modern"}}, "gh")
	client, _ = h.connectClient()
	client.Initialize("2025-11-25", allClientCaps)
	gh = h.nextProcess("gh")
	gh.ServeDiscover(strings.Replace(mcptest.DiscoverResult, `"tools":{}`,
		`"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1))
	gh.ServeToolsList(mcptest.ToolsResult("ask"))
	listTools(t, client)
	client.Send(callTool("1", "ask", "{}", `,"task":{}`))
	gh.SendResult(gh.WantRequest("tools/call").ID(),
		`{"resultType":"task","taskId":"t1","status":"working"}`)
	id, _ := wire.Lookup(client.NextMessage().Part(wire.PartResult), "task", "taskId")
	return client, gh, string(id)
}
