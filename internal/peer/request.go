package peer

import (
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A Request is a request of the remote side. It is open until it is answered or cancelled, or until
// Close.
type Request struct {
	wire.Message
	peer     *Peer
	id       wire.ID
	origin   Origin
	batch    *batch // batch that contains the request; nil = none
	index    int    // index of the request in the batch
	onCancel CancelHandler
}

// A CancelHandler is notified when the remote side cancels a request, or when Close ends the
// request. params are the params of the cancellation; nil = Close.
type CancelHandler interface{ HandleCancel(params []byte) }

// handleRequest registers a request and passes it to the Handler.
func (p *Peer) handleRequest(m wire.Message, origin Origin, b *batch, index int) {
	r := &Request{Message: m, peer: p, id: m.ID(), origin: origin, batch: b, index: index}
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
func (r *Request) OnCancel(h CancelHandler) bool {
	r.peer.mu.Lock()
	defer r.peer.mu.Unlock()
	if r.peer.requests[r.id] != r {
		return false
	}
	r.onCancel = h
	return true
}

// claim removes the request from the table of inbound requests, Peer.requests (not from the table
// of calls, which are outbound). It returns true once; the caller must then send the response.
func (r *Request) claim() bool {
	_, ok := r.claimWithHandler()
	return ok
}

// claimWithHandler removes the request from Peer.requests and returns its CancelHandler and true,
// once. The caller must then send the response, or call responseWritten if there is no response.
// Afterwards OnCancel fails, because a handler that it set would never be called.
func (r *Request) claimWithHandler() (CancelHandler, bool) {
	p := r.peer
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
	r.peer.mu.Lock()
	open := r.peer.requests[r.id] == r
	r.peer.mu.Unlock()
	if open {
		r.peer.write(m, r.id)
	}
}

// respond writes the response to a claimed request. It returns true.
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
	handler, ok := r.claimWithHandler()
	if !ok {
		return
	}
	defer r.peer.responseWritten()
	if r.batch != nil {
		r.batch.done()
	}
	if handler != nil {
		handler.HandleCancel(params)
	}
}

// closeWith ends a request because this side closes the connection. It sends err as the response,
// because the remote side may still read. nil = no response.
func (r *Request) closeWith(err *wire.Error) {
	if err == nil {
		r.cancel(nil)
		return
	}
	handler, ok := r.claimWithHandler()
	if !ok {
		return
	}
	r.respond(wire.NewErrorResponse(r.id, err))
	if handler != nil {
		handler.HandleCancel(nil)
	}
}
