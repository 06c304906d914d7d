package main

import (
	"os"
	"sync"
)

// hangups is what becomes of SIGHUP: it ends the process as SIGTERM does, unless somebody
// has taken it over. Windows has no such signal.
type hangups struct {
	mu   sync.Mutex
	told chan struct{} // nil = nobody has
}

// pass tells of a SIGHUP; it reports false if nobody wants to know.
func (h *hangups) pass() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told == nil {
		return false
	}
	select {
	case h.told <- struct{}{}:
	default: // one is waiting to be seen, and stands for this, too
	}
	return true
}

// take takes SIGHUP over until release is called. It does not where in is a terminal:
// there the signal says that the terminal is gone, and comes from no administrator.
func (h *hangups) take(in *os.File) (told <-chan struct{}, release func()) {
	if h == nil || isTerminal(in) {
		return nil, func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = make(chan struct{}, 1)
	return h.told, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.told = nil
	}
}

// A hurry is how a second signal ends the time that calls in flight have.
type hurry struct {
	mu sync.Mutex
	do func() bool // nil = there are no calls
}

// set has do called by the second signal. It reports whether calls were waited for.
func (h *hurry) set(do func() bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.do = do
}

// end reports false if no call has time.
func (h *hurry) end() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.do != nil && h.do()
}
