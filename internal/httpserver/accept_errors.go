package httpserver

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// acceptErrorHandler handles the log records of an http.Server. It turns the record of a failed
// accept, usually caused by a lack of file descriptors, into a warning, at most once per
// logThrottle. It passes on all other records unchanged.
type acceptErrorHandler struct {
	slog.Handler
	lastWarning atomic.Int64 // time of the last warning in Unix nanoseconds
}

// Enabled implements slog.Handler.
func (h *acceptErrorHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *acceptErrorHandler) Handle(ctx context.Context, r slog.Record) error {
	if reason, ok := strings.CutPrefix(r.Message, "http: Accept error: "); ok {
		now, last := r.Time.UnixNano(), h.lastWarning.Load()
		if time.Duration(now-last) > logThrottle && h.lastWarning.CompareAndSwap(last, now) {
			warning := slog.NewRecord(r.Time, slog.LevelWarn, "accepting connections failed", 0)
			warning.AddAttrs(slog.String("err", reason))
			r = warning
		}
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
