package wire

import "sync"

// A Burst is a group of messages that were available to a reader at the same time. Messages that
// result from a burst are sent together when the reader has processed the last one, see
// [Message.Burst]. All methods may be called concurrently. A nil Burst has ended.
type Burst struct {
	mu        sync.Mutex
	ended     bool
	callbacks []func()
}

// OnEnd registers f to be called when the burst ends and returns true. If the burst has already
// ended it returns false and f is not called.
func (b *Burst) OnEnd(f func()) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.callbacks = append(b.callbacks, f)
	}
	return !b.ended
}

// End ends the burst and calls the registered functions.
func (b *Burst) End() {
	if b == nil {
		return
	}
	b.mu.Lock()
	then := b.callbacks
	b.ended, b.callbacks = true, nil
	b.mu.Unlock()
	for _, f := range then {
		f()
	}
}

// WithBurst returns m as part of a burst.
func (m Message) WithBurst(b *Burst) Message {
	m.burst = b
	return m
}

// Burst returns the burst that m belongs to, nil if there is none. [Message.Splice] preserves it.
// The sender of m may delay m until the burst has ended.
func (m Message) Burst() *Burst { return m.burst }
