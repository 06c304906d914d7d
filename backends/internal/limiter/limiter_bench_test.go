package limiter

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkLimiter measures a call that gets a slot, or is refused, behind one queued call of each
// of n sessions, and a call that is removed behind n calls of its session.
func BenchmarkLimiter(b *testing.B) {
	for _, n := range []int{1, 32, 1000, 10_000} {
		queue := func(b *testing.B, session func(i int) string, limit int) (enter func(i int) *call,
			next func()) {
			var at *call
			l := New(Options[*call]{MaxInFlight: 1, QueueLimit: limit, QueueWait: time.Hour,
				IsCancelled: func(*call) bool { return false },
				Send:        func(c *call) { at = c },
				Reject:      func(*call, error) {}})
			enter = func(i int) *call {
				c := &call{}
				if now, _ := l.Submit(session(i), c, &c.slot); now {
					at = c
				}
				return c
			}
			for i := range n + 1 {
				enter(i)
			}
			b.ReportAllocs()
			return enter, func() { l.SendQueued(l.Release(&at.slot)) }
		}
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("session", i)
		}
		each := func(i int) string { return names[i%n] }
		b.Run(fmt.Sprintf("gets a slot behind %d sessions", n), func(b *testing.B) {
			enter, next := queue(b, each, n)
			for i := 1; b.Loop(); i++ {
				next()
				enter(i)
			}
		})
		b.Run(fmt.Sprintf("is refused by %d sessions", n), func(b *testing.B) {
			enter, _ := queue(b, each, n)
			for b.Loop() {
				enter(0)
			}
		})
		b.Run(fmt.Sprintf("removed behind %d of its session", n), func(b *testing.B) {
			l := New(Options[*call]{MaxInFlight: 1, QueueLimit: n + 1, QueueWait: time.Hour,
				IsCancelled: func(*call) bool { return false }})
			for range n {
				c := &call{}
				_, _ = l.Submit("one", c, &c.slot)
			}
			b.ReportAllocs()
			for b.Loop() {
				c := &call{}
				_, _ = l.Submit("one", c, &c.slot)
				l.Remove("one", func(other *call) bool { return other == c })
			}
		})
	}
}
