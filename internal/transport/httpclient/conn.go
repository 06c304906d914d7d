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

	// RequestHeaders returns the headers that repeat parts of a message. Names and values must be
	// valid in a header. nil = no headers. Only a Conn of [DialStateless] calls RequestHeaders:
	// once for each message, possibly concurrently, and never with a lock held.
	RequestHeaders func(wire.Message) map[string]string

	// RoundTripper replaces the pool of connections that the Conn creates; nil = not replaced.
	// Close closes the idle connections of the RoundTripper. Only tests set RoundTripper.
	RoundTripper http.RoundTripper
}

const (
	maxOpen         = 4096     // messages being sent; exceeds the default of limits.in_flight
	maxPendingBytes = 64 << 20 // Write fails at this number of bytes being sent
)

// An httpConn is the common part of the Conns over HTTP, which send each message as a POST. A
// goroutine handles each message being sent (see runPosts).
type httpConn struct {
	*httpTarget
	flavour httpFlavour
	limit   int // bytes of one incoming message
	log     *slog.Logger
	quota   *transport.ReceiveQuota

	ctx         context.Context // done when the connection has ended; its cause is the reason
	abort       context.CancelCauseFunc
	ready       chan struct{}      // closed when messages can be sent
	incoming    chan readResult    // results of Read; only deliver sends to it
	handoff     chan *outgoingPost // received by idle goroutines
	closed      chan struct{}      // closed by Close; Read then returns no further messages
	drained     chan struct{}      // closed when the connection and all goroutines have ended
	closeOnce   sync.Once
	utf8Warning sync.Once

	mu               sync.Mutex
	endErr           error // error of Write after the end of the connection; nil = open
	endWhenIdle      bool  // abort the connection when no request is open; see endSessionLost
	goroutines       int   // running goroutines, including the idle ones
	idle             int   // goroutines that wait for an outgoingPost
	pendingBytes     int   // bytes of the messages being sent
	open             map[wire.ID]*outgoingPost
	lastNotification <-chan struct{} // closed when the latest notification is accepted; may be nil
}

// An httpFlavour is the part of a Conn that depends on the flavour of HTTP transport.
type httpFlavour interface {
	// cancelLocked sends p, the notification that cancels the request id. httpConn implements
	// cancelLocked for the revisions with sessions. The caller holds httpConn.mu.
	cancelLocked(p *outgoingPost, id wire.ID) error
	// prepare returns the target of p and its headers.
	prepare(p *outgoingPost) (*httpTarget, http.Header)
	// handleResponse processes the HTTP response to p. It calls p.unblockNext as soon as the server
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
	c := &httpConn{
		limit: o.Limit,
		log:   o.Log,
		quota: o.Quota,
		ctx:   ctx, abort: abort,
		ready:    make(chan struct{}),
		incoming: make(chan readResult),
		handoff:  make(chan *outgoingPost),
		closed:   make(chan struct{}), drained: make(chan struct{}),
		open: make(map[wire.ID]*outgoingPost),
	}
	if c.limit <= 0 {
		c.limit = 64 << 20
	}
	o.Limit = c.limit
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.httpTarget, err = newTarget(o); err != nil {
		c.end(err)
	}
	return c
}

// A readResult holds the results of one call of Read.
type readResult struct {
	m         wire.Message
	relatedTo wire.ID // request on whose stream m arrived; "" = none
	err       error
}

// Read returns the next message or error that was passed to deliver, the reason for the end of the
// connection, or, after Close, ErrClosed.
func (c *httpConn) Read() (wire.Message, wire.ID, error) {
	select {
	case <-c.closed:
		return wire.Message{}, "", transport.ErrClosed
	default:
	}
	select {
	case r := <-c.incoming:
		return r.m, r.relatedTo, r.err
	case <-c.drained:
		return wire.Message{}, "", context.Cause(c.ctx)
	case <-c.closed:
		return wire.Message{}, "", transport.ErrClosed
	}
}

// deliver passes r to Read. It waits until a call of Read returns r, or the Conn is closed.
func (c *httpConn) deliver(r readResult) {
	select {
	case c.incoming <- r:
	case <-c.closed:
	}
}

// Write starts to send m. relatedTo is the request that m cancels, if m is a cancellation. Write
// fails if m is a batch, if the connection has ended, or if too many messages are being sent.
func (c *httpConn) Write(m wire.Message, relatedTo wire.ID) error {
	p := &outgoingPost{c: c, m: m, written: make(chan struct{})}
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
	case c.endErr != nil:
		return closedError(c.endErr)
	case m.Method() == protocol.NotificationCancelled:
		return c.flavour.cancelLocked(p, relatedTo)
	case c.fullLocked(m.Kind()):
		return errTooManyMessages
	}
	p.waitFor = c.lastNotification
	if m.Kind() == wire.Notification {
		p.accepted = make(chan struct{})
		c.lastNotification = p.accepted
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
	busy := c.goroutines - c.idle
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
	p.waitFor = target.written // otherwise p might arrive before the request
	p.onAccepted = target.cancel
	c.postLocked(p)
	return nil
}

// postLocked passes p to an idle goroutine, or to a new goroutine.
func (c *httpConn) postLocked(p *outgoingPost) {
	p.ctx, p.cancel = context.WithCancel(c.ctx)
	if p.id != "" {
		c.open[p.id] = p
	}
	c.pendingBytes += len(p.m.Raw())
	select {
	case c.handoff <- p:
		c.idle--
	default:
		c.goLocked(func() { c.runPosts(p) })
	}
}

// maxIdle bounds the goroutines that wait for a message to send. A few waiting goroutines are
// useful, because calls often follow one another.
const maxIdle = 8

// runPosts sends p and then further messages. Reusing a goroutine is cheaper: its stack already has
// the necessary size, while the stack of a new goroutine is copied several times until it is large
// enough.
func (c *httpConn) runPosts(p *outgoingPost) {
	for {
		p.run()
		if !c.becomeIdle(p) {
			return
		}
		select {
		case p = <-c.handoff:
		case <-c.ctx.Done():
			return
		}
	}
}

// becomeIdle records that p is no longer being sent, and reports whether the goroutine should wait
// for another message.
func (c *httpConn) becomeIdle(p *outgoingPost) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pendingBytes -= len(p.m.Raw())
	if c.idle >= maxIdle {
		return false
	}
	c.idle++
	return true
}

// goLocked runs f in a goroutine that Close waits for. The connection must be open.
func (c *httpConn) goLocked(f func()) {
	c.goroutines++
	go func() {
		f()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.goroutines--
		c.signalDrainedLocked()
	}()
}

// signalDrainedLocked closes c.drained if the connection and all goroutines have ended.
func (c *httpConn) signalDrainedLocked() {
	if c.endErr != nil && c.goroutines == 0 {
		close(c.drained)
	}
}

// end ends the connection: writing fails from now on, and all requests being sent are aborted. It
// reports whether the connection was open until now.
func (c *httpConn) end(reason error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		c.abort(c.endErr)
		return false
	}
	c.endErr = reason
	c.abort(reason)
	c.signalDrainedLocked()
	return true
}

// sessionLostGrace is the time for which open requests continue after the session was lost.
const sessionLostGrace = time.Second

// endSessionLost ends the connection because the server has lost the session. Writing fails from
// now on. Open requests are aborted only after sessionLostGrace: if the server rejects them until
// then, it is certain that they did not run.
func (c *httpConn) endSessionLost(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		return
	}
	c.endErr, c.endWhenIdle = reason, true
	timer := time.AfterFunc(sessionLostGrace, func() { c.abort(reason) })
	context.AfterFunc(c.ctx, func() { timer.Stop() })
	c.abortIfIdleLocked()
}

// abortIfIdleLocked completes endSessionLost when no request is open.
func (c *httpConn) abortIfIdleLocked() {
	if c.endWhenIdle && len(c.open) == 0 {
		c.abort(c.endErr)
	}
}

// Close ends the connection and its session.
func (c *httpConn) Close() error {
	c.closeOnce.Do(func() {
		wasOpen := c.end(transport.ErrClosed)
		close(c.closed)
		<-c.drained
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
