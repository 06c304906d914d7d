package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// wantNotDelivered sends requests and notifications on the stream of a request, and checks that no
// client gets them: elicitations are cancelled, and other requests are rejected.
func wantNotDelivered(t *testing.T, gh *mcptest.Peer, stream wire.ID, clients ...*mcptest.Peer) {
	t.Helper()
	gh.SendOnStream(stream,
		`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Delete it?","requestedSchema":{"type":"object"}}}`)
	gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"cancel"}}`)
	gh.SendOnStream(stream, `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
	if got := gh.Next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"r","error":`) {
		t.Errorf("got %s", got)
	}
	for _, client := range clients {
		client.WantNothing()
	}
}

// Two clients with equal metadata share a statelessClient. Messages on the stream of a call belong
// to that call. If that call was cancelled or has a response, the call of the other client gets
// none of these messages. The same applies if the method of the call allows no input requests,
// but then log messages are sent to the call's own client.
func TestOrigin_StreamOfEndedStatelessCall(t *testing.T) {
	const logs = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{},"completions":{},"resources":{}},"serverInfo":{"name":"gh","version":"1"}}`
	for sharing, solo := range map[string]bool{"session": false, "shared": false, "": true} {
		t.Run("sharing "+sharing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, settings{sharing: map[string]string{"gh": sharing},
					singleClient: solo}, "gh")
				a, _ := h.connectClient()
				b, _ := h.connectClient()
				send := func(p *mcptest.Peer, request string) { p.Send(withLogLevel(request)) }
				send(a, modernRequest("0", "tools/list", "", clientCaps))
				gh := h.nextProcess("gh")
				// next returns the backend's next call.
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
							send(a, firstRequest("1"))
							if sharing == "session" {
								gh = h.nextProcess("gh")
							}
						case "notifications/initialized":
						default:
							return m
						}
					}
				}
				callOfA := next()
				send(b, firstRequest("2"))
				callOfB := next()
				note := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"of a"}}`
				gh.SendOnStream(callOfA.ID(), note)
				if sharing != "shared" { // no log level is set on the shared connection
					a.WantNotification("notifications/message")
				} else {
					a.TakeAll()
				}
				a.Send(cancelRequest1)
				gh.WantNotification("notifications/cancelled")
				gh.SendOnStream(callOfA.ID(), note)
				wantNotDelivered(t, gh, callOfA.ID(), a, b)

				send(a, modernRequest("3", "completion/complete",
					`"ref":{"type":"ref/resource","uri":"x:a"},"argument":{"name":"n","value":"v"},`, clientCaps))
				completion := next()
				gh.SendOnStream(completion.ID(), note)
				if sharing != "shared" {
					a.WantNotification("notifications/message")
				} else {
					a.TakeAll()
				}
				wantNotDelivered(t, gh, completion.ID(), a, b)
				gh.SendResult(completion.ID(), `{"completion":{"values":[]}}`)
				a.NextMessage()

				send(a, firstRequest("4"))
				callOfA = next()
				gh.SendResult(callOfA.ID(), `{"content":[]}`)
				a.Want(completeResult("4", `"content":[]}`))
				gh.SendOnStream(callOfA.ID(), note)
				wantNotDelivered(t, gh, callOfA.ID(), a, b)

				if sharing != "shared" { // a shared connection declares no capabilities
					gh.SendOnStream(callOfB.ID(),
						`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"And b?"}}`)
					wantInputRequired(t, b, "q1")
				}
				a.WantNothing()
			})
		})
	}
}

const cancelRequest1 = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`

// A request on the stream of an ended call of a session client is not assigned to another call. A
// log message on this stream is sent to the client, because the message belongs to the session. A
// request that names a task belongs to the task.
func TestOrigin_StreamOfEndedSessionCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", allClientCaps)
		gh := h.nextProcess("gh")
		serveFullStartup(gh, "gh")
		listTools(t, client)
		client.Send(toolsCall("1", "gh"))
		one := gh.WantRequest("tools/call")
		client.Send(toolsCall("2", "gh"))
		gh.WantRequest("tools/call")
		client.Send(cancelRequest1)
		gh.WantNotification("notifications/cancelled")
		wantNotDelivered(t, gh, one.ID(), client)
		gh.SendOnStream(one.ID(),
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
		client.WantNotification("notifications/message")
		gh.SendOnStream(one.ID(),
			`{"jsonrpc":"2.0","id":"t","method":"roots/list","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"}}}}`)
		client.WantRequest("roots/list")
	})
}

// A request on a call's stream belongs to that call even if the call's handler is wrapped. A queue
// that wrapped handlers once caused such requests to belong to no call.
func TestOrigin_StreamOfReplacedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openLegacy(t, clientCaps)
		client.Send(firstRequest("1"))
		asked := gh.WantRequest("tools/call")
		gh.SendOnStream(asked.ID(),
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object"}}}`)
		client.Send(retryRequest("2", `{"q1":{"action":"accept"}}`,
			wantInputRequired(t, client, "q1")))
		gh.Want(`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`)
		gh.SendResult(asked.ID(), `{"content":[]}`)
		client.Want(completeResult("2", `"content":[]}`))
	})
}

// withLogLevel returns the modern request with the log level debug in its _meta.
func withLogLevel(request string) string {
	return strings.Replace(request, `"_meta":{`,
		`"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1)
}

// startWithLogs starts a backend that has logging, the tool ask and the prompt p with completions.
func startWithLogs(h *harness, name, generation string) *mcptest.Peer {
	p := h.nextProcess(name)
	const caps = `"capabilities":{"tools":{},"prompts":{},"logging":{},"completions":{}}`
	if generation == "modern" {
		p.ServeDiscover(`{"resultType":"complete","supportedVersions":["2026-07-28"],` + caps +
			`,"ttlMs":0,"cacheScope":"public"}`)
	} else {
		p.ServeHandshake(`{"protocolVersion":"2025-11-25",` + caps +
			`,"serverInfo":{"name":"gh","version":"1"}}`)
	}
	for lists := 0; lists < 2; {
		switch m := p.NextMessage(); m.Method() {
		case "tools/list":
			lists++
			p.SendResult(m.ID(), mcptest.ToolsResult("ask"))
		case "prompts/list":
			lists++
			p.SendResult(m.ID(), `{"prompts":[{"name":"p"}]}`)
		default:
			p.SendResult(m.ID(), "{}") // logging/setLevel
		}
	}
	return p
}

// nextCall returns the next request to a backend that is not logging/setLevel.
func nextCall(p *mcptest.Peer) wire.Message {
	m := p.NextMessage()
	for ; m.Method() == "logging/setLevel"; m = p.NextMessage() {
		p.SendResult(m.ID(), "{}")
	}
	return m
}

const (
	logNote        = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"x"}}`
	completePrompt = `"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"}`
)

// Two HTTP clients with equal metadata share a statelessClient. While both have a call at a
// program, a log message may belong to the call of either, and is not delivered.
func TestUncertainLog_NotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{drain: time.Second}, "gh")
		list, _ := h.serveRequest(withLogLevel(modernRequest("0", "tools/list", "", clientCaps)))
		gh := startWithLogs(h, "gh", "")
		list.next()
		open := func(request string) (exchange, wire.Message) {
			e, _ := h.serveRequest(withLogLevel(request))
			return e, nextCall(gh)
		}
		wantLog := func(e exchange) {
			t.Helper()
			if got := e.next(); !strings.Contains(got, "notifications/message") {
				t.Errorf("the only call got %q", got)
			}
		}
		a, _ := open(firstRequest("1"))
		gh.Send(logNote)
		wantLog(a)
		b, callOfB := open(firstRequest("1"))
		gh.Send(logNote)
		if got := a.next() + b.next(); got != "" {
			t.Errorf("one of two calls got %s", got)
		}
		gh.SendOnStream(callOfB.ID(), `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		time.Sleep(time.Second)
		if got := b.next(); !strings.Contains(got, "input_required") {
			t.Errorf("b got %s", got)
		}
		gh.Send(logNote) // the call of b is suspended
		if got := a.next(); got != "" {
			t.Errorf("the call of a got %s", got)
		}
		gh.SendResult(callOfB.ID(), `{"content":[]}`)
		gh.NextMessage() // the error response to roots/list
		gh.Send(logNote)
		wantLog(a)
		c, _ := open(modernRequest("1", "completion/complete", completePrompt+",", clientCaps))
		gh.Send(logNote)
		if got := a.next() + c.next(); got != "" {
			t.Errorf("a call or a completion got %s", got)
		}
		h.gateway.ShutDownRequests()
	})
}

// A log message that may belong to any of several calls of one connection is sent on it.
func TestUncertainLog_OneConnection_Delivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "gh")
		client, _ := h.connectClient()
		client.Send(withLogLevel(modernRequest("0", "tools/list", "", clientCaps)))
		gh := startWithLogs(h, "gh", "")
		time.Sleep(time.Second)
		client.TakeAll()
		for _, request := range []string{firstRequest("1"), firstRequest("2"),
			modernRequest("3", "completion/complete", completePrompt+",", clientCaps)} {
			client.Send(withLogLevel(request))
			nextCall(gh)
			gh.Send(logNote)
			client.WantNotification("notifications/message")
		}
		client.WantNothing()
	})
}

// A log message during completion/complete is sent to the client, of either generation, on the
// stream of the request or on a pipe.
func TestLogOfCompletion_Delivered(t *testing.T) {
	for _, backend := range []string{"modern", "legacy", "pipe"} {
		for _, client := range []string{"modern", "legacy"} {
			t.Run(backend+" backend, "+client+" client", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { logOfCompletion(t, backend, client) })
			})
		}
	}
}

func logOfCompletion(t *testing.T, backend, client string) {
	generation := map[string]string{"gh": "legacy"}
	if backend == "modern" {
		generation["gh"] = "modern"
	}
	h := newHarness(t, settings{singleClient: true, generation: generation}, "gh")
	p, _ := h.connectClient()
	complete := `{"jsonrpc":"2.0","id":7,"method":"completion/complete","params":{` +
		completePrompt + `}}`
	if client == "modern" {
		complete = withLogLevel(modernRequest("7", "completion/complete", completePrompt+",", "{}"))
		p.Send(withLogLevel(modernRequest("0", "prompts/list", "", "{}")))
	} else {
		p.Initialize("2025-11-25")
	}
	gh := startWithLogs(h, "gh", generation["gh"])
	time.Sleep(time.Second)
	p.TakeAll()
	p.Send(complete)
	call := nextCall(gh)
	if backend == "pipe" {
		gh.Send(logNote)
	} else {
		gh.SendOnStream(call.ID(), logNote)
	}
	p.WantNotification("notifications/message")
	p.WantNothing()
}
