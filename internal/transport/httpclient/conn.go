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
	maxOpen    = 4096     // messages under way: more than one client may have in flight
	maxWaiting = 64 << 20 // bytes of the messages under way; one more is taken until they are reached
)

// An httpConn is what the Conns over HTTP have in common: messages that are each
// a POST of its own. It has a goroutine for each that is under way (see work).
type httpConn struct {
	*site
	kind  dialect
	limit int
	log   *slog.Logger

	intake *transport.ReceiveQuota

	ctx     context.Context // ends with the conversation; the cause says why
	abort   context.CancelCauseFunc
	ready   chan struct{} // closed once messages can be sent
	in      chan item     // what Read returns; written to by push only
	posts   chan *post    // read by goroutines that have nothing to do
	closed  chan struct{} // Close was called: nobody reads
	drained chan struct{} // the conversation is over and every goroutine gone
	closing sync.Once
	mending sync.Once // the warning about UTF-8

	mu      sync.Mutex
	ended   error // why no more can be written
	fading  bool  // the session is lost: what is under way may come to its end, see forget
	running int   // goroutines
	spare   int   // those that have nothing to do
	waiting int   // bytes of the messages under way
	open    map[wire.ID]*post
	notice  <-chan struct{} // closed when the notification written last was taken
}

// A dialect is what one of the Conns over HTTP has of its own.
type dialect interface {
	// cancelLocked takes p, the notification that cancels the request about. The one
	// of httpConn is that of the revisions with sessions. The caller holds httpConn.mu.
	cancelLocked(p *post, about wire.ID) error
	// depart returns where p goes, and with which header.
	depart(p *post) (*site, http.Header)
	// take takes the response to p: it calls p.letOn as soon as p was accepted,
	// and reports what came of p.
	take(p *post, resp *http.Response)
	// answered is told of a result for p that came as the response to it.
	answered(p *post, m wire.Message)
	// misfit returns what is wrong with the dialect if the server refuses p as one does
	// that has another transport; nil if p is not a request that shows it.
	misfit(p *post) error
	// knows asks the server whether it knows the session in which it has refused p; false if it does not say so.
	knows(p *post) bool
	// answersElsewhere reports whether the answer to a POST may come on another stream.
	answersElsewhere() bool
	// goodbye takes leave of a server with which the conversation still went on.
	goodbye()
}

// newHTTPConn returns what has to be given its dialect. The conversation is over
// already if o is of no use.
func newHTTPConn(o Options) *httpConn {
	ctx, abort := context.WithCancelCause(context.Background())
	c := &httpConn{
		limit:  o.Limit,
		log:    o.Log,
		intake: o.Quota,
		ctx:    ctx, abort: abort,
		ready:  make(chan struct{}),
		in:     make(chan item),
		posts:  make(chan *post),
		closed: make(chan struct{}), drained: make(chan struct{}),
		open: make(map[wire.ID]*post),
	}
	if c.limit <= 0 {
		c.limit = 64 << 20
	}
	o.Limit = c.limit
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.site, err = newSite(o); err != nil {
		c.end(err)
	}
	return c
}

// An item is what one call of Read returns.
type item struct {
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
	case it := <-c.in:
		return it.m, it.about, it.err
	case <-c.drained:
		return wire.Message{}, "", context.Cause(c.ctx)
	case <-c.closed:
		return wire.Message{}, "", transport.ErrClosed
	}
}

// push hands one thing to Read and waits until it is taken.
func (c *httpConn) push(it item) {
	select {
	case c.in <- it:
	case <-c.closed:
	}
}

func (c *httpConn) Write(m wire.Message, about wire.ID) error {
	p := &post{c: c, m: m, wrote: make(chan struct{})}
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
	case c.ended != nil:
		return over(c.ended)
	case m.Method() == "notifications/cancelled":
		return c.kind.cancelLocked(p, about)
	case c.fullLocked(m.Kind()):
		return errBusy
	}
	p.after = c.notice
	if m.Kind() == wire.Notification {
		p.taken = make(chan struct{})
		c.notice = p.taken
	}
	c.postLocked(p)
	return nil
}

// over returns why nothing can be written any more, as an ErrClosed.
func over(why error) error {
	if errors.Is(why, transport.ErrClosed) {
		return why
	}
	return fmt.Errorf("%w: %w", transport.ErrClosed, why)
}

// errBusy is not ErrFull: nobody fails to read, there is just too much.
var errBusy = errors.New("too many messages are under way to the server")

// fullLocked reports whether a message of that kind is one too many. What is not
// a request is short and soon over; its bound is wider, so that an answer to the
// server's ping is not refused because of the calls that are open.
func (c *httpConn) fullLocked(kind wire.Kind) bool {
	busy := c.running - c.spare
	if kind == wire.Request {
		return busy >= maxOpen || c.waiting >= maxWaiting
	}
	return busy >= 2*maxOpen || c.waiting >= 2*maxWaiting
}

// cancelLocked sends p, the cancellation of the request about, and then gives
// that request up. In the revisions with sessions a stream that is cut is no cancellation
// ("Sending Messages to the Server" 6), so p goes out unless the request itself
// never did. The bounds do not apply to it: it is what brings relief.
func (c *httpConn) cancelLocked(p *post, about wire.ID) error {
	target := c.open[about]
	if target == nil {
		if c.fullLocked(p.m.Kind()) {
			return errBusy
		}
		c.postLocked(p)
		return nil
	}
	delete(c.open, about)
	if !target.sent {
		target.cancel()
		return nil
	}
	p.after = target.wrote // or it might arrive before what it cancels
	p.then = target.cancel
	c.postLocked(p)
	return nil
}

func (c *httpConn) postLocked(p *post) {
	p.ctx, p.cancel = context.WithCancel(c.ctx)
	if p.id != "" {
		c.open[p.id] = p
	}
	c.waiting += len(p.m.Raw())
	select {
	case c.posts <- p:
		c.spare--
	default:
		c.goLocked(func() { c.work(p) })
	}
}

// maxSpare bounds the goroutines that wait for something to be posted. Calls in flight follow one another, so that
// there is a use for a few.
const maxSpare = 8

// work posts p, and then what else there is to be posted: a goroutine that has done so before has the stack for it, while
// that of a new one is copied several times until it is large enough.
func (c *httpConn) work(p *post) {
	for {
		p.run()
		if !c.rest(p) {
			return
		}
		select {
		case p = <-c.posts:
		case <-c.ctx.Done():
			return
		}
	}
}

// rest notes that p is not under way any more, and reports whether who has posted it is to wait for another.
func (c *httpConn) rest(p *post) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting -= len(p.m.Raw())
	if c.spare >= maxSpare {
		return false
	}
	c.spare++
	return true
}

// goLocked runs f in a goroutine that Close waits for. The conversation must
// not have ended.
func (c *httpConn) goLocked(f func()) {
	c.running++
	go func() {
		f()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		c.drainedLocked()
	}()
}

func (c *httpConn) drainedLocked() {
	if c.ended != nil && c.running == 0 {
		close(c.drained)
	}
}

// end ends the conversation: nothing more can be written, and everything under
// way is aborted. It reports whether the conversation went on until then.
func (c *httpConn) end(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		c.abort(c.ended)
		return false
	}
	c.ended = why
	c.abort(why)
	c.drainedLocked()
	return true
}

// forgetTime is how long requests under way may take when the session is lost.
const forgetTime = time.Second

// forget ends the conversation because the session is lost: nothing more can be written.
// Requests under way are aborted only after forgetTime, because the server may refuse them, too,
// and then it is known that they did not run.
func (c *httpConn) forget(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return
	}
	c.ended, c.fading = why, true
	timer := time.AfterFunc(forgetTime, func() { c.abort(why) })
	context.AfterFunc(c.ctx, func() { timer.Stop() })
	c.fadedLocked()
}

// fadedLocked ends what forget has left when no request is under way any longer.
func (c *httpConn) fadedLocked() {
	if c.fading && len(c.open) == 0 {
		c.abort(c.ended)
	}
}

func (c *httpConn) Close() error {
	c.closing.Do(func() {
		alive := c.end(transport.ErrClosed)
		close(c.closed)
		<-c.drained
		if c.site == nil {
			return
		}
		if alive {
			c.kind.goodbye()
		}
		c.pool.CloseIdleConnections()
	})
	return nil
}
