package transport

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/wire"
)

// flushTime is how long Close waits for a client to read what was written last.
const flushTime = time.Second

// Stdio returns the Conn over this process's side of two pipes: one message a
// line, as MCP's stdio transport has it. Limit bounds one message that is
// read, and what may wait to be written, in bytes.
//
// Close gives what waits a second to be taken.
func Stdio(in, out *os.File, limit int) Conn {
	r, restoreIn := pollable(in)
	w, restoreOut := pollable(out)
	return &stdio{
		lines: lineReader{r: unblockable(r, in), limit: limit},
		in:    r, out: w,
		outbox:  newOutbox(w, tryWriter(w), limit),
		restore: func() { restoreIn(); restoreOut() },
	}
}

// unblockable returns r as it is if Close unblocks its reads. A terminal's it
// does not: there a goroutine reads on, to the end of the process, and what it
// reads after Close is lost.
func unblockable(r, was *os.File) io.Reader {
	info, err := r.Stat()
	if r != was || err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return r
	}
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	return pr
}

type stdio struct {
	lines   lineReader
	in, out *os.File
	outbox  *outbox
	restore func()
	closed  atomic.Bool
	once    sync.Once
}

func (s *stdio) Read() (wire.Message, error) {
	m, err := s.lines.readMessage()
	if err != nil && s.closed.Load() {
		return m, ErrClosed
	}
	return m, err
}

func (s *stdio) Write(m wire.Message, _ wire.ID) error { return s.outbox.send(m) }

func (s *stdio) Close() error {
	s.once.Do(func() {
		giveUp := time.AfterFunc(flushTime, s.closeOut)
		s.outbox.drain()
		giveUp.Stop()
		s.closeOut()
		s.outbox.close()
		s.restore()
	})
	return nil
}

func (s *stdio) closeOut() {
	s.closed.Store(true)
	if piped, ok := s.lines.r.(*io.PipeReader); ok {
		piped.Close()
	}
	s.in.Close()
	s.out.Close()
}
