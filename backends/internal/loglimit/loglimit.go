// Package loglimit limits the log records that the output of a backend causes.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits of the log records that the output of one backend causes. Each limit is a rate and a
// burst. Records beyond the limits are dropped and counted.
const (
	recordsPerSecond = 100
	recordBurst      = 500
	bytesPerHour     = 1 << 20
	byteBurst        = 256 << 10
	// recordOverhead is the size of a record without its message and values: time, level, keys.
	recordOverhead = 100
	// While records are dropped, reports in the log give their number: the first report after
	// firstReportPause, the others after pauses that double up to longestReportPause.
	firstReportPause   = time.Second
	longestReportPause = time.Hour
)

// A rateLimitedHandler limits the records of the loggers that are derived from one logger of New.
type rateLimitedHandler struct {
	slog.Handler
	*logLimiter
}

// A logLimiter is the state that the handlers of one backend share.
type logLimiter struct {
	records  *rate.Limiter
	volume   *rate.Limiter
	reportTo *slog.Logger // logger of the reports of dropped records

	mu           sync.Mutex
	dropped      int // number of dropped records since the last report
	droppedBytes int // size of these records
	reportedAt   time.Time
	pause        time.Duration // before the latest report, or before the scheduled one
}

// New returns a logger for the records about one backend that may be frequent, such as those about
// lines on stderr, malformed messages and issues. Events such as the end of the backend go to
// another logger, and are never dropped. The numbers of dropped records are reported to log.
func New(log *slog.Logger) *slog.Logger {
	return slog.New(rateLimitedHandler{log.Handler(), &logLimiter{
		records:  rate.NewLimiter(recordsPerSecond, recordBurst),
		volume:   rate.NewLimiter(rate.Limit(float64(bytesPerHour)/time.Hour.Seconds()), byteBurst),
		reportTo: log,
	}})
}

// Handle implements slog.Handler.
func (h rateLimitedHandler) Handle(ctx context.Context, r slog.Record) error {
	size := recordOverhead + len(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		size += len(a.Key) + len(a.Value.String())
		return true
	})
	if h.records.Allow() && h.volume.AllowN(time.Now(), size) {
		return h.Handler.Handle(ctx, r)
	}
	h.drop(size)
	return nil
}

// WithAttrs implements slog.Handler.
func (h rateLimitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return rateLimitedHandler{h.Handler.WithAttrs(attrs), h.logLimiter}
}

// WithGroup implements slog.Handler.
func (h rateLimitedHandler) WithGroup(name string) slog.Handler {
	return rateLimitedHandler{h.Handler.WithGroup(name), h.logLimiter}
}

// drop counts a dropped record. The first dropped record after a report starts the pause before the
// next report. After a time without dropped records, the pause is firstReportPause again.
func (ll *logLimiter) drop(size int) {
	ll.mu.Lock()
	defer ll.mu.Unlock()
	ll.dropped++
	ll.droppedBytes += size
	if ll.dropped > 1 {
		return
	}
	if ll.pause == 0 || time.Since(ll.reportedAt) > 2*ll.pause {
		ll.pause = firstReportPause
	} else {
		ll.pause = min(2*ll.pause, longestReportPause)
	}
	time.AfterFunc(ll.pause, ll.report)
}

func (ll *logLimiter) report() {
	ll.mu.Lock()
	dropped, bytes, pause := ll.dropped, ll.droppedBytes, ll.pause
	ll.dropped, ll.droppedBytes, ll.reportedAt = 0, 0, time.Now()
	ll.mu.Unlock()
	ll.reportTo.Warn("too much output from the backend; log records dropped",
		"lost", dropped, "bytes", bytes, "dur", pause)
}
