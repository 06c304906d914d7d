package logging

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// SinkOptions bounds a Sink. The zero value holds 1 MiB and reports losses as text.
type SinkOptions struct {
	Limit int                // bytes that may wait; 0 = 1 MiB
	Lost  func(n int) []byte // the line that tells of n lost records; nil = FormatLost("text"). Must not use the Sink
}

// Sink is a writer that never waits for the slow one behind it: a client that starts us and never reads our stderr must
// not stop us. Each Write is one record, which slog promises.
//
// The bound: at most Limit bytes wait to be written, those of the write under way included; two buffers of that size at
// most are held. A record which does not fit is dropped whole. As soon as there is room again, a line that says how many
// are missing stands where they would have stood. A failed write loses its lines; they are counted, and the next record
// is tried again.
type Sink struct {
	w     io.Writer
	limit int
	lost  func(int) []byte
	done  chan struct{} // closed when the goroutine has gone

	mu          sync.Mutex
	wake        sync.Cond // signalled by Write and Close
	queue       []byte    // whole lines
	writing     int       // bytes taken from queue, not yet written
	lostRecords int       // records dropped and not yet told of
	writeFailed bool      // the last write failed: do not try again until there is something new
	closed      bool      // no Write any more
	abandoned   bool      // Close has given up waiting
}

// OpenSink starts the one goroutine that writes to w. Close ends it.
func OpenSink(w io.Writer, o SinkOptions) *Sink {
	s := &Sink{w: w, limit: o.Limit, lost: o.Lost, done: make(chan struct{})}
	s.wake.L = &s.mu
	if s.limit <= 0 {
		s.limit = 1 << 20
	}
	if s.lost == nil {
		s.lost = FormatLost("text")
	}
	go s.run()
	return s
}

// Write takes one record and returns at once: queued or, when there is no room, dropped and counted, which is no error.
// p is copied. After Close it returns os.ErrClosed. It may be called from any goroutine.
func (s *Sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, os.ErrClosed
	}
	if !s.queueLocked(p) {
		s.lostRecords++
	}
	return len(p), nil
}

// queueLocked queues p, and before it what is to be said of those that did not fit.
func (s *Sink) queueLocked(p []byte) bool {
	room := s.limit - s.writing - len(s.queue) - len(p) - 1
	if room < 0 {
		return false
	}
	if s.lostRecords > 0 {
		note := s.lost(s.lostRecords)
		if len(note)+1 > room {
			return false
		}
		s.queue = appendLine(s.queue, note)
		s.lostRecords = 0
	}
	s.queue = appendLine(s.queue, p)
	s.wake.Signal()
	return true
}

// Close takes no more records, waits until all that are queued are written, but no longer than timeout, and returns an
// error if something was not. When the writer behind does not come back, the goroutine that waits for it stays, and ends
// as soon as that one write does. Close does not close the writer.
func (s *Sink) Close(timeout time.Duration) error {
	s.mu.Lock()
	s.closed = true
	s.wake.Signal()
	s.mu.Unlock()

	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned = true
	if n := s.writing + len(s.queue); n > 0 || s.lostRecords > 0 {
		return fmt.Errorf("log: %d bytes not written, %d records lost", n, s.lostRecords)
	}
	return nil
}

func (s *Sink) run() {
	defer close(s.done)
	var batch []byte
	for {
		if batch = s.nextBatch(batch[:0]); len(batch) == 0 {
			return
		}
		for rest := batch; len(rest) > 0; {
			lines := wholeLines(rest)
			rest = rest[len(lines):]
			_, err := s.w.Write(lines)
			if !s.finishWrite(lines, err) {
				return
			}
		}
	}
}

// nextBatch waits for something to write and swaps it for spare; nothing means that the Sink is closed and empty.
func (s *Sink) nextBatch(spare []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if len(s.queue) == 0 && s.lostRecords > 0 && !s.writeFailed {
			s.queue = appendLine(s.queue, s.lost(s.lostRecords))
			s.lostRecords = 0
		}
		if len(s.queue) > 0 || s.closed {
			break
		}
		s.wake.Wait()
	}
	if s.abandoned {
		return nil
	}
	batch := s.queue
	s.queue, s.writing = spare, len(batch)
	return batch
}

// finishWrite books lines as written, or as lost, and says whether to go on.
func (s *Sink) finishWrite(lines []byte, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing -= len(lines)
	s.writeFailed = err != nil
	if s.writeFailed {
		s.lostRecords += bytes.Count(lines, []byte("\n"))
	}
	return !s.abandoned
}
