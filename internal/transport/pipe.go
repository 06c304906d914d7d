package transport

import (
	"io"
	"sync"

	"mcpgateway/internal/wire"
)

// pipeLimit bounds the unread bytes in each direction of a Pipe.
const pipeLimit = 64 << 20

// Pipe returns the two ends of a connection in memory. A message written to one end is read from
// the other end, in order. Closing an end closes both ends; the remaining messages can still be
// read from the other end.
func Pipe() (a, b Conn) {
	toA, toB := newPipeQueue(), newPipeQueue()
	return &pipeEnd{in: toA, out: toB}, &pipeEnd{in: toB, out: toA}
}

type pipeEnd struct{ in, out *pipeQueue }

func (p *pipeEnd) Write(m wire.Message, _ wire.ID) error { return p.out.write(m) }

func (p *pipeEnd) Read() (wire.Message, wire.ID, error) {
	m, err := p.in.read()
	return m, "", err
}

func (p *pipeEnd) Close() error {
	p.out.close(io.EOF)
	p.in.close(ErrClosed)
	return nil
}

// A pipeQueue is one direction of a Pipe.
type pipeQueue struct {
	mu       sync.Mutex
	messages []wire.Message
	bytes    int
	err      error // error of read at the end of the queue; nil = open
	arrived  sync.Cond
}

func newPipeQueue() *pipeQueue {
	h := &pipeQueue{}
	h.arrived.L = &h.mu
	return h
}

func (h *pipeQueue) read() (wire.Message, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.messages) == 0 && h.err == nil {
		h.arrived.Wait()
	}
	if len(h.messages) == 0 || h.err == ErrClosed {
		return wire.Message{}, h.err
	}
	m := h.messages[0]
	h.messages = h.messages[1:]
	h.bytes -= m.Text().Len()
	return m, nil
}

func (h *pipeQueue) write(m wire.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return ErrClosed
	case h.bytes >= pipeLimit:
		return ErrFull
	}
	h.messages = append(h.messages, m)
	h.bytes += m.Text().Len()
	h.arrived.Signal()
	return nil
}

func (h *pipeQueue) close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
	}
	h.arrived.Broadcast()
}
