package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// wantNobodyAsked has a backend ask and say something on the stream of a request, of which no
// client may hear: what a person is asked is cancelled, the rest refused.
func wantNobodyAsked(t *testing.T, gh *mcptest.Peer, stream wire.ID, clients ...*mcptest.Peer) {
	t.Helper()
	gh.SendOnStream(stream, `{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Delete it?","requestedSchema":{"type":"object"}}}`)
	gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"cancel"}}`)
	gh.SendOnStream(stream, `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
	if got := gh.Next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"r","error":`) {
		t.Errorf("got %s", got)
	}
	for _, client := range clients {
		client.WantNothing()
	}
}

// Two clients that say the same of themselves are one guest. What its backend asks and says on
// the stream of a call of one of them is of that call: when it is over, be it taken back or
// answered, or cannot have any questions, the other client's call hears nothing of it.
func TestStream_OfAGuestsCallThatIsOver(t *testing.T) {
	const logs = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{},"completions":{},"resources":{}},"serverInfo":{"name":"gh","version":"1"}}`
	for sharing, solo := range map[string]bool{"session": false, "shared": false, "": true} {
		t.Run("sharing "+sharing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, settings{sharing: map[string]string{"gh": sharing}, solo: solo}, "gh")
				a, _ := h.client()
				b, _ := h.client()
				say := func(p *mcptest.Peer, request string) {
					p.Send(strings.Replace(request, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1))
				}
				say(a, request("0", "tools/list", "", able))
				gh := h.backend("gh")
				// next is the next call that the backend gets.
				next := func() wire.Message {
					for {
						switch m := gh.NextMessage(); m.Method() {
						case "initialize":
							gh.SendResult(m.ID(), logs)
						case "logging/setLevel":
							gh.SendResult(m.ID(), `{}`)
						case "tools/list":
							gh.SendResult(m.ID(), mcptest.ToolsResult("ask"))
						case "resources/list":
							gh.SendResult(m.ID(), `{"resources":[{"uri":"x:a","name":"a"}]}`)
						case "resources/templates/list":
							gh.SendResult(m.ID(), `{"resourceTemplates":[]}`)
							a.NextMessage()
							say(a, first("1"))
							if sharing == "session" {
								gh = h.backend("gh")
							}
						case "notifications/initialized":
						default:
							return m
						}
					}
				}
				ofA := next()
				say(b, first("2"))
				ofB := next()
				note := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"of a"}}`
				gh.SendOnStream(ofA.ID(), note)
				if sharing != "shared" { // there nobody has said how much it logs
					a.HandleNotification("notifications/message")
				} else {
					a.TakeAll()
				}
				a.Send(cancelFirst)
				gh.HandleNotification("notifications/cancelled")
				gh.SendOnStream(ofA.ID(), note)
				wantNobodyAsked(t, gh, ofA.ID(), a, b)

				say(a, request("3", "completion/complete", `"ref":{"type":"ref/resource","uri":"x:a"},"argument":{"name":"n","value":"v"},`, able))
				completion := next()
				gh.SendOnStream(completion.ID(), note)
				wantNobodyAsked(t, gh, completion.ID(), a, b)
				gh.SendResult(completion.ID(), `{"completion":{"values":[]}}`)
				a.NextMessage()

				say(a, first("4"))
				ofA = next()
				gh.SendResult(ofA.ID(), `{"content":[]}`)
				a.Want(complete("4", `"content":[]}`))
				gh.SendOnStream(ofA.ID(), note)
				wantNobodyAsked(t, gh, ofA.ID(), a, b)

				if sharing != "shared" { // where it was told of no capabilities
					gh.SendOnStream(ofB.ID(), `{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"And b?"}}`)
					state(t, b, "q1")
				}
				a.WantNothing()
			})
		})
	}
}

const cancelFirst = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`

// What is asked on the stream of a session's call that is over is not put to its client in the
// name of another call; what is logged there is the client's all the same, for logs are the
// session's. What names the task that it is about goes by that.
func TestStream_OfASessionsCallThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, settings{solo: true}, "gh")
		client, _ := h.client()
		client.Initialize("2025-11-25", everything)
		gh := h.backend("gh")
		ready(gh, "gh")
		list(t, client)
		client.Send(call("1", "gh"))
		one := gh.HandleRequest("tools/call")
		client.Send(call("2", "gh"))
		gh.HandleRequest("tools/call")
		client.Send(cancelFirst)
		gh.HandleNotification("notifications/cancelled")
		wantNobodyAsked(t, gh, one.ID(), client)
		gh.SendOnStream(one.ID(), `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
		client.HandleNotification("notifications/message")
		gh.SendOnStream(one.ID(), `{"jsonrpc":"2.0","id":"t","method":"roots/list","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"}}}}`)
		client.HandleRequest("roots/list")
	})
}

// What a backend asks on the stream of a call is of that call, though whoever passes the call on has
// put an Asker of his own around the sender's: a queue has, and such questions found no call.
func TestStream_OfACallThatHasTakenItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(first("1"))
		asked := gh.HandleRequest("tools/call")
		gh.SendOnStream(asked.ID(), `{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object"}}}`)
		client.Send(retry("2", `{"q1":{"action":"accept"}}`, state(t, client, "q1")))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
		gh.SendResult(asked.ID(), `{"content":[]}`)
		client.Want(complete("2", `"content":[]}`))
	})
}
