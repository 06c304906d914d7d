package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"mcpgateway/internal/reload"
)

// A signalError is the cause of a context that a signal has canceled: the name of the signal.
type signalError string

func (s signalError) Error() string { return string(s) }

// signalCause returns the signalError of a signal.
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

// signalContext returns a context that the first SIGINT, SIGTERM or SIGHUP cancels, with a
// signalError as the cause. If SIGHUP has a subscriber, it is passed to the subscriber instead. A
// later SIGINT, SIGTERM or SIGHUP ends the drain of calls in flight. If no calls are being drained,
// a later SIGINT ends the process; the watchdogs of the process groups then end the backends.
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

// logSignal logs the signal that cancels ctx, if a signal does so before stop is called.
func logSignal(ctx context.Context, log *slog.Logger) (stop func()) {
	done := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(done)
		if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
			log.Info("signal received: stopping", "text", sig.Error())
		}
	})
	return func() {
		if !unregister() {
			<-done
		}
	}
}

// A signalHandler ends the drain of calls in flight when a second or later signal arrives.
type signalHandler struct {
	mu     sync.Mutex
	handle func() bool // nil = nothing to drain
}

// set sets the handler. The handler reports whether calls were being drained.
func (h *signalHandler) set(handle func() bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handle = handle
}

// call calls the handler. It reports false if no calls were being drained.
func (h *signalHandler) call() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handle != nil && h.handle()
}
