package backends

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// What a backend can have logged by what it says: so many records a second, and so many at a
// time; and so many bytes an hour, and so many at a time. What is beyond is left out, and counted.
const (
	recordsPerSecond = 100
	recordBurst      = 500
	bytesPerHour     = 1 << 20
	byteBurst        = 256 << 10
	// recordOverhead is what a record counts for beside its message and values: time, level, keys.
	recordOverhead = 100
	// While records are left out, a line says how many: after firstReportPause, then after twice the time
	// each, up to longestReportPause.
	firstReportPause   = time.Second
	longestReportPause = time.Hour
)

// A rateLimitedHandler handler bounds the records that a backend causes by what it says, all of them
// together: lines on its stderr, output that is no message, oddities. What it does, such
// as that it ends, is logged elsewhere and never left out.
type rateLimitedHandler struct {
	slog.Handler
	*logLimiter
}

// A logLimiter is what the sparing handlers of one backend share.
type logLimiter struct {
	records  *rate.Limiter
	volume   *rate.Limiter
	reportTo *slog.Logger // where it is told what was left out

	mu           sync.Mutex
	dropped      int // since it was told last
	droppedBytes int // of these
	reportedAt   time.Time
	pause        time.Duration // between the last two lines that told it
}

// rateLimited returns a logger for what a backend says.
func rateLimited(log *slog.Logger) *slog.Logger {
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

// drop counts a record. The first one after a line has told of others starts the wait for the
// next line. The wait is short again after a time in which nothing was left out.
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
	lost, bytes, pause := ll.dropped, ll.droppedBytes, ll.pause
	ll.dropped, ll.droppedBytes, ll.reportedAt = 0, 0, time.Now()
	ll.mu.Unlock()
	ll.reportTo.Warn("backend writes too much to the log; records were left out",
		"lost", lost, "bytes", bytes, "dur", pause)
}
