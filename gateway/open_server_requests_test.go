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

// sendServerRequests sends requests of a backend. It returns the number of requests that the
// client has received, and the number of rejected requests.
func sendServerRequests(client, backend *mcptest.Peer, prefix string, n int) (put, refused int) {
	for i := range n {
		backend.Sendf(`{"jsonrpc":"2.0","id":"%s%d","method":"roots/list"}`, prefix, i)
	}
	return len(client.TakeAll()), len(backend.TakeAll())
}

// If there are several backends, each may have at most half of the open requests to a client, and a
// few even if the requests of the other backends reach the limit.
func TestServerRequest_LimitPerBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{singleClient: true}, "a", "b", "c", "d")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", allClientCaps)
		all := make(map[string]*mcptest.Peer)
		for _, name := range []string{"a", "b", "c", "d"} {
			all[name] = h.nextProcess(name)
			all[name].ServeStartup("ask_" + name)
		}
		listTools(t, client)
		for i, name := range []string{"a", "b", "c", "d"} {
			client.Send(toolsCall(fmt.Sprint(i), "ask_"+name))
			all[name].WantRequest("tools/call")
		}
		for _, c := range []struct {
			name         string
			put, refused int
		}{{"a", 128, 172}, {"b", 128, 172}, {"c", 8, 292}, {"d", 8, 292}} {
			if put, refused := sendServerRequests(client, all[c.name], "q", 300); put != c.put ||
				refused != c.refused {
				t.Errorf("%s: %d reached the client and %d were rejected, want %d and %d", c.name,
					put, refused, c.put, c.refused)
			}
		}
		all["a"].Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q7"}}`)
		client.WantNotification("notifications/cancelled")
		// the total still exceeds the limit, because c and d may have a few requests in any case
		if put, refused := sendServerRequests(client, all["c"], "again", 2); put != 0 ||
			refused != 2 {
			t.Errorf("%d reached the client and %d were rejected", put, refused)
		}
		if put, refused := sendServerRequests(client, all["a"], "again", 2); put != 0 ||
			refused != 2 {
			t.Errorf("%d reached the client and %d were rejected", put, refused)
		}
	})
}

// A request on a call's stream ends with the call: the request to the client is cancelled, and the
// backend's request is declined.
func TestServerRequest_EndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, _, ofCall := startCallThatAsks(t, settings{}, allClientCaps)
		client.Send(toolsCall("2", "ask"))
		other := gh.WantRequest("tools/call")
		gh.SendOnStream(ofCall.ID(), `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		gh.SendOnStream(ofCall.ID(),
			`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"m"}}`)
		gh.SendOnStream(other.ID(), `{"jsonrpc":"2.0","id":"o","method":"roots/list"}`)
		client.WantRequest("roots/list")
		client.WantRequest("elicitation/create")
		ofOther := client.WantRequest("roots/list").ID()
		gh.SendOnStream(ofCall.ID(), `{"jsonrpc":"2.0","id":`+string(ofCall.ID())+`,"result":{}}`)
		var cancelled, answered int
		for _, line := range client.TakeAll() {
			if strings.Contains(line, "notifications/cancelled") {
				cancelled++
			}
			if strings.Contains(line, `"id":1,"result":{}`) {
				answered++
			}
		}
		if cancelled != 2 || answered != 1 {
			t.Errorf("%d input requests were cancelled and %d calls answered", cancelled, answered)
		}
		ends := strings.Join(gh.TakeAll(), "\n")
		if !strings.Contains(ends, `"id":"r","error":{"code":-32603`) ||
			!strings.Contains(ends, `{"jsonrpc":"2.0","id":"e","result":{"action":"cancel"}}`) {
			t.Errorf("the backend got %s", ends)
		}
		client.SendResult(ofOther, `{"roots":[]}`)
		gh.Want(`{"jsonrpc":"2.0","id":"o","result":{"roots":[]}}`)
		gh.SendResult(other.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		time.Sleep(time.Hour)
		client.WantNothing()
		gh.WantNothing()
	})
}

// A request whose call is uncertain is assigned to another call at the backend when its call ends.
// The request has a timeout only if there is no such call.
func TestServerRequest_WithoutCallTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{callTimeout: map[string]time.Duration{"gh": time.Minute}}
		_, client, gh, _, first := startCallThatAsks(t, o, allClientCaps)
		client.Send(toolsCall("2", "ask"))
		second := gh.WantRequest("tools/call")
		gh.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		client.WantRequest("roots/list")
		gh.SendResult(second.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		time.Sleep(time.Hour) // the first call's timeout is paused
		client.WantNothing()
		gh.SendResult(first.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		gh.Send(`{"jsonrpc":"2.0","id":"none","method":"roots/list"}`) // while no call is in flight
		client.WantRequest("roots/list")
		time.Sleep(10*time.Minute - time.Second)
		client.WantNothing()
		gh.WantNothing()
		time.Sleep(2 * time.Second)
		for range 2 {
			client.WantNotification("notifications/cancelled")
			if got := gh.Next(); !strings.Contains(got, `"error":{"code":-32603`) ||
				!strings.Contains(got, "within 10m0s") {
				t.Errorf("got %s", got)
			}
		}
		client.Send(toolsCall("3", "ask")) // its timeout runs
		gh.WantRequest("tools/call")
		time.Sleep(time.Minute)
		if got := client.Next(); !strings.Contains(got, "no answer within 1m0s") {
			t.Errorf("got %s", got)
		}
	})
}

// A request whose params are not an object is rejected, because some clients silently drop such
// requests.
func TestServerRequest_NonObjectParamsAreRefused(t *testing.T) {
	for params, want := range map[string]string{
		`5`: "", `[]`: "", `"x"`: "", `true`: "", `{"_meta":5}`: "", `{"_meta":[]}`: "",
		`{"_meta":{"progressToken":{}}}`: "", `{"_meta":{"progressToken":true}}`: "",
		`{"_meta":{"progressToken":null,"x":1}}`: `{"_meta":{"x":1}}`,
		`null`:                                   `{}`,
		`{"_meta":null}`:                         `{"_meta":{}}`,
		`{"a":1}`:                                `{"a":1}`,
		`{"_meta":{"x":null}}`:                   `{"_meta":{"x":null}}`,
	} {
		for _, method := range []string{"roots/list", "sampling/createMessage"} {
			t.Run(method+" "+params, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, client, gh, _, _ := startCallThatAsks(t, settings{}, allClientCaps)
					gh.Send(`{"jsonrpc":"2.0","id":"q","method":"` + method + `","params":` +
						params + `}`)
					if want == "" {
						client.WantNothing()
						if got := gh.Next(); !strings.HasPrefix(got,
							`{"jsonrpc":"2.0","id":"q","error":{"code":-32602,"message":"Invalid params: `) {
							t.Errorf("got %s", got)
						}
						return
					}
					if m := client.WantRequest(method); string(m.Part(wire.PartParams)) != want {
						t.Errorf("the params are %s, want %s", m.Part(wire.PartParams), want)
					}
				})
			})
		}
	}
}
