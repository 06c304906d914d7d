package peer

import (
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A Request is a request of the remote side. It is open until it is answered or cancelled, or until
// Close of the Request or of its Peer.
type Request struct {
	wire.Message
	owner    requestOwner
	id       wire.ID
	origin   Origin
	element  *batchElement // place of the request in a batch; nil = not in a batch
	onCancel CancelHandler
}

// A CancelHandler is notified when the remote side cancels a request, or when Close ends the
// request. params are the params of the cancellation; nil = Close.
type CancelHandler interface{ HandleCancel(params []byte) }

// A requestOwner knows whether a request is open, and writes its response and its notifications. It
// is a [*Peer] or a [*singleRequest].
type requestOwner interface {
	// claim ends the request and returns its CancelHandler and true, once. The caller must then
	// write the response, if there is one, and call responseWritten in any case. Afterwards
	// setCancelHandler fails, because a handler that it set would never be called.
	claim(r *Request) (CancelHandler, bool)
	// setCancelHandler sets the handler; it returns false if the request is no longer open.
	setCancelHandler(r *Request, h CancelHandler) bool
	isOpen(r *Request) bool
	write(m wire.Message, relatedTo wire.ID)
	responseWritten()
}

// handleRequest registers a request and passes it to the Handler.
func (p *Peer) handleRequest(m wire.Message, origin Origin, b *batch, index int) {
	r := &Request{Message: m, owner: p, id: m.ID(), origin: origin}
	if b != nil {
		r.element = &batchElement{b, index}
	}
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

// answersPing reports whether a request is a ping to which the Peer itself responds.
func (p *Peer) answersPing(m wire.Message) bool {
	return m.Method() == protocol.MethodPing && (p.opts.PassPing == nil || !p.opts.PassPing(m))
}

func (p *Peer) register(r *Request) *wire.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, dup := p.requests[r.id]; dup {
		return wire.Errorf(wire.CodeInvalidRequest,
			"Invalid request: a request with this id is in flight")
	}
	// A ping is answered at once, so the bound does not apply to it.
	if n := p.opts.MaxInFlight; n > 0 && len(p.requests) >= n && !p.answersPing(r.Message) {
		return wire.Errorf(wire.CodeInternalError,
			"Too many requests in flight: at most %d are allowed; wait for answers", n)
	}
	if p.requests == nil {
		p.requests = make(map[wire.ID]*Request)
	}
	p.requests[r.id] = r
	return nil
}

// RemoteID returns the id under which the remote side sent the request.
func (r *Request) RemoteID() wire.ID { return r.id }

// Origin returns the stream on which the request arrived.
func (r *Request) Origin() Origin { return r.origin }

// OnCancel sets the handler of a cancellation, replacing an earlier handler. It returns false if
// the request is no longer open; then the handler is not called.
func (r *Request) OnCancel(h CancelHandler) bool { return r.owner.setCancelHandler(r, h) }

func (p *Peer) setCancelHandler(r *Request, h CancelHandler) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests[r.id] != r {
		return false
	}
	r.onCancel = h
	return true
}

func (p *Peer) isOpen(r *Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[r.id] == r
}

// claim removes the request from the table of inbound requests, Peer.requests (not from the table
// of calls, which are outbound).
func (p *Peer) claim(r *Request) (CancelHandler, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests[r.id] != r {
		return nil, false
	}
	if delete(p.requests, r.id); len(p.requests) == 0 && p.in == nil {
		p.requests = nil // many push peers may be idle for hours
	}
	p.unwritten++
	return r.onCancel, true
}

// responseWritten is called when the response to a claimed request or to a batch has been written,
// or when it is certain that no response will be written. It wakes DrainRequests.
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

// owesResponseLocked reports whether the remote side is still to get a response.
func (p *Peer) owesResponseLocked() bool { return len(p.requests)+p.unwritten > 0 }

// claim ends the request. It returns true once; the caller must then send the response.
func (r *Request) claim() bool {
	_, ok := r.owner.claim(r)
	return ok
}

// Reply responds with a result. Like Fail and Forward it returns false, and sends nothing, if the
// request is no longer open.
func (r *Request) Reply(result []byte) bool {
	return r.claim() && r.respond(wire.NewResult(r.id, result))
}

// ReplyAfter calls the function do and then responds with a result. If the request is no longer
// open, it returns false and does not call do.
func (r *Request) ReplyAfter(do func(), result []byte) bool {
	if !r.claim() {
		return false
	}
	do()
	return r.respond(wire.NewResult(r.id, result))
}

// Fail responds with an error.
func (r *Request) Fail(err *wire.Error) bool {
	return r.claim() && r.respond(wire.NewErrorResponse(r.id, err))
}

// Forward responds with a response from another connection, under the id of the request.
func (r *Request) Forward(m wire.Message) bool {
	return r.claim() && r.respond(m.Splice(wire.Edit{Part: wire.PartID, Text: r.Part(wire.PartID)}))
}

// Notify sends a notification that belongs to the request, such as progress, if the request is
// still open.
func (r *Request) Notify(m wire.Message) {
	if r.owner.isOpen(r) {
		r.owner.write(m, r.id)
	}
}

// respond writes the response to a claimed request. It returns true.
func (r *Request) respond(m wire.Message) bool {
	r.write(m)
	r.owner.responseWritten()
	return true
}

func (r *Request) write(m wire.Message) {
	if r.element != nil {
		r.element.batch.respond(r.element.index, m)
	} else {
		r.owner.write(m, r.id)
	}
}

// handleCancelled cancels a request on behalf of the remote side. The request gets no response
// ("SHOULD NOT send a response for the cancelled request"). The cancellation of an unknown or
// answered request is ignored.
func (p *Peer) handleCancelled(m wire.Message) {
	p.mu.Lock()
	r := p.requests[m.RequestID()]
	p.mu.Unlock()
	if r != nil {
		r.cancel(m.Part(wire.PartParams))
	}
}

func (r *Request) cancel(params []byte) {
	handler, ok := r.owner.claim(r)
	if !ok {
		return
	}
	defer r.owner.responseWritten()
	if r.element != nil {
		r.element.batch.done()
	}
	if handler != nil {
		handler.HandleCancel(params)
	}
}

// Close ends an open request because its connection is closed, and calls its CancelHandler. err is
// sent as the response, because the remote side may still read; nil = no response.
func (r *Request) Close(err *wire.Error) {
	if err == nil {
		r.cancel(nil)
		return
	}
	handler, ok := r.owner.claim(r)
	if !ok {
		return
	}
	r.respond(wire.NewErrorResponse(r.id, err))
	if handler != nil {
		handler.HandleCancel(nil)
	}
}
