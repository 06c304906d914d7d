package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
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

// No client of the stateless era is told a code that means something else there than what
// the backend means by it: over HTTP each has a status, too. It says the one thing that such
// a code may say of a client, that it has not declared what the call needs.
func TestWords_Codes(t *testing.T) {
	const needs = `,"data":{"requiredCapabilities":{"sampling":{}}}`
	for _, of := range []struct{ code, data, session, stateless string }{
		{"-32002", "", "-32603", "-32603"},
		{"-32020", "", "-32603", ""}, // in the stateless era package backends sees to that, and to -32022
		{"-32021", "", "-32603", "-32603"},
		{"-32021", needs, "-32603", "-32021"},
		{"-32022", `,"data":{"supported":["2020-01-01"]}`, "-32603", ""},
		{"-32023", "", "-32603", "-32603"},
		{"-32042", "", "-32603", "-32603"},
		{"-32042", `,"data":{"elicitations":[{}]}`, "-32603", "-32603"},
		{"-32000", "", "-32000", "-32000"},
		{"-32700", "", "-32700", "-32700"},
	} {
		for era, want := range map[string]string{"legacy": of.session, "modern": of.stateless} {
			if want == "" {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				h, client, gh := visited(t, era)
				client.Send(first("1"))
				gh.Fail(gh.Asked("tools/call").ID(), `{"code":`+of.code+`,"message":"own words"`+of.data+`}`)
				client.Want(`{"jsonrpc":"2.0","id":1,"error":{"code":` + want + `,"message":"own words"` + of.data + `}}`)
				if records := h.audit(); len(records) != 1 || !strings.Contains(records[0], "code="+want) {
					t.Errorf("the audit log has %q", records)
				}
			})
		}
	}
}

// visited is visiting with a backend of some era.
func visited(t *testing.T, era string) (h *house, client, gh *mcptest.Peer) {
	t.Helper()
	if era == "legacy" {
		return visiting(t, able)
	}
	h = newHouse(t, settings{era: map[string]string{"gh": era}}, "gh")
	client, _ = h.client()
	client.Send(request("0", "tools/list", "", able))
	gh = h.backend("gh")
	gh.Discover("")
	gh.List(mcptest.Tools("ask"))
	client.Message()
	return h, client, gh
}
