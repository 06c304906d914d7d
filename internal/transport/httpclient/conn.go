package httpclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Options describe the connection to an HTTP server. All fields except URL are optional.
type Options struct {
	URL string // http or https
	// Headers are sent with each request to the origin of URL, and to no other origin. The header
	// Host sets the host of the request.
	Headers map[string]string
	TLS     ClientTLS               // ignored with a RoundTripper
	Via     string                  // name in the header Via, to detect loops; "" = no header
	Limit   int                     // bytes of one incoming message; 0 = 64 MiB
	Quota   *transport.ReceiveQuota // bounds incomplete messages; nil = no bound
	Log     *slog.Logger            // nil = no logging

	// Authorizer provides access tokens; nil = requests are sent without. It is not combined with a
	// header Authorization.
	Authorizer Authorizer

	// RequestHeaders returns the headers that repeat parts of a message. Names and values must be
	// valid in a header. nil = no headers. Only a Conn of [DialStateless] calls RequestHeaders:
	// once for each message, possibly concurrently, and never with a lock held.
	RequestHeaders func(wire.Message) map[string]string

	// OnReconnect is called when a request was sent again, or the stream of its response was
	// resumed, with the id of the request. It may be called concurrently; nil = not called.
	OnReconnect func(wire.ID)

	// RoundTripper replaces the pool of connections that the Conn creates; nil = not replaced.
	// Close closes the idle connections of the RoundTripper. Only tests set RoundTripper.
	RoundTripper http.RoundTripper
}

const (
	maxOpen         = 4096     // messages being sent; exceeds the default of limits.in_flight
	maxPendingBytes = 64 << 20 // Write fails at this number of bytes being sent
)

// An httpConn is the common part of the Conns over HTTP, which send each message as a POST. A
// goroutine handles each message being sent (see goroutines).
type httpConn struct {
	*httpTarget
	messageReader
	inbox
	flavour    httpFlavour
	goroutines *goroutines
	ctx        context.Context // done when the connection has ended; its cause is the reason
	abort      context.CancelCauseFunc
	ready      chan struct{} // closed when messages can be sent
	closeOnce  sync.Once

	mu               sync.Mutex
	state            connState
	endErr           error // error of Write, and of Read at the end; nil = connOpen
	pendingBytes     int   // bytes of the messages being sent
	open             map[wire.ID]*outgoingPost
	lastNotification <-chan struct{} // closed when the latest notification is accepted; may be nil
}

// A connState is the state of an httpConn. It only increases.
type connState int

const (
	connOpen   connState = iota
	connEnding           // writing fails, and open requests continue; see endSessionLost
	connEnded            // httpConn.ctx is done
)

// An httpFlavour is the part of a Conn that depends on the flavour of HTTP transport.
type httpFlavour interface {
	// cancelLocked sends p, the notification that cancels the request id. httpConn implements
	// cancelLocked for the revisions with sessions. The caller holds httpConn.mu.
	cancelLocked(p *outgoingPost, id wire.ID) error
	// prepare returns the target of p and its headers.
	prepare(p *outgoingPost) (*httpTarget, http.Header)
	// handleResponse processes the HTTP response to p. It calls p.turn.pass as soon as the server
	// has accepted p, and completes p.
	handleResponse(p *outgoingPost, resp *http.Response)
	// onResult is called with the result for p if the HTTP response to p contains it.
	onResult(p *outgoingPost, m wire.Message)
	// mismatch returns the error that reports a server of another transport, if p is the first
	// request of this transport; nil = p is another message.
	mismatch(p *outgoingPost) error
	// knowsSession asks the server whether the session in which it has rejected p exists. It
	// returns false if the server does not confirm the session.
	knowsSession(p *outgoingPost) bool
	// mayRespondElsewhere reports whether the response to a POST may arrive on another stream.
	mayRespondElsewhere() bool
	// endSession ends the session at the server. It is called only if the connection was open until
	// now.
	endSession()
}

// newHTTPConn returns an httpConn; the caller sets its flavour. If o is invalid, the connection has
// already ended.
func newHTTPConn(o Options) *httpConn {
	ctx, abort := context.WithCancelCause(context.Background())
	if o.Limit <= 0 {
		o.Limit = 64 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &httpConn{
		messageReader: messageReader{limit: o.Limit, quota: o.Quota, log: o.Log},
		inbox:         newInbox(o.OnReconnect),
		goroutines:    newGoroutines(ctx),
		ctx:           ctx, abort: abort,
		ready: make(chan struct{}),
		open:  make(map[wire.ID]*outgoingPost),
	}
	var err error
	if c.httpTarget, err = newTarget(o); err != nil {
		c.end(err)
	}
	return c
}

// Read returns the next message or error that was passed to deliver, the reason for the end of the
// connection, or, after Close, ErrClosed.
func (c *httpConn) Read() (wire.Message, wire.ID, error) {
	r, ok := c.next(c.goroutines.drained)
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		return wire.Message{}, "", c.endErr
	}
	return r.m, r.relatedTo, r.err
}

// Write starts to send m. relatedTo is the request that m cancels, if m is a cancellation. Write
// fails if m is a batch, if the connection has ended, or if too many messages are being sent.
func (c *httpConn) Write(m wire.Message, relatedTo wire.ID) error {
	p := &outgoingPost{c: c, m: m, turn: turn{written: make(chan struct{})}}
	switch m.Kind() {
	case wire.Request:
		p.id = m.ID()
	case wire.Notification, wire.Response:
	default:
		return errors.New("only single messages can be written")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != connOpen:
		return closedError(c.endErr)
	case m.Method() == protocol.NotificationCancelled:
		return c.flavour.cancelLocked(p, relatedTo)
	case c.fullLocked(m.Kind()):
		return errTooManyMessages
	}
	p.turn.after = c.lastNotification
	if m.Kind() == wire.Notification {
		p.turn.passed = make(chan struct{})
		c.lastNotification = p.turn.passed
	}
	c.postLocked(p)
	return nil
}

// closedError returns an error that wraps reason and ErrClosed.
func closedError(reason error) error {
	if errors.Is(reason, transport.ErrClosed) {
		return reason
	}
	return fmt.Errorf("%w: %w", transport.ErrClosed, reason)
}

// errTooManyMessages differs from ErrFull, because ErrFull would end the connection, and the server
// does read its messages.
var errTooManyMessages = errors.New("too many messages are under way to the server")

// fullLocked reports whether another message of this kind would exceed the bounds. For
// notifications and responses, which are short and quickly sent, the bounds are twice as high, so
// that open calls do not prevent the response to a ping of the server.
func (c *httpConn) fullLocked(kind wire.MessageKind) bool {
	busy := c.goroutines.busy()
	if kind == wire.Request {
		return busy >= maxOpen || c.pendingBytes >= maxPendingBytes
	}
	return busy >= 2*maxOpen || c.pendingBytes >= 2*maxPendingBytes
}

// cancelLocked sends p, the cancellation of the request id, and then abandons that request. In the
// revisions with sessions, disconnecting from a stream is not a cancellation ("Sending Messages to
// the Server" 6), so p is sent, unless the request was never sent. The bounds do not apply to p if
// the request is open, because a cancellation reduces the load.
func (c *httpConn) cancelLocked(p *outgoingPost, id wire.ID) error {
	target := c.open[id]
	if target == nil {
		if c.fullLocked(p.m.Kind()) {
			return errTooManyMessages
		}
		c.postLocked(p)
		return nil
	}
	delete(c.open, id)
	if !target.sent {
		target.cancel()
		return nil
	}
	p.turn.after = target.turn.written // otherwise p might arrive before the request
	p.turn.onPass = target.cancel
	c.postLocked(p)
	return nil
}

// postLocked starts to send p.
func (c *httpConn) postLocked(p *outgoingPost) {
	p.ctx, p.cancel = context.WithCancel(c.ctx)
	if p.id != "" {
		c.open[p.id] = p
	}
	c.pendingBytes += p.m.Text().Len()
	c.goroutines.post(p)
}

// release records that p is no longer being sent.
func (c *httpConn) release(p *outgoingPost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pendingBytes -= p.m.Text().Len()
}

// end ends the connection: writing fails from now on, and all requests being sent are aborted. It
// reports whether the connection was open until now.
func (c *httpConn) end(reason error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	wasOpen := c.state == connOpen
	if wasOpen {
		c.endErr = reason
		c.goroutines.end()
	}
	c.abortLocked()
	return wasOpen
}

// abortLocked aborts all requests being sent. endErr must be set.
func (c *httpConn) abortLocked() {
	c.state = connEnded
	c.abort(c.endErr)
}

// sessionLostGrace is the time for which open requests continue after the session was lost.
const sessionLostGrace = time.Second

// endSessionLost ends the connection because the server has lost the session. Writing fails from
// now on. Open requests are aborted only after sessionLostGrace: if the server rejects them until
// then, it is certain that they did not run.
func (c *httpConn) endSessionLost(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != connOpen {
		return
	}
	c.state, c.endErr = connEnding, reason
	c.goroutines.end()
	timer := time.AfterFunc(sessionLostGrace, func() { c.end(reason) })
	context.AfterFunc(c.ctx, func() { timer.Stop() })
	c.abortIfIdleLocked()
}

// abortIfIdleLocked completes endSessionLost when no request is open.
func (c *httpConn) abortIfIdleLocked() {
	if c.state == connEnding && len(c.open) == 0 {
		c.abortLocked()
	}
}

// Close ends the connection and its session.
func (c *httpConn) Close() error {
	c.closeOnce.Do(func() {
		wasOpen := c.end(transport.ErrClosed)
		c.inbox.close()
		<-c.goroutines.drained
		if c.httpTarget == nil {
			return
		}
		if wasOpen {
			c.flavour.endSession()
		}
		c.pool.CloseIdleConnections()
	})
	return nil
}
