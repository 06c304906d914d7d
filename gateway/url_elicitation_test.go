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

const urlElicitationCap = `{"elicitation":{"url":{}}}`

// startURLElicitation makes a call of a stateless client, to which the backend responds with
// -32042 and two URLs. It returns the ticket for the rerun and a function that builds the client's
// retry.
func startURLElicitation(t *testing.T, client,
	gh *mcptest.Peer) (ticket string, back func(id, responses, ticket string) string) {
	t.Helper()
	client.Send(modernRequest("1", "tools/call", `"name":"ask",`, urlElicitationCap))
	gh.SendError(gh.WantRequest("tools/call").ID(),
		`{"code":-32042,"message":"go","data":{"elicitations":[{"url":"https://a.example/x","message":"Pay"},{"url":"https://a.example/y","message":"Sign in"}]}}`)
	return wantInputRequired(t, client, "q1", "q2"), func(id, responses, ticket string) string {
		return modernRequest(id, "tools/call",
			`"name":"ask","inputResponses":`+responses+`,"requestState":`+ticket+`,`,
			urlElicitationCap)
	}
}

// wantErrorCode expects an error with the given code.
func wantErrorCode(t *testing.T, client *mcptest.Peer, code int) {
	t.Helper()
	if m := client.NextMessage(); wire.ReadError(m.Part(wire.PartError)).Code != code {
		t.Errorf("got %s, want an error %d", m.Raw(), code)
	}
}

const acceptBoth = `{"q1":{"action":"accept"},"q2":{"action":"accept"},"more":17}`

// The call is sent again only once, even if the client sends the ticket several times.
func TestURLElicitation_TicketIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, urlElicitationCap)
		ticket, back := startURLElicitation(t, client, gh)
		for id := range 11 {
			client.Send(back(fmt.Sprint(id+2), acceptBoth, ticket))
		}
		again := gh.WantRequest("tools/call")
		if want := `{"name":"ask","_meta":{}}`; string(again.Part(wire.PartParams)) != want {
			t.Errorf("the call was sent again with %s", again.Part(wire.PartParams))
		}
		gh.WantNothing()
		for range 10 {
			wantErrorCode(t, client, -32602)
		}
		gh.SendResult(again.ID(), `{"content":[]}`)
		client.Want(completeResult("2", `"content":[]}`))
		for i, responses := range []string{acceptBoth, `{}`, `{"q1":{"action":"decline"}}`} {
			client.Send(back(fmt.Sprint(i+20), responses, ticket))
			wantErrorCode(t, client, -32602)
		}
		time.Sleep(10*time.Minute + 2*time.Second) // the used ticket has expired and was removed
		client.Send(back("30", acceptBoth, ticket))
		wantErrorCode(t, client, -32602)
		gh.WantNothing()
	})
}

// Missing responses are not requested again if the client no longer declares the capability. The
// ticket stays valid.
func TestURLElicitation_RetryWithoutCapability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, urlElicitationCap)
		ticket, back := startURLElicitation(t, client, gh)
		client.Send(strings.Replace(back("2", `{}`, ticket), urlElicitationCap, `{"roots":{}}`, 1))
		wantErrorCode(t, client, -32021)
		gh.WantNothing()
		client.Send(back("3", acceptBoth, ticket))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.Want(completeResult("3", `"content":[]}`))
	})
}

// Missing responses are requested again, as for a suspended call. All tickets of the call together
// allow one run.
func TestURLElicitation_MissingResponsesAreRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, urlElicitationCap)
		ticket, back := startURLElicitation(t, client, gh)
		for _, responses := range []string{`{}`, `null`, `17`, `{"x":{"action":"accept"}}`,
			`{"q1":true,"q2":{}}`, `{"q1":{"action":1}}`} {
			client.Send(back("2", responses, ticket))
			wantInputRequired(t, client, "q1", "q2")
		}
		client.Send(back("3", `{"q1":{"action":"accept"},"x":{"action":"accept"}}`, ticket))
		m := client.NextMessage()
		requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
		if want := `{"q2":{"method":"elicitation/create","params":{"mode":"url","message":"[gh] Sign in","url":"https://a.example/y"}}}`; string(requests) != want {
			t.Errorf("the request is %s", requests)
		}
		rest, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		time.Sleep(9 * time.Minute)
		client.Send(back("4", `{}`, string(rest)))
		last := wantInputRequired(t, client, "q2")
		gh.WantNothing()
		client.Send(back("5", `{"q2":{"action":"accept"}}`, last))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.Want(completeResult("5", `"content":[]}`))
		for _, used := range []string{ticket, string(rest), last} {
			client.Send(back("6", acceptBoth, used))
			wantErrorCode(t, client, -32602)
		}
		gh.WantNothing()
	})
}

// The lifetime of the first ticket also applies to the tickets of repeated requests.
func TestURLElicitation_ExpiresAfterTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, urlElicitationCap)
		ticket, back := startURLElicitation(t, client, gh)
		time.Sleep(9 * time.Minute)
		client.Send(back("2", `{}`, ticket))
		ticket = wantInputRequired(t, client, "q1", "q2")
		time.Sleep(2 * time.Minute)
		client.Send(back("3", acceptBoth, ticket))
		wantErrorCode(t, client, -32602)
		gh.WantNothing()
	})
}

// When the user declines one elicitation, the call ends, even if other responses are missing. A
// later acceptance has no effect.
func TestURLElicitation_Declined(t *testing.T) {
	for _, responses := range []string{`{"q1":{"action":"accept"},"q2":{"action":"cancel"}}`,
		`{"q1":{"action":"decline"}}`, `{"q2":{"action":"explode"}}`} {
		synctest.Test(t, func(t *testing.T) {
			_, client, gh := openLegacy(t, urlElicitationCap)
			ticket, back := startURLElicitation(t, client, gh)
			client.Send(back("2", responses, ticket))
			if m := client.NextMessage(); !m.IsToolError() {
				t.Errorf("%s: %s", responses, m.Raw())
			}
			client.Send(back("3", acceptBoth, ticket))
			wantErrorCode(t, client, -32602)
			gh.WantNothing()
		})
	}
}

// startRerunWithTasksFull starts a gateway whose backend creates tasks, makes a call to which the
// backend responds with a URL elicitation, and uses all task slots except the number but. Ask makes
// a call; again contains the params that continue the first call with its ticket.
func startRerunWithTasksFull(t *testing.T,
	but int) (h *harness, client, gh *mcptest.Peer, ask func(id, more string), again string) {
	t.Helper()
	const can = `{"elicitation":{"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	h = newHarness(t, settings{singleClient: true}, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", can))
	gh = h.nextProcess("gh")
	gh.ServeHandshake(tasksHandshake)
	gh.ServeToolsList(jobTools)
	client.Next()
	ask = func(id, more string) {
		client.Send(modernRequest(id, "tools/call", `"name":"job",`+more,
			can))
	}
	ask("1", "")
	gh.SendError(gh.WantRequest("tools/call").ID(),
		`{"code":-32042,"message":"go","data":{"elicitations":[{"url":"https://a.example/x","message":"Pay"}]}}`)
	again = `"inputResponses":{"q1":{"action":"accept"}},"requestState":` +
		wantInputRequired(t, client, "q1") + `,`
	for i := range 4096 - but {
		ask("1", "")
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			fmt.Sprintf(`{"task":{"taskId":"t%d","status":"working","ttl":60000}}`, i))
		nextTaskID(t, client)
	}
	return h, client, gh, ask, again
}

// A ticket counts as used when its call is sent. If there is no slot for the task that the call
// may become, the ticket stays valid.
func TestURLElicitation_TicketSurvivesFullTaskTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, ask, again := startRerunWithTasksFull(t, 0)
		ask("1", again)
		wantErrorCode(t, client, -32603)
		time.Sleep(3 * time.Minute) // the tasks have expired
		ask("1", again)
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.Want(completeResult("1", `"content":[]}`))
		ask("1", again)
		wantErrorCode(t, client, -32602)
		gh.WantNothing()
	})
}

// A call that is rejected because the table of used tickets is full does not keep a task slot.
func TestURLElicitation_UnsentCallReservesNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh, ask, again := startRerunWithTasksFull(t, 1)
		h.gateway.FillUsedTickets(time.Minute)
		ask("1", again)
		wantErrorCode(t, client, -32603)
		ask("1", "")
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"task":{"taskId":"x","status":"working"}}`)
		nextTaskID(t, client)
		time.Sleep(2 * time.Minute)
		ask("1", again)
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.Want(completeResult("1", `"content":[]}`))
	})
}
