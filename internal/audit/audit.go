// Package audit is the journal of calls: every call the gateway was asked for leaves exactly one record, whatever its
// end, written off the call path. So do the requests for prompts and resources.
//
// It knows neither sessions nor backends, and reads nothing but what it is handed. It writes into the log (New), through
// its slog handler, or lines of JSON (NewLines), which it encodes itself: to slog a record cost half of what a call costs.
package audit

import (
	"log/slog"
	"strings"
	"time"

	"mcpgateway/internal/secrets"
)

// Outcome is how a call ended.
type Outcome string

// The outcomes there are.
const (
	OK          Outcome = "ok"
	ToolError   Outcome = "tool_error"   // a result with isError
	RPCError    Outcome = "rpc_error"    // a JSON-RPC error; Record.Code says which
	Cancelled   Outcome = "cancelled"    // by the client
	Timeout     Outcome = "timeout"      // call_timeout ran out
	BackendLost Outcome = "backend_lost" // it died or hung up in mid-call: the call may have run
	NotRun      Outcome = "not_run"      // the backend is not there, or ended before the call was sent: the call did not run
	Rejected    Outcome = "rejected"     // by us, before any backend was asked; also if its queue is full (max_in_flight)

	InputRequired Outcome = "input_required" // the client has to answer something first, and comes back with that
)

// Record is one call. Its byte slices must not be changed once it was written.
type Record struct {
	Time    time.Time // zero = when Write was called
	Session string    // ours
	Client  string    // name/version of its clientInfo
	// Principal is the number of the token that the client has among the tokens of the
	// configuration; "" where there is one token or none.
	Principal string

	// ID is the raw JSON text of the client's id, logged as a string, so that the types stay apart: the number 1 is
	// logged as "1", the string "1" as "\"1\"".
	ID        string
	BackendID string // the id sent to the backend; "" if none was sent

	// Method is that of a request other than tools/call, which leaves a record of its own kind, msg=request; "" = a call
	// of a tool. What Tool and BackendTool say is then the name of what was asked for: of a prompt, or the URI of a
	// resource.
	Method string

	Tool        string // as exposed
	Backend     string // "" if it was never routed
	BackendTool string // the backend's own name for it; "" likewise

	Outcome Outcome
	Code    int // JSON-RPC error code; logged only with RPCError
	// Reason says why there is no result, in the gateway's words. For an answer of the backend's it is
	// read from Result instead, if that is logged.
	Reason string

	Started time.Time // when the gateway received it; zero = not known
	// Queued is the time before it was sent, or until its end if it was not: it waited for a backend to
	// start, say, or for a place. Dur is the time from then on.
	Queued time.Duration
	Dur    time.Duration

	BytesIn, BytesOut int // size of the arguments, of the result

	Arguments, Result []byte // raw JSON, or nil; looked at only as far as Options.Payloads says
}

// entry is a record on its way, with the full sizes of payloads that may have been cut.
type entry struct {
	Record
	argumentsSize, resultSize int
}

// attrs appends the keys that docs promise, in their order. Where a call was never routed, no backend is named. What
// others have written is masked; the names that the configuration has given are not.
func (e *entry) attrs(a []slog.Attr, mask func(string) string) []slog.Attr {
	a = append(a, slog.String("session", e.Session), slog.String("client", mask(e.Client)))
	a = appendKnown(a, "principal", e.Principal)
	a = append(a, slog.String("id", mask(e.ID)))
	a = appendKnown(a, "backend_id", mask(e.BackendID))
	a = e.appendTarget(a, mask)
	a = append(a, slog.String("outcome", string(e.Outcome)))
	if e.Outcome == RPCError {
		a = append(a, slog.Int("code", e.Code))
	}
	a = appendKnown(a, "reason", e.reason(mask))
	if !e.Started.IsZero() {
		a = append(a, slog.Time("started", e.Started))
	}
	a = append(a,
		slog.Float64("queued_ms", float64(e.Queued.Microseconds())/1e3),
		slog.Float64("dur_ms", float64(e.Dur.Microseconds())/1e3),
		slog.Int("bytes_in", e.BytesIn), slog.Int("bytes_out", e.BytesOut))
	if e.Arguments != nil {
		a = append(a, slog.Attr{Key: "arguments", Value: payload(e.Arguments, e.argumentsSize, mask)})
	}
	if e.Result != nil {
		a = append(a, slog.Attr{Key: "result", Value: payload(e.Result, e.resultSize, mask)})
	}
	return a
}

// appendTarget appends what was asked for, and of whom.
func (e *entry) appendTarget(a []slog.Attr, mask func(string) string) []slog.Attr {
	if e.Method != "" {
		a = append(a, slog.String("method", mask(e.Method)), slog.String("name", mask(bareURI(e.Tool))))
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

// message is the record's msg.
func (e *entry) message() string {
	if e.Method != "" {
		return "request"
	}
	return "call"
}

// bareURI returns a URI without what may be secret in it: its query, and what stands before the @ of its authority. A
// name that is no URI has neither, and expressions of a URI template are neither.
func bareURI(uri string) string {
	if i := secrets.Query(uri); i >= 0 {
		uri = uri[:i] + redacted
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
	if i := strings.LastIndexByte(authority, '@'); i >= 0 && secrets.User(authority[:i]) {
		rest = redacted + rest[i:]
	}
	return scheme + "://" + rest
}

func appendKnown(a []slog.Attr, key, value string) []slog.Attr {
	if value == "" {
		return a
	}
	return append(a, slog.String(key, value))
}
