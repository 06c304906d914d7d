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

// A ticket is the content of a requestState issued by the gateway: what a client may continue. It
// is sealed, so that nobody else can read, change or create one, and bound to the principal and
// the call: to a backend the gateway is one single client, so without this one client could
// continue another's call.
type ticket struct {
	Kind      string // see the constants
	Principal string // to whom it was issued
	Backend   string // of the call
	// ServerKey identifies the server that ran when the ticket was issued; see [peer.Call].
	ServerKey string    `json:"Program"`
	Call      []byte    // digest of the call's method, name and arguments
	Until     time.Time // expiry
	// by kind: the backend's own requestState as JSON, the id of a suspended call, or the id and
	// the input requests of a rerun
	Text string
}

// The kinds of tickets.
const (
	ticketState     = "state"     // the backend has a requestState of its own
	ticketSuspended = "suspended" // a suspended call waits for the client
	ticketRerun     = "rerun"     // the call is sent again after URL elicitations
)

// ticketTTL is the lifetime of a ticket that costs the gateway no memory.
const ticketTTL = 24 * time.Hour

// A sealer seals tickets with a random key that is never stored.
type sealer struct{ aead cipher.AEAD }

func newSealer() *sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has a valid length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return &sealer{aead}
}

// seal returns the text of a ticket for the client.
func (s *sealer) seal(t ticket) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // all fields can be encoded
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil))
}

var (
	errInvalidTicket = errors.New("it was not issued by this gateway, or was modified")
	errTicketExpired = errors.New("it has expired: start the call again")
	errOtherCall     = errors.New("it was issued for another call")
)

// open returns the ticket of a sealed text.
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

// digest identifies a call by its method, name and arguments; white space in these is ignored.
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
		Kind: kind, Principal: c.stateless.principal, Backend: c.Route.Backend,
		ServerKey: c.upstream.ServerKey,
		Call:      c.digest(), Until: time.Now().Add(ttl), Text: text,
	})
}

// openTicket opens a ticket that the client has sent back.
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
