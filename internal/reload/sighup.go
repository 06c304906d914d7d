package reload

import (
	"os"
	"sync"

	"golang.org/x/term"
)

// SIGHUP passes signals of that name to a subscriber. Without a subscriber the signal ends the
// process, like SIGTERM. Windows does not have this signal.
type SIGHUP struct {
	mu         sync.Mutex
	subscriber chan struct{} // nil = none
}

// Deliver passes a signal to the subscriber. It reports false if there is no subscriber.
func (h *SIGHUP) Deliver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscriber == nil {
		return false
	}
	select {
	case h.subscriber <- struct{}{}:
	default: // the subscriber has not read an earlier signal, which suffices
	}
	return true
}

// Subscribe returns a channel of signals, which stays subscribed until release is called. If h is
// nil or if in is a terminal, it returns nil and does not subscribe: SIGHUP then means that the
// terminal was closed, not that an administrator requests a reload.
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
