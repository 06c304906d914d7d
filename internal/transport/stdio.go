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

// flushTimeout is how long Close waits for a client to read what was written last.
const flushTimeout = time.Second

// Stdio returns the Conn over this process's side of two pipes: one message a
// line, as MCP's stdio transport has it. Limit bounds one message that is
// read, and what may wait to be written, in bytes.
//
// Close gives what waits a second to be taken. Where out cannot be polled, such as
// a terminal that is stopped, a write that blocks stays behind.
func Stdio(in, out *os.File, limit int) Conn {
	r, restoreIn := ownPollable(in)
	w, restoreOut := ownPollable(out)
	s := &stdio{
		lines: NewLineReader(closableReader(r, in), LineOptions{Limit: limit}),
		in:    r, out: w,
		ownOut:  w != out,
		queue:   newWriteQueue(w, tryWriter(w), limit),
		restore: func() { restoreIn(); restoreOut() },
	}
	s.queue.onFailure = s.closeIn
	return s
}

// closableReader returns r as it is if Close unblocks its reads, or if they do not
// block. Those of a terminal, say, it does not: there a goroutine reads on, to the
// end of the process, and what it reads after Close is lost.
func closableReader(r, was *os.File) io.Reader {
	info, err := r.Stat()
	if r != was || err != nil || info.Mode().IsRegular() {
		return FastReader(r)
	}
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	return pr
}

type stdio struct {
	lines     *LineReader
	in, out   *os.File
	ownOut    bool // out is, so that closing it unblocks a write
	queue     *WriteQueue
	restore   func()
	closed    atomic.Bool
	closeOnce sync.Once
}

func (s *stdio) Read() (wire.Message, wire.ID, error) {
	m, err := s.lines.ReadMessage()
	if err != nil && s.closed.Load() {
		return m, "", ErrClosed
	}
	return m, "", err
}

// Write sends m. A client that has closed its side of our stdout is gone, whoever still holds our
// stdin open: nothing that is asked there could be answered.
func (s *stdio) Write(m wire.Message, _ wire.ID) error {
	err := s.queue.Send(m)
	if err != nil && !errors.Is(err, ErrFull) {
		s.closeIn()
		return ErrClosed
	}
	return err
}

// Crowded reports whether an eighth of what may wait for the client does.
func (s *stdio) Crowded() bool { return s.queue.Crowded() }

func (s *stdio) Close() error {
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
			s.closeOut() // unblocks the write, if anything does
			if s.ownOut {
				<-done
			}
		}
		s.restore()
	})
	return nil
}

func (s *stdio) closeOut() {
	s.closeIn()
	s.out.Close()
}

// closeIn unblocks Read.
func (s *stdio) closeIn() {
	s.closed.Store(true)
	if piped, ok := s.lines.r.(*io.PipeReader); ok {
		piped.Close()
	}
	s.in.Close()
}
