package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"mcpgateway/internal/reload"
)

// A signalled is the cause of the end of a context that a signal has ended.
type signalled string

func (s signalled) Error() string { return string(s) }

// named returns the cause that a signal to end is.
func named(sig os.Signal) signalled {
	switch sig {
	case os.Interrupt:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	}
	return signalled(sig.String())
}

// orderly returns a context that the first signal to end ends, with the signal as the cause; SIGHUP
// is such a signal unless it was taken over. A second signal ends the time that calls in flight
// have. A SIGINT when no call has time any more ends the process; the holders of their groups end
// the backends.
func orderly(h *reload.SIGHUP, calls *hurry) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for sig := range signals {
			if sig == syscall.SIGHUP && h.Deliver() {
				continue
			}
			if ctx.Err() == nil {
				cancel(named(sig))
			} else if !calls.end() && sig == os.Interrupt {
				os.Exit(exitFailed)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
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
