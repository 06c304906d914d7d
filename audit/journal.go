package audit

import (
	"bytes"
	"context"
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
	Flush    func() error        // called when what was written should go out, for a logger with a buffer; nil = it has none
}

// Journal takes records on the call path and encodes them elsewhere:
//
//	Write ─ queue ─ Run ─ slog.Handler
type Journal struct {
	handler slog.Handler
	options Options
	queue   chan entry
	lost    atomic.Int64

	// Run's own:
	unflushed int64       // records written since the last Flush
	attrs     []slog.Attr // of the last record; AddAttrs copies them

	// gate is open to any number of Writes; Run shuts it when it leaves, which waits for those within. Nobody waits for
	// long behind it: a Write which waits for room while Run leaves is let go by done.
	gate sync.RWMutex
	done chan struct{} // closed when Run leaves
}

// New returns a journal that will write to logger. It starts nothing: Run does.
//
// The level of logger plays no part: records go to its handler without asking whether it is enabled, so the journal is
// complete at log.level error, too. Masking of everything but payloads is the handler's (logs.New).
func New(logger *slog.Logger, o Options) *Journal {
	if o.Queue <= 0 {
		o.Queue = 4096
	}
	if o.Flush == nil {
		o.Flush = func() error { return nil }
	}
	if o.Mask == nil {
		o.Mask = func(s string) string { return s }
	}
	return &Journal{
		handler: logger.Handler(),
		options: o,
		queue:   make(chan entry, o.Queue),
		done:    make(chan struct{}),
	}
}

// Write hands r over to Run. It encodes nothing and, unless a payload has to be cut, allocates nothing. When the queue
// is full it waits: a journal with gaps is worth less than a call that ends a little later, and the sink behind does not
// block. Before Run it waits, too, once the queue is full. After Run has returned it never waits: r counts as lost.
// Write may be called from any goroutine.
func (j *Journal) Write(r Record) {
	e := j.entry(r)
	j.gate.RLock()
	defer j.gate.RUnlock()
	select {
	case <-j.done:
		j.lost.Add(1)
		return
	default:
	}
	select {
	case j.queue <- e:
	case <-j.done:
		j.lost.Add(1)
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
	e.Arguments, e.Result = head(r.Arguments), head(r.Result)
	return e
}

// head returns a payload that is within bounds as it is, a longer one's head as a copy.
func head(payload []byte) []byte {
	if len(payload) <= longest {
		return payload
	}
	return bytes.Clone(payload[:min(len(payload), longest+margin)])
}

// gather is how long Run lets records come together before it looks again. A Write that finds Run waiting has to wake
// it, which costs the call more than everything else here; so under load Run does not wait, but sleeps.
const gather = 5 * time.Millisecond

// Run writes records until ctx is done, then those that were handed over before, and returns nil. It must run once.
func (j *Journal) Run(ctx context.Context) error {
	pause := time.NewTimer(gather)
	defer pause.Stop()
	for ctx.Err() == nil {
		select {
		case e := <-j.queue:
			j.log(e)
			j.drain()
		case <-ctx.Done():
		}
		pause.Reset(gather)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	j.drain()
	close(j.done)
	j.gate.Lock() // until the last Write is out: what it left behind is in the queue
	//lint:ignore SA2001 it is the waiting that counts
	j.gate.Unlock()
	j.drain()
	return nil
}

// drain empties the queue and lets in, in turn, the Writes that wait for room: a receive from a full channel takes the
// first waiting sender's value along.
func (j *Journal) drain() {
	for {
		select {
		case e := <-j.queue:
			j.log(e)
		default:
			j.flush()
			return
		}
	}
}

// Lost says how many records were not written: those which came after Run had returned, and those that the handler
// refused (disk full). The journal does not log it, since the place where it logs may be what failed; main does.
func (j *Journal) Lost() int64 { return j.lost.Load() }

func (j *Journal) log(e entry) {
	record := slog.NewRecord(e.Time, slog.LevelInfo, e.kind(), 0)
	j.attrs = e.attrs(j.attrs[:0], j.options.Mask)
	record.AddAttrs(j.attrs...)
	if j.handler.Handle(context.Background(), record) != nil {
		j.lost.Add(1)
		return
	}
	j.unflushed++
}

// flush sends out what the logger has in its buffer.
func (j *Journal) flush() {
	if j.unflushed > 0 && j.options.Flush() != nil {
		j.lost.Add(j.unflushed)
	}
	j.unflushed = 0
}
