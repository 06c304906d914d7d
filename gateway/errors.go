package gateway

import (
	"errors"
	"fmt"
	"strings"

	"mcpgateway/internal/transport/child"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

var errNotInitialized = wire.Errorf(wire.CodeNotInitialized,
	"Server not initialized: send initialize, then notifications/initialized")

// ending and stopped are what a client is told whose call the end of the session has ended, or
// that of the gateway.
var (
	errSessionEnding  = wire.Errorf(wire.CodeInternalError, "The session is ending; outcome unknown: the call may have run")
	errGatewayStopped = wire.Errorf(wire.CodeInternalError, "The gateway was stopped; outcome unknown: the call may have run")
)

func methodNotFound(method string) *wire.Error {
	return wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", truncate(method))
}

// truncate returns what a client has said, cut to what a log or an error can bear.
func truncate(s string) string {
	const longest = 256
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}

// clientError says to the client why its call has no answer, naming the backend. Of each
// it says whether it may have run: the client must not take one for the other. An error that is the client's as it is stays that.
func (c *clientCall) clientError(err error) (OutcomeKind, *wire.Error) {
	if e, ok := err.(*wire.Error); ok {
		return RPCError, e
	}
	if errors.Is(err, peer.ErrForbidden) {
		return Rejected, c.notFoundError()
	}
	kind, reason, ran := c.clientReason(err)
	text := fmt.Sprintf("backend %s: %s", c.Route.Backend, reason)
	if ran {
		text += "; outcome unknown: the call may have run"
	} else {
		text += "; the call did not run"
	}
	e := wire.Errorf(wire.CodeInternalError, "%s", text)
	e.Data = wire.Encode(map[string]string{"backend": c.Route.Backend, "reason": reason})
	return kind, e
}

// errorOutcome is the outcome of a call that ended with an error of ours. An error that may be the
// backend's own words is not recorded as a reason: it is a payload.
func errorOutcome(kind OutcomeKind, failure *wire.Error) Outcome {
	o := Outcome{Kind: kind, Code: failure.Code}
	if kind != RPCError {
		o.Reason = failure.Message
	}
	return o
}

// clientReason is the one door from Go errors to what a client may read: what is
// not known here goes to the log alone.
func (c *clientCall) clientReason(err error) (kind OutcomeKind, reason string, ran bool) {
	var late timeoutError
	var lost *transport.CallLostError
	var bad *peer.BadResponseError
	switch {
	case errors.As(err, &late):
		return Timeout, late.Error() + " (call_timeout)", true
	case errors.Is(err, peer.ErrTimeout):
		return Timeout, fmt.Sprintf("no answer within %v (call_timeout)", c.upstream.Timeout), true
	case errors.Is(err, peer.ErrQueueFull):
		return Rejected, err.Error(), false
	case errors.As(err, &lost):
		if !lost.MayHaveRun {
			return NotRun, c.s.g.Mask(c.clientText(lost)), false
		}
		return BackendLost, c.s.g.Mask(c.clientText(lost)), true
	case errors.As(err, &bad):
		return BackendLost, c.s.g.Mask(bad.Error()), true
	case errors.Is(err, peer.ErrCancelled):
		return Cancelled, "cancelled", true
	}
	c.s.log().Error("call failed", "backend", c.Route.Backend, "method", c.Method, "tool", truncate(c.Name), "err", err)
	return BackendLost, "internal error", true
}

// clientText returns an error for the client. What a process wrote that clients with other tokens use,
// too, may be of their calls: it is in the log alone.
func (c *clientCall) clientText(err error) string {
	text := err.Error()
	exit, ended := errors.AsType[*child.ExitError](err)
	if !ended || exit.Stderr == "" || c.s.principal == "" || !c.s.g.Backends.SharesProcess(c.Route.Backend, c.upstream.SessionID) {
		return text
	}
	return strings.ReplaceAll(text, exit.Error(), exit.Status+"; what it wrote last is in the log of the gateway")
}

// errMissingCapability is what a client of the stateless era is told that has not declared what a call
// turns out to need.
func errMissingCapability(required []byte, format string, args ...any) *wire.Error {
	e := wire.Errorf(protocol.CodeMissingCapability, "Missing client capability: "+format, args...)
	e.Data = wire.EditObject(nil, nil, wire.Member{Key: "requiredCapabilities", Text: required})
	return e
}
