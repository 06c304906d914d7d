package peer

import (
	"errors"
	"sync"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A batch gathers the answers to the requests that came in one array: they go
// back in one array, in the order of the requests (JSON-RPC 2.0 §6).
type batch struct {
	peer      *Peer
	relatedTo wire.ID // the first request in it

	mu        sync.Mutex
	responses []wire.Message // a message without text where none is due
	pending   int
}

// handleBatch handles a batch, or refuses it. With [Options.OnMalformed], elements that are no messages are
// handled as if each was on a line of its own.
func (p *Peer) handleBatch(m wire.Message, on Origin) {
	elements := m.Elements()
	switch {
	case p.opts.AllowBatches == nil || !p.opts.AllowBatches():
		p.write(wire.NewErrorResponse("", wire.Errorf(wire.CodeInvalidRequest, "Batch requests not supported")), "")
		return
	case len(elements) == 0:
		p.handleMalformed(transport.NewMalformedError(m.Raw(), wire.Message{}, wire.Errorf(wire.CodeInvalidRequest, "Invalid request: the batch is empty")))
		return
	}
	// One more is open than there are elements, so that answers that come at
	// once do not end the batch before all of it is read.
	b := &batch{peer: p, responses: make([]wire.Message, len(elements)), pending: len(elements) + 1}
	p.mu.Lock()
	p.unwritten++ // until the answers are written, whoever does that
	p.mu.Unlock()
	for i, text := range elements {
		m, err := wire.Parse(text)
		wrong, _ := errors.AsType[*wire.Error](err)
		if wrong == nil && m.Kind() == wire.Request && p.opts.RejectInBatch != nil {
			wrong = p.opts.RejectInBatch(m)
		}
		if wrong == nil && m.Kind() == wire.Batch {
			wrong, m = wire.Errorf(wire.CodeInvalidRequest, "Invalid request: a batch in a batch"), wire.Message{}
		}
		switch {
		case wrong != nil && p.opts.OnMalformed != nil: // not an answer in an array to what may be a log
			b.done()
			p.handleMalformed(transport.NewMalformedError(text, m, wrong))
		case wrong != nil:
			if p.opts.OnRejected != nil {
				p.opts.OnRejected(m, wrong)
			}
			b.respond(i, wire.NewErrorResponse(m.ID(), wrong))
		case m.Kind() == wire.Request:
			if b.relatedTo == "" {
				b.relatedTo = m.ID()
			}
			p.dispatch(m, on, b, i)
		default:
			b.done()
			p.dispatch(m, on, nil, 0)
		}
	}
	b.done()
}

// respond puts the answer to element i in its place; leave is for an element that
// gets none. The last one to be closed sends them all.
func (b *batch) respond(i int, m wire.Message) {
	b.mu.Lock()
	b.responses[i] = m
	b.mu.Unlock()
	b.done()
}

func (b *batch) done() {
	b.mu.Lock()
	b.pending--
	last := b.pending == 0
	b.mu.Unlock()
	if !last {
		return
	}
	var due []wire.Message
	for _, m := range b.responses {
		if m.Raw() != nil {
			due = append(due, m)
		}
	}
	if len(due) > 0 {
		b.peer.write(wire.NewBatch(due), b.relatedTo)
	}
	b.peer.responseWritten()
}
