package httpserver

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// acceptErrorHandler is a handler for the log of an http.Server. That no connection can be accepted, for
// want of descriptors, is a warning, every so often; all else is as it comes.
type acceptErrorHandler struct {
	slog.Handler
	lastWarning atomic.Int64 // when that was a warning last, in nanoseconds
}

// Enabled implements slog.Handler.
func (h *acceptErrorHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *acceptErrorHandler) Handle(ctx context.Context, r slog.Record) error {
	if why, ok := strings.CutPrefix(r.Message, "http: Accept error: "); ok {
		now, last := r.Time.UnixNano(), h.lastWarning.Load()
		if time.Duration(now-last) > logThrottle && h.lastWarning.CompareAndSwap(last, now) {
			warning := slog.NewRecord(r.Time, slog.LevelWarn, "no connection can be accepted", 0)
			warning.AddAttrs(slog.String("err", why))
			r = warning
		}
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
