// Package audit writes the journal of calls: exactly one record for every call that the gateway
// receives, whatever its outcome, and for every request for a prompt or resource. It writes the
// records in a goroutine of its own, so that calls do not wait, unless the queue of records is
// full.
//
// The package does not depend on sessions or backends. It writes either to the log (New), through
// the slog handler, or lines of JSON (NewLines). It encodes the lines itself, because the encoding
// of a record by slog took half as much time as a call.
package audit

import (
	"log/slog"
	"strings"
	"time"

	"mcpgateway/internal/callid"
	"mcpgateway/internal/secrets"
)

// An Outcome is the result of a call.
type Outcome string

// The outcomes.
const (
	OK        Outcome = "ok"
	ToolError Outcome = "tool_error" // a result with isError
	RPCError  Outcome = "rpc_error"  // a JSON-RPC error, with Record.Code
	Cancelled Outcome = "cancelled"  // by the client
	Timeout   Outcome = "timeout"    // call_timeout ran out
	// BackendLost: the backend exited or disconnected during the call, its response was not
	// usable, or the gateway aborted the call; the call may have run.
	BackendLost Outcome = "backend_lost"
	// NotRun: the call certainly did not run, for example because the backend was not available,
	// exited before the call was sent, or refused the call with an HTTP status.
	NotRun Outcome = "not_run"
	// Rejected: the gateway rejected the call before sending it to a backend, for example because
	// the queue of the backend was full (max_in_flight).
	Rejected Outcome = "rejected"
	// InputRequired: the client has to retry the call with inputResponses.
	InputRequired Outcome = "input_required"
)

// A Record describes one call. Its byte slices must not be changed after Write.
type Record struct {
	Time      time.Time // zero = the time of Write
	Seq       uint64    // see package callid; 0 = no call id
	Session   string    // the gateway's id of the session
	Client    string    // name/version of clientInfo
	Principal string    // see principal.Principal.Name; "" = none

	// ID is the raw JSON text of the client's id. The text is logged as a string, so that the types
	// of ids stay distinct: the number 1 is logged as "1", the string "1" as "\"1\"".
	ID        string
	BackendID string // the id sent to the backend; "" if none was sent
	TraceID   string // id of the trace (OpenTelemetry), 32 hexadecimal digits; "" = none

	// Method is the method of a request other than tools/call, "" for tools/call. The record of a
	// request with a Method has msg=request. With a method, Tool and BackendTool contain the name
	// of a prompt or the URI of a resource.
	Method string

	Tool        string // exposed name
	Backend     string // "" if the call was not routed
	BackendTool string // name at the backend, "" if the call was not routed

	Outcome Outcome
	Code    int // JSON-RPC error code; logged only with RPCError
	// Reason is the gateway's explanation of a missing result. For a response of the backend the
	// reason is read from Result instead, if results are logged.
	Reason string
	// Confirmation is the state of the question whether the call may run (tools.confirm): asked,
	// accepted, declined, cancelled (dismissed), unanswered or impossible; "" = none was needed.
	Confirmation string
	Counts

	Started time.Time // when the gateway received the call; zero = unknown
	// Queued is the time until the call was sent, or until its end if it was not sent: a call may
	// wait for a starting backend or for a slot. The attribute dur is the rest of the time until
	// the end of the call.
	Queued time.Duration
	Dur    time.Duration

	BytesIn, BytesOut int // sizes of the arguments and the result

	Arguments, Result []byte // raw JSON or nil; used only as far as Options.Payloads permits
}

// Counts are the numbers of events during a call. A record has those that are not 0.
type Counts struct {
	// Rounds is the number of times that the client was asked for input on behalf of the backend.
	Rounds int
	// Progress is the number of progress notifications that were forwarded to the client.
	Progress int
	// Reconnects is the number of times that the call was sent to the backend again, or that the
	// stream of its response was resumed.
	Reconnects int
}

// A queuedRecord is a record with the full sizes of payloads that may be truncated.
type queuedRecord struct {
	Record
	argumentsSize, resultSize int
}

// attrs appends the attributes that the documentation promises, in this order. The record of a call
// that was not routed has no backend. Text from clients and servers is masked, in contrast to names
// from the configuration.
func (e *queuedRecord) attrs(a []slog.Attr, mask func(string) string) []slog.Attr {
	if e.Seq != 0 {
		a = append(a, slog.String("call", callid.Text(e.Seq)))
	}
	a = e.appendClient(a, mask)
	a = e.appendIDs(a, mask)
	a = e.appendTarget(a, mask)
	return e.appendOutcome(a, mask)
}

func (e *queuedRecord) appendClient(a []slog.Attr, mask func(string) string) []slog.Attr {
	a = append(a, slog.String("session", e.Session), slog.String("client", mask(e.Client)))
	return appendKnown(a, "principal", e.Principal)
}

func (e *queuedRecord) appendIDs(a []slog.Attr, mask func(string) string) []slog.Attr {
	a = append(a, slog.String("id", mask(e.ID)))
	a = appendKnown(a, "backend_id", mask(e.BackendID))
	return appendKnown(a, "trace_id", e.TraceID)
}

// appendOutcome appends the outcome of the call, its times, its sizes and its payloads.
func (e *queuedRecord) appendOutcome(a []slog.Attr, mask func(string) string) []slog.Attr {
	a = append(a, slog.String("outcome", string(e.Outcome)))
	if e.Outcome == RPCError {
		a = append(a, slog.Int("code", e.Code))
	}
	a = appendKnown(a, "reason", e.reason(mask))
	a = appendKnown(a, "confirmation", e.Confirmation)
	a = appendCount(a, "rounds", e.Rounds)
	a = appendCount(a, "progress", e.Progress)
	a = appendCount(a, "reconnects", e.Reconnects)
	if !e.Started.IsZero() {
		a = append(a, slog.Time("started", e.Started))
	}
	a = append(a,
		slog.Float64("queued_ms", float64(e.Queued.Microseconds())/1e3),
		slog.Float64("dur_ms", float64(e.Dur.Microseconds())/1e3),
		slog.Int("bytes_in", e.BytesIn), slog.Int("bytes_out", e.BytesOut))
	if e.Arguments != nil {
		value := payload(e.Arguments, e.argumentsSize, mask)
		a = append(a, slog.Attr{Key: "arguments", Value: value})
	}
	if e.Result != nil {
		a = append(a, slog.Attr{Key: "result", Value: payload(e.Result, e.resultSize, mask)})
	}
	return a
}

// appendTarget appends the name of the tool, prompt or resource, and the backend.
func (e *queuedRecord) appendTarget(a []slog.Attr, mask func(string) string) []slog.Attr {
	if e.Method != "" {
		a = append(a,
			slog.String("method", mask(e.Method)), slog.String("name", mask(BareURI(e.Tool))))
		a = appendKnown(a, "backend", e.Backend)
		if e.BackendTool != e.Tool {
			a = appendKnown(a, "backend_name", mask(e.BackendTool))
		}
		return a
	}
	a = append(a, slog.String("tool", mask(e.Tool)))
	a = appendKnown(a, "backend", e.Backend)
	return appendKnown(a, "backend_tool", mask(e.BackendTool))
}

// message returns the value of the key msg.
func (e *queuedRecord) message() string {
	if e.Method != "" {
		return "request"
	}
	return "call"
}

// BareURI masks a query that may contain a secret, and secret user information in the authority of
// a URI. Any other text is returned unchanged, except for a question mark at its end. Expressions
// of a URI template are not masked.
func BareURI(uri string) string {
	if i := secrets.QueryStart(uri); i >= 0 {
		uri = uri[:i] + secrets.Redacted
	}
	uri = strings.TrimSuffix(uri, "?")
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	i := strings.LastIndexByte(authority, '@')
	if i >= 0 && secrets.IsSecretUserInfo(authority[:i]) {
		rest = secrets.Redacted + rest[i:]
	}
	return scheme + "://" + rest
}

func appendKnown(a []slog.Attr, key, value string) []slog.Attr {
	if value == "" {
		return a
	}
	return append(a, slog.String(key, value))
}

func appendCount(a []slog.Attr, key string, n int) []slog.Attr {
	if n == 0 {
		return a
	}
	return append(a, slog.Int(key, n))
}
