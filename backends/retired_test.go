package backends_test

import (
	"fmt"
	"testing"

	"mcpgateway/backends"
)

// A configuration that changes again and again leaves so many former backends at their calls; the oldest end.
func TestApply_RetiredBackendsAreBounded(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		var calls []*caller
		for n := range 6 {
			var done <-chan struct{}
			if n > 0 {
				done = h.apply(change(edited(all[0], fmt.Sprint(n))))
			}
			p := h.next("a")
			p.Ready("t")
			if n > 0 {
				<-done
			}
			c, _ := h.call("a")
			p.Asked("tools/call")
			calls = append(calls, c)
		}
		calls[0].wantReason(t, "the configuration was changed too often while it was at the call")
		for _, c := range calls[1:] {
			c.mu.Lock()
			if len(c.ends) > 0 {
				t.Errorf("a call of a later one has ended: %v", c.ends)
			}
			c.mu.Unlock()
		}
	})
}
