package transport

import (
	"bytes"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/wire"
)

// An WriteQueue writes lines to a stream that may be slow to take them. It tries
// the stream first, without waiting; what is left over waits in the outbox for
// its goroutine. It is the Write of every Conn over pipes.
type WriteQueue struct {
	w     io.Writer
	try   func([]byte) (int, error) // writes what fits without waiting; nil if w cannot
	limit int                       // bytes that may wait; one more message is taken until they do

	mu          sync.Mutex
	queue       [][]byte
	lastIsCopy  bool // the last of queue is a copy to which more is added
	queuedBytes int
	writing     bool // the goroutine holds the stream
	err         error
	coalesced   []byte        // lines that go out when the burst is over that they came of
	coalescing  bool          // some burst will call release
	wake        chan struct{} // 1 slot
	done        chan struct{} // closed when the goroutine is gone
	drained     sync.Cond     // signalled when the queue has run empty
	closeOnce   sync.Once

	onFailure func() // called when a write fails of which no send tells; set before anything is sent

	// While something waits the far side has to stir within patience, unless that is 0;
	// else deaf is called, once. Both are set before anything is sent.
	stallTimeout time.Duration
	onStall      func()
	progress     atomic.Int64 // counts what it takes of what waits, and what it says
	lastProgress int64        // of them, when
	progressAt   time.Time    // it was looked last, or something began to wait
	stallTimer   *time.Timer  // calls look
}

// WriteQueueOptions configure a [WriteQueue].
type WriteQueueOptions struct {
	Limit        int           // bytes that may wait; one more message is accepted until they do
	OnFailure    func()        // called when a write fails that no Send can report
	StallTimeout time.Duration // how long the reader may make no progress while bytes wait; 0 = no limit
	OnStall      func()        // called once when StallTimeout has passed
}

// NewWriteQueue returns a queue for f and starts its goroutine, which ends with Close.
func NewWriteQueue(f *os.File, o WriteQueueOptions) *WriteQueue {
	q := newWriteQueue(f, tryWriter(f), o.Limit)
	q.onFailure, q.stallTimeout, q.onStall = o.OnFailure, o.StallTimeout, o.OnStall
	return q
}

// MarkProgress tells the queue that its reader is alive: it has sent something.
func (q *WriteQueue) MarkProgress() { q.progress.Add(1) }

func newWriteQueue(w io.Writer, try func([]byte) (int, error), limit int) *WriteQueue {
	q := &WriteQueue{w: w, try: try, limit: limit, wake: make(chan struct{}, 1), done: make(chan struct{})}
	q.drained.L = &q.mu
	go q.run()
	return q
}

// maxCoalesced is how many bytes of lines are copied to be written in one system call: that is the most that is held.
const maxCoalesced = 32 << 10

// minUncopied is the length from which on a line waits as it is, in bytes.
const minUncopied = 4 << 10

func (q *WriteQueue) Send(m wire.Message) error {
	line := m.OneLine().Raw()
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil:
		return q.err
	case q.queuedBytes >= q.limit:
		return ErrFull
	}
	if len(q.coalesced)+len(line) > maxCoalesced {
		q.releaseLocked()
	}
	switch {
	case q.try == nil || q.writing || len(q.queue) > 0: // then nothing is held
		q.push(line)
		q.push(newline)
	case len(line) > maxCoalesced:
		q.sendLong(line)
	default:
		q.coalesce(line, m.Burst())
	}
	return q.err
}

var newline = []byte{'\n'}

// coalesce leaves a line to the end of the burst, if there is one, and writes it else.
func (q *WriteQueue) coalesce(line []byte, burst *wire.Burst) {
	q.coalesced = append(append(q.coalesced, line...), '\n')
	if burst != nil && !q.coalescing {
		q.coalescing = burst.OnEnd(q.release)
	}
	if burst == nil || !q.coalescing {
		q.releaseLocked()
	}
}

// sendLong writes a line that would take long to copy, and queues what the stream does not take of it.
func (q *WriteQueue) sendLong(line []byte) {
	if n := q.write(line); n < len(line) {
		q.push(line[n:])
		q.push(newline)
	} else if q.write(newline) == 0 {
		q.push(newline)
	}
}

// release is what a burst calls when it is over.
func (q *WriteQueue) release() {
	q.mu.Lock()
	q.coalescing = false
	before := q.err
	q.releaseLocked()
	broke := q.err != before
	q.mu.Unlock()
	if broke {
		q.notifyFailure()
	}
}

// notifyFailure tells that a write has failed behind the back of who sent what was written.
func (q *WriteQueue) notifyFailure() {
	if q.onFailure != nil {
		q.onFailure()
	}
}

// releaseLocked writes what is held, and queues what the stream does not take of it.
func (q *WriteQueue) releaseLocked() {
	if len(q.coalesced) == 0 || q.err != nil {
		return
	}
	if n := q.write(q.coalesced); n < len(q.coalesced) {
		rest := q.coalesced[n:]
		if len(rest) >= minUncopied { // else it is copied in any case
			rest = bytes.Clone(rest)
		}
		q.push(rest)
	}
	q.coalesced = q.coalesced[:0]
}

func (q *WriteQueue) write(b []byte) int {
	n, err := q.try(b)
	if err != nil {
		q.err = err
	}
	return n
}

func (q *WriteQueue) push(b []byte) {
	if q.queuedBytes == 0 && q.stallTimeout > 0 {
		q.startStallTimerLocked()
	}
	q.enqueue(b)
	q.queuedBytes += len(b)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// enqueue puts b behind what waits. Short lines are copied together, so that what waits takes no
// more memory than its bytes.
func (q *WriteQueue) enqueue(b []byte) {
	last := len(q.queue) - 1
	switch {
	case len(b) >= minUncopied:
		q.queue, q.lastIsCopy = append(q.queue, b), false
	case last >= 0 && q.lastIsCopy && len(q.queue[last])+len(b) <= chunkSize:
		q.queue[last] = append(q.queue[last], b...)
	default:
		q.queue, q.lastIsCopy = append(q.queue, bytes.Clone(b)), true
	}
}

// run is the goroutine: it writes what waits, and blocks doing so.
func (q *WriteQueue) run() {
	defer close(q.done)
	for range q.wake {
		broke := false
		q.mu.Lock()
		for len(q.queue) > 0 && q.err == nil {
			batch := q.queue
			q.queue, q.writing = nil, true
			q.mu.Unlock()
			err := q.writeBatch(batch)
			q.mu.Lock()
			q.writing = false
			if broke = err != nil; broke {
				q.err = err
			}
		}
		if q.err != nil {
			q.queue, q.queuedBytes = nil, 0
		}
		if q.queuedBytes == 0 && q.stallTimer != nil {
			q.stallTimer.Stop()
		}
		q.drained.Broadcast()
		q.mu.Unlock()
		if broke {
			q.notifyFailure()
		}
	}
}

// writeBatch writes the batch, what is short in it gathered into writes of a sensible size.
func (q *WriteQueue) writeBatch(batch [][]byte) error {
	var gather []byte
	for i, b := range batch {
		if len(b) < chunkSize {
			gather = append(gather, b...)
			b = nil
		}
		if len(b) == 0 && len(gather) < chunkSize && i < len(batch)-1 {
			continue
		}
		for _, text := range [][]byte{gather, b} {
			if err := q.writeAll(text); err != nil {
				return err
			}
		}
		gather = gather[:0]
	}
	return nil
}

// writeAll writes in pieces, so that it shows when some of it is taken.
func (q *WriteQueue) writeAll(text []byte) error {
	for piece := range slices.Chunk(text, chunkSize) {
		n, err := q.w.Write(piece)
		q.mu.Lock()
		q.queuedBytes -= n
		q.mu.Unlock()
		if err != nil {
			return err
		}
		q.progress.Add(1)
	}
	return nil
}

// startStallTimerLocked begins to look whether the far side stirs.
func (q *WriteQueue) startStallTimerLocked() {
	q.lastProgress, q.progressAt = q.progress.Load(), time.Now()
	if q.stallTimer == nil {
		q.stallTimer = time.AfterFunc(q.stallTimeout, q.checkStall)
	} else {
		q.stallTimer.Reset(q.stallTimeout)
	}
}

// checkStall calls deaf if the far side has not stirred for too long.
func (q *WriteQueue) checkStall() {
	q.mu.Lock()
	if q.queuedBytes == 0 || q.err != nil {
		q.mu.Unlock()
		return
	}
	if now := q.progress.Load(); now != q.lastProgress {
		q.lastProgress, q.progressAt = now, time.Now()
	}
	left := q.stallTimeout - time.Since(q.progressAt)
	if left > 0 {
		q.stallTimer.Reset(left)
	}
	q.mu.Unlock()
	if left <= 0 {
		q.onStall()
	}
}

// Crowded reports whether an eighth of what may wait does.
func (q *WriteQueue) Crowded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err == nil && q.queuedBytes >= q.limit/8
}

// flush waits until nothing waits any more, or the stream has failed.
func (q *WriteQueue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked()
	for q.queuedBytes > 0 && q.err == nil {
		q.drained.Wait()
	}
}

// Close drops what waits and ends the goroutine. The stream must have been
// closed before, or be one that does not block.
func (q *WriteQueue) Close() {
	q.mu.Lock()
	if q.err == nil {
		q.err = ErrClosed
	}
	q.mu.Unlock()
	q.closeOnce.Do(func() { close(q.wake) }) // nobody pushes once err is set
	<-q.done
}
