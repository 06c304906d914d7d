package backends_test

import (
	"context"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/config"
)

// options are the catalog's of every house.
var options = catalog.Options{Prefix: catalog.Collision, Separator: "__", NameLimit: 50}

// change returns a Change to these backends.
func change(all ...config.Backend) backends.Change {
	return backends.Change{Backends: all, Catalog: options, Wait: 3 * time.Second}
}

// apply begins a change, and returns what is closed when it is over.
func (h *house) apply(c backends.Change) <-chan struct{} {
	h.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Apply(context.Background(), c); err != nil {
			h.t.Errorf("Apply: %v", err)
		}
	}()
	return done
}

// edited returns a backend's configuration with something else in it.
func edited(c config.Backend, how string) config.Backend {
	c.Args = []string{how}
	return c
}

func TestApply_ChangesOneAndKeepsTheOther(t *testing.T) {
	all := plain("a", "b")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		a, b := h.next("a"), h.next("b")
		a.Ready("t")
		b.Ready("u")
		done := h.apply(change(edited(all[0], "new"), all[1]))
		next := h.next("a")
		h.wantNames("t", "u") // the old one serves until the new one is ready
		next.Ready("v")
		<-done
		h.wantNames("v", "u")
		if !a.Over() || b.Over() {
			t.Error("the wrong one ended")
		}
		c, _ := h.call("a")
		next.Reply(next.Asked("tools/call").ID(), "{}")
		c.ok(t)
		if n := len(h.dials("b")); n != 1 {
			t.Errorf("b was started %d times", n)
		}
	})
}
