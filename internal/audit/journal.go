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

// Payloads says which payloads are logged.
type Payloads string

// The choices of audit.payloads. "" is None.
const (
	None      Payloads = "none"
	Arguments Payloads = "arguments"
	All       Payloads = "all" // arguments and result
)

// Options says what a Journal writes. The zero value logs no payloads and lets 4,096 records wait.
type Options struct {
	Payloads Payloads
	Mask     func(string) string // blots secrets out of text: (*logs.Mask).String; nil = none are known
	Queue    int                 // records that may wait to be encoded; 0 = 4,096
}

// Journal takes records on the call path and encodes them elsewhere:
//
//	Write ─ waiting ─ Run ─ sink
type Journal struct {
	options      Options
	sink         sink
	batch        []entry // what Run has in hand
	lost         atomic.Int64
	firstWaiting chan struct{} // holds one token if the first record has come to wait since Run took them all
	manyWaiting  chan struct{} // likewise, if so many have

	mu      sync.Mutex
	waiting []entry
	taken   sync.Cond // tells those who wait for room
	closed  bool      // Run has gone, or has taken for the last time
}

// A sink is where records go. Only Run calls it. Both methods say how many records could not be written.
type sink interface {
	write(*entry) (lost int64)
	flush() (lost int64) // what was put goes out
}

// New returns a journal that will write into a log. It starts nothing: Run does.
//
// The level of logger plays no part: records go to its handler without asking whether it is enabled, so the journal is
// complete at log.level error, too.
func New(logger *slog.Logger, o Options) *Journal {
	j := newJournal(o)
	j.sink = &logSink{logger.Handler(), j.options.Mask}
	return j
}

// NewLines returns a journal that will write lines of JSON to w: those that slog's JSON handler would write, and as many
// as there are, up to 64 KiB, with one Write. It starts nothing: Run does.
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
	j := &Journal{options: o, firstWaiting: make(chan struct{}, 1), manyWaiting: make(chan struct{}, 1)}
	j.taken.L = &j.mu
	return j
}

// Write hands r over to Run. It encodes nothing and, unless a payload has to be cut or more records wait than ever did,
// allocates nothing. When more wait than Options.Queue it waits until Run has taken them: a journal with gaps is worth
// less than a call that ends a little later, and the sink behind does not block. Before Run it waits, too. After Run has
// returned it never waits: r counts as lost. Write may be called from any goroutine.
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

// entry drops what is not logged and cuts what is too long, so that waiting records do not hold on to large messages.
func (j *Journal) entry(r Record) entry {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	if j.options.Payloads != All {
		r.Result = nil
		if j.options.Payloads != Arguments {
			r.Arguments = nil
		}
	}
	e := entry{r, len(r.Arguments), len(r.Result)}
	e.Arguments, e.Result = truncatePayload(r.Arguments), truncatePayload(r.Result)
	return e
}

// truncatePayload returns a payload that is within bounds as it is, a longer one's head as a copy.
func truncatePayload(payload []byte) []byte {
	if len(payload) <= payloadLimit {
		return payload
	}
	return bytes.Clone(payload[:min(len(payload), payloadLimit+payloadMargin)])
}

// signal has Run look, unless it has not yet seen the signal before.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A Write that finds Run waiting has to wake it, which costs the call more than everything else here. So Run lets records
// come together for a while before it looks again, unless many have: to write all of a while's at once would hold up
// what shares the processor.
const (
	gatherTime  = 20 * time.Millisecond
	manyRecords = 512
)

// Run writes records until ctx is done, then those that were handed over before, and returns nil. It must run once.
func (j *Journal) Run(ctx context.Context) error {
	pause := time.NewTimer(gatherTime)
	defer pause.Stop()
	for ctx.Err() == nil {
		select {
		case <-j.firstWaiting:
			j.drain(false)
		case <-ctx.Done():
		}
		pause.Reset(gatherTime)
		select {
		case <-pause.C:
		case <-j.manyWaiting:
		case <-ctx.Done():
		}
	}
	j.drain(true)
	return nil
}

// drain writes records until none wait; those that come while it does so go along.
func (j *Journal) drain(last bool) {
	for j.takeBatch(last) {
		for i := range j.batch {
			j.lost.Add(j.sink.write(&j.batch[i]))
		}
		clear(j.batch) // what they refer to
	}
	j.lost.Add(j.sink.flush())
}

// takeBatch makes what waits the batch, if anything does. After the last time nothing comes to wait any more.
func (j *Journal) takeBatch(last bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting, j.batch = j.batch[:0], j.waiting
	j.closed = last
	j.taken.Broadcast()
	return len(j.batch) > 0
}

// Lost says how many records were not written: those which came after Run had returned, and those that the place they go
// to refused (disk full). The journal does not log it, since the place where it logs may be what failed; main does.
func (j *Journal) Lost() int64 { return j.lost.Load() }

// logSink has a log's handler write each record.
type logSink struct {
	handler slog.Handler
	mask    func(string) string
}

func (l *logSink) write(e *entry) (lost int64) {
	record := slog.NewRecord(e.Time, slog.LevelInfo, e.message(), 0)
	record.AddAttrs(e.attrs(make([]slog.Attr, 0, 20), l.mask)...)
	if l.handler.Handle(context.Background(), record) != nil {
		return 1
	}
	return 0
}

func (l *logSink) flush() int64 { return 0 }
