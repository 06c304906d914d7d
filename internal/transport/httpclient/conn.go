package httpclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"mcpgateway/internal/transport"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Options say how a backend is reached over HTTP. The zero value of all but
// URL works.
type Options struct {
	URL     string                  // http or https
	Headers map[string]string       // sent with each request, to URL's origin and to no other; Host is the host of the request
	TLS     ClientTLS               // of the Conn's own pool of connections
	Via     string                  // how we name ourselves in the header Via, so that a loop can be told; "" = not at all
	Limit   int                     // bytes of one message that is read; 0 stands for 64 MiB
	Quota   *transport.ReceiveQuota // counts what is being received; nil = nothing does
	Log     *slog.Logger            // nil is silent

	// RequestHeaders returns the headers that repeat what stands in a message, names and
	// values being fit for a header; nil stands for none. [DialStateless] asks for
	// them once for each message as it is sent, maybe for several at once and never
	// under a lock; the other Conns have no such headers.
	RequestHeaders func(wire.Message) map[string]string

	// RoundTripper takes the place of the Conn's own pool of connections. Close
	// closes those of its connections that are idle.
	RoundTripper http.RoundTripper
}

const (
	maxOpen         = 4096     // messages under way: more than one client may have in flight
	maxPendingBytes = 64 << 20 // bytes of the messages under way; one more is taken until they are reached
)

// An httpConn is what the Conns over HTTP have in common: messages that are each
// a POST of its own. It has a goroutine for each that is under way (see work).
type httpConn struct {
	*httpTarget
	flavour httpFlavour
	limit   int
	log     *slog.Logger

	quota *transport.ReceiveQuota

	ctx         context.Context // ends with the conversation; the cause says why
	abort       context.CancelCauseFunc
	ready       chan struct{}      // closed once messages can be sent
	incoming    chan readResult    // what Read returns; written to by push only
	handoff     chan *outgoingPost // read by goroutines that have nothing to do
	closed      chan struct{}      // Close was called: nobody reads
	drained     chan struct{}      // the conversation is over and every goroutine gone
	closeOnce   sync.Once
	utf8Warning sync.Once // the warning about UTF-8

	mu               sync.Mutex
	endErr           error // why no more can be written
	endWhenIdle      bool  // the session is lost: what is under way may come to its end, see forget
	goroutines       int   // goroutines
	idle             int   // those that have nothing to do
	pendingBytes     int   // bytes of the messages under way
	open             map[wire.ID]*outgoingPost
	lastNotification <-chan struct{} // closed when the notification written last was taken
}

// A httpFlavour is what one of the Conns over HTTP has of its own.
type httpFlavour interface {
	// cancelLocked takes p, the notification that cancels the request about. The one
	// of httpConn is that of the revisions with sessions. The caller holds httpConn.mu.
	cancelLocked(p *outgoingPost, about wire.ID) error
	// prepare returns where p goes, and with which header.
	prepare(p *outgoingPost) (*httpTarget, http.Header)
	// handleResponse takes the response to p: it calls p.letOn as soon as p was accepted,
	// and reports what came of p.
	handleResponse(p *outgoingPost, resp *http.Response)
	// onResult is told of a result for p that came as the response to it.
	onResult(p *outgoingPost, m wire.Message)
	// mismatch returns what is wrong with the dialect if the server refuses p as one does
	// that has another transport; nil if p is not a request that shows it.
	mismatch(p *outgoingPost) error
	// knowsSession asks the server whether it knows the session in which it has refused p; false if it does not say so.
	knowsSession(p *outgoingPost) bool
	// mayRespondElsewhere reports whether the answer to a POST may come on another stream.
	mayRespondElsewhere() bool
	// endSession takes leave of a server with which the conversation still went on.
	endSession()
}

// newHTTPConn returns what has to be given its dialect. The conversation is over
// already if o is of no use.
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

// An readResult is what one call of Read returns.
type readResult struct {
	m     wire.Message
	about wire.ID // the request on whose stream it came
	err   error
}

func (c *httpConn) Read() (wire.Message, wire.ID, error) {
	select {
	case <-c.closed:
		return wire.Message{}, "", transport.ErrClosed
	default:
	}
	select {
	case it := <-c.incoming:
		return it.m, it.about, it.err
	case <-c.drained:
		return wire.Message{}, "", context.Cause(c.ctx)
	case <-c.closed:
		return wire.Message{}, "", transport.ErrClosed
	}
}

// deliver hands one thing to Read and waits until it is taken.
func (c *httpConn) deliver(it readResult) {
	select {
	case c.incoming <- it:
	case <-c.closed:
	}
}

func (c *httpConn) Write(m wire.Message, about wire.ID) error {
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
		return c.flavour.cancelLocked(p, about)
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

// closedError returns why nothing can be written any more, as an ErrClosed.
func closedError(why error) error {
	if errors.Is(why, transport.ErrClosed) {
		return why
	}
	return fmt.Errorf("%w: %w", transport.ErrClosed, why)
}

// errTooManyMessages is not ErrFull: nobody fails to read, there is just too much.
var errTooManyMessages = errors.New("too many messages are under way to the server")

// fullLocked reports whether a message of that kind is one too many. What is not
// a request is short and soon over; its bound is wider, so that an answer to the
// server's ping is not refused because of the calls that are open.
func (c *httpConn) fullLocked(kind wire.Kind) bool {
	busy := c.goroutines - c.idle
	if kind == wire.Request {
		return busy >= maxOpen || c.pendingBytes >= maxPendingBytes
	}
	return busy >= 2*maxOpen || c.pendingBytes >= 2*maxPendingBytes
}

// cancelLocked sends p, the cancellation of the request about, and then gives
// that request up. In the revisions with sessions a stream that is cut is no cancellation
// ("Sending Messages to the Server" 6), so p goes out unless the request itself
// never did. The bounds do not apply to it: it is what brings relief.
func (c *httpConn) cancelLocked(p *outgoingPost, about wire.ID) error {
	target := c.open[about]
	if target == nil {
		if c.fullLocked(p.m.Kind()) {
			return errTooManyMessages
		}
		c.postLocked(p)
		return nil
	}
	delete(c.open, about)
	if !target.sent {
		target.cancel()
		return nil
	}
	p.waitFor = target.written // or it might arrive before what it cancels
	p.onAccepted = target.cancel
	c.postLocked(p)
	return nil
}

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

// maxIdle bounds the goroutines that wait for something to be posted. Calls in flight follow one another, so that
// there is a use for a few.
const maxIdle = 8

// runPosts posts p, and then what else there is to be posted: a goroutine that has done so before has the stack for it, while
// that of a new one is copied several times until it is large enough.
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

// becomeIdle notes that p is not under way any more, and reports whether who has posted it is to wait for another.
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

// goLocked runs f in a goroutine that Close waits for. The conversation must
// not have ended.
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

func (c *httpConn) signalDrainedLocked() {
	if c.endErr != nil && c.goroutines == 0 {
		close(c.drained)
	}
}

// end ends the conversation: nothing more can be written, and everything under
// way is aborted. It reports whether the conversation went on until then.
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

// sessionLostGrace is how long requests under way may take when the session is lost.
const sessionLostGrace = time.Second

// endSessionLost ends the conversation because the session is lost: nothing more can be written.
// Requests under way are aborted only after sessionLostGrace, because the server may refuse them, too,
// and then it is known that they did not run.
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

// abortIfIdleLocked ends what forget has left when no request is under way any longer.
func (c *httpConn) abortIfIdleLocked() {
	if c.endWhenIdle && len(c.open) == 0 {
		c.abort(c.endErr)
	}
}

func (c *httpConn) Close() error {
	c.closeOnce.Do(func() {
		alive := c.end(transport.ErrClosed)
		close(c.closed)
		<-c.drained
		if c.httpTarget == nil {
			return
		}
		if alive {
			c.flavour.endSession()
		}
		c.pool.CloseIdleConnections()
	})
	return nil
}
