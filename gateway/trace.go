package gateway

import (
	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// A Tracer traces the requests of clients that backends serve, and the requests that Observers are
// notified of. Calls wait for its methods and for those of its traces, which must be fast.
type Tracer interface {
	// Begin begins the trace of the request m. The route of c, and what is set when a call ends,
	// are not known yet. Neither c nor m may be retained.
	Begin(c *CallInfo, m wire.Message, from TracedClient) Trace
}

// A Trace is the trace of one request of a client.
type Trace interface {
	// ID returns the id of the trace, 32 hexadecimal digits, if the trace is recorded or the client
	// has sent the id; "" otherwise.
	ID() string
	// BackendSpan returns a span for a request to a backend.
	BackendSpan() contract.RequestSpan
	// Continue notes that the request continues the call of an earlier request, whose trace was
	// begun by the same Tracer. It is called at most once, before End.
	Continue(earlier Trace)
	// End is called once, when the request has ended. Spans of requests to backends may end later.
	End(*CallInfo, Outcome)
}

// A TracedClient describes the client of a request.
type TracedClient struct {
	Session  string // id of the session in logs; "" = the request has no session
	Revision string // of the protocol; "" = unknown
	HTTP     bool   // connected over HTTP; otherwise on stdin and stdout
}

// traceID returns the id of the trace; "" = none.
func (c *CallInfo) traceID() string {
	if c.Trace == nil {
		return ""
	}
	return c.Trace.ID()
}
