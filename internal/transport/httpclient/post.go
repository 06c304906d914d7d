package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An outgoingPost is a message that is being sent as a POST, until its response has arrived.
type outgoingPost struct {
	c  *httpConn
	m  wire.Message
	id wire.ID // id of the request; "" = not a request

	ctx    context.Context
	cancel context.CancelFunc
	turn   turn
	sent   bool // guarded by c.mu

	// Used only by the goroutine that sends p.
	target       *httpTarget // target to which p was sent
	inSession    bool        // p was sent in a session
	isInitialize bool        // p is the initialize request of streamable HTTP
	completed    bool        // p has its outcome: set by claim
	response     postResponse
}

// A postResponse is the part of an HTTP response that was processed without completing the message.
type postResponse struct {
	status     int
	isStream   bool
	malformed  error  // error of a part that is not a message; nil = none
	plainError []byte // an error that is not a JSON-RPC error; nil = none
}

// run sends p and processes the HTTP response.
func (p *outgoingPost) run() {
	defer p.cancel()
	defer p.turn.pass()
	defer p.turn.markWritten()
	p.turn.wait(p.ctx, p.c.ready)
	header, ok := p.prepare()
	if !ok {
		p.fail(context.Cause(p.ctx), false)
		return
	}
	ctx := p.ctx
	if p.id == "" {
		limited, cancel := context.WithTimeout(ctx, notificationTimeout)
		defer cancel()
		ctx = limited
	}
	retry := &retryPolicy{
		maxRetries: maxRetries,
		idempotent: isIdempotent(p.m.Method()),
		method:     p.m.Method(),
		log:        p.c.log,
		onWritten:  p.turn.markWritten,
		onRetry:    p.noteReconnect,
	}
	resp, err := p.target.sendAuthorized(ctx, http.MethodPost, header, p.m.Text(), retry)
	switch {
	case err == nil:
	case hasNoToken(err):
		p.failUnanswered(err, false)
		return
	case retry.notSent(err):
		p.failUnanswered(fmt.Errorf("no connection: %w", err), false)
		return
	default:
		elsewhere := retry.written.Load() && p.c.flavour.mayRespondElsewhere()
		err = fmt.Errorf("the connection broke before the answer: %w", err)
		p.connectionBroke(err, true, elsewhere)
		return
	}
	defer resp.Body.Close()
	p.response.status = resp.StatusCode
	p.c.flavour.handleResponse(p, resp)
}

// noteReconnect reports that p was sent again, or that the stream of its response was resumed.
func (p *outgoingPost) noteReconnect() {
	if p.id != "" {
		p.c.onReconnect(p.id)
	}
}

// prepare marks p as sent and returns the headers of p. It returns false if p was cancelled or the
// connection has ended.
func (p *outgoingPost) prepare() (header http.Header, ok bool) {
	if !p.markSent() {
		return nil, false
	}
	p.target, header = p.c.flavour.prepare(p)
	header.Set("Accept", "application/json, text/event-stream")
	header.Set("Content-Type", "application/json")
	return header, true
}

// markSent marks p as sent, unless p was cancelled or the connection has ended, and reports whether
// p is marked.
func (p *outgoingPost) markSent() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.sent = p.ctx.Err() == nil
	return p.sent
}

// readBody reads the body of the HTTP response and processes the messages in the body. The body may
// contain more than the response to p. It returns false if the body cannot be read or p is
// completed.
func (p *outgoingPost) readBody(resp *http.Response) (body []byte, ok bool) {
	body, err := readBody(resp, p.c.limit, p.c.quota)
	elsewhere := p.response.status < 300 && p.c.flavour.mayRespondElsewhere()
	switch {
	case isUnreadable(err) && !elsewhere:
		p.failUnreadable(resp, err)
	case errors.Is(err, errBodyTooLong):
		p.failUnanswered(transport.ResponseTooLong(p.c.limit), !provesNotExecuted(resp))
	case err != nil:
		err = fmt.Errorf("the connection broke before the answer was complete: %w",
			p.target.redactError(err))
		p.connectionBroke(err, !provesNotExecuted(resp), elsewhere)
	case len(body) > 0:
		p.c.eachMessage(body, p.handleMessage)
	}
	return body, err == nil && !p.completed
}

// failUnreadable completes p because the body cannot be read; see [transport.UnreadableError]. A
// notification or response with a status below 300 has been accepted.
func (p *outgoingPost) failUnreadable(resp *http.Response, err error) {
	switch {
	case resp.StatusCode >= 300:
		hint := p.target.statusHint(resp, nil)
		p.failStatus(resp, &StatusError{Code: p.response.status, Text: err.Error(), Hint: hint})
	case p.id != "":
		p.failUnanswered(fmt.Errorf("the answer cannot be read: %w", err), true)
	}
}

// hasNoToken reports whether a request failed because there is no access token for it.
func hasNoToken(err error) bool {
	_, is := errors.AsType[*AuthorizationError](err)
	return is
}

func isUnreadable(err error) bool {
	_, is := errors.AsType[*transport.UnreadableError](err)
	return is
}

// finishUnanswered completes p because body contained no response to p. A notification or response
// with a status below 300 has been accepted and needs no response.
func (p *outgoingPost) finishUnanswered(resp *http.Response, body []byte) {
	if p.id == "" && resp.StatusCode < 300 {
		return
	}
	reason := p.target.statusError(resp, body)
	switch {
	case resp.StatusCode >= 300:
		p.failStatus(resp, reason)
	case p.response.plainError != nil && p.inSession &&
		isSessionLost(p.response.status, &wire.Error{Message: reason.Text}, false):
		p.sessionLost(reason, p.response.status >= 300)
	case p.response.malformed != nil:
		err := fmt.Errorf("the answer is not a message: %w (%w)", p.response.malformed, reason)
		p.failUnanswered(err, true)
	default:
		p.failUnanswered(fmt.Errorf("the answer is not a JSON-RPC response: %w", reason), true)
	}
}

// failStatus completes p because of the HTTP error reason.
func (p *outgoingPost) failStatus(resp *http.Response, reason *StatusError) {
	var err error = reason
	if suggestsOtherTransport(reason.Code) && reason.Hint == "" {
		if other := p.c.flavour.mismatch(p); other != nil {
			err = fmt.Errorf("%w: %w", other, reason)
		}
	}
	if p.inSession && isSessionLost(p.response.status, &wire.Error{Message: reason.Text}, false) {
		// Some servers also respond with 404 if the object of a request does not exist.
		mentioned := mentionsLostSession(strings.ToLower(reason.Text))
		if mentioned || p.response.status != http.StatusNotFound || !p.c.flavour.knowsSession(p) {
			p.sessionLost(err, true)
			return
		}
	}
	p.failUnanswered(err, !provesNotExecuted(resp))
}

// connectionBroke completes p because the connection broke before the HTTP response was complete.
// If the response to a request may arrive on another stream, the request does not fail.
func (p *outgoingPost) connectionBroke(err error, mayHaveRun, elsewhere bool) {
	if elsewhere && p.id != "" && p.ctx.Err() == nil {
		p.c.log.Debug("POST broken off, response may still arrive on the stream",
			"method", p.m.Method(), "err", err)
		p.claim()
		return
	}
	p.failUnanswered(err, mayHaveRun)
}

var errBodyTooLong = errors.New("too long")

// maxTrustedLength is the announced length, in bytes, up to which memory is allocated for a
// response before it has arrived.
const maxTrustedLength = 2 << 20

// readBody reads a body of at most limit bytes. It fails with errBodyTooLong if the body is longer.
func readBody(resp *http.Response, limit int, quota *transport.ReceiveQuota) ([]byte, error) {
	if resp.ContentLength > int64(limit) {
		return nil, errBodyTooLong
	}
	trusted := 4 << 10 // most responses are short
	if resp.ContentLength >= 0 {
		trusted = maxTrustedLength
	}
	lease := quota.Lease()
	defer lease.Release()
	text, err := transport.ReadText(resp.Body, resp.ContentLength, trusted, limit, &lease)
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, errBodyTooLong
	}
	return text, nil
}

// failUnanswered completes p without a response: a request fails; for any other message the error
// is logged. If the connection has ended, the reason for the end replaces err.
func (p *outgoingPost) failUnanswered(err error, mayHaveRun bool) {
	if cause := context.Cause(p.c.ctx); cause != nil {
		err = cause
	}
	if p.id == "" && p.ctx.Err() == nil {
		p.c.log.Warn("message not accepted by the server", "method", p.m.Method(), "err", err)
	}
	p.fail(err, mayHaveRun)
}

// fail passes a CallLostError for p to Read, unless claim returns false or the Conn was closed.
func (p *outgoingPost) fail(err error, mayHaveRun bool) {
	if p.claim() && err != transport.ErrClosed {
		lost := &transport.CallLostError{ID: p.id, Err: err, MayHaveRun: mayHaveRun}
		p.c.deliver(readResult{err: lost})
	}
}

// claim marks p as completed and removes its request from the table of open requests. It returns
// true if the caller must pass the outcome to Read. It returns false for a later claim, for a
// request that was cancelled or whose response arrived on another stream, and for a message without
// an id.
func (p *outgoingPost) claim() bool {
	p.completed = true
	if p.id == "" {
		return false
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	isOpen := p.c.open[p.id] == p
	if isOpen {
		delete(p.c.open, p.id)
		p.c.abortIfIdleLocked()
	}
	return isOpen
}

// sessionLost ends the connection because the server does not know the session in which p was sent.
// In that case the server has not acted on p. certain is true if the response has no other
// explanation.
func (p *outgoingPost) sessionLost(err error, certain bool) {
	err = &sessionError{fmt.Errorf("%w: %w", ErrSessionLost, err), certain}
	p.c.endSessionLost(err)
	p.fail(err, false)
}

// A sessionError wraps ErrSessionLost.
type sessionError struct {
	error
	certain bool // a server cannot send such a response after it has acted on the request
}

func (e *sessionError) Unwrap() error { return e.error }

// IsUnknownSession reports whether err, the reason of a [transport.CallLostError], means that the
// server rejected the request only because it does not know the session. The request may then be
// sent in a new session.
func IsUnknownSession(err error) bool {
	lost, isLost := errors.AsType[*transport.CallLostError](err)
	session, is := errors.AsType[*sessionError](err)
	return isLost && !lost.MayHaveRun && is && session.certain
}
