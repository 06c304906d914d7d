package gateway

import (
	"errors"
	"fmt"
	"strings"

	"mcpgateway/internal/text"
	"mcpgateway/internal/transport/child"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

var errNotInitialized = wire.Errorf(wire.CodeNotInitialized,
	"Server not initialized: send initialize, then notifications/initialized")

var errInitialized = wire.Errorf(wire.CodeInvalidRequest,
	"Invalid request: the session is initialized already")

// errSessionEnding and errGatewayStopped end the calls in flight when the session or the gateway
// ends.
var (
	errSessionEnding = wire.Errorf(wire.CodeInternalError,
		"The session is ending; outcome unknown: the call may have run")
	errGatewayStopped = wire.Errorf(wire.CodeInternalError,
		"The gateway was stopped; outcome unknown: the call may have run")
)

// errClosing rejects requests while their connection or the gateway is closing.
var errClosing = wire.Errorf(wire.CodeInternalError,
	"The gateway is ending; the request did not run")

func methodNotFound(method string) *wire.Error {
	return wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", truncate(method))
}

// truncate shortens text of a client or backend to 256 bytes, for logs and errors.
func truncate(s string) string { return text.Truncate(s, 256) }

// clientError returns the error that the client gets instead of a response. The text names the
// backend and says whether the call may have run; clients must be able to rely on this. A
// *wire.Error is returned unchanged, and notFoundError replaces a [contract.ErrForbidden].
func (c *clientCall) clientError(err error) (OutcomeKind, *wire.Error) {
	if e, ok := err.(*wire.Error); ok {
		return RPCError, e
	}
	if errors.Is(err, contract.ErrForbidden) {
		return Rejected, c.kind.notFoundError()
	}
	kind, reason, mayHaveRun := c.clientReason(err)
	text := fmt.Sprintf("backend %s: %s", c.Route.Backend, reason)
	if mayHaveRun {
		text += "; outcome unknown: the call may have run"
	} else {
		text += "; the call did not run"
	}
	e := wire.Errorf(wire.CodeInternalError, "%s", text)
	e.Data = wire.Encode(map[string]string{"backend": c.Route.Backend, "reason": reason})
	return kind, e
}

// errorOutcome returns the outcome of a call that ended with an error. The message of an RPCError
// is not recorded as the reason, because it may be part of the backend's payload.
func errorOutcome(kind OutcomeKind, failure *wire.Error) Outcome {
	o := Outcome{Kind: kind, Code: failure.Code}
	if kind != RPCError {
		o.Reason = failure.Message
	}
	return o
}

// clientReason translates a Go error to text for a client. The text of an unknown error is only
// logged. BackendLost is also the kind for an unusable response and for an unknown error.
func (c *clientCall) clientReason(err error) (kind OutcomeKind, reason string, mayHaveRun bool) {
	var timeout *contract.TimeoutError
	var lost *transport.CallLostError
	var badResponse *peer.BadResponseError
	var question *contract.QuestionError
	var notApproved *contract.NotApprovedError
	switch {
	case errors.As(err, &notApproved):
		return Rejected, c.g.Mask(notApproved.Error()), false
	case errors.As(err, &timeout):
		return Timeout, timeout.Error() + " (call_timeout)", true
	case errors.Is(err, contract.ErrQueueFull):
		return Rejected, err.Error(), false
	case errors.As(err, &question): // it cannot be asked
		return NotRun, question.Error(), false
	case errors.As(err, &lost):
		if !lost.MayHaveRun {
			return NotRun, c.g.Mask(c.clientText(lost)), false
		}
		return BackendLost, c.g.Mask(c.clientText(lost)), true
	case errors.As(err, &badResponse):
		return BackendLost, c.g.Mask(badResponse.Error()), true
	case errors.Is(err, peer.ErrCancelled):
		return Cancelled, "cancelled", true
	}
	c.conn.log().Error("call failed with an unknown error", "backend", c.Route.Backend,
		"method", c.Method, "tool", truncate(c.Name), "err", err)
	return BackendLost, "internal error", true
}

// startedError returns the error of a session client's call to which the backend has already
// responded, with input_required or with a task. The call has run in part, so the result does not
// say that it did not run, even if err is about a later message that was not sent. A
// [contract.ErrForbidden] is returned unchanged. A stateless client itself sends the later message,
// as a request of its own, which it may send again if it did not run.
func startedError(err error) error {
	var rpcError *wire.Error
	var question *contract.QuestionError // a reload now requires it, and the call has begun without
	var notApproved *contract.NotApprovedError
	if errors.As(err, &rpcError) || errors.Is(err, contract.ErrQueueFull) ||
		errors.As(err, &question) || errors.As(err, &notApproved) {
		return &transport.CallLostError{Err: errors.New(err.Error()), MayHaveRun: true}
	}
	if lost, ok := errors.AsType[*transport.CallLostError](err); ok {
		return &transport.CallLostError{ID: lost.ID, Err: lost.Err, MayHaveRun: true}
	}
	return err
}

// clientText returns the text of an error for the client. If clients are authenticated, the stderr
// output of a process that other sessions may also use is removed, because it may be caused by
// calls of other principals. The log contains the output.
func (c *clientCall) clientText(err error) string {
	text := err.Error()
	exit, ended := errors.AsType[*child.ExitError](err)
	if !ended || exit.Stderr == "" || c.Principal.IsOnly() ||
		!c.g.Backends.SharesProcess(c.Route.Backend, c.backendSession) {
		return text
	}
	return strings.ReplaceAll(text, exit.Error(),
		exit.Status+"; its last output is in the gateway's log")
}

func errUnexpectedType(kind string) error {
	return &peer.BadResponseError{Err: fmt.Errorf(
		"its resultType %q is not allowed for this request", truncate(kind))}
}
