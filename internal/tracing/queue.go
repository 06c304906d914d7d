package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	// flushTimeout bounds the time for the spans in the queue when the gateway ends.
	flushTimeout = 2 * time.Second
	// lossInterval is the shortest time between two logs about lost spans.
	lossInterval = time.Minute
)

// A spanQueue is the bounded queue of spans that have ended. It is the span processor of the SDK,
// in place of the SDK's own, which starts a goroutine when it is created and does not tell how many
// spans were lost.
type spanQueue struct {
	spans    chan sdktrace.ReadOnlySpan
	overflow atomic.Int64 // spans for which the queue had no room, not logged yet
	batch    int
	delay    time.Duration // longest wait of a span for other spans
	limit    time.Duration // for a batch
	client   *otlpClient
	mask     func(string) string
	log      *slog.Logger

	// of the goroutine that runs
	lost    int64 // spans that were not delivered, not logged yet
	lastErr error // reason of the latest loss
	logged  time.Time
}

func newSpanQueue(o Options) *spanQueue {
	return &spanQueue{
		spans: make(chan sdktrace.ReadOnlySpan, o.Settings.queueSize), batch: o.Settings.batchSize,
		delay: o.Settings.delay, limit: o.Settings.exportLimit,
		client: newOTLPClient(o), mask: o.Mask, log: o.Log,
	}
}

// OnStart implements sdktrace.SpanProcessor.
func (q *spanQueue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor. It does not block.
func (q *spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	select {
	case q.spans <- s:
	default:
		q.overflow.Add(1)
	}
}

// Shutdown implements sdktrace.SpanProcessor.
func (q *spanQueue) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (q *spanQueue) ForceFlush(context.Context) error { return nil }

// run sends batches until ctx is done, and then the rest of the queue.
func (q *spanQueue) run(ctx context.Context) {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushTimeout, end) })()
	q.client.stopping = ctx.Done()
	defer q.client.http.CloseIdleConnections()
	var due <-chan time.Time // nil while the batch is empty
	batch := make([]sdktrace.ReadOnlySpan, 0, q.batch)
	for {
		select {
		case s := <-q.spans:
			if batch = append(batch, s); due == nil {
				due = time.After(q.delay)
			}
			if len(batch) < q.batch {
				continue
			}
		case <-due:
		case <-ctx.Done():
			q.flush(work, batch)
			return
		}
		q.send(work, batch)
		clear(batch)
		batch, due = batch[:0], nil
		q.logLoss(false)
	}
}

// flush sends a batch and the spans in the queue.
func (q *spanQueue) flush(ctx context.Context, batch []sdktrace.ReadOnlySpan) {
	for more := true; more; {
		select {
		case s := <-q.spans:
			batch = append(batch, s)
		default:
			more = false
		}
		if len(batch) == q.batch || !more && len(batch) > 0 {
			q.send(ctx, batch)
			batch = batch[:0]
		}
	}
	q.logLoss(true)
}

// send sends a batch, and notes how many of its spans were lost.
func (q *spanQueue) send(ctx context.Context, batch []sdktrace.ReadOnlySpan) {
	ctx, cancel := context.WithTimeout(ctx, q.limit)
	defer cancel()
	err := q.client.upload(ctx, encode(batch))
	if err == nil {
		return
	}
	q.lastErr = err
	if partial, ok := errors.AsType[*partialSuccessError](err); ok {
		q.lost += partial.rejected
	} else {
		q.lost += int64(len(batch))
	}
}

// logLoss logs the number of lost spans since the last log: at once if final is true, and otherwise
// if lossInterval has passed.
func (q *spanQueue) logLoss(final bool) {
	if !final && !q.logged.IsZero() && time.Since(q.logged) < lossInterval {
		return
	}
	if n := q.overflow.Swap(0); n > 0 {
		q.lost += n
		full := fmt.Errorf("the queue of %d spans was full", cap(q.spans))
		q.lastErr = errors.Join(full, q.lastErr)
	}
	if q.lastErr == nil {
		return
	}
	q.log.Warn("spans of traces were lost; check otel.endpoint and its receiver",
		"lost", q.lost, "err", q.mask(oneLine(q.lastErr)))
	q.lost, q.lastErr, q.logged = 0, nil, time.Now()
}
