package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// A client without the required capability gets an error that names the capability, and the call
// is cancelled.
func TestStateless_MissingCapability(t *testing.T) {
	for request, required := range map[string]string{
		`"sampling/createMessage","params":{}`:                                   `{"sampling":{}}`,
		`"sampling/createMessage","params":{"tools":[]}`:                         `{"sampling":{"tools":{}}}`,
		`"sampling/createMessage","params":{"toolChoice":{}}`:                    `{"sampling":{"tools":{}}}`,
		`"elicitation/create","params":{"message":"m","mode":"url","url":"x:y"}`: `{"elicitation":{"url":{}}}`,
		`"elicitation/create","params":{"message":"m"}`:                          `{"elicitation":{"form":{}}}`,
		`"roots/list"`: `{"roots":{}}`,
	} {
		t.Run(request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client, gh := openLegacy(t, `{}`)
				client.Send(modernRequest("1", "tools/call", `"name":"ask",`, `{}`))
				gh.WantRequest("tools/call")
				gh.Send(`{"jsonrpc":"2.0","id":"q","method":` + request + `}`)
				failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
				if failure.Code != -32021 {
					t.Errorf("%+v", failure)
				}
				if got, _ := wire.Lookup(failure.Data, "requiredCapabilities"); string(got) !=
					required {
					t.Errorf("missing %s, want %s", got, required)
				}
				gh.NextMessage() // the request is answered
				gh.WantNotification("notifications/cancelled")
			})
		})
	}
}

// -32042 of 2025-11-25: the user visits the URLs, and the call is sent again.
func TestStateless_URLElicitation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const can = `{"elicitation":{"url":{}}}`
		_, client, gh := openLegacy(t, can)
		first := modernRequest("1", "tools/call", `"name":"ask",`, can)
		client.Send(first)
		gh.SendError(gh.WantRequest("tools/call").ID(),
			`{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a.example/x","message":"Sign in"}]}}`)
		m := client.NextMessage()
		requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
		if want := `{"q1":{"method":"elicitation/create","params":{"mode":"url","message":"[gh] Sign in","url":"https://a.example/x"}}}`; string(requests) != want {
			t.Errorf("the request is %s", requests)
		}
		ticket, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		client.Send(modernRequest("2", "tools/call",
			`"name":"ask","inputResponses":{"q1":{"action":"accept"}},"requestState":`+
				string(ticket)+`,`, can))
		again := gh.WantRequest("tools/call")
		if want := `{"name":"ask","_meta":{}}`; string(again.Part(wire.PartParams)) != want {
			t.Errorf("the call was sent again with %s", again.Part(wire.PartParams))
		}
		gh.SendResult(again.ID(), `{"content":[]}`)
		client.Want(completeResult("2", `"content":[]}`))
		client.Send(modernRequest("3", "tools/call",
			`"name":"ask","inputResponses":{"q1":{"action":"decline"}},"requestState":`+
				string(ticket)+`,`, can))
		if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
			-32602 {
			t.Errorf("a used ticket: %+v", failure)
		}
		gh.WantNothing()
	})
}

// A legacy backend gets the client's capabilities, for any first request of the client. A client
// with other capabilities, or a client that declares them later, gets a separate connection.
func TestStateless_CapabilitiesReachBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "tools/list", "", clientCaps))
		gh := h.nextProcess("gh")
		m := gh.WantRequest("initialize")
		if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) !=
			clientCaps {
			t.Errorf("the backend got %s", got)
		}
		gh.SendResult(m.ID(), mcptest.InitializeResult)
		gh.WantNotification("notifications/initialized")
		gh.ServeToolsList(mcptest.ToolsResult("ask"))
		client.NextMessage()
		client.Send(modernRequest("1", "tools/call", `"name":"ask",`, clientCaps))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{}`)
		client.NextMessage()
		client.Send(modernRequest("2", "tools/call", `"name":"ask",`, `{"roots":{}}`))
		process := h.nextProcess("gh")
		m = process.WantRequest("initialize")
		if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) !=
			`{"roots":{}}` {
			t.Errorf("the other client got %s", got)
		}
		process.SendResult(m.ID(), mcptest.InitializeResult)
		process.WantNotification("notifications/initialized")
		process.SendResult(process.WantRequest("tools/call").ID(), `{}`)
		client.NextMessage()
		gh.WantNothing()
	})
}

// A key of _meta is recognized with any JSON escapes.
func TestStateless_EscapedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		text := strings.ReplaceAll(firstRequest("1"), "io.modelcontextprotocol/",
			`io.modelcontextprotocol\/`)
		client.Send(strings.Replace(text, "clientInfo", `\u0063lientInfo`, 1))
		m := gh.WantRequest("tools/call")
		if got := string(m.Part(wire.PartMeta)); got != `{}` {
			t.Errorf("the backend got the _meta %s", got)
		}
		gh.SendResult(m.ID(), `{}`)
		client.NextMessage()
	})
}

// A client that has not declared URL elicitation gets an error of its own generation.
func TestStateless_URLElicitationUndeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, `{"elicitation":{}}`)
		client.Send(modernRequest("1", "tools/call", `"name":"ask",`, `{"elicitation":{}}`))
		gh.SendError(gh.WantRequest("tools/call").ID(),
			`{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","url":"https://a.example/x","message":"m"}]}}`)
		failure := wire.ReadError(client.NextMessage().Part(wire.PartError))
		if failure.Code != -32021 || string(failure.Data) !=
			`{"requiredCapabilities":{"elicitation":{"url":{}}}}` {
			t.Errorf("%+v", failure)
		}
	})
}

// The client metadata of a cancellation is not forwarded.
func TestStateless_CancellationWithoutMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"<é>",` + modernMeta(clientCaps, "") + `}}`)
		gh.Want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` +
			string(asked.ID()) + `,"reason":"<é>"}}`)
	})
}

// The clients of one principal leave room for other principals, even if the principal uses many
// client infos.
func TestStateless_PerPrincipalLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{inFlight: 20_000}, "gh")
		conn, many := mcptest.NewPeer(t, "crowd")
		go func() { _ = h.gateway.Serve(t.Context(), "", named("crowd"), conn) }()
		send := func(p *mcptest.Peer, n int) { // a call waiting for its backend to start
			p.Send(withClientVersion(n, modernRequest(fmt.Sprint(n), "tools/call", `"name":"ask",`,
				`{}`)))
		}
		for n := range 5000 {
			send(many, n)
		}
		many.WantNothing()
		send(many, 5000)
		if m := many.NextMessage(); m.ID() != "5000" ||
			!strings.Contains(string(m.Raw()), "too many different clients") {
			t.Errorf("the next client got %s", m.Raw())
		}
		other, alone := mcptest.NewPeer(t, "alone")
		go func() { _ = h.gateway.Serve(t.Context(), "", named("alone"), other) }()
		send(alone, 1)
		alone.WantNothing()
		many.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		send(many, 5001) // an idle client is evicted although its connection is open
		many.WantNothing()
	})
}

// Null members of a client's capabilities count as undeclared and are not sent to backends, for
// session and stateless clients.
func TestNullCapabilities_F_DOOR_9(t *testing.T) {
	const declared = `{"roots":{"listChanged":null},"sampling":null,"elicitation":{"form":{},"url":null},"x":[null,{"y":null}],"experimental":{"a":{"b":null,"c":1.0}}}`
	const sent = `{"roots":{},"elicitation":{"form":{}},"x":[null,{"y":null}],"experimental":{"a":{"c":1.0}}}`
	for name, first := range map[string]string{
		"session":   `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + declared + `,"clientInfo":{"name":"c","version":"1"}}}`,
		"stateless": modernRequest("0", "tools/list", "", declared),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, settings{singleClient: true}, "gh")
				client, _ := h.connectClient()
				client.Send(first)
				gh := h.nextProcess("gh")
				m := gh.WantRequest("initialize")
				if got, _ := wire.Lookup(m.Part(wire.PartParams), "capabilities"); string(got) !=
					sent {
					t.Errorf("the backend got %s", got)
				}
			})
		})
	}
}
