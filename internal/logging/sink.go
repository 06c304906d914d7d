package logging

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// SinkOptions configure a Sink. The zero value queues 1 MiB and reports lost records as text.
type SinkOptions struct {
	Limit int // maximum number of queued bytes; 0 = 1 MiB; only tests set it
	// Lost returns the line that reports n lost records; nil = FormatLost("text"). It must not use
	// the Sink.
	Lost func(n int) []byte
}

// A Sink is a writer that never waits for the underlying writer, because a client that starts the
// gateway and never reads stderr must not block the gateway. Each Write contains one record; slog
// guarantees this.
//
// At most Limit bytes are queued, including the write in progress; at most two buffers of this size
// are allocated. A record that does not fit is dropped as a whole. When the queue has room again, a
// line with the number of lost records is written in place of these records. The lines of a failed
// write are lost and counted; the next record causes a new attempt.
type Sink struct {
	w     io.Writer
	limit int
	lost  func(int) []byte
	done  chan struct{} // closed when the goroutine has ended

	mu          sync.Mutex
	wake        sync.Cond // signalled by Write and Close
	queue       []byte    // whole lines
	writing     int       // bytes taken from queue and not yet written
	lostRecords int       // lost records that are not yet reported
	writeFailed bool      // the last write failed: wait for a new record before the next attempt
	closed      bool      // Write returns os.ErrClosed
	abandoned   bool      // Close has stopped waiting
}

// OpenSink starts the goroutine that writes to w. Close ends the goroutine.
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

// Write queues a copy of one record and returns at once. If the queue is full, the record is
// dropped and counted, and Write returns no error. After Close, Write returns os.ErrClosed. It may
// be called concurrently.
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

// queueLocked queues p and, before it, the report of lost records. It returns false, and does not
// queue p, if there is no room.
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

// Close stops accepting records and waits until all queued records are written, for at most
// timeout. It returns an error if records were not written. If a write to the underlying writer
// blocks, the goroutine ends when this write ends. Close does not close the underlying writer.
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

// nextBatch waits for queued lines and returns them; spare becomes the new queue. An empty batch
// means that the Sink is closed, and that its queue is empty or Close has stopped waiting.
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

// finishWrite counts lines as written or lost, and reports whether the goroutine should continue.
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
