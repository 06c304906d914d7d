package backends

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// What a backend can have logged by what it says: so many records a second, and so many at a
// time. What is beyond is left out, and counted.
const (
	recordsPerSecond = 100
	recordsAtOnce    = 500
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
	limit *rate.Limiter
	log   *slog.Logger // where it is told what was left out

	mu   sync.Mutex
	lost int // since it was told last
}

// spare returns a logger for what a backend says.
func spare(log *slog.Logger) *slog.Logger {
	return slog.New(sparing{log.Handler(), &thrift{limit: rate.NewLimiter(recordsPerSecond, recordsAtOnce), log: log}})
}

// Handle implements slog.Handler.
func (s sparing) Handle(ctx context.Context, r slog.Record) error {
	if s.limit.Allow() {
		return s.Handler.Handle(ctx, r)
	}
	s.leaveOut()
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

// leaveOut counts a record. Of those of one second it is told at its end.
func (t *thrift) leaveOut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost++; t.lost == 1 {
		time.AfterFunc(time.Second, t.tell)
	}
}

func (t *thrift) tell() {
	t.mu.Lock()
	lost := t.lost
	t.lost = 0
	t.mu.Unlock()
	t.log.Warn("backend says too much; records of it were left out", "lost", lost, "max", recordsPerSecond)
}
