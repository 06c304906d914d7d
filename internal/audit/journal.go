package audit

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Payloads selects the payloads that are logged.
type Payloads string

// The values of the configuration key audit.payloads. "" means None.
const (
	None      Payloads = "none"
	Arguments Payloads = "arguments"
	All       Payloads = "all" // arguments and result
)

// Options configure a Journal. The zero value logs no payloads and queues 4,096 records.
type Options struct {
	Payloads Payloads
	Mask     func(string) string // masks secrets in text, see logging.Mask; nil = no masking
	Queue    int                 // records that may be queued; 0 = 4,096; only tests set it
}

// A Journal accepts records in the goroutine of the call and encodes them in another goroutine:
//
//	Write ─ waiting ─ Run ─ sink
type Journal struct {
	options      Options
	sink         recordWriter
	spare        []queuedRecord // empty; Run uses it for the next records to queue
	lost         atomic.Int64
	firstWaiting chan struct{} // has an element if a record was queued since the last batch
	manyWaiting  chan struct{} // has an element if manyRecords were queued since then

	mu      sync.Mutex
	waiting []queuedRecord
	taken   sync.Cond // signals Write that there is room
	closed  bool      // Run has taken records for the last time
	batch   takenRecords
	written int64
}

// takenRecords are a number of records that Run is writing.
type takenRecords struct {
	records int       // 0 = Run is writing none
	first   time.Time // time of the first of them
}

// A JournalStatus is the state of a Journal.
type JournalStatus struct {
	Written int64         // records
	Lost    int64         // records, see Journal.Lost
	Queued  int           // records that are not yet written, or lost
	Lag     time.Duration // age of the first of them; 0 = there are none
}

// Status returns the state of the journal.
func (j *Journal) Status() JournalStatus {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := JournalStatus{Written: j.written, Lost: j.lost.Load(),
		Queued: len(j.waiting) + j.batch.records}
	switch {
	case j.batch.records > 0:
		s.Lag = time.Since(j.batch.first)
	case len(j.waiting) > 0:
		s.Lag = time.Since(j.waiting[0].Time)
	}
	s.Lag = max(0, s.Lag)
	return s
}

// A recordWriter writes records. Only Run calls it. Both methods return the number of records that
// could not be written.
type recordWriter interface {
	write(*queuedRecord) (lost int64)
	flush() (lost int64) // writes buffered records, at the end of a batch
}

// New returns a journal that writes to a log. Run must be called to write the records.
//
// Records are passed to the handler of logger regardless of its level, so that the journal is
// complete even at log.level error.
func New(logger *slog.Logger, o Options) *Journal {
	j := newJournal(o)
	j.sink = &logSink{logger.Handler(), j.options.Mask}
	return j
}

// NewLines returns a journal that writes lines of JSON to w, equal to the lines of slog's JSON
// handler. One Write contains all queued lines, up to 64 KiB, or a single longer line. Run must be
// called to write the records.
func NewLines(w io.Writer, o Options) *Journal {
	j := newJournal(o)
	j.sink = &lineSink{w: w, mask: j.options.Mask}
	return j
}

func newJournal(o Options) *Journal {
	if o.Queue <= 0 {
		o.Queue = 4096
	}
	if o.Mask == nil {
		o.Mask = func(s string) string { return s }
	}
	j := &Journal{
		options:      o,
		firstWaiting: make(chan struct{}, 1), manyWaiting: make(chan struct{}, 1),
	}
	j.taken.L = &j.mu
	return j
}

// Write queues r for Run. It does not encode r, and it allocates only to truncate a payload or to
// grow the queue. If more than Options.Queue records are queued, Write blocks until Run has taken
// them, even if Run was not called yet: a complete journal is more important than the short delay
// of a call, and the sink does not block. After Run has returned, Write does not block and counts r
// as lost. It may be called concurrently.
func (j *Journal) Write(r Record) {
	e := j.entry(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		j.lost.Add(1)
		return
	}
	j.waiting = append(j.waiting, e)
	switch len(j.waiting) {
	case 1:
		signal(j.firstWaiting)
	case manyRecords:
		signal(j.manyWaiting)
	}
	if len(j.waiting) > j.options.Queue {
		j.taken.Wait()
	}
}

// entry drops payloads that are not logged and truncates long payloads, so that queued records do
// not retain large messages.
func (j *Journal) entry(r Record) queuedRecord {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	if j.options.Payloads != All {
		r.Result = nil
		if j.options.Payloads != Arguments {
			r.Arguments = nil
		}
	}
	e := queuedRecord{r, len(r.Arguments), len(r.Result)}
	e.Arguments, e.Result = truncatePayload(r.Arguments), truncatePayload(r.Result)
	return e
}

// truncatePayload returns payload, or a copy of its beginning if it is too long.
func truncatePayload(payload []byte) []byte {
	if len(payload) <= payloadLimit {
		return payload
	}
	return bytes.Clone(payload[:min(len(payload), payloadLimit+payloadMargin)])
}

// signal wakes Run, unless an earlier signal is still pending.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Waking Run is the most expensive part of Write. Therefore Run pauses for gatherTime before it
// takes records again. The pause ends early when manyRecords are queued, because writing more
// records at once would delay other work on the same processor.
const (
	gatherTime  = 20 * time.Millisecond
	manyRecords = 512
)

// Run writes records until ctx is done, then writes the remaining queued records, and returns nil.
// It must be called once.
func (j *Journal) Run(ctx context.Context) error {
	pause := time.NewTimer(gatherTime)
	defer pause.Stop()
	for ctx.Err() == nil {
		select {
		case <-j.firstWaiting:
			j.writeBatch(false)
		case <-ctx.Done():
		}
		pause.Reset(gatherTime)
		select {
		case <-pause.C:
		case <-j.manyWaiting:
		case <-ctx.Done():
		}
	}
	j.writeBatch(true)
	return nil
}

// writeBatch writes the queued records. After a call with last = true, Write queues nothing.
func (j *Journal) writeBatch(last bool) {
	j.mu.Lock()
	records := j.waiting
	j.waiting, j.spare = j.spare, nil
	j.closed = last
	if len(records) > 0 {
		j.batch = takenRecords{len(records), records[0].Time}
	}
	j.taken.Broadcast()
	j.mu.Unlock()
	var lost int64
	for i := range records {
		lost += j.sink.write(&records[i])
	}
	lost += j.sink.flush()
	j.mu.Lock()
	j.lost.Add(lost)
	j.written += int64(len(records)) - lost
	j.batch = takenRecords{}
	j.mu.Unlock()
	clear(records) // releases the payloads
	j.spare = records[:0]
}

// Lost returns the number of records that were not written: records passed to Write after Run had
// returned, and records that could not be written to the log or file, for example because of a full
// disk. The caller logs the number, because the log may have caused the loss and the journal cannot
// log then.
func (j *Journal) Lost() int64 { return j.lost.Load() }

// logSink writes each record with the handler of a log.
type logSink struct {
	handler slog.Handler
	mask    func(string) string
}

func (l *logSink) write(e *queuedRecord) (lost int64) {
	record := slog.NewRecord(e.Time, slog.LevelInfo, e.message(), 0)
	record.AddAttrs(e.attrs(make([]slog.Attr, 0, 20), l.mask)...)
	if l.handler.Handle(context.Background(), record) != nil {
		return 1
	}
	return 0
}

func (l *logSink) flush() int64 { return 0 }
