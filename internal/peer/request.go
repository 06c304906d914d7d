package peer

import (
	"mcpgateway/internal/wire"
)

// A Request is something the far side asked, until it is answered.
type Request struct {
	wire.Message
	peer     *Peer
	id       wire.ID
	origin   Origin
	batch    *batch // nil unless it came in one
	index    int
	onCancel CancelHandler
}

// An CancelHandler is told when the far side takes a request back. Params are those of
// the cancellation, nil if the far side is gone.
type CancelHandler interface{ HandleCancel(params []byte) }

// handleRequest enters a request under its id and hands it on.
func (p *Peer) handleRequest(m wire.Message, on Origin, b *batch, slot int) {
	r := &Request{Message: m, peer: p, id: m.ID(), origin: on, batch: b, index: slot}
	if err := p.register(r); err != nil {
		if p.opts.OnRejected != nil {
			p.opts.OnRejected(m, err)
		}
		r.write(wire.NewErrorResponse(r.id, err))
		return
	}
	if p.answersPing(m) {
		r.Reply([]byte("{}"))
		return
	}
	p.h.HandleRequest(r)
}

// answersPing reports whether a request is a ping, which is answered here.
func (p *Peer) answersPing(m wire.Message) bool {
	return m.Method() == "ping" && (p.opts.PassPing == nil || !p.opts.PassPing(m))
}

func (p *Peer) register(r *Request) *wire.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, dup := p.requests[r.id]; dup {
		return wire.Errorf(wire.CodeInvalidRequest, "Invalid request: a request with this id is in flight")
	}
	// A ping never stays, so it is answered even then.
	if n := p.opts.MaxInFlight; n > 0 && len(p.requests) >= n && !p.answersPing(r.Message) {
		return wire.Errorf(wire.CodeInternalError, "Too many requests in flight: there may be %d; wait for answers", n)
	}
	if p.requests == nil {
		p.requests = make(map[wire.ID]*Request)
	}
	p.requests[r.id] = r
	return nil
}

// RemoteID returns the id that the far side gave the request.
func (r *Request) RemoteID() wire.ID { return r.id }

// Origin returns the stream on which the request came.
func (r *Request) Origin() Origin { return r.origin }

// OnCancel makes o the one who is told of a cancellation. It reports whether the
// request is still open; if not, o will not be told.
func (r *Request) OnCancel(o CancelHandler) bool {
	r.peer.mu.Lock()
	defer r.peer.mu.Unlock()
	if r.peer.requests[r.id] != r {
		return false
	}
	r.onCancel = o
	return true
}

// claim ends the request for whoever gets true, who then has to send its answer.
func (r *Request) claim() bool {
	_, ok := r.claimWithHandler()
	return ok
}

// claimWithHandler is take that tells whose the request was; if nothing is sent, settle has to
// follow. An CancelHandler that comes later is refused, so that none goes untold.
func (r *Request) claimWithHandler() (CancelHandler, bool) {
	p := r.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests[r.id] != r {
		return nil, false
	}
	if delete(p.requests, r.id); len(p.requests) == 0 && p.in == nil {
		p.requests = nil // who is fed may be one of many that nothing happens to for hours
	}
	p.unwritten++
	return r.onCancel, true
}

// responseWritten follows when what was owed to a request that was taken is written.
func (p *Peer) responseWritten() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwritten--
	if p.owesResponseLocked() {
		return
	}
	for _, done := range p.drainWaiters {
		close(done)
	}
	p.drainWaiters = nil
}

// owesResponseLocked reports whether the far side waits for anything.
func (p *Peer) owesResponseLocked() bool { return len(p.requests)+p.unwritten > 0 }

// Reply answers with a result of ours. Like Fail and Forward it reports whether
// the request was still open; if it was answered or cancelled before, nothing
// is sent.
func (r *Request) Reply(result []byte) bool {
	return r.claim() && r.respond(wire.NewResult(r.id, result))
}

// ReplyAfter is Reply for an answer that changes something: do is called before
// the answer is sent, and not at all if it will not be.
func (r *Request) ReplyAfter(do func(), result []byte) bool {
	if !r.claim() {
		return false
	}
	do()
	return r.respond(wire.NewResult(r.id, result))
}

// Fail answers with an error of ours.
func (r *Request) Fail(err *wire.Error) bool {
	return r.claim() && r.respond(wire.NewErrorResponse(r.id, err))
}

// Forward answers with somebody else's response, under the request's own id.
func (r *Request) Forward(m wire.Message) bool {
	return r.claim() && r.respond(m.Splice(wire.Edit{Part: wire.PartID, Text: r.Part(wire.PartID)}))
}

// Notify sends a notification that belongs to the request, such as its progress, if that is
// still open.
func (r *Request) Notify(m wire.Message) {
	r.peer.mu.Lock()
	open := r.peer.requests[r.id] == r
	r.peer.mu.Unlock()
	if open {
		r.peer.write(m, r.id)
	}
}

// respond writes the answer of a request that was taken.
func (r *Request) respond(m wire.Message) bool {
	r.write(m)
	r.peer.responseWritten()
	return true
}

func (r *Request) write(m wire.Message) {
	if r.batch != nil {
		r.batch.respond(r.index, m)
	} else {
		r.peer.write(m, r.id)
	}
}

// handleCancelled ends a request that the far side takes back. Nothing is sent for it
// any more ("SHOULD NOT send a response for the cancelled request"). An id that
// is unknown, or answered already, is ignored.
func (p *Peer) handleCancelled(m wire.Message) {
	p.mu.Lock()
	r := p.requests[m.RequestID()]
	p.mu.Unlock()
	if r != nil {
		r.cancel(m.Part(wire.PartParams))
	}
}

func (r *Request) cancel(params []byte) {
	owner, ok := r.claimWithHandler()
	if !ok {
		return
	}
	defer r.peer.responseWritten()
	if r.batch != nil {
		r.batch.done()
	}
	if owner != nil {
		owner.HandleCancel(params)
	}
}

// closeWith ends a request because the conversation does: the far side may still read,
// and is told so unless farewell is nil.
func (r *Request) closeWith(farewell *wire.Error) {
	if farewell == nil {
		r.cancel(nil)
		return
	}
	owner, ok := r.claimWithHandler()
	if !ok {
		return
	}
	r.respond(wire.NewErrorResponse(r.id, farewell))
	if owner != nil {
		owner.HandleCancel(nil)
	}
}
