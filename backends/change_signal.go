package backends

import "mcpgateway/backends/internal/lockrank"

// A changeSignal tells any number of goroutines that something has changed. Without waiting
// goroutines it allocates nothing. The zero value is ready for use.
type changeSignal struct {
	mu   lockrank.Mutex[innermostRank]
	next chan struct{} // closed by the next call of note; nil = nobody has asked for it
}

// note notes a change.
func (cs *changeSignal) note() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.next != nil {
		close(cs.next)
		cs.next = nil
	}
}

// changed returns a channel that is closed at the next change.
func (cs *changeSignal) changed() <-chan struct{} {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.next == nil {
		cs.next = make(chan struct{})
	}
	return cs.next
}
