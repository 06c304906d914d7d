package gateway

import (
	"bytes"
	"time"

	"mcpgateway/gateway/internal/mrtr"
)

func (c *clientCall) digest() []byte { return mrtr.Digest(c.Method, c.Name, c.Arguments) }

// sealTicket returns a sealed ticket for the call.
func (c *clientCall) sealTicket(kind, text string, ttl time.Duration) string {
	t := mrtr.Ticket{
		Kind: kind, Principal: c.stateless.principal, Backend: c.Route.Backend,
		Call: c.digest(), Until: time.Now().Add(ttl), Text: text,
	}
	if c.backendCall != nil {
		t.ServerKey = c.backendCall.ServerKey()
	}
	return c.s.g.sealer.Seal(t)
}

// openTicket opens a ticket in the client's request. It returns an error if the ticket is invalid,
// has expired, or was issued to another principal or for another call.
func (c *clientCall) openTicket(text string) (mrtr.Ticket, error) {
	t, err := c.s.g.sealer.Open(text)
	switch {
	case err != nil:
		return t, err
	case t.Principal != c.stateless.principal || !bytes.Equal(t.Call, c.digest()):
		return t, mrtr.ErrOtherCall
	}
	return t, nil
}
