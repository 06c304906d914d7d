package gateway

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
)

// A ticket is what stands in a requestState of ours: for what a client may come back,
// and with what. It is sealed, so that nobody else can read, change or make one, and
// bound to who asked for what: towards a backend the gateway is one and the same
// client, so that without this one client could go on with the call of another.
type ticket struct {
	Kind      string    // of what it stands for
	Principal string    // whose it is
	Backend   string    // where it leads
	Program   string    // which program that backend ran when it asked; see [peer.Call]
	Call      []byte    // digest of the call's method, name and arguments
	Until     time.Time // when it is good for nothing any more
	Text      string    // what it is for: the backend's own requestState as JSON text, the id of an errand, what a rerun waits for
}

// The kinds of tickets.
const (
	ticketState     = "state"  // the backend has a requestState of its own
	ticketSuspended = "errand" // an errand waits for the client
	ticketRerun     = "rerun"  // the call is to be sent again when the client has been elsewhere
)

// ticketTTL is how long a ticket is good for that costs nothing to keep.
const ticketTTL = 24 * time.Hour

// A sealer seals tickets, under a key that lives as long as it does.
type sealer struct{ aead cipher.AEAD }

func newSealer() *sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key is as long as it has to be
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return &sealer{aead}
}

// seal returns a ticket as a client gets it.
func (s *sealer) seal(t ticket) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // it is made of texts
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil))
}

var (
	errInvalidTicket = errors.New("it is none that was given out here, or was changed")
	errTicketExpired = errors.New("it has expired: begin the call anew")
	errOtherCall     = errors.New("it was given out for another call")
)

// open returns what was sealed.
func (s *sealer) open(text string) (t ticket, err error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return t, errInvalidTicket
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return t, errInvalidTicket
	}
	if json.Unmarshal(plain, &t) != nil {
		return t, errInvalidTicket
	}
	if time.Now().After(t.Until) {
		return t, errTicketExpired
	}
	return t, nil
}

// digest tells calls apart: by their method, by what they name, and by their
// arguments, be they written with other white space.
func (c *clientCall) digest() []byte {
	var arguments bytes.Buffer
	if c.Arguments != nil {
		if err := json.Compact(&arguments, c.Arguments); err != nil {
			arguments.Write(c.Arguments)
		}
	}
	h := sha256.New()
	for _, part := range []string{c.Method, c.Name, arguments.String()} {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return h.Sum(nil)
}

// sealTicket returns a sealed ticket for the call.
func (c *clientCall) sealTicket(kind, text string, ttl time.Duration) string {
	return c.s.g.sealer.seal(ticket{
		Kind: kind, Principal: c.stateless.principal, Backend: c.Route.Backend, Program: c.upstream.ServerKey,
		Call: c.digest(), Until: time.Now().Add(ttl), Text: text,
	})
}

// openTicket opens a ticket that the client has come back with.
func (c *clientCall) openTicket(text string) (ticket, error) {
	t, err := c.s.g.sealer.open(text)
	switch {
	case err != nil:
		return t, err
	case t.Principal != c.stateless.principal || !bytes.Equal(t.Call, c.digest()):
		return t, errOtherCall
	}
	return t, nil
}
