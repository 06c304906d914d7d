package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/transport"

	"mcpgateway/internal/wire"
)

// notificationTimeout is how long a server may take to accept a notification or a
// response, and how long what was written after a notification waits for that.
const notificationTimeout = maxRetryAfter

// A outgoingPost is one message on its way to the server, and the way back of its
// answer.
type outgoingPost struct {
	c  *httpConn
	m  wire.Message
	id wire.ID // of a request; "" for other messages

	ctx         context.Context
	cancel      context.CancelFunc
	waitFor     <-chan struct{} // closed when p may be sent; may be nil
	accepted    chan struct{}   // closed when p, a notification, was taken; may be nil
	onAccepted  func()          // is called after that; may be nil
	unblockOnce sync.Once       // letOn was called
	written     chan struct{}   // closed when p has been written, or will not be
	writtenOnce sync.Once       // wrote was closed

	sent         bool        // guarded by c.mu
	target       *httpTarget // where it was sent
	inSession    bool        // it was sent within a session
	isInitialize bool        // it is the initialize that shows whether the server has streamable HTTP
	status       int         // of the response
	isStream     bool        // the response is a stream
	settled      bool        // nothing more is expected of it
	malformed    error       // why a part of the response was no message
	plainError   []byte      // an error in the response that is not one of JSON-RPC
}

// run sends p and takes what comes of it.
func (p *outgoingPost) run() {
	defer p.cancel()
	defer p.unblockNext()
	defer p.markWritten()
	p.waitTurn()
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
	e := &retryPolicy{maxRetries: maxRetries, idempotent: isIdempotent(p.m.Method()), log: p.c.log, method: p.m.Method(), onWritten: p.markWritten}
	resp, err := p.target.send(ctx, http.MethodPost, header, p.m.Raw(), e)
	switch {
	case err == nil:
	case e.notSent(err):
		p.failUnanswered(fmt.Errorf("no connection: %w", err), false)
		return
	default:
		elsewhere := e.written.Load() && p.c.flavour.mayRespondElsewhere()
		p.connectionBroke(fmt.Errorf("the connection broke before the answer: %w", err), true, elsewhere)
		return
	}
	defer resp.Body.Close()
	p.status = resp.StatusCode
	p.c.flavour.handleResponse(p, resp)
}

func (p *outgoingPost) markWritten() { p.writtenOnce.Do(func() { close(p.written) }) }

// waitTurn waits until messages can be sent, and then until it is p's turn.
func (p *outgoingPost) waitTurn() {
	select {
	case <-p.c.ready:
	case <-p.ctx.Done():
		return
	}
	if p.waitFor == nil {
		return
	}
	enough := time.NewTimer(notificationTimeout)
	defer enough.Stop()
	select {
	case <-p.waitFor:
	case <-enough.C:
	case <-p.ctx.Done():
	}
}

// unblockNext lets what waits for p go on.
func (p *outgoingPost) unblockNext() {
	p.unblockOnce.Do(func() {
		if p.accepted != nil {
			close(p.accepted)
		}
		if p.onAccepted != nil {
			p.onAccepted()
		}
	})
}

// prepare notes that p is being sent and returns its header; not ok if p is not
// wanted any more.
func (p *outgoingPost) prepare() (header http.Header, ok bool) {
	if !p.markSent() {
		return nil, false
	}
	p.target, header = p.c.flavour.prepare(p)
	header.Set("Accept", "application/json, text/event-stream")
	header.Set("Content-Type", "application/json")
	return header, true
}

// markSent notes that p is being sent, and reports whether it is: it may not be
// wanted any more.
func (p *outgoingPost) markSent() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.sent = p.ctx.Err() == nil
	return p.sent
}

// readBody reads the response's body, which may hold other messages beside the
// answer, and hands them out. Not ok if it is settled what came of p.
func (p *outgoingPost) readBody(resp *http.Response) (body []byte, ok bool) {
	body, err := readBody(resp, p.c.limit, p.c.quota)
	elsewhere := p.status < 300 && p.c.flavour.mayRespondElsewhere()
	switch {
	case isUnreadable(err) && !elsewhere:
		p.failUnreadable(resp, err)
	case errors.Is(err, errBodyTooLong):
		p.failUnanswered(transport.ResponseTooLong(p.c.limit), !provesNotExecuted(resp))
	case err != nil:
		p.connectionBroke(fmt.Errorf("the connection broke before the answer was complete: %w", p.target.redactError(err)), !provesNotExecuted(resp), elsewhere)
	case len(body) > 0:
		p.c.eachMessage(body, p.handleMessage)
	}
	return body, err == nil && !p.settled
}

// failUnreadable reports that the response's body is not read: its coding is not known, or there is
// no room for it.
func (p *outgoingPost) failUnreadable(resp *http.Response, err error) {
	switch {
	case resp.StatusCode >= 300:
		p.failStatus(resp, &StatusError{Code: p.status, Text: err.Error(), Hint: p.target.statusHint(resp, nil)})
	case p.id != "":
		p.failUnanswered(fmt.Errorf("the answer cannot be read: %w", err), true)
	}
}

func isUnreadable(err error) bool {
	_, is := errors.AsType[*transport.UnreadableError](err)
	return is
}

// finishUnanswered reports that body held no answer.
func (p *outgoingPost) finishUnanswered(resp *http.Response, body []byte) {
	if p.id == "" && resp.StatusCode < 300 {
		return
	}
	why := p.target.statusError(resp, body)
	switch {
	case resp.StatusCode >= 300:
		p.failStatus(resp, why)
	case p.plainError != nil && p.inSession && isSessionLost(p.status, &wire.Error{Message: why.Text}, false):
		p.sessionLost(why, p.status >= 300)
	case p.malformed != nil:
		p.failUnanswered(fmt.Errorf("the answer is no message: %w (%w)", p.malformed, why), true)
	default:
		p.failUnanswered(fmt.Errorf("what came back is no answer: %w", why), true)
	}
}

// failStatus reports that the server answered p with an HTTP error.
func (p *outgoingPost) failStatus(resp *http.Response, why *StatusError) {
	var err error = why
	if suggestsOtherTransport(why.Code) && why.Hint == "" {
		if other := p.c.flavour.mismatch(p); other != nil {
			err = fmt.Errorf("%w: %w", other, why)
		}
	}
	if p.inSession && isSessionLost(p.status, &wire.Error{Message: why.Text}, false) {
		// Some servers give 404 for what a request asks for, too.
		if says := mentionsLostSession(strings.ToLower(why.Text)); says || p.status != http.StatusNotFound || !p.c.flavour.knowsSession(p) {
			p.sessionLost(err, true)
			return
		}
	}
	p.failUnanswered(err, !provesNotExecuted(resp))
}

// connectionBroke reports that the connection broke before the response was complete. If the
// answer may come elsewhere p ends here, and the request stays open.
func (p *outgoingPost) connectionBroke(err error, ran, elsewhere bool) {
	if elsewhere && p.id != "" && p.ctx.Err() == nil {
		p.c.log.Debug("the connection broke; the answer may still come on the stream", "method", p.m.Method(), "err", err)
		p.claim()
		return
	}
	p.failUnanswered(err, ran)
}

var errBodyTooLong = errors.New("too long")

// maxTrustedLength is up to where a server is believed that its answer is as long as it says.
const maxTrustedLength = 2 << 20

// readBody reads a body that has at most limit bytes.
func readBody(resp *http.Response, limit int, quota *transport.ReceiveQuota) ([]byte, error) {
	if resp.ContentLength > int64(limit) {
		return nil, errBodyTooLong
	}
	believed := 4 << 10 // most answers are short
	if resp.ContentLength >= 0 {
		believed = maxTrustedLength
	}
	lease := quota.Lease()
	defer lease.Release()
	text, err := transport.ReadText(resp.Body, resp.ContentLength, believed, limit, &lease)
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, errBodyTooLong
	}
	return text, nil
}

// failUnanswered reports that p will get no answer: to Read if p is a request, to
// the log if not.
func (p *outgoingPost) failUnanswered(err error, ran bool) {
	if cause := context.Cause(p.c.ctx); cause != nil {
		err = cause
	}
	if p.id == "" && p.ctx.Err() == nil {
		p.c.log.Warn("the server did not accept a message", "method", p.m.Method(), "err", err)
	}
	p.fail(err, ran)
}

// fail hands p to Read as CallLostError, unless it came to another end before.
func (p *outgoingPost) fail(err error, ran bool) {
	if p.claim() && err != transport.ErrClosed {
		p.c.deliver(readResult{err: &transport.CallLostError{ID: p.id, Err: err, MayHaveRun: ran}})
	}
}

// claim reports whether Read is to be told what became of the request p: it is
// told once, and not of a request that was cancelled.
func (p *outgoingPost) claim() bool {
	p.settled = true
	if p.id == "" {
		return false
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	wanted := p.c.open[p.id] == p
	if wanted {
		delete(p.c.open, p.id)
		p.c.abortIfIdleLocked()
	}
	return wanted
}

// sessionLost ends the conversation because the server does not know the session
// that p was sent with. It did not act on p, then. Sure says that nothing else can be meant.
func (p *outgoingPost) sessionLost(err error, sure bool) {
	err = &sessionError{fmt.Errorf("%w: %w", ErrSessionLost, err), sure}
	p.c.endSessionLost(err)
	p.fail(err, false)
}

// A sessionError is an ErrSessionLost.
type sessionError struct {
	error
	sure bool // the answer is not one that a server could give after it has acted on the request
}

func (e *sessionError) Unwrap() error { return e.error }

// IsUnknownSession reports whether err, the reason of a [CallLostError], says that the server refused the
// request only because it does not know the session. The request may be sent in a new session.
func IsUnknownSession(err error) bool {
	lost, isLost := errors.AsType[*transport.CallLostError](err)
	session, is := errors.AsType[*sessionError](err)
	return isLost && !lost.MayHaveRun && is && session.sure
}
