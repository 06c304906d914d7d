package backends

import (
	"fmt"
	"testing"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// BenchmarkCallLimiter measures a call that gets a slot, or is refused, behind one queued call of
// each of n sessions, and a call that is cancelled behind n calls of its session.
func BenchmarkCallLimiter(b *testing.B) {
	for _, n := range []int{1, 32, 1000, 10_000} {
		queue := func(b *testing.B, session func(i int) string) (enter func(i int) *peer.Call,
			next func()) {
			var at *peer.Call
			cl := newCallLimiter(config.Backend{MaxInFlight: 1, QueueWait: time.Hour},
				func(q queuedCall) { at = q.call })
			cl.queueLimit = n
			enter = func(i int) *peer.Call {
				c := &peer.Call{SessionID: session(i), Handler: ignoreResponse{}}
				cl.submit(queuedCall{call: c})
				return c
			}
			for i := range n + 1 {
				enter(i)
			}
			b.ReportAllocs()
			return enter, func() { at.Handler.OnResponse(wire.Message{}, nil) }
		}
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("session", i)
		}
		each := func(i int) string { return names[i%n] }
		one := func(int) string { return "one" }
		b.Run(fmt.Sprintf("gets a slot behind %d sessions", n), func(b *testing.B) {
			enter, next := queue(b, each)
			for i := 1; b.Loop(); i++ {
				next()
				enter(i)
			}
		})
		b.Run(fmt.Sprintf("is refused by %d sessions", n), func(b *testing.B) {
			enter, _ := queue(b, each)
			for b.Loop() {
				enter(0)
			}
		})
		b.Run(fmt.Sprintf("cancelled behind %d of its session", n), func(b *testing.B) {
			cl := newCallLimiter(config.Backend{MaxInFlight: 1, QueueWait: time.Hour},
				func(queuedCall) {})
			cl.queueLimit = n + 1
			for range n {
				cl.submit(queuedCall{call: &peer.Call{SessionID: one(0),
					Handler: ignoreResponse{}}})
			}
			b.ReportAllocs()
			for b.Loop() {
				c := &peer.Call{SessionID: one(0), Handler: ignoreResponse{}}
				cl.submit(queuedCall{call: c})
				cl.cancel(c)
			}
		})
	}
}
