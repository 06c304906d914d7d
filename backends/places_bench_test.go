package backends

import (
	"fmt"
	"testing"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// BenchmarkPlaces is a call that waits for a place, with n that wait before it: one of each of n
// sessions, or all of one.
func BenchmarkPlaces(b *testing.B) {
	for _, n := range []int{1, 32, 1000, 10_000} {
		queue := func(b *testing.B, owner func(i int) string) (enter func(i int) *peer.Call, next func()) {
			var at *peer.Call
			p := newPlaces(config.Backend{MaxInFlight: 1, QueueWait: time.Hour}, func(w waiting) { at = w.c })
			p.most = n
			enter = func(i int) *peer.Call {
				c := &peer.Call{SessionID: owner(i), Handler: nobody{}}
				p.enter(waiting{c: c})
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
		b.Run(fmt.Sprintf("comes to its turn behind %d sessions", n), func(b *testing.B) {
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
		b.Run(fmt.Sprintf("is taken back behind %d of its session", n), func(b *testing.B) {
			p := newPlaces(config.Backend{MaxInFlight: 1, QueueWait: time.Hour}, func(waiting) {})
			p.most = n + 1
			for range n {
				p.enter(waiting{c: &peer.Call{SessionID: one(0), Handler: nobody{}}})
			}
			b.ReportAllocs()
			for b.Loop() {
				c := &peer.Call{SessionID: one(0), Handler: nobody{}}
				p.enter(waiting{c: c})
				p.takeBack(c)
			}
		})
	}
}
