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
	recordsAtOnce    = 500
	bytesPerHour     = 1 << 20
	bytesAtOnce      = 256 << 10
	// recordBytes is what a record counts for beside its message and values: time, level, keys.
	recordBytes = 100
	// While records are left out, a line says how many: after firstTold, then after twice the time
	// each, up to lastTold.
	firstTold = time.Second
	lastTold  = time.Hour
)

// A sparing handler bounds the records that a backend causes by what it says, all of them
// together: lines on its stderr, output that is no message, oddities. What it does, such
// as that it ends, is logged elsewhere and never left out.
type sparing struct {
	slog.Handler
	*thrift
}

// A thrift is what the sparing handlers of one backend share.
type thrift struct {
	records *rate.Limiter
	volume  *rate.Limiter
	log     *slog.Logger // where it is told what was left out

	mu    sync.Mutex
	lost  int // since it was told last
	bytes int // of these
	told  time.Time
	pause time.Duration // between the last two lines that told it
}

// spare returns a logger for what a backend says.
func spare(log *slog.Logger) *slog.Logger {
	return slog.New(sparing{log.Handler(), &thrift{
		records: rate.NewLimiter(recordsPerSecond, recordsAtOnce),
		volume:  rate.NewLimiter(rate.Limit(float64(bytesPerHour)/time.Hour.Seconds()), bytesAtOnce),
		log:     log,
	}})
}

// Handle implements slog.Handler.
func (s sparing) Handle(ctx context.Context, r slog.Record) error {
	size := recordBytes + len(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		size += len(a.Key) + len(a.Value.String())
		return true
	})
	if s.records.Allow() && s.volume.AllowN(time.Now(), size) {
		return s.Handler.Handle(ctx, r)
	}
	s.leaveOut(size)
	return nil
}

// WithAttrs implements slog.Handler.
func (s sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sparing{s.Handler.WithAttrs(attrs), s.thrift}
}

// WithGroup implements slog.Handler.
func (s sparing) WithGroup(name string) slog.Handler {
	return sparing{s.Handler.WithGroup(name), s.thrift}
}

// leaveOut counts a record. The first one after a line has told of others starts the wait for the
// next line. The wait is short again after a time in which nothing was left out.
func (t *thrift) leaveOut(size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost++
	t.bytes += size
	if t.lost > 1 {
		return
	}
	if t.pause == 0 || time.Since(t.told) > 2*t.pause {
		t.pause = firstTold
	} else {
		t.pause = min(2*t.pause, lastTold)
	}
	time.AfterFunc(t.pause, t.tell)
}

func (t *thrift) tell() {
	t.mu.Lock()
	lost, bytes, pause := t.lost, t.bytes, t.pause
	t.lost, t.bytes, t.told = 0, 0, time.Now()
	t.mu.Unlock()
	t.log.Warn("backend writes too much to the log; records were left out",
		"lost", lost, "bytes", bytes, "dur", pause)
}
