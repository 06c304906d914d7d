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

// Options describe how to reach an HTTP server. The zero value of all fields except URL works.
type Options struct {
	URL string // http or https
	// Headers are sent with each request to the origin of URL, and to no other. Host sets the
	// host of the request.
	Headers map[string]string
	TLS     ClientTLS               // ignored with a RoundTripper
	Via     string                  // our name in the header Via, to detect loops; "" = no header
	Limit   int                     // bytes of one incoming message; 0 = 64 MiB
	Quota   *transport.ReceiveQuota // bounds incomplete messages; nil = no bound
	Log     *slog.Logger            // nil = no logging

	// RequestHeaders returns the headers that repeat parts of a message; names and values must be
	// valid in a header. nil = none. Only a Conn of [DialStateless] calls it: once for each
	// message, maybe concurrently, and never with a lock held.
	RequestHeaders func(wire.Message) map[string]string

	// RoundTripper replaces the Conn's own pool of connections; nil = own pool. Close closes its
	// idle connections. Only tests set it.
	RoundTripper http.RoundTripper
}

const (
	maxOpen         = 4096     // messages being sent: more than one client may have in flight
	maxPendingBytes = 64 << 20 // bytes of the messages being sent from which on Write fails
)

// An httpConn is the common part of the Conns over HTTP, which send each message as a POST. Each
// message being sent has a goroutine (see runPosts).
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
	closed      chan struct{}      // closed by Close: nobody reads any longer
	drained     chan struct{}      // closed when the connection and all goroutines have ended
	closeOnce   sync.Once
	utf8Warning sync.Once

	mu               sync.Mutex
	endErr           error // why nothing can be written any longer; nil = open
	endWhenIdle      bool  // abort when no request is open; see endSessionLost
	goroutines       int   // running goroutines, including the idle ones
	idle             int   // goroutines that wait for an outgoingPost
	pendingBytes     int   // bytes of the messages being sent
	open             map[wire.ID]*outgoingPost
	lastNotification <-chan struct{} // closed when the latest notification was accepted; may be nil
}

// An httpFlavour is the part of a Conn that depends on the flavour of HTTP transport.
type httpFlavour interface {
	// cancelLocked sends p, the notification that cancels the request id. The implementation of
	// httpConn is that of the revisions with sessions. The caller holds httpConn.mu.
	cancelLocked(p *outgoingPost, id wire.ID) error
	// prepare returns the target of p and its headers.
	prepare(p *outgoingPost) (*httpTarget, http.Header)
	// handleResponse processes the HTTP response to p. It calls p.unblockNext as soon as p was
	// accepted, and completes p.
	handleResponse(p *outgoingPost, resp *http.Response)
	// onResult is called with a result for p that was in the HTTP response to p.
	onResult(p *outgoingPost, m wire.Message)
	// mismatch returns the error that reports a server of another transport, if p is a request that
	// such a server rejects; nil = p is another message.
	mismatch(p *outgoingPost) error
	// knowsSession asks the server whether it knows the session in which it has rejected p. It
	// returns false if the server does not confirm that.
	knowsSession(p *outgoingPost) bool
	// mayRespondElsewhere reports whether the response to a POST may arrive on another stream.
	mayRespondElsewhere() bool
	// endSession ends the session at a server to which the connection was open until now.
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

// Read returns the next message or error that deliver was called with.
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

// deliver passes r to Read and waits until it is taken, or the Conn is closed.
func (c *httpConn) deliver(r readResult) {
	select {
	case c.incoming <- r:
	case <-c.closed:
	}
}

// Write starts to send m. relatedTo is the request that m cancels, if m is a cancellation.
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

// closedError returns why as an error that wraps ErrClosed.
func closedError(why error) error {
	if errors.Is(why, transport.ErrClosed) {
		return why
	}
	return fmt.Errorf("%w: %w", transport.ErrClosed, why)
}

// errTooManyMessages is not ErrFull, because the server does read: there are just too many
// messages.
var errTooManyMessages = errors.New("too many messages are under way to the server")

// fullLocked reports whether another message of this kind exceeds the bounds. The bounds are
// twice as high for messages other than requests, which are short and soon sent, so that the
// response to a ping of the server is not rejected because of open calls.
func (c *httpConn) fullLocked(kind wire.MessageKind) bool {
	busy := c.goroutines - c.idle
	if kind == wire.Request {
		return busy >= maxOpen || c.pendingBytes >= maxPendingBytes
	}
	return busy >= 2*maxOpen || c.pendingBytes >= 2*maxPendingBytes
}

// cancelLocked sends p, the cancellation of the request id, and then abandons that request. In
// the revisions with sessions, disconnecting from a stream is not a cancellation ("Sending
// Messages to the Server" 6), so p is sent unless the request was never sent. The bounds do not
// apply to p, because it reduces the load.
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
	p.waitFor = target.written // or it might arrive before the request
	p.onAccepted = target.cancel
	c.postLocked(p)
	return nil
}

// postLocked hands p to an idle goroutine, or starts one.
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

// maxIdle bounds the goroutines that wait for a message to send. A few are useful because calls
// follow one another.
const maxIdle = 8

// runPosts sends p and then further messages. A goroutine that has sent a message before has a
// stack of the necessary size; the stack of a new goroutine is copied several times until it is
// large enough.
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

// becomeIdle records that p has been sent, and reports whether its goroutine is to wait for another
// message.
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

// signalDrainedLocked closes drained if the connection and all goroutines have ended.
func (c *httpConn) signalDrainedLocked() {
	if c.endErr != nil && c.goroutines == 0 {
		close(c.drained)
	}
}

// end ends the connection: writing fails from now on, and all requests being sent are aborted. It
// reports whether the connection was open until now.
func (c *httpConn) end(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		c.abort(c.endErr)
		return false
	}
	c.endErr = why
	c.abort(why)
	c.signalDrainedLocked()
	return true
}

// sessionLostGrace is how long open requests may go on after the session was lost.
const sessionLostGrace = time.Second

// endSessionLost ends the connection because the server has lost the session. Writing fails from
// now on. Open requests are aborted only after sessionLostGrace, because the server may reject
// them, too, and then it is known that they did not run.
func (c *httpConn) endSessionLost(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		return
	}
	c.endErr, c.endWhenIdle = why, true
	timer := time.AfterFunc(sessionLostGrace, func() { c.abort(why) })
	context.AfterFunc(c.ctx, func() { timer.Stop() })
	c.abortIfIdleLocked()
}

// abortIfIdleLocked completes endSessionLost when no request is open any longer.
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
