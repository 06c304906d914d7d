package wire

import "sync"

// A Burst is messages that a reader has at hand at one time, because they came faster than they were taken.
// What they give rise to is worth sending together, when the reader has taken the last of them: see [Message.Burst].
// All methods may be called concurrently; a nil Burst is over.
type Burst struct {
	mu   sync.Mutex
	over bool
	then []func()
}

// OnEnd has f called when the burst is over, and answers true; it answers false, and f is not called, if that
// is so already.
func (b *Burst) OnEnd(f func()) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.then = append(b.then, f)
	}
	return !b.over
}

// End ends the burst, and calls what was to be called then.
func (b *Burst) End() {
	if b == nil {
		return
	}
	b.mu.Lock()
	then := b.then
	b.over, b.then = true, nil
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

// Burst returns the burst that m is part of, or the message that [Message.Splice] has made it of; nil if it is
// of none. Whoever sends m may put that off until the burst is over.
func (m Message) Burst() *Burst { return m.burst }
