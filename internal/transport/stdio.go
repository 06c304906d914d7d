package transport

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/wire"
)

// flushTimeout is the time that Close waits for the client to read the queued messages.
const flushTimeout = time.Second

// Stdio returns the Conn of MCP's stdio transport, with one message per line, over this process's
// ends of two pipes. limit bounds the bytes of one incoming message, and the bytes queued for
// writing.
//
// Close waits up to a second for queued messages to be read. If one of the two files cannot be
// polled, such as a terminal, a goroutine may stay blocked in a read or write after Close.
func Stdio(in, out *os.File, limit int) Conn {
	r, restoreIn := ownPollable(in)
	w, restoreOut := ownPollable(out)
	s := &stdioConn{
		lines: NewLineReader(closableReader(r, in), LineOptions{Limit: limit}),
		in:    r, out: w,
		ownOut:  w != out,
		queue:   newWriteQueue(w, tryWriter(w), limit),
		restore: func() { restoreIn(); restoreOut() },
	}
	s.queue.onFailure = s.closeIn
	return s
}

// closableReader returns a reader of r whose reads Close unblocks. It reads r directly if r was
// made pollable (then r differs from orig) or is a regular file. Otherwise, for example for a
// terminal, a goroutine reads r until the end of the process, and bytes that it reads after Close
// are lost.
func closableReader(r, orig *os.File) io.Reader {
	info, err := r.Stat()
	if r != orig || err != nil || info.Mode().IsRegular() {
		return FastReader(r)
	}
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	return pr
}

type stdioConn struct {
	lines     *LineReader
	in, out   *os.File
	ownOut    bool // out is a pollable duplicate: closing out unblocks a write
	queue     *WriteQueue
	restore   func()
	closed    atomic.Bool
	closeOnce sync.Once
}

func (s *stdioConn) Read() (wire.Message, wire.ID, error) {
	m, err := s.lines.ReadMessage()
	if err != nil && s.closed.Load() {
		return m, "", ErrClosed
	}
	return m, "", err
}

// Write sends m. If the client has closed its end of our stdout, the connection ends even if
// stdin is still open, because no request could be answered.
func (s *stdioConn) Write(m wire.Message, _ wire.ID) error {
	err := s.queue.Send(m)
	if err != nil && !errors.Is(err, ErrFull) {
		s.closeIn()
		return ErrClosed
	}
	return err
}

// Backlogged reports whether the queued bytes have reached an eighth of the limit.
func (s *stdioConn) Backlogged() bool { return s.queue.Backlogged() }

func (s *stdioConn) Close() error {
	s.closeOnce.Do(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.queue.flush()
			s.closeOut()
			s.queue.Close()
		}()
		giveUp := time.NewTimer(flushTimeout)
		defer giveUp.Stop()
		select {
		case <-done:
		case <-giveUp.C:
			s.closeOut() // unblocks the write if ownOut
			if s.ownOut {
				<-done
			}
		}
		s.restore()
	})
	return nil
}

func (s *stdioConn) closeOut() {
	s.closeIn()
	s.out.Close()
}

// closeIn unblocks Read.
func (s *stdioConn) closeIn() {
	s.closed.Store(true)
	if piped, ok := s.lines.r.(*io.PipeReader); ok {
		piped.Close()
	}
	s.in.Close()
}
