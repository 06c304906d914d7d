package backends_test

import (
	"testing"
	"testing/synctest"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// A call in flight may be suspended for minutes. It holds the text of its request only if the
// request may be sent again: to a modern backend, or to a legacy backend behind a URL.
func TestSentCallHoldsNoText(t *testing.T) {
	for name, tt := range map[string]struct {
		backend config.Backend
		holds   bool
	}{
		"legacy program": {legacyBackends("a")[0], false},
		"legacy URL":     {perSessionBackend("a"), true},
		"modern program": {modernBackends(legacyBackends("a")...)[0], true},
	} {
		t.Run(name, func(t *testing.T) {
			o := backends.Options{Backends: []config.Backend{tt.backend}, NoRestart: true}
			withHarness(t, o, func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				c := make(backends.ResponseChan, 1)
				call := h.NewCall("a", contract.BackendRequest{
					Message: wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`)),
				}, c)
				want := func(holds bool) {
					t.Helper()
					synctest.Wait()
					if got := backends.HoldsRequest(call); got != holds {
						t.Errorf("it holds the text: %v, want %v", got, holds)
					}
				}
				if tt.backend.Generation == "modern" {
					p.ServeDiscover("")
					p.ServeToolsList(mcptest.ToolsResult("t"))
				} else {
					p.ServeStartup("t")
				}
				want(true)
				call.Send()
				id := p.WantRequest("tools/call").ID()
				want(tt.holds)
				if tt.backend.Generation == "modern" {
					p.SendError(id, `{"code":-32020,"message":"no"}`)
					again := p.WantRequest("tools/list").ID()
					want(true) // it waits for the list
					p.SendResult(again, mcptest.ToolsResult("t"))
					id = p.WantRequest("tools/call").ID()
					want(false) // it is sent twice at most
				}
				p.SendResult(id, `{"resultType":"complete"}`)
				if r := <-c; r.Err != nil {
					t.Error(r.Err)
				}
			})
		})
	}
}
