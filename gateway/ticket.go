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

// A ticket is the content of a requestState issued by the gateway. It allows a client to continue
// one call. A ticket is sealed, so that only the gateway can read, change or create it. It is also
// bound to the principal and the call: for a backend the gateway is a single client, so that
// without this binding a client could continue the call of another client.
type ticket struct {
	Kind      string // one of the constants below
	Principal string // principal of the client that got the ticket
	Backend   string // backend of the call
	// ServerKey identifies the server that ran when the ticket was issued; see [peer.Call].
	ServerKey string    `json:"Program"`
	Call      []byte    // digest of the call's method, name and arguments
	Until     time.Time // expiry
	// depends on the kind: the backend's own requestState as JSON; the id of a suspended call; or
	// the id and the input requests of a rerun
	Text string
}

// The kinds of tickets.
const (
	ticketState     = "state"     // the backend has a requestState of its own
	ticketSuspended = "suspended" // a suspended call waits for the client
	ticketRerun     = "rerun"     // the call is sent again after URL elicitations
)

// ticketTTL is the lifetime of a ticket for which the gateway stores no data.
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

// seal returns the encrypted text of a ticket, for the client.
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

// open returns the ticket of a sealed text, or errInvalidTicket or errTicketExpired.
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

// digest returns a digest of the call's method, name and arguments. White space between the tokens
// of the arguments is ignored.
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
		ServerKey: c.backendCall.ServerKey,
		Call:      c.digest(), Until: time.Now().Add(ttl), Text: text,
	})
}

// openTicket opens a ticket in the client's request. It returns an error if the ticket is invalid,
// has expired, or was issued to another principal or for another call.
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
