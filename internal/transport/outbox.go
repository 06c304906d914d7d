package transport

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/wire"
)

// An outbox writes lines to a stream that may be slow to take them. It tries
// the stream first, without waiting; what is left over waits in the outbox for
// its goroutine. It is the Write of every Conn over pipes.
type outbox struct {
	w     io.Writer
	try   func([]byte) (int, error) // writes what fits without waiting; nil if w cannot
	limit int                       // bytes that may wait; one more message is taken until they do

	mu      sync.Mutex
	queue   [][]byte
	gathers bool // the last of queue is a copy to which more is added
	waiting int
	writing bool // the goroutine holds the stream
	err     error
	held    []byte        // lines that go out when the burst is over that they came of
	holding bool          // some burst will call release
	wake    chan struct{} // 1 slot
	done    chan struct{} // closed when the goroutine is gone
	space   sync.Cond     // signalled when the queue has run empty
	once    sync.Once

	failed func() // called when a write fails of which no send tells; set before anything is sent

	// While something waits the far side has to stir within patience, unless that is 0;
	// else deaf is called, once. Both are set before anything is sent.
	patience time.Duration
	deaf     func()
	stirs    atomic.Int64 // counts what it takes of what waits, and what it says
	seen     int64        // of them, when
	since    time.Time    // it was looked last, or something began to wait
	watch    *time.Timer  // calls look
}

func newOutbox(w io.Writer, try func([]byte) (int, error), limit int) *outbox {
	o := &outbox{w: w, try: try, limit: limit, wake: make(chan struct{}, 1), done: make(chan struct{})}
	o.space.L = &o.mu
	go o.run()
	return o
}

// small is how many bytes of lines are copied to be written in one system call: that is the most that is held.
const small = 32 << 10

// gathered is the length from which on a line waits as it is, in bytes.
const gathered = 4 << 10

func (o *outbox) send(m wire.Message) error {
	line := m.OneLine().Raw()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return o.err
	case o.waiting >= o.limit:
		return ErrFull
	}
	if len(o.held)+len(line) > small {
		o.releaseLocked()
	}
	switch {
	case o.try == nil || o.writing || len(o.queue) > 0: // then nothing is held
		o.push(line)
		o.push(newline)
	case len(line) > small:
		o.sendLong(line)
	default:
		o.hold(line, m.Burst())
	}
	return o.err
}

var newline = []byte{'\n'}

// hold leaves a line to the end of the burst, if there is one, and writes it else.
func (o *outbox) hold(line []byte, burst *wire.Burst) {
	o.held = append(append(o.held, line...), '\n')
	if burst != nil && !o.holding {
		o.holding = burst.Then(o.release)
	}
	if burst == nil || !o.holding {
		o.releaseLocked()
	}
}

// sendLong writes a line that would take long to copy, and queues what the stream does not take of it.
func (o *outbox) sendLong(line []byte) {
	if n := o.write(line); n < len(line) {
		o.push(line[n:])
		o.push(newline)
	} else if o.write(newline) == 0 {
		o.push(newline)
	}
}

// release is what a burst calls when it is over.
func (o *outbox) release() {
	o.mu.Lock()
	o.holding = false
	before := o.err
	o.releaseLocked()
	broke := o.err != before
	o.mu.Unlock()
	if broke {
		o.fail()
	}
}

// fail tells that a write has failed behind the back of who sent what was written.
func (o *outbox) fail() {
	if o.failed != nil {
		o.failed()
	}
}

// releaseLocked writes what is held, and queues what the stream does not take of it.
func (o *outbox) releaseLocked() {
	if len(o.held) == 0 || o.err != nil {
		return
	}
	if n := o.write(o.held); n < len(o.held) {
		rest := o.held[n:]
		if len(rest) >= gathered { // else it is copied in any case
			rest = bytes.Clone(rest)
		}
		o.push(rest)
	}
	o.held = o.held[:0]
}

func (o *outbox) write(b []byte) int {
	n, err := o.try(b)
	if err != nil {
		o.err = err
	}
	return n
}

func (o *outbox) push(b []byte) {
	if o.waiting == 0 && o.patience > 0 {
		o.watchLocked()
	}
	o.enqueue(b)
	o.waiting += len(b)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// enqueue puts b behind what waits. Short lines are copied together, so that what waits takes no
// more memory than its bytes.
func (o *outbox) enqueue(b []byte) {
	last := len(o.queue) - 1
	switch {
	case len(b) >= gathered:
		o.queue, o.gathers = append(o.queue, b), false
	case last >= 0 && o.gathers && len(o.queue[last])+len(b) <= chunk:
		o.queue[last] = append(o.queue[last], b...)
	default:
		o.queue, o.gathers = append(o.queue, bytes.Clone(b)), true
	}
}

// run is the goroutine: it writes what waits, and blocks doing so.
func (o *outbox) run() {
	defer close(o.done)
	for range o.wake {
		broke := false
		o.mu.Lock()
		for len(o.queue) > 0 && o.err == nil {
			batch := o.queue
			o.queue, o.writing = nil, true
			o.mu.Unlock()
			err := o.flush(batch)
			o.mu.Lock()
			o.writing = false
			if broke = err != nil; broke {
				o.err = err
			}
		}
		if o.err != nil {
			o.queue, o.waiting = nil, 0
		}
		if o.waiting == 0 && o.watch != nil {
			o.watch.Stop()
		}
		o.space.Broadcast()
		o.mu.Unlock()
		if broke {
			o.fail()
		}
	}
}

// flush writes the batch, what is short in it gathered into writes of a sensible size.
func (o *outbox) flush(batch [][]byte) error {
	var gather []byte
	for i, b := range batch {
		if len(b) < chunk {
			gather = append(gather, b...)
			b = nil
		}
		if len(b) == 0 && len(gather) < chunk && i < len(batch)-1 {
			continue
		}
		for _, text := range [][]byte{gather, b} {
			if err := o.writeAll(text); err != nil {
				return err
			}
		}
		gather = gather[:0]
	}
	return nil
}

// writeAll writes in pieces, so that it shows when some of it is taken.
func (o *outbox) writeAll(text []byte) error {
	for piece := range slices.Chunk(text, chunk) {
		n, err := o.w.Write(piece)
		o.mu.Lock()
		o.waiting -= n
		o.mu.Unlock()
		if err != nil {
			return err
		}
		o.stirs.Add(1)
	}
	return nil
}

// watchLocked begins to look whether the far side stirs.
func (o *outbox) watchLocked() {
	o.seen, o.since = o.stirs.Load(), time.Now()
	if o.watch == nil {
		o.watch = time.AfterFunc(o.patience, o.look)
	} else {
		o.watch.Reset(o.patience)
	}
}

// look calls deaf if the far side has not stirred for too long.
func (o *outbox) look() {
	o.mu.Lock()
	if o.waiting == 0 || o.err != nil {
		o.mu.Unlock()
		return
	}
	if now := o.stirs.Load(); now != o.seen {
		o.seen, o.since = now, time.Now()
	}
	left := o.patience - time.Since(o.since)
	if left > 0 {
		o.watch.Reset(left)
	}
	o.mu.Unlock()
	if left <= 0 {
		o.deaf()
	}
}

// crowded reports whether an eighth of what may wait does.
func (o *outbox) crowded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err == nil && o.waiting >= o.limit/8
}

// drain waits until nothing waits any more, or the stream has failed.
func (o *outbox) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseLocked()
	for o.waiting > 0 && o.err == nil {
		o.space.Wait()
	}
}

// close drops what waits and ends the goroutine. The stream must have been
// closed before, or be one that does not block.
func (o *outbox) close() {
	o.mu.Lock()
	if o.err == nil {
		o.err = ErrClosed
	}
	o.mu.Unlock()
	o.once.Do(func() { close(o.wake) }) // nobody pushes once err is set
	<-o.done
}
