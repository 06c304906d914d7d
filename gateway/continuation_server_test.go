package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// A backend responds to a call with input_required. A reload then gives the backend's name to
// another program. The requestState of the first program and the user's responses must not be sent
// to the second program, neither for a stateless client nor for a session client. If only the
// environment changes, the program remains the same.
func TestContinuation_OtherProgramIsRejected(t *testing.T) {
	for _, one := range []struct {
		name string
		same bool
		edit func(*config.Backend)
	}{
		{"another program", false, func(c *config.Backend) { c.Args = []string{"--other"} }},
		{"another environment", true,
			func(c *config.Backend) { c.Env = map[string]string{"A": "B"} }},
	} {
		t.Run(one.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var set *backends.Set
				h := newHarness(t, settings{generation: map[string]string{"gh": "modern"},
					backendSet: &set}, "gh")
				stateless, _ := h.connectClient()
				stateless.Send(modernRequest("0", "tools/list", "", clientCaps))
				gh := h.nextProcess("gh")
				gh.ServeDiscover("")
				gh.ServeToolsList(mcptest.ToolsResult("ask"))
				stateless.NextMessage()
				client, _ := h.connectClient()
				client.Initialize("2025-11-25", clientCaps)
				listTools(t, client)
				const asks = `{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"message":"Who?"}}},"requestState":"S"}`
				stateless.Send(firstRequest("1"))
				gh.SendResult(gh.WantRequest("tools/call").ID(), asks)
				ticket := wantInputRequired(t, stateless, "u")
				client.Send(toolsCall("1", "ask"))
				gh.SendResult(gh.WantRequest("tools/call").ID(), asks)
				request := client.WantRequest("elicitation/create")

				c := config.Backend{Name: "gh", Command: "gh", Enabled: true,
					StartTimeout: time.Minute, MaxInFlight: 20_000, Generation: "modern"}
				one.edit(&c)
				done := make(chan struct{})
				go func() {
					defer close(done)
					applyConfig(t, set, c)
				}()
				next := h.nextProcess("gh")
				next.ServeDiscover("")
				next.ServeToolsList(mcptest.ToolsResult("ask"))
				<-done

				stateless.Send(retryRequest("2", `{"u":{"action":"accept"}}`, ticket))
				if one.same {
					if again := next.WantRequest("tools/call"); paramAt(t, again,
						"requestState") != `"S"` {
						t.Errorf("the call was sent again as %s", again.Raw())
					}
					return
				}
				failure := wire.ReadError(stateless.NextMessage().Part(wire.PartError))
				if failure.Code != -32602 || !strings.Contains(failure.Message,
					"start the call again") {
					t.Errorf("%+v", failure)
				}
				client.SendResult(request.ID(), `{"action":"accept"}`)
				for m := client.NextMessage(); ; m = client.NextMessage() {
					if m.Kind() == wire.Response {
						if m.ID() != "1" || m.Part(wire.PartError) == nil {
							t.Errorf("got %s", m.Raw())
						}
						break
					}
				}
				for _, line := range next.TakeAll() {
					if strings.Contains(line, "tools/call") {
						t.Errorf("the other program got %s", line)
					}
				}
			})
		})
	}
}
