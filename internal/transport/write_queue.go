package transport

import (
	"bytes"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

// A WriteQueue writes lines to a stream without blocking the caller. Send first writes as many
// bytes as the stream accepts without blocking; a goroutine writes the rest. Lines of one burst are
// coalesced into one system call. The WriteQueue implements Write for every Conn over pipes.
type WriteQueue struct {
	w     io.Writer
	try   func([]byte) (int, error) // writes without blocking; nil = not supported
	limit int                       // Send fails at this number of queued bytes
	// onFailure is called when a write fails and no Send reports the failure. It is set before the
	// first Send.
	onFailure func()
	stall     stallWatch // runs while bytes are queued; configured before the first Send

	mu         sync.Mutex // taken before the lock of stall
	queue      byteQueue
	err        error
	coalesced  []byte        // lines to write at the end of their burst
	coalescing bool          // a burst will call release
	wake       chan struct{} // capacity 1: the goroutine has something to do
	done       chan struct{} // closed when the goroutine has ended
	drained    sync.Cond     // signalled when the queue is empty or a write has failed
	closeOnce  sync.Once
}

// WriteQueueOptions configure a [WriteQueue].
type WriteQueueOptions struct {
	Limit        int           // Send fails at this number of queued bytes
	OnFailure    func()        // called when a write fails and no Send reports it; may be nil
	StallTimeout time.Duration // maximum time without progress while bytes are queued; 0 = no limit
	OnStall      func()        // called once, after StallTimeout without progress
}

// NewWriteQueue returns a queue for f and starts its goroutine, which ends with Close.
func NewWriteQueue(f *os.File, o WriteQueueOptions) *WriteQueue {
	q := newWriteQueue(f, tryWriter(f), o.Limit)
	q.onFailure, q.stall.timeout, q.stall.onStall = o.OnFailure, o.StallTimeout, o.OnStall
	return q
}

// MarkProgress records that the remote side has sent something, and so is alive.
func (q *WriteQueue) MarkProgress() { q.stall.progress.Add(1) }

func newWriteQueue(w io.Writer, try func([]byte) (int, error), limit int) *WriteQueue {
	q := &WriteQueue{
		w: w, try: try, limit: limit,
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	q.drained.L = &q.mu
	go q.run()
	return q
}

// maxCoalesced bounds the bytes of coalesced lines, which are copied and written together.
const maxCoalesced = 32 << 10

// Send writes or queues m. It fails with [ErrFull] if the queued bytes have reached the limit, with
// [ErrClosed] after Close, or with the error of a write that has failed.
func (q *WriteQueue) Send(m wire.Message) error {
	line := m.Line()
	size := line.Len()
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil:
		return q.err
	case q.queue.size >= q.limit:
		return ErrFull
	}
	if len(q.coalesced)+size > maxCoalesced {
		q.releaseLocked()
	}
	switch {
	case q.try == nil || q.queue.size > 0: // then no lines are coalesced
		q.push(line[0])
		q.push(line[1])
		q.push(newline)
	case size > maxCoalesced:
		q.sendLong(line)
	default:
		q.coalesce(line, m.Burst())
	}
	return q.err
}

var newline = []byte{'\n'}

// coalesce keeps a line until the end of its burst; a line without a burst is written at once.
func (q *WriteQueue) coalesce(line wire.Text, burst *wire.Burst) {
	q.coalesced = append(append(append(q.coalesced, line[0]...), line[1]...), '\n')
	if burst != nil && !q.coalescing {
		q.coalescing = burst.OnEnd(q.release)
	}
	if burst == nil || !q.coalescing {
		q.releaseLocked()
	}
}

// sendLong writes a long line without copying the line, and queues the part that the stream does
// not accept.
func (q *WriteQueue) sendLong(line wire.Text) {
	for _, piece := range [][]byte{line[0], line[1], newline} {
		if q.queue.size == 0 && len(piece) > 0 {
			piece = piece[q.write(piece):]
		}
		q.push(piece)
	}
}

// release writes the coalesced lines at the end of a burst.
func (q *WriteQueue) release() {
	q.mu.Lock()
	q.coalescing = false
	before := q.err
	q.releaseLocked()
	failed := q.err != before
	q.mu.Unlock()
	if failed {
		q.notifyFailure()
	}
}

// notifyFailure calls onFailure for a failed write that no Send reports.
func (q *WriteQueue) notifyFailure() {
	if q.onFailure != nil {
		q.onFailure()
	}
}

// releaseLocked writes the coalesced lines, and queues the part that the stream does not accept.
func (q *WriteQueue) releaseLocked() {
	if len(q.coalesced) == 0 || q.err != nil {
		return
	}
	if n := q.write(q.coalesced); n < len(q.coalesced) {
		rest := q.coalesced[n:]
		if len(rest) >= minUncopied { // otherwise the queue copies it
			rest = bytes.Clone(rest)
		}
		q.push(rest)
	}
	q.coalesced = q.coalesced[:0]
}

// write tries to write b without blocking and returns the number of bytes written. It stores an
// error in err.
func (q *WriteQueue) write(b []byte) int {
	n, err := q.try(b)
	if err != nil {
		q.err = err
	}
	return n
}

// push queues b for the goroutine.
func (q *WriteQueue) push(b []byte) {
	if len(b) == 0 {
		return
	}
	if q.queue.size == 0 {
		q.stall.start()
	}
	q.queue.push(b)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run writes the queue, in a goroutine of its own. It may block in a write.
func (q *WriteQueue) run() {
	defer close(q.done)
	for range q.wake {
		failed := false
		q.mu.Lock()
		for len(q.queue.parts) > 0 && q.err == nil {
			batch := q.queue.take()
			q.mu.Unlock()
			err := q.writeBatch(batch)
			q.mu.Lock()
			if failed = err != nil; failed {
				q.err = err
			}
		}
		if q.err != nil {
			q.queue.discard()
		}
		if q.queue.size == 0 {
			q.stall.stop()
		}
		q.drained.Broadcast()
		q.mu.Unlock()
		if failed {
			q.notifyFailure()
		}
	}
}

// writeBatch writes the batch; short slices are joined into larger writes.
func (q *WriteQueue) writeBatch(batch [][]byte) error {
	var joined []byte
	for i, b := range batch {
		if len(b) < chunkSize {
			joined = append(joined, b...)
			b = nil
		}
		if len(b) == 0 && len(joined) < chunkSize && i < len(batch)-1 {
			continue
		}
		for _, text := range [][]byte{joined, b} {
			if err := q.writeAll(text); err != nil {
				return err
			}
		}
		joined = joined[:0]
	}
	return nil
}

// writeAll writes text in pieces, so that progress becomes visible when the remote side has read a
// part.
func (q *WriteQueue) writeAll(text []byte) error {
	for piece := range slices.Chunk(text, chunkSize) {
		n, err := q.w.Write(piece)
		q.mu.Lock()
		q.queue.size -= n
		q.mu.Unlock()
		if err != nil {
			return err
		}
		q.stall.progress.Add(1)
	}
	return nil
}

// Backlogged reports whether the queued bytes have reached an eighth of the limit.
func (q *WriteQueue) Backlogged() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err == nil && q.queue.size >= q.limit/8
}

// flush waits until all queued bytes are written, or a write has failed.
func (q *WriteQueue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked()
	for q.queue.size > 0 && q.err == nil {
		q.drained.Wait()
	}
}

// Close discards the queue and waits for the goroutine to end. Before Close, the stream must be
// closed, unless its writes do not block.
func (q *WriteQueue) Close() {
	q.mu.Lock()
	if q.err == nil {
		q.err = ErrClosed
	}
	q.stall.stop()
	q.mu.Unlock()
	q.closeOnce.Do(func() { close(q.wake) }) // push is not called after err is set
	<-q.done
}
