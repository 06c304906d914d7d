package gateway_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
)

// callsFromOneClient starts a gateway whose only backend has a process per statelessClient. One
// client makes several calls, one after another. callsFromOneClient returns the client's process.
func callsFromOneClient(t *testing.T, calls int) (client, process *mcptest.Peer) {
	t.Helper()
	h := newHarness(t, settings{sharing: map[string]string{"gh": "session"}}, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "tools/list", "", clientCaps))
	h.nextProcess("gh").ServeStartup("ask")
	client.NextMessage()
	for n := range calls {
		client.Send(firstRequest(fmt.Sprint(n + 1)))
		if process == nil {
			process = h.nextProcess("gh")
			process.ServeHandshake(
				`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"gh","version":"1"}}`)
		}
		process.SendResult(process.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.NextMessage()
	}
	return client, process
}

// A statelessClient and its per-session connections are closed idleTTL after its last call, for
// any number of calls.
func TestStateless_ClosedAfterIdleTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, process := callsFromOneClient(t, 3)
		client.Close()
		time.Sleep(4 * time.Minute)
		process.WantNothing()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !process.Disconnected() {
			t.Error("six minutes after the client's last call its process still runs")
		}
	})
}

// A statelessClient and its process last as long as the client's connection.
func TestStateless_KeptByConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, process := callsFromOneClient(t, 1)
		time.Sleep(time.Hour)
		client.Send(firstRequest("9"))
		process.SendResult(process.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.Want(completeResult("9", `"content":[]}`))
	})
}

// A connection retains only the statelessClients that were used last. If the metadata differ in
// each request, the earlier statelessClients expire after idleTTL.
func TestStateless_ManyOnOnePipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _, callFrom := callsFromManyClients(t, settings{})
		var processes []*mcptest.Peer
		for n := range 20 {
			processes = append(processes, callFrom(n, nil))
			time.Sleep(time.Second)
		}
		callFrom(0, processes[0])   // the connection now retains 13 to 19 and 0
		time.Sleep(4 * time.Minute) // all clients were used less than idleTTL ago
		for n, p := range processes {
			if p.Disconnected() {
				t.Errorf("the process of client %d exited too early", n)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for n, p := range processes {
			if kept := n >= 13 || n == 0; p.Disconnected() == kept {
				t.Errorf("the process of client %d: exited is %t", n, p.Disconnected())
			}
		}
		client.Close()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		for n, p := range processes {
			if !p.Disconnected() {
				t.Errorf("the process of client %d still runs", n)
			}
		}
	})
}

// A statelessClient with a call in flight, a suspended call or a subscription is kept, even if its
// connection has used many other statelessClients since then. It is closed when it is unused.
func TestStateless_OnPipeKeptWhileInUse(t *testing.T) {
	const (
		calls = iota
		completes
		parks
		listens
		idles
	)
	synctest.Test(t, func(t *testing.T) {
		client, h, callFrom := callsFromManyClients(t, settings{})
		processes := make([]*mcptest.Peer, idles+1)
		for n := range processes {
			processes[n] = callFrom(n, nil)
		}
		client.Send(withClientVersion(calls, firstRequest(`"call"`)))
		call := processes[calls].WantRequest("tools/call")
		client.Send(withClientVersion(completes,
			modernRequest(`"complete"`, "completion/complete",
				`"ref":{"type":"ref/resource","uri":"x:a"},"argument":{"name":"n","value":"v"},`,
				clientCaps)))
		completion := processes[completes].WantRequest("completion/complete")
		client.Send(withClientVersion(parks, firstRequest(`"park"`)))
		suspended := processes[parks].WantRequest("tools/call")
		processes[parks].Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		ticket := wantInputRequired(t, client, "q1")
		client.Send(withClientVersion(listens,
			modernRequest(`"L"`, "subscriptions/listen",
				`"notifications":{"resourceSubscriptions":["x:a"]},`, clientCaps)))
		processes[listens].SendResult(processes[listens].WantRequest("resources/subscribe").ID(),
			`{}`)
		wantAcknowledged(t, client, `"L"`, `{"resourceSubscriptions":["x:a"]}`)

		for n := range 20 {
			callFrom(100+n, nil)
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if !processes[idles].Disconnected() {
			t.Error("the idle client's process still runs")
		}
		processes[calls].SendResult(call.ID(), `{"content":[]}`)
		client.Want(completeResult(`"call"`, `"content":[]}`))
		processes[completes].SendResult(completion.ID(), `{"completion":{"values":[]}}`)
		client.Want(completeResult(`"complete"`, `"completion":{"values":[]}}`))
		client.Send(withClientVersion(parks, retryRequest(`"again"`, `{"q1":{"roots":[]}}`,
			ticket)))
		processes[parks].Want(`{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`)
		processes[parks].SendResult(suspended.ID(), `{"content":[]}`)
		client.Want(completeResult(`"again"`, `"content":[]}`))
		processes[listens].Send(
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`)
		client.Want(resourceUpdated(`"L"`, "x:a"))
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"L"}}`)
		processes[listens].SendResult(processes[listens].WantRequest("resources/unsubscribe").ID(),
			`{}`)

		for n := range 20 {
			callFrom(200+n, nil)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		for n, p := range processes {
			if !p.Disconnected() {
				t.Errorf("the process of client %d still runs", n)
			}
		}
		if n := h.gateway.SuspendedCalls(); n != 0 {
			t.Errorf("%d calls are suspended", n)
		}
	})
}

// The number of statelessClients, and therefore of their processes, is bounded: a new
// statelessClient replaces an idle one.
func TestStateless_IdleClientsAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _, callFrom := callsFromManyClients(t, settings{maxStatelessClients: 3})
		processes := []*mcptest.Peer{callFrom(0, nil)}
		client.Send(withClientVersion(0, firstRequest(`"call"`)))
		call := processes[0].WantRequest("tools/call")
		for n := range 20 {
			processes = append(processes, callFrom(n+1, nil))
			synctest.Wait()
			running := 0
			for _, p := range processes {
				if !p.Disconnected() {
					running++
				}
			}
			if running > 3 {
				t.Fatalf("%d processes run for 3 clients", running)
			}
		}
		processes[0].SendResult(call.ID(), `{"content":[]}`)
		client.Want(completeResult(`"call"`, `"content":[]}`))
	})
}

// callsFromManyClients starts a gateway whose only backend has a process per statelessClient, and
// connects to the gateway. The returned function makes a call of one of many clients and returns
// the client's process. The argument is the client's current process; nil = none.
func callsFromManyClients(t *testing.T,
	o settings) (client *mcptest.Peer, h *harness,
	callFrom func(n int, process *mcptest.Peer) *mcptest.Peer) {
	t.Helper()
	const greeting = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"completions":{},"resources":{"subscribe":true}},"serverInfo":{"name":"gh","version":"1"}}`
	o.sharing = map[string]string{"gh": "session"}
	h = newHarness(t, o, "gh")
	client, _ = h.connectClient()
	client.Send(modernRequest("0", "prompts/list", "", clientCaps))
	p := h.nextProcess("gh")
	p.ServeHandshake(greeting)
	for range 3 {
		switch m := p.NextMessage(); m.Method() {
		case "tools/list":
			p.SendResult(m.ID(), mcptest.ToolsResult("ask"))
		case "resources/list":
			p.SendResult(m.ID(), `{"resources":[{"uri":"x:a","name":"a"}]}`)
		case "resources/templates/list":
			p.SendResult(m.ID(), `{"resourceTemplates":[]}`)
		}
	}
	client.NextMessage()
	return client, h, func(n int, process *mcptest.Peer) *mcptest.Peer {
		t.Helper()
		id := fmt.Sprint(n + 1)
		client.Send(withClientVersion(n, firstRequest(id)))
		if process == nil {
			process = h.nextProcess("gh")
			process.ServeHandshake(greeting)
		}
		process.SendResult(process.WantRequest("tools/call").ID(), `{"content":[]}`)
		client.Want(completeResult(id, `"content":[]}`))
		return process
	}
}
