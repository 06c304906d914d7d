package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// callAsTasks makes a client call a tool as a task several times. It returns the client, the
// backend and the calls.
func callAsTasks(t *testing.T, calls int) (client, gh *mcptest.Peer, made []wire.Message) {
	h := newHarness(t, settings{singleClient: true}, "gh")
	client, _ = h.connectClient()
	client.Initialize("2025-11-25")
	gh = h.nextProcess("gh")
	gh.ServeHandshake(
		`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"gh","version":"1"}}`)
	gh.ServeToolsList(mcptest.ToolsResult("x"))
	listTools(t, client)
	for i := range calls {
		client.Sendf(
			`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","task":{}}}`, i)
		made = append(made, gh.WantRequest("tools/call"))
	}
	return client, gh, made
}

func taskStatus(task string, n int) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":%q,"status":"working","statusMessage":"%d"}}`, task, n)
}

// A task status that arrives before the response that creates the task is forwarded after the
// response, if the call of the task is certain.
func TestEarlyStatus_FollowsResponse(t *testing.T) {
	const answer = `{"task":{"taskId":"t","status":"working"}}`
	t.Run("the only call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, gh, made := callAsTasks(t, 1)
			client.Send(toolsCall("9", "x"))
			plain := gh.WantRequest("tools/call")
			gh.Send(taskStatus("t", 1))
			gh.Send(taskStatus("another", 1))
			gh.Send(taskStatus("t", 2))
			client.WantNothing()
			gh.SendResult(made[0].ID(), answer)
			client.Want(`{"jsonrpc":"2.0","id":0,"result":` + answer + `}`)
			client.Want(taskStatus("t", 1))
			client.Want(taskStatus("t", 2))
			gh.Send(taskStatus("t", 3))
			client.Want(taskStatus("t", 3))
			gh.SendResult(plain.ID(), "{}")
			client.Want(`{"jsonrpc":"2.0","id":9,"result":{}}`)
			client.WantNothing()
		})
	})
	t.Run("two calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, gh, made := callAsTasks(t, 2)
			gh.Send(taskStatus("t", 1))                       // may belong to either call
			gh.SendOnStream(made[1].ID(), taskStatus("t", 2)) // belongs to the second call
			gh.SendResult(made[0].ID(), `{"task":{"taskId":"u","status":"working"}}`)
			client.Next()
			client.WantNothing()
			gh.SendResult(made[1].ID(), answer)
			client.Want(`{"jsonrpc":"2.0","id":1,"result":` + answer + `}`)
			client.Want(taskStatus("t", 2))
			client.WantNothing()
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, gh, made := callAsTasks(t, 1)
			gh.Send(taskStatus("t", 1))
			client.WantNothing()
			client.Send(
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
			gh.WantNotification("notifications/cancelled")
			gh.SendResult(made[0].ID(), answer)
			gh.Send(taskStatus("t", 2))
			client.WantNothing()
		})
	})
	t.Run("no task", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, gh, made := callAsTasks(t, 1)
			gh.Send(taskStatus("t", 1))
			client.WantNothing()
			gh.SendResult(made[0].ID(), `{"content":[]}`)
			client.Next()
			client.WantNothing()
		})
	})
}

// The number and the size of early statuses are bounded.
func TestEarlyStatus_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, gh, made := callAsTasks(t, 1)
		long := func(n int) string {
			empty := taskStatus("t", 1)
			return strings.Replace(empty, `Message":"1`,
				`Message":"1`+strings.Repeat("x", n-len(empty)), 1)
		}
		gh.Send(long(8<<10 + 1))
		gh.Send(long(8 << 10))
		for i := range 70 {
			gh.Send(taskStatus("t", i))
		}
		client.WantNothing()
		gh.SendResult(made[0].ID(), `{"task":{"taskId":"t","status":"working"}}`)
		client.Next()
		got := client.TakeAll()
		if len(got) != 64 || got[0] != long(8<<10) || got[63] != taskStatus("t", 62) {
			t.Errorf("%d statuses", len(got))
		}
	})
}
