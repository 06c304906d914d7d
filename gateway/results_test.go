package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// The resultType in a legacy backend's result has no meaning: the result is complete, and its
// input requests are ignored.
func TestResult_LegacyResultTypeIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		for _, of := range []struct{ sent, want string }{
			{`"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"RAW"`,
				`"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"RAW"`},
			{`"n":1.50,"resultType":"input_required","inputRequests":{"a":{"method":"tools/call"}}`,
				`"n":1.50,"inputRequests":{"a":{"method":"tools/call"}}`},
			{`"resultType":"banana","content":[]`, `"content":[]`},
			{`"resultType":"task","taskId":"K2","status":"working"`,
				`"taskId":"K2","status":"working"`},
			{`"resultType":5,"content":[]`, `"content":[]`},
			{`"resultType":null,"content":[]`, `"content":[]`},
		} {
			client.Send(firstRequest("1"))
			gh.SendResult(gh.WantRequest("tools/call").ID(), `{`+of.sent+`}`)
			client.Want(completeResult("1", of.want+`}`))
		}
		gh.WantNothing()
	})
}

// The modern generation has no ping on any transport. The legacy generation has ping.
func TestModernHasNoPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(modernRequest("1", "ping", "", clientCaps))
		client.Want(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: ping"}}`)
		client.Send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		gh.WantNothing()
	})
}

// A backend's error code that has another meaning for a modern client is replaced, because each of
// these codes also has an HTTP status. Only the code for a missing client capability is forwarded,
// if the error lists the required capabilities.
func TestErrorCodesByGeneration(t *testing.T) {
	const needs = `,"data":{"requiredCapabilities":{"sampling":{}}}`
	for _, of := range []struct{ code, data, session, stateless string }{
		{"-32002", "", "-32603", "-32603"},
		// package backends handles this code, and -32022, for modern backends
		{"-32020", "", "-32603", ""},
		{"-32021", "", "-32603", "-32603"},
		{"-32021", needs, "-32021", "-32021"},
		{"-32022", `,"data":{"supported":["2020-01-01"]}`, "-32603", ""},
		{"-32023", "", "-32603", "-32603"},
		{"-32042", "", "-32603", "-32603"},
		{"-32042", `,"data":{"elicitations":[{"message":"m"}]}`, "-32603", "-32603"},
		{"-32000", "", "-32000", "-32000"},
		{"-32700", "", "-32700", "-32700"},
	} {
		for generation, want := range map[string]string{"legacy": of.session,
			"modern": of.stateless} {
			if want == "" {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				h, client, gh := openGeneration(t, generation)
				client.Send(firstRequest("1"))
				gh.SendError(gh.WantRequest("tools/call").ID(),
					`{"code":`+of.code+`,"message":"own words"`+of.data+`}`)
				client.Want(`{"jsonrpc":"2.0","id":1,"error":{"code":` + want +
					`,"message":"own words"` + of.data + `}}`)
				if records := h.auditRecords(); len(records) != 1 ||
					!strings.Contains(records[0], "code="+want) {
					t.Errorf("the audit log has %q", records)
				}
			})
		}
	}
}

// A result that is not an object becomes an error with the result as data, for clients of both
// generations.
func TestNonObjectResult_F_HTTP_11(t *testing.T) {
	for _, sent := range []string{`null`, `"x"`, `[]`, `"resultType"`, `1`} {
		for _, generation := range []string{"legacy", "modern"} {
			t.Run(generation+sent, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, client, gh := openGeneration(t, generation)
					client.Send(firstRequest("1"))
					gh.SendResult(gh.WantRequest("tools/call").ID(), sent)
					text := wire.Quote("the result is not an object: " + sent)
					client.Want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":` +
						string(text) + `,"data":` + sent + `}}`)
					if records := h.auditRecords(); len(records) != 1 ||
						!strings.Contains(records[0], "outcome=rpc_error") {
						t.Errorf("the audit log has %q", records)
					}
				})
			})
		}
	}
}

// openGeneration starts a gateway as openLegacy does, with a backend of the given generation.
func openGeneration(t *testing.T, generation string) (h *harness, client, gh *mcptest.Peer) {
	t.Helper()
	if generation == "legacy" {
		return openLegacy(t, clientCaps)
	}
	h = newHarness(t, settings{generation: map[string]string{"gh": generation}}, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", clientCaps))
	gh = h.nextProcess("gh")
	gh.ServeDiscover("")
	gh.ServeToolsList(mcptest.ToolsResult("ask"))
	client.NextMessage()
	return h, client, gh
}

// The error for an invalid result describes the problem.
func TestResult_InvalidIsReported(t *testing.T) {
	for sent, want := range map[string]string{
		`{"resultType":5}`: `its resultType is not a string: 5`,
		`{"resultType":"complete","resultType":"input_required"}`: `its resultType occurs twice`,
		`{"resultType":""}`:       `its resultType \"\" is not allowed for this request`,
		`{"resultType":"banana"}`: `its resultType \"banana\" is not allowed for this request`,
		`{"resultType":"input_required","inputRequests":null,"requestState":null}`:                                                    `it has neither inputRequests nor a requestState`,
		`{"resultType":"input_required","inputRequests":{"a":{"method":"tools/call","params":{}}}}`:                                   `its inputRequests contain tools/call, which is not allowed there`,
		`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","mode":"zzz"}}}}`: `its inputRequests contain an elicitation of the unknown mode zzz`,
	} {
		for _, generation := range []string{"legacy", "modern"} {
			if generation == "legacy" && sent[0] == '{' {
				continue // the resultType of a legacy backend is ignored
			}
			t.Run(generation+sent, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, client, gh := openGeneration(t, generation)
					client.Send(firstRequest("1"))
					gh.SendResult(gh.WantRequest("tools/call").ID(), sent)
					if got := nextWithoutServerInfo(client); !strings.HasPrefix(got,
						`{"code":-32603,"message":"backend gh: its answer is unusable: `+want+`;`) {
						t.Errorf("got %s\nwant %s", got, want)
					}
					client.WantNothing()
					gh.WantNothing()
				})
			})
		}
	}
}

// If inputRequests is null, it counts as absent: the client gets only the sealed state.
func TestResult_NullInputRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openGeneration(t, "modern")
		client.Send(firstRequest("1"))
		gh.SendResult(gh.WantRequest("tools/call").ID(),
			`{"resultType":"input_required","inputRequests":null,"requestState":"RAW"}`)
		m := client.NextMessage()
		result := wire.EditObject(m.Part(wire.PartResult),
			func(key string) bool { return key == "_meta" })
		ticket, _ := wire.Lookup(result, "requestState")
		if want := `{"requestState":` + string(ticket) +
			`,"resultType":"input_required"}`; string(result) != want ||
			strings.Contains(want, "RAW") {
			t.Errorf("got %s", result)
		}
		client.Send(retryRequest("2", `{}`, string(ticket)))
		again := gh.WantRequest("tools/call")
		if got := paramAt(t, again, "requestState"); got != `"RAW"` {
			t.Errorf("the call was sent again with %s", got)
		}
		gh.SendResult(again.ID(), `{"content":[]}`)
		client.Want(completeResult("2", `"content":[]}`))
	})
}
