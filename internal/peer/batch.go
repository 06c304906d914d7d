package peer

import (
	"bytes"
	"errors"
	"sync"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A batch collects the responses to the requests that arrived in one array. The responses are sent
// in one array, in the order of the requests (JSON-RPC 2.0 §6).
type batch struct {
	peer      *Peer
	relatedTo wire.ID // first request of the batch

	mu        sync.Mutex
	responses []wire.Message // by index of the element; zero = no response
	pending   int            // unfinished elements
}

// handleBatch processes or rejects a batch. With [Options.OnMalformed], each rejected element is
// handled like malformed input outside of a batch.
func (p *Peer) handleBatch(m wire.Message, origin Origin) {
	elements := m.Elements()
	switch {
	case p.opts.AllowBatches == nil || !p.opts.AllowBatches():
		err := wire.Errorf(wire.CodeInvalidRequest, "Batch requests not supported")
		_ = p.send(wire.NewErrorResponse("", err), "")
		return
	case len(elements) == 0:
		err := wire.Errorf(wire.CodeInvalidRequest, "Invalid request: the batch is empty")
		p.handleMalformed(transport.NewMalformedError(m.Raw(), wire.Message{}, err))
		return
	}
	// pending starts one higher than the number of elements, so that immediate responses do not
	// complete the batch before all elements are read.
	b := &batch{peer: p, responses: make([]wire.Message, len(elements)), pending: len(elements) + 1}
	p.requests.addBatch()
	for i, text := range elements {
		m, err := wire.Parse(bytes.Clone(text)) // it may be stored longer than the others
		wrong, _ := errors.AsType[*wire.Error](err)
		if wrong == nil && m.Kind() == wire.Request && p.opts.RejectInBatch != nil {
			wrong = p.opts.RejectInBatch(m)
		}
		if wrong == nil && m.Kind() == wire.Batch {
			wrong = wire.Errorf(wire.CodeInvalidRequest, "Invalid request: a batch in a batch")
			m = wire.Message{}
		}
		switch {
		case wrong != nil && p.opts.OnMalformed != nil:
			// The array has no response to this element, which may be log output.
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
			p.dispatch(m, origin, b, i)
		default:
			b.done()
			p.dispatch(m, origin, nil, 0)
		}
	}
	b.done()
}

// respond stores the response to element i.
func (b *batch) respond(i int, m wire.Message) {
	b.mu.Lock()
	b.responses[i] = m
	b.mu.Unlock()
	b.done()
}

// done marks one element as finished, with or without a response. When all elements are finished,
// done sends the responses.
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
		_ = b.peer.send(wire.NewBatch(due), b.relatedTo)
	}
	b.peer.requests.written()
}
