package gateway_test

import (
	"testing"
	"testing/synctest"
)

// A resultType of a backend of the session era is none: its answer is complete, whatever
// stands there, and nothing beside it asks for anything.
func TestWords_AResultTypeOfTheSessionEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		for _, of := range []struct{ says, rest string }{
			{`"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"RAW"`,
				`"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"RAW"`},
			{`"n":1.50,"resultType":"input_required","inputRequests":{"a":{"method":"tools/call"}}`, `"n":1.50,"inputRequests":{"a":{"method":"tools/call"}}`},
			{`"resultType":"banana","content":[]`, `"content":[]`},
			{`"resultType":"task","taskId":"K2","status":"working"`, `"taskId":"K2","status":"working"`},
			{`"resultType":5,"content":[]`, `"content":[]`},
			{`"resultType":null,"content":[]`, `"content":[]`},
		} {
			client.Send(first("1"))
			gh.Reply(gh.Asked("tools/call").ID(), `{`+of.says+`}`)
			client.Want(complete("1", of.rest+`}`))
		}
		gh.WantNothing()
	})
}

// In the stateless era there is no ping, at no door. In a session there is.
func TestWords_NoPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := visiting(t, able)
		client.Send(request("1", "ping", "", able))
		client.Want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: ping"}}`)
		client.Send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		gh.WantNothing()
	})
}
