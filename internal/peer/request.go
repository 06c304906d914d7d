package peer

import (
	"errors"
	"sync"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A Request is a request of the remote side. It is open until it is answered or cancelled, or until
// Close of the Request or of its Peer.
type Request struct {
	wire.Message
	owner  requestOwner
	id     wire.ID
	origin Origin
	batch  *batch // nil = not in a batch
	index  int    // place of the request in the batch

	mu       sync.Mutex
	ended    bool
	onCancel CancelHandler
}

// A CancelHandler is notified when the remote side cancels a request, or when Close ends the
// request. params are the params of the cancellation; nil = Close.
type CancelHandler interface{ HandleCancel(params []byte) }

// A requestOwner writes the response and the notifications of a request. It is a [*Peer] or a
// [*singleRequest].
type requestOwner interface {
	// send writes a response or notification. Its error may be ignored.
	send(m wire.Message, relatedTo wire.ID) error
	// removeRequest is called once, when the request has ended.
	removeRequest(r *Request)
	// responseWritten is called after removeRequest, when the response has been written, or when it
	// is certain that no response will be written.
	responseWritten()
}

// A singleRequest is a Request without a Peer, and its owner.
type singleRequest struct {
	request Request
	out     transport.Writer
}

// NewRequest returns a Request without a Peer. m is the request. The response and the notifications
// are written to out, with the id of the request. If the remote side does not read, so that Write
// returns [transport.ErrFull], out is closed; other errors of Write are ignored.
//
// The caller must call [Request.Close] when no response can be sent any more, for example because
// the remote side has disconnected.
func NewRequest(out transport.Writer, m wire.Message) *Request {
	s := &singleRequest{request: Request{Message: m, id: m.ID()}, out: out}
	s.request.owner = s
	return &s.request
}

func (s *singleRequest) send(m wire.Message, relatedTo wire.ID) error {
	err := s.out.Write(m, relatedTo)
	if errors.Is(err, transport.ErrFull) {
		_ = s.out.Close()
	}
	return err
}

// removeRequest and responseWritten do nothing: out knows whether the response has been written.
func (s *singleRequest) removeRequest(*Request) {}
func (s *singleRequest) responseWritten()       {}

// RemoteID returns the id under which the remote side sent the request.
func (r *Request) RemoteID() wire.ID { return r.id }

// Origin returns the stream on which the request arrived.
func (r *Request) Origin() Origin { return r.origin }

// OnCancel sets the handler of a cancellation, replacing an earlier handler. It returns false if
// the request is no longer open; then the handler is not called.
func (r *Request) OnCancel(h CancelHandler) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.onCancel = h
	}
	return !r.ended
}

// end ends the request. It returns the CancelHandler and true, once. The caller must then write the
// response, if there is one, and call responseWritten of the owner in any case. Afterwards OnCancel
// fails, because a handler that it set would never be called.
func (r *Request) end() (CancelHandler, bool) {
	r.mu.Lock()
	ended := r.ended
	r.ended = true
	r.mu.Unlock()
	if ended {
		return nil, false
	}
	r.owner.removeRequest(r)
	return r.onCancel, true
}

// claim ends the request. It returns true once; the caller must then send the response.
func (r *Request) claim() bool {
	_, ok := r.end()
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
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	if !ended {
		_ = r.owner.send(m, r.id)
	}
}

// respond writes the response to a claimed request. It returns true.
func (r *Request) respond(m wire.Message) bool {
	if r.batch != nil {
		r.batch.respond(r.index, m)
	} else {
		_ = r.owner.send(m, r.id)
	}
	r.owner.responseWritten()
	return true
}

// cancel ends an open request without a response, and calls its CancelHandler.
func (r *Request) cancel(params []byte) {
	handler, ok := r.end()
	if !ok {
		return
	}
	defer r.owner.responseWritten()
	if r.batch != nil {
		r.batch.done()
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
	handler, ok := r.end()
	if !ok {
		return
	}
	r.respond(wire.NewErrorResponse(r.id, err))
	if handler != nil {
		handler.HandleCancel(nil)
	}
}
