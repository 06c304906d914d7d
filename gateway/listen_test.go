package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

func listenFor(id, filter string) string {
	return modernRequest(id, "subscriptions/listen", `"notifications":`+filter+`,`, `{}`)
}

// wantAcknowledged expects the acknowledgement of a subscription.
func wantAcknowledged(t *testing.T, client *mcptest.Peer, id, filter string) {
	t.Helper()
	client.Want(
		fmt.Sprintf(
			`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`, id, filter))
}

func resourceUpdated(id, uri string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"uri":%q}}`, id, uri)
}

// startWithResource starts a legacy backend that has the tool t and the resource x:a.
func startWithResource(t *testing.T, h *harness, name string) *mcptest.Peer {
	t.Helper()
	p := h.nextProcess(name)
	p.ServeHandshake(
		`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}`)
	for range 3 {
		m := p.NextMessage()
		switch m.Method() {
		case "tools/list":
			p.SendResult(m.ID(), mcptest.ToolsResult("t"))
		case "resources/list":
			p.SendResult(m.ID(), `{"resources":[{"uri":"x:a","name":"a"}]}`)
		case "resources/templates/list":
			p.SendResult(m.ID(), `{"resourceTemplates":[]}`)
		}
	}
	return p
}

// A subscription is acknowledged after the backend has confirmed it. The client gets only the
// notifications that the filter selects, each with the subscription id. When the subscription ends,
// the gateway unsubscribes at the backend.
func TestListen_FilterAndIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "prompts/list", "", `{}`))
		gh := startWithResource(t, h, "gh")
		client.NextMessage()

		client.Send(listenFor(`"L"`,
			`{"resourceSubscriptions":["x:a","y:nobody has it","x:a"],"promptsListChanged":true,"unknown":true}`))
		armed := gh.WantRequest("resources/subscribe")
		client.WantNothing() // the backend has not yet confirmed
		gh.SendResult(armed.ID(), `{}`)
		gh.SendError(gh.WantRequest("resources/subscribe").ID(),
			`{"code":-32002,"message":"I do not have it either"}`)
		wantAcknowledged(t, client, `"L"`,
			`{"promptsListChanged":true,"resourceSubscriptions":["x:a"]}`)

		client.Send(listenFor(`7`, `{"toolsListChanged":true}`))
		wantAcknowledged(t, client, `7`, `{"toolsListChanged":true}`)

		gh.Send(
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`)
		client.Want(resourceUpdated(`"L"`, "x:a"))
		gh.Send(
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"z:other"}}`)
		client.WantNothing()
		gh.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		gh.ServeToolsList(mcptest.ToolsResult("t", "u"))
		client.WantJSON(
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}`)
		// The list is the same, but clients may cache results that depend on the list.
		gh.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		gh.ServeToolsList(mcptest.ToolsResult("t", "u"))
		client.WantJSON(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}`)
		client.WantNothing()

		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"L"}}`)
		if m := gh.WantRequest("resources/unsubscribe"); !strings.Contains(string(m.Raw()),
			`"x:a"`) {
			t.Errorf("the request is %s", m.Raw())
		} else {
			gh.SendResult(m.ID(), `{}`)
		}
		gh.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`)
		client.WantNothing()
	})
}

// Unsupported filters are omitted from the acknowledgement. An empty subscription ends at once.
func TestListen_UnsupportedFiltersAreOmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "prompts/list", "", `{}`))
		gh := startWithResource(t, h, "gh")
		client.NextMessage()
		client.Send(listenFor(`1`, `{"resourceSubscriptions":["x:a"]}`))
		gh.SendError(gh.WantRequest("resources/subscribe").ID(), `{"code":-32602,"message":"no"}`)
		wantAcknowledged(t, client, `1`, `{}`)
		client.WantJSON(
			`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"io.modelcontextprotocol/serverInfo":` + serverInfo + `},"resultType":"complete"}}`)
		for _, filter := range []string{`[]`, `null`, `{"resourceSubscriptions":"x:a"}`,
			`{"resourceSubscriptions":[1]}`, `{"resourceSubscriptions":[""]}`,
			`{"resourceSubscriptions":[` + quotedURIs(1025) + `]}`} {
			client.Send(listenFor(`2`, filter))
			if failure := wire.ReadError(client.NextMessage().Part(wire.PartError)); failure.Code !=
				-32602 {
				t.Errorf("%.40s: %+v", filter, failure)
			}
		}
		gh.WantNothing()
	})
}

func quotedURIs(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"x:%d"`, i)
	}
	return strings.Join(all, ",")
}

// A backend that does not respond does not block: the acknowledgement omits unconfirmed
// subscriptions. When the gateway shuts down, each subscription gets its response.
func TestListen_SilentBackendAndGracefulEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		conn, client := mcptest.NewPeer(t, "client")
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- h.gateway.Serve(ctx, "", nil, conn) }()
		client.Send(modernRequest("0", "prompts/list", "", `{}`))
		gh := startWithResource(t, h, "gh")
		client.NextMessage()
		client.Send(listenFor(`1`, `{"resourceSubscriptions":["x:a"],"toolsListChanged":true}`))
		gh.WantRequest("resources/subscribe")
		time.Sleep(6 * time.Second)
		wantAcknowledged(t, client, `1`, `{"toolsListChanged":true}`)
		cancel()
		client.WantJSON(`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"io.modelcontextprotocol/serverInfo":` + serverInfo + `},"resultType":"complete"}}`)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// The end of a subscription does not end a later subscription to the same resource, even if the
// backend has not yet confirmed the later one.
func TestListen_SuccessorKeepsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "prompts/list", "", `{}`))
		gh := startWithResource(t, h, "gh")
		client.NextMessage()
		client.Send(listenFor(`1`, `{"resourceSubscriptions":["x:a"]}`))
		gh.SendResult(gh.WantRequest("resources/subscribe").ID(), `{}`)
		wantAcknowledged(t, client, `1`, `{"resourceSubscriptions":["x:a"]}`)
		client.Send(listenFor(`2`, `{"resourceSubscriptions":["x:a"]}`))
		synctest.Wait()
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		for _, line := range gh.TakeAll() {
			m, _ := wire.Parse([]byte(line))
			if m.Method() == "resources/unsubscribe" {
				t.Errorf("the backend was unsubscribed: %s", line)
			}
			gh.SendResult(m.ID(), `{}`)
		}
		wantAcknowledged(t, client, `2`, `{"resourceSubscriptions":["x:a"]}`)
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		gh.WantRequest("resources/unsubscribe")
	})
}

// An update that arrives after the backend has confirmed a subscription, but before the
// acknowledgement, follows the acknowledgement. An update of a resource to which the client is not
// subscribed in the end is dropped.
func TestUpdateBeforeAcknowledgement_Delivered(t *testing.T) {
	const updated = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`
	open := func(t *testing.T, uris string) (client, gh *mcptest.Peer) {
		h := newHarness(t, settings{}, "gh")
		client, _ = h.connectClient()
		client.Send(modernRequest("0", "prompts/list", "", `{}`))
		gh = startWithResource(t, h, "gh")
		client.NextMessage()
		client.Send(listenFor(`1`, `{"resourceSubscriptions":`+uris+`}`))
		return client, gh
	}
	t.Run("other subscription is pending", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, gh := open(t, `["y:other","x:a","z:refused"]`)
			first := gh.WantRequest("resources/subscribe")
			second := gh.WantRequest("resources/subscribe")
			third := gh.WantRequest("resources/subscribe")
			gh.SendResult(second.ID(), `{}`)
			for _, uri := range []string{"x:a", "x:a/b", "z:refused", "q:unknown"} {
				gh.Sendf(updated, uri)
			}
			time.Sleep(time.Second)
			gh.SendError(third.ID(), `{"code":-32002,"message":"not found"}`)
			client.WantNothing()
			gh.SendResult(first.ID(), `{}`)
			wantAcknowledged(t, client, `1`, `{"resourceSubscriptions":["y:other","x:a"]}`)
			client.Want(resourceUpdated(`1`, "x:a"))
			client.Want(resourceUpdated(`1`, "x:a/b"))
			client.WantNothing()
		})
	})
	t.Run("directly after the confirmation", func(t *testing.T) {
		for range 20 { // the update races with the goroutine that records the confirmation
			synctest.Test(t, func(t *testing.T) {
				client, gh := open(t, `["x:a"]`)
				gh.SendResult(gh.WantRequest("resources/subscribe").ID(), `{}`)
				gh.Sendf(updated, "x:a")
				wantAcknowledged(t, client, `1`, `{"resourceSubscriptions":["x:a"]}`)
				client.Want(resourceUpdated(`1`, "x:a"))
			})
		}
	})
}

// newCallHook calls a function before each NewCall.
type newCallHook struct {
	gateway.Backends
	before func(method string)
}

func (b *newCallHook) NewCall(backend string, r contract.BackendRequest,
	h contract.CallHandler) contract.BackendCall {
	b.before(r.Message.Method())
	return b.Backends.NewCall(backend, r, h)
}

// A client opens a subscription to a resource at the moment at which its earlier subscription to
// the resource ends and the gateway is about to unsubscribe. The client stays subscribed.
func TestListenReopenedWhileEnding_StaysSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := &newCallHook{before: func(string) {}}
		h := newHarness(t, settings{wrap: func(b gateway.Backends) gateway.Backends {
			hook.Backends = b
			return hook
		}}, "gh")
		e, _ := h.serveRequest(modernRequest("0", "prompts/list", "", "{}"))
		gh := startWithResource(t, h, "gh")
		e.next()
		first, end := h.serveRequest(listenFor("1", `{"resourceSubscriptions":["x:a"]}`))
		gh.SendResult(gh.WantRequest("resources/subscribe").ID(), `{}`)
		if got := first.next(); !strings.Contains(got, `"x:a"`) {
			t.Fatalf("got %s", got)
		}
		var second exchange
		hook.before = func(method string) {
			if method == "resources/unsubscribe" {
				hook.before = func(string) {}
				second, _ = h.serveRequest(listenFor("2", `{"resourceSubscriptions":["x:a"]}`))
				synctest.Wait()
			}
		}
		end()
		unsubscribe := gh.WantRequest("resources/unsubscribe")
		gh.SendResult(gh.WantRequest("resources/subscribe").ID(), `{}`)
		if got := second.next(); !strings.Contains(got, `"x:a"`) {
			t.Errorf("got %s", got)
		}
		gh.SendResult(unsubscribe.ID(), `{}`)
		gh.Send(
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`)
		if got := second.next(); !strings.Contains(got, "updated") {
			t.Errorf("the acknowledged subscription got %q", got)
		}
		h.gateway.ShutDownRequests()
	})
}

// Each of many subscriptions gets one notification of a change, and none if its list is unchanged.
func TestListen_EachListenerIsNotifiedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{inFlight: 1000}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "prompts/list", "", `{}`))
		gh := startWithResource(t, h, "gh")
		client.NextMessage()
		const listens = 500
		for n := range listens {
			id := fmt.Sprint(n + 1)
			client.Send(listenFor(id, `{"toolsListChanged":true,"promptsListChanged":true}`))
			wantAcknowledged(t, client, id, `{"toolsListChanged":true,"promptsListChanged":true}`)
		}
		gh.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		gh.ServeToolsList(mcptest.ToolsResult("t", "u"))
		received := make(map[string]int)
		for range listens {
			m := client.NextMessage()
			received[m.Method()+" "+string(protocol.SubscriptionID(m))]++
		}
		client.WantNothing()
		for n := range listens {
			what := fmt.Sprintf("notifications/tools/list_changed %d", n+1)
			if received[what] != 1 {
				t.Errorf("%s arrived %d times", what, received[what])
			}
		}
	})
}

// The subscriptions of one principal leave room for other principals, even if the principal uses
// many client infos.
func TestListen_PerPrincipalLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{inFlight: 20_000}, "gh")
		connect := func(name string) *mcptest.Peer {
			conn, client := mcptest.NewPeer(t, name)
			go func() { _ = h.gateway.Serve(t.Context(), "", named(name), conn) }()
			return client
		}
		many, again, alone := connect("crowd"), connect("crowd"), connect("alone")
		many.Send(modernRequest(`"list"`, "prompts/list", "", `{}`))
		startWithResource(t, h, "gh")
		many.NextMessage()
		const filter = `{"toolsListChanged":true}`
		send := func(client *mcptest.Peer, n int) string {
			id := fmt.Sprint(n)
			client.Send(withClientVersion(n%10, listenFor(id, filter)))
			return id
		}
		for n := range 5000 {
			wantAcknowledged(t, many, send(many, n), filter)
		}
		for _, client := range []*mcptest.Peer{many, again} {
			send(client, 5000)
			client.Want(
				`{"jsonrpc":"2.0","id":5000,"error":{"code":-32603,"message":"Too many subscriptions are open; wait until some have ended"}}`)
		}
		for n := range 10 {
			wantAcknowledged(t, alone, send(alone, n), filter)
		}
		many.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		synctest.Wait()
		wantAcknowledged(t, again, send(again, 5001), filter)
		many.Close()
		synctest.Wait()
		for n := range 5 {
			wantAcknowledged(t, again, send(again, n), filter)
		}
	})
}
