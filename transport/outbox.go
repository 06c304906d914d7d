package transport

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/wire"
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
	waiting int
	writing bool // the goroutine holds the stream
	err     error
	scratch []byte
	wake    chan struct{} // 1 slot
	done    chan struct{} // closed when the goroutine is gone
	space   sync.Cond     // signalled when the queue has run empty
	once    sync.Once

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

// small is the longest line that is copied to be written with its line end in
// one system call.
const small = 32 << 10

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
	if o.try != nil && !o.writing && len(o.queue) == 0 {
		o.sendNow(line)
	} else {
		o.push(line)
		o.push(newline)
	}
	return o.err
}

var newline = []byte{'\n'}

// sendNow writes what the stream takes and queues the rest.
func (o *outbox) sendNow(line []byte) {
	if len(line) <= small {
		o.scratch = append(append(o.scratch[:0], line...), '\n')
		if n := o.write(o.scratch); n < len(o.scratch) {
			o.push(append([]byte(nil), o.scratch[n:]...))
		}
		return
	}
	if n := o.write(line); n < len(line) {
		o.push(line[n:])
		o.push(newline)
	} else if o.write(newline) == 0 {
		o.push(newline)
	}
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
	o.queue = append(o.queue, b)
	o.waiting += len(b)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run is the goroutine: it writes what waits, and blocks doing so.
func (o *outbox) run() {
	defer close(o.done)
	for range o.wake {
		o.mu.Lock()
		for len(o.queue) > 0 && o.err == nil {
			batch := o.queue
			o.queue, o.writing = nil, true
			o.mu.Unlock()
			sent, err := o.flush(batch)
			o.mu.Lock()
			o.writing = false
			o.waiting -= sent
			if err != nil {
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
	}
}

// flush writes the batch, gathered into writes of a sensible size.
func (o *outbox) flush(batch [][]byte) (sent int, err error) {
	var gather []byte
	for i, b := range batch {
		gather = append(gather, b...)
		if len(gather) < chunk && i < len(batch)-1 {
			continue
		}
		n, err := o.writeAll(gather)
		sent += n
		if err != nil {
			return sent, err
		}
		gather = gather[:0]
	}
	return sent, nil
}

// writeAll writes in pieces, so that it shows when some of it is taken.
func (o *outbox) writeAll(text []byte) (sent int, err error) {
	for piece := range slices.Chunk(text, chunk) {
		n, err := o.w.Write(piece)
		if sent += n; err != nil {
			return sent, err
		}
		o.stirs.Add(1)
	}
	return sent, nil
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

// drain waits until nothing waits any more, or the stream has failed.
func (o *outbox) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
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
