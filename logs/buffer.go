package logs

import (
	"io"
	"sync"
)

// maxLines is when Lines writes of its own accord, in bytes.
const maxLines = 64 << 10

// Lines gathers records so that many go out with one write(2); unlike a bufio.Writer it never splits one. Flush, or a
// full buffer, writes them.
type Lines struct {
	w io.Writer

	mu  sync.Mutex
	buf []byte
}

// NewLines returns a Lines in front of w.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Write takes one record. It fails only if it had to write what was there before and could not; that is lost then.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if len(l.buf) > 0 && len(l.buf)+len(p) > maxLines {
		err = l.flushLocked()
	}
	l.buf = append(l.buf, p...)
	return len(p), err
}

// Flush writes what was gathered. If that fails it is lost.
func (l *Lines) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flushLocked()
}

func (l *Lines) flushLocked() error {
	if len(l.buf) == 0 {
		return nil
	}
	_, err := l.w.Write(l.buf)
	l.buf = l.buf[:0]
	return err
}
