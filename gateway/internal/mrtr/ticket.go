package mrtr

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

	"mcpgateway/internal/contract"
)

// A Ticket is the content of a requestState issued by the gateway. It allows a client to continue
// one call. A ticket is sealed, so that only the gateway can read, change or create it. It is also
// bound to the principal with its profiles, and to the call: for a backend the gateway is a single
// client, so that without this binding a client could continue the call of another client.
type Ticket struct {
	Kind      string // one of the constants below
	Principal string // key of the principal of the client that got the ticket
	Profiles  string // ProfileKey of this principal
	Backend   string // backend of the call
	// ServerKey identifies the server that ran when the ticket was issued; see [peer.Call].
	ServerKey string    `json:"Program"`
	Call      []byte    // digest of the call's method, name and arguments
	Entry     string    // backend's own name of the tool, prompt or resource
	Builtin   bool      // Entry is an entry of the gateway itself
	Until     time.Time // expiry
	// Run identifies the call that the ticket sends: all tickets with the same Run together are
	// valid for one; see [UsedTickets]. "" = the ticket may be used any number of times.
	Run string
	// Consents are the consents that the user has given to the call. A ticket with Consents or Asks
	// has a Run, unless its call is suspended.
	Consents contract.Consents
	// Asks are the further consents that the user gives by accepting the input requests of a rerun.
	Asks contract.Consents
	// Reason is the reason for which the user has to open the page of Asks; "" = unknown, or there
	// is no page.
	Reason string
	// depends on the kind: the backend's own requestState as JSON, "" = none; the id of a suspended
	// call; or the input requests of a rerun
	Text string
}

// The kinds of tickets.
const (
	TicketState     = "state"     // the backend has a requestState of its own
	TicketSuspended = "suspended" // a suspended call waits for the client
	TicketRerun     = "rerun"     // the call is sent, or sent again, after elicitations
)

// TicketTTL is the lifetime of a ticket for which the gateway stores no data.
const TicketTTL = 24 * time.Hour

// A Sealer seals tickets with a random key that is never stored.
type Sealer struct{ aead cipher.AEAD }

// NewSealer returns a Sealer with a new random key.
func NewSealer() *Sealer {
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
	return &Sealer{aead}
}

// Seal returns the encrypted text of a ticket, for the client.
func (s *Sealer) Seal(t Ticket) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // all fields can be encoded
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil))
}

// Errors of tickets. Each text completes "requestState: ".
var (
	ErrInvalidTicket = errors.New("it was not issued by this gateway, or was modified")
	ErrTicketExpired = errors.New("it has expired: start the call again")
	ErrOtherCall     = errors.New("it was issued for another call")
)

// Open returns the ticket of a sealed text, or ErrInvalidTicket or ErrTicketExpired.
func (s *Sealer) Open(text string) (t Ticket, err error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return t, ErrInvalidTicket
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return t, ErrInvalidTicket
	}
	if json.Unmarshal(plain, &t) != nil {
		return t, ErrInvalidTicket
	}
	if time.Now().After(t.Until) {
		return t, ErrTicketExpired
	}
	return t, nil
}

// Digest returns a digest of a call's method, name and arguments. White space between the tokens of
// the arguments is ignored. arguments may be nil.
func Digest(method, name string, arguments []byte) []byte {
	var compact bytes.Buffer
	if arguments != nil {
		if err := json.Compact(&compact, arguments); err != nil {
			compact.Write(arguments)
		}
	}
	h := sha256.New()
	for _, part := range []string{method, name, compact.String()} {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return h.Sum(nil)
}
