package backends_test

import (
	"testing"
	"testing/synctest"

	"mcpgateway/backends"
	"mcpgateway/catalog"
)

// A backend that dies at subscriptions/listen, before its lists were read, is listed first after
// the restart: its tools can be called even if the listen fails.
func TestListen_BackendThatDiesIsListed(t *testing.T) {
	withHarness(t, backends.Options{Backends: modernBackends(legacyBackends("a")...)},
		func(t *testing.T, h *harness) {
			b := h.startModernServer(t)
			b.takeListen(nil)
			b.Exit("exit 5", "")
			b = h.startModernServer(t)
			b.serveLists("t")
			b.takeListen(nil)
			b.Exit("exit 5", "")
			synctest.Wait()
			if _, ok := h.View().Lookup(catalog.Tools, "t"); !ok {
				t.Error("the tool of the backend is not known")
			}
			c, _ := h.call("a") // the call is queued
			b = h.startModernServer(t)
			call := b.WantRequest("tools/call")
			id := b.takeListen(nil) // the lists of a are known, so no request precedes the listen
			b.SendResult(call.ID(), `{"resultType":"complete"}`)
			c.want(t, result(string(call.ID()), `{"resultType":"complete"}`))
			b.WantNothing()
			b.acknowledge(id, nil)
			b.serveLists("t")
		})
}
