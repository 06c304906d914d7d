package backends_test

import (
	"testing"
	"testing/synctest"

	"mcpgateway/backends"
	"mcpgateway/catalog"
)

// A backend that dies at subscriptions/listen, before it has been listed what it has, is listed first
// when it has been started again: its tools can be called whatever the listen does.
func TestListen_ABackendThatDiesOfItIsListed(t *testing.T) {
	inHouse(t, backends.Options{Backends: modern(plain("a")...)}, func(t *testing.T, h *house) {
		b := h.listens(t)
		b.listened(nil)
		b.Exit("exit 5", "")
		b = h.listens(t)
		b.lists("t")
		b.listened(nil)
		b.Exit("exit 5", "")
		synctest.Wait()
		if _, ok := h.View().Lookup(catalog.Tools, "t"); !ok {
			t.Error("its tool is not known")
		}
		c, _ := h.call("a") // waits for it
		b = h.listens(t)
		call := b.HandleRequest("tools/call")
		id := b.listened(nil) // what it has is known: nothing more is asked for before that
		b.SendResult(call.ID(), `{"resultType":"complete"}`)
		c.want(t, result(string(call.ID()), `{"resultType":"complete"}`))
		b.WantNothing()
		b.acknowledge(id, nil)
		b.lists("t")
	})
}
