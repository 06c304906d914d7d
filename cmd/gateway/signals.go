package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"mcpgateway/internal/reload"
)

// A signalError is the cause of the end of a context that a signal has ended.
type signalError string

func (s signalError) Error() string { return string(s) }

// signalCause returns the cause that a signal to end is.
func signalCause(sig os.Signal) signalError {
	switch sig {
	case os.Interrupt:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	}
	return signalError(sig.String())
}

// signalContext returns a context that the first signal to end ends, with the signal as the cause; SIGHUP
// is such a signal unless it was taken over. A second signal ends the time that calls in flight
// have. A SIGINT when no call has time any more ends the process; the holders of their groups end
// the backends.
func signalContext(h *reload.SIGHUP, calls *signalHandler) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for sig := range signals {
			if sig == syscall.SIGHUP && h.Deliver() {
				continue
			}
			if ctx.Err() == nil {
				cancel(signalCause(sig))
			} else if !calls.call() && sig == os.Interrupt {
				os.Exit(exitFailed)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
	}
}

// A signalHandler is how a second signal ends the time that calls in flight have.
type signalHandler struct {
	mu     sync.Mutex
	handle func() bool // nil = there are no calls
}

// set has do called by the second signal. It reports whether calls were waited for.
func (h *signalHandler) set(do func() bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handle = do
}

// call reports false if no call has time.
func (h *signalHandler) call() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handle != nil && h.handle()
}
