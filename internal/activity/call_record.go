package activity

import (
	"strings"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/text"
)

// A CallRecord describes a call. Its texts come from clients and backends: they are not masked, and
// they are truncated.
type CallRecord struct {
	Seq uint64 // number of the call in this process; see package callid
	Caller
	CallTarget
	ClientID string // raw JSON text of the id of the client
	Started  time.Time
	BytesIn  int // size of the arguments

	Ended bool
	CallEnd
}

// A Caller is the client of a call.
type Caller struct {
	Session   string
	Client    string // name/version
	Principal string // "" = none
}

// A CallTarget says what a call uses.
type CallTarget struct {
	Method   string
	Name     string // name of a tool or prompt, or URI, as in the request
	Backend  string // "" if it is not known yet, or the call was not routed
	Original string // name at the backend
}

// A CallEnd describes the end of a call.
type CallEnd struct {
	BackendID    string // the id that was sent to the backend; "" = not sent
	Outcome      gateway.OutcomeKind
	Code         int // JSON-RPC error code; 0 = no error
	Reason       string
	Confirmation string        // see audit.Record.Confirmation
	Queued, Dur  time.Duration // as in the audit record
	BytesOut     int           // size of the result
}

// Sizes of the texts in a CallRecord, in bytes.
const (
	maxName = 256
	maxText = 512
	maxID   = 128
)

// A storedCall is a CallRecord whose memory is used again. The texts of the ids are in buffers of
// the storedCall, and not in the CallRecord.
type storedCall struct {
	CallRecord
	clientID, backendID []byte
}

// begin makes the record that of a new call.
func (r *storedCall) begin(c *gateway.CallInfo) {
	r.CallRecord = CallRecord{
		Seq:        c.Seq,
		Caller:     Caller{c.Session, shorten(c.Client, maxName), c.Principal.Name()},
		CallTarget: CallTarget{Method: c.Method, Name: shorten(c.Name, maxName)},
		Started:    c.Started, BytesIn: len(c.Arguments),
	}
	r.clientID = append(r.clientID[:0], c.ID[:min(len(c.ID), maxID)]...)
	r.backendID = r.backendID[:0]
}

// end sets the end of the call.
func (r *storedCall) end(c *gateway.CallInfo, o *gateway.Outcome) {
	r.setRoute(c)
	r.backendID = append(r.backendID[:0], c.BackendID[:min(len(c.BackendID), maxID)]...)
	r.Ended = true
	r.CallEnd = CallEnd{
		Outcome: o.Kind, Code: o.Code, Reason: shorten(o.Reason, maxText),
		Confirmation: o.Confirmation, Queued: o.Queued, Dur: o.Dur, BytesOut: len(o.Result),
	}
}

func (r *storedCall) setRoute(c *gateway.CallInfo) {
	r.Backend, r.Original = c.Route.Backend, shorten(c.Route.Original, maxName)
}

// copy returns a CallRecord that stays unchanged when the record is used again.
func (r *storedCall) copy() CallRecord {
	c := r.CallRecord
	c.ClientID, c.BackendID = string(r.clientID), string(r.backendID)
	return c
}

// shorten truncates a text, without a reference to the memory of a long one.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.Clone(text.Truncate(s, limit))
}
