package backends

import (
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// A ResponseChan is the handler of a test that waits for the response of one call. It needs a
// capacity of 1.
type ResponseChan chan contract.BackendResponse

func (w ResponseChan) OnProgress(wire.Message) {}

func (w ResponseChan) OnResponse(r contract.BackendResponse) { w <- r }

// SendCall sends a request of a session to a backend.
func (s *Set) SendCall(backend, session string, m wire.Message,
	h contract.CallHandler) contract.BackendCall {
	c := s.NewCall(backend, contract.BackendRequest{Message: m, Session: session}, h)
	c.Send()
	return c
}

// HoldsRequest reports whether a call holds the text of its request.
func HoldsRequest(c contract.BackendCall) bool {
	return len(c.(*queuedCall).request.Message.Raw()) > 0
}

// MaxAudiences is the bound of Audiences.
const MaxAudiences = maxAudiences

// Audiences returns the number of sets of profiles whose views are kept.
func (s *Set) Audiences() (n int) {
	s.publisher.audiences.each(func(*audienceView) { n++ })
	return n
}

// Publish makes the views again.
func (s *Set) Publish() { s.publisher.publish() }

// PinsOf returns the values of tools.pin in force of a backend and its instances.
func (s *Set) PinsOf(backend string) (all []config.Pin) {
	for b := range s.current().byName[backend].instances.andSelf() {
		all = append(all, b.lists.pins.inForce.Load().mode)
	}
	return all
}
