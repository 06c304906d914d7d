package peer

import (
	"errors"
	"sync"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A singleRequest is a Request without a Peer, and its owner.
type singleRequest struct {
	request Request
	out     transport.Writer

	mu    sync.Mutex // also guards request.onCancel
	ended bool
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

func (s *singleRequest) claim(r *Request) (CancelHandler, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, false
	}
	s.ended = true
	return r.onCancel, true
}

func (s *singleRequest) setCancelHandler(r *Request, h CancelHandler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	r.onCancel = h
	return true
}

func (s *singleRequest) isOpen(*Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ended
}

func (s *singleRequest) write(m wire.Message, relatedTo wire.ID) {
	if err := s.out.Write(m, relatedTo); errors.Is(err, transport.ErrFull) {
		_ = s.out.Close()
	}
}

// responseWritten does nothing: out knows whether the response has been written.
func (s *singleRequest) responseWritten() {}
