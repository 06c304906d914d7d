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

// noticeTime is how long a server may take to accept a notification or a
// response, and how long what was written after a notification waits for that.
const noticeTime = maxRetryAfter

// A post is one message on its way to the server, and the way back of its
// answer.
type post struct {
	c  *httpConn
	m  wire.Message
	id wire.ID // of a request; "" for other messages

	ctx    context.Context
	cancel context.CancelFunc
	after  <-chan struct{} // closed when p may be sent; may be nil
	taken  chan struct{}   // closed when p, a notification, was taken; may be nil
	then   func()          // is called after that; may be nil
	gone   sync.Once       // letOn was called
	wrote  chan struct{}   // closed when p has been written, or will not be
	write  sync.Once       // wrote was closed

	sent    bool   // guarded by c.mu
	to      *site  // where it was sent
	session bool   // it was sent within a session
	opens   bool   // it is the initialize that shows whether the server has streamable HTTP
	status  int    // of the response
	streams bool   // the response is a stream
	done    bool   // nothing more is expected of it
	noise   error  // why a part of the response was no message
	flaw    []byte // an error in the response that is not one of JSON-RPC
}

// run sends p and takes what comes of it.
func (p *post) run() {
	defer p.cancel()
	defer p.letOn()
	defer p.written()
	p.turn()
	header, ok := p.depart()
	if !ok {
		p.lose(context.Cause(p.ctx), false)
		return
	}
	ctx := p.ctx
	if p.id == "" {
		limited, cancel := context.WithTimeout(ctx, noticeTime)
		defer cancel()
		ctx = limited
	}
	e := &errand{tries: maxTries, harmless: harmless(p.m.Method()), log: p.c.log, method: p.m.Method(), wrote: p.written}
	resp, err := p.to.send(ctx, http.MethodPost, header, p.m.Raw(), e)
	switch {
	case err == nil:
	case e.unsent(err):
		p.unanswered(fmt.Errorf("no connection: %w", err), false)
		return
	default:
		elsewhere := e.written.Load() && p.c.kind.answersElsewhere()
		p.broke(fmt.Errorf("the connection broke before the answer: %w", err), true, elsewhere)
		return
	}
	defer resp.Body.Close()
	p.status = resp.StatusCode
	p.c.kind.take(p, resp)
}

func (p *post) written() { p.write.Do(func() { close(p.wrote) }) }

// turn waits until messages can be sent, and then until it is p's turn.
func (p *post) turn() {
	select {
	case <-p.c.ready:
	case <-p.ctx.Done():
		return
	}
	if p.after == nil {
		return
	}
	enough := time.NewTimer(noticeTime)
	defer enough.Stop()
	select {
	case <-p.after:
	case <-enough.C:
	case <-p.ctx.Done():
	}
}

// letOn lets what waits for p go on.
func (p *post) letOn() {
	p.gone.Do(func() {
		if p.taken != nil {
			close(p.taken)
		}
		if p.then != nil {
			p.then()
		}
	})
}

// depart notes that p is being sent and returns its header; not ok if p is not
// wanted any more.
func (p *post) depart() (header http.Header, ok bool) {
	if !p.leave() {
		return nil, false
	}
	p.to, header = p.c.kind.depart(p)
	header.Set("Accept", "application/json, text/event-stream")
	header.Set("Content-Type", "application/json")
	return header, true
}

// leave notes that p is being sent, and reports whether it is: it may not be
// wanted any more.
func (p *post) leave() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.sent = p.ctx.Err() == nil
	return p.sent
}

// readBody reads the response's body, which may hold other messages beside the
// answer, and hands them out. Not ok if it is settled what came of p.
func (p *post) readBody(resp *http.Response) (body []byte, ok bool) {
	body, err := readBody(resp, p.c.limit, p.c.intake)
	elsewhere := p.status < 300 && p.c.kind.answersElsewhere()
	switch {
	case isUnreadable(err) && !elsewhere:
		p.unreadable(resp, err)
	case errors.Is(err, errTooLong):
		p.unanswered(transport.ResponseTooLong(p.c.limit), !isRefusal(resp))
	case err != nil:
		p.broke(fmt.Errorf("the connection broke before the answer was complete: %w", p.to.clean(err)), !isRefusal(resp), elsewhere)
	case len(body) > 0:
		p.c.messages(body, p.handle)
	}
	return body, err == nil && !p.done
}

// unreadable reports that the response's body is not read: its coding is not known, or there is
// no room for it.
func (p *post) unreadable(resp *http.Response, err error) {
	switch {
	case resp.StatusCode >= 300:
		p.rejected(resp, &StatusError{Code: p.status, Text: err.Error(), Hint: p.to.advice(resp, nil)})
	case p.id != "":
		p.unanswered(fmt.Errorf("the answer cannot be read: %w", err), true)
	}
}

func isUnreadable(err error) bool {
	_, is := errors.AsType[*transport.UnreadableError](err)
	return is
}

// conclude reports that body held no answer.
func (p *post) conclude(resp *http.Response, body []byte) {
	if p.id == "" && resp.StatusCode < 300 {
		return
	}
	why := p.to.statusError(resp, body)
	switch {
	case resp.StatusCode >= 300:
		p.rejected(resp, why)
	case p.flaw != nil && p.session && isSessionLost(p.status, &wire.Error{Message: why.Text}, false):
		p.forgotten(why, p.status >= 300)
	case p.noise != nil:
		p.unanswered(fmt.Errorf("the answer is no message: %w (%w)", p.noise, why), true)
	default:
		p.unanswered(fmt.Errorf("what came back is no answer: %w", why), true)
	}
}

// rejected reports that the server answered p with an HTTP error.
func (p *post) rejected(resp *http.Response, why *StatusError) {
	var err error = why
	if isForeign(why.Code) && why.Hint == "" {
		if other := p.c.kind.misfit(p); other != nil {
			err = fmt.Errorf("%w: %w", other, why)
		}
	}
	if p.session && isSessionLost(p.status, &wire.Error{Message: why.Text}, false) {
		// Some servers give 404 for what a request asks for, too.
		if says := tellsOfLostSession(strings.ToLower(why.Text)); says || p.status != http.StatusNotFound || !p.c.kind.knows(p) {
			p.forgotten(err, true)
			return
		}
	}
	p.unanswered(err, !isRefusal(resp))
}

// broke reports that the connection broke before the response was complete. If the
// answer may come elsewhere p ends here, and the request stays open.
func (p *post) broke(err error, ran, elsewhere bool) {
	if elsewhere && p.id != "" && p.ctx.Err() == nil {
		p.c.log.Debug("the connection broke; the answer may still come on the stream", "method", p.m.Method(), "err", err)
		p.settle()
		return
	}
	p.unanswered(err, ran)
}

var errTooLong = errors.New("too long")

// maxBelieved is up to where a server is believed that its answer is as long as it says.
const maxBelieved = 2 << 20

// readBody reads a body that has at most limit bytes.
func readBody(resp *http.Response, limit int, quota *transport.ReceiveQuota) ([]byte, error) {
	if resp.ContentLength > int64(limit) {
		return nil, errTooLong
	}
	believed := 4 << 10 // most answers are short
	if resp.ContentLength >= 0 {
		believed = maxBelieved
	}
	lease := quota.Lease()
	defer lease.Release()
	text, err := transport.ReadText(resp.Body, resp.ContentLength, believed, limit, &lease)
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, errTooLong
	}
	return text, nil
}

// unanswered reports that p will get no answer: to Read if p is a request, to
// the log if not.
func (p *post) unanswered(err error, ran bool) {
	if cause := context.Cause(p.c.ctx); cause != nil {
		err = cause
	}
	if p.id == "" && p.ctx.Err() == nil {
		p.c.log.Warn("the server did not accept a message", "method", p.m.Method(), "err", err)
	}
	p.lose(err, ran)
}

// lose hands p to Read as CallLostError, unless it came to another end before.
func (p *post) lose(err error, ran bool) {
	if p.settle() && err != transport.ErrClosed {
		p.c.push(item{err: &transport.CallLostError{ID: p.id, Err: err, MayHaveRun: ran}})
	}
}

// settle reports whether Read is to be told what became of the request p: it is
// told once, and not of a request that was cancelled.
func (p *post) settle() bool {
	p.done = true
	if p.id == "" {
		return false
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	wanted := p.c.open[p.id] == p
	if wanted {
		delete(p.c.open, p.id)
		p.c.fadedLocked()
	}
	return wanted
}

// forgotten ends the conversation because the server does not know the session
// that p was sent with. It did not act on p, then. Sure says that nothing else can be meant.
func (p *post) forgotten(err error, sure bool) {
	err = &sessionError{fmt.Errorf("%w: %w", ErrSessionLost, err), sure}
	p.c.forget(err)
	p.lose(err, false)
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
