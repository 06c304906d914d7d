package transport

import (
	"io"
	"sync"

	"mcpgateway/internal/wire"
)

// pipeLimit bounds what may wait in a Pipe, in bytes.
const pipeLimit = 64 << 20

// Pipe returns the two ends of a conversation in memory. What is written to one
// is read from the other, in order; closing either ends both, after what was
// written before has been read.
func Pipe() (a, b Conn) {
	there, back := newHalf(), newHalf()
	return &pipeEnd{in: there, out: back}, &pipeEnd{in: back, out: there}
}

type pipeEnd struct{ in, out *half }

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

// half is one direction.
type half struct {
	mu      sync.Mutex
	queue   []wire.Message
	waiting int
	err     error // what the reader gets once the queue is empty
	arrived sync.Cond
}

func newHalf() *half {
	h := &half{}
	h.arrived.L = &h.mu
	return h
}

func (h *half) read() (wire.Message, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.queue) == 0 && h.err == nil {
		h.arrived.Wait()
	}
	if len(h.queue) == 0 || h.err == ErrClosed {
		return wire.Message{}, h.err
	}
	m := h.queue[0]
	h.queue = h.queue[1:]
	h.waiting -= len(m.Raw())
	return m, nil
}

func (h *half) write(m wire.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return ErrClosed
	case h.waiting >= pipeLimit:
		return ErrFull
	}
	h.queue = append(h.queue, m)
	h.waiting += len(m.Raw())
	h.arrived.Signal()
	return nil
}

func (h *half) close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
	}
	h.arrived.Broadcast()
}
