package reload

import (
	"os"
	"sync"

	"golang.org/x/term"
)

// SIGHUP passes the signal of that name to a subscriber. Without a subscriber the signal ends the
// process, as SIGTERM does. Windows has no such signal.
type SIGHUP struct {
	mu         sync.Mutex
	subscriber chan struct{} // nil = none
}

// Deliver passes a signal on. It reports false if there is no subscriber.
func (h *SIGHUP) Deliver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscriber == nil {
		return false
	}
	select {
	case h.subscriber <- struct{}{}:
	default: // an earlier signal is still unread and covers this one
	}
	return true
}

// Subscribe returns a channel of signals, which stays subscribed until release is called. It
// returns nil and does not subscribe if h is nil, or in is a terminal: there the signal means
// that the terminal was closed, and does not come from an administrator.
func (h *SIGHUP) Subscribe(in *os.File) (signals <-chan struct{}, release func()) {
	if h == nil || term.IsTerminal(int(in.Fd())) {
		return nil, func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscriber = make(chan struct{}, 1)
	return h.subscriber, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.subscriber = nil
	}
}
