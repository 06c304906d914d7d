// Package peer implements one side of a JSON-RPC connection, in both directions: it matches
// responses to the calls that it has sent, keeps received requests until they are answered, and
// handles progress, cancellation and timeouts.
//
// MCP is symmetric: a [Peer] serves connections to clients and to backends alike. In all cases each
// call completes exactly once, and each request is answered at most once.
//
// Run reads the messages of the remote side. A push peer ([NewPush]) has no Run: its user passes
// each message to Receive, so that no goroutine has to wait for messages. [NewRequest] returns a
// [Request] without a Peer, for a transport on which each request has a connection of its own.
//
// The package does not decode the messages it forwards, and it does not block: only Run, Call,
// RoundTrip, RoundTripAll, DrainRequests, DrainCalls and Close wait.
//
// Lock order: callTable.mu, then the lock of the idmap, then Call.mu; and callTable.mu, then
// requestTable.mu. Peer.mu, batch.mu and Request.mu are never held together with another. No lock
// is held during a Write or a call of the user's code, with one exception: the function match of
// [Peer.SoleSessionWhere] is called with callTable.mu held.
package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A Handler processes the requests and notifications of the remote side. Its methods are called
// one at a time, in order of arrival, on the goroutine of Run or of the caller of Receive: they
// must not block.
type Handler interface {
	// HandleRequest is called with each request, except the pings to which the Peer responds and
	// the requests that it rejects. The handler must respond once, now or later.
	HandleRequest(*Request)
	// HandleNotification is called with each notification except progress and cancellation,
	// which the Peer handles itself.
	HandleNotification(m wire.Message, origin Origin)
}

// An Origin is the stream on which a message of the remote side arrived: the stream of a call, if
// the transport has one for each call. In the zero value no call is known: the message may belong
// to any call, or to none.
type Origin struct {
	Call *Call // the call in flight to which the stream belongs; nil = none
	// CallEnded is true if the stream belongs to a call that has been answered, timed out or
	// cancelled. The message belongs to that call and to no other.
	CallEnded bool
}

// Options configure a Peer. The zero value is valid.
type Options struct {
	Log func() *slog.Logger // called for each log record; nil = no logging
	// MaxInFlight bounds the unanswered requests of the remote side; further requests, except
	// pings, are rejected. 0 = no bound.
	MaxInFlight int
	// AllowBatches reports whether batches are allowed; it is called for each batch. nil = never.
	AllowBatches func() bool
	// RejectInBatch returns the error for a request that must not be part of a batch; a nil error
	// means that the request is allowed. The other requests of the batch are processed. nil = every
	// request is allowed.
	RejectInBatch func(wire.Message) *wire.Error
	// PassPing reports whether a ping is passed to the Handler like any other request, because the
	// revision that the ping declares has no pings. It must not block. nil = the Peer responds to
	// every ping.
	PassPing func(wire.Message) bool
	// OnMalformed is called with input that is not a valid message and does not complete a call.
	// Such input then gets no response, except that an invalid request gets an error response; see
	// [wire.Message.WantsResponse]. nil = all such input gets an error response (JSON-RPC 2.0
	// §5.1).
	OnMalformed func(*transport.MalformedError)
	// OnRejected is called before the Peer itself responds with an error to a request or, without
	// OnMalformed, to invalid input. It is not called for batches that are not allowed, nor by
	// Close. May be nil.
	OnRejected func(wire.Message, *wire.Error)
	// CloseError returns the error with which Close responds to the requests that are still open; a
	// nil error, or a nil CloseError, means no response.
	CloseError func() *wire.Error
	// OnDisconnect is called when the connection has ended: after the last read of Run, or by
	// Disconnected. Calls in flight complete after OnDisconnect, so the user of the Peer has
	// recorded the end of the connection before their handlers run. The error is the reason, never
	// nil. May be nil.
	OnDisconnect func(error)
}

// A Peer is the local side of a JSON-RPC connection.
type Peer struct {
	in   transport.Conn // nil for a push peer
	out  transport.Writer
	h    Handler
	opts Options

	requests requestTable // inbound, without a response
	calls    callTable    // outbound, in flight

	createdAt              time.Time
	lastReceived, lastUsed atomic.Int64 // see Activity; nanoseconds since createdAt

	mu         sync.Mutex
	warned     map[string]bool // keys for which firstTime was called
	disconnect func(error)     // ends the connection
}

// New returns a Peer. It starts nothing and reads nothing before Run.
func New(conn transport.Conn, h Handler, opts Options) *Peer {
	p := NewPush(conn, h, opts)
	p.in = conn
	p.requests.keepMap = true
	return p
}

// NewPush returns a push peer: it has no Run. Its user passes the messages of the remote side to
// Receive, until the user calls Disconnected.
func NewPush(out transport.Writer, h Handler, opts Options) *Peer {
	p := &Peer{
		out: out, h: h, opts: opts,
		createdAt:  time.Now(),
		disconnect: func(error) { _ = out.Close() },
	}
	p.calls.peer = p
	return p
}

// Receive processes one message of the remote side. It must not be called concurrently, nor after
// Disconnected.
func (p *Peer) Receive(m wire.Message) {
	p.touch(&p.lastReceived)
	p.dispatch(m, Origin{}, nil, 0)
}

// Disconnected ends a push peer whose connection was closed: all calls in flight complete with a
// [transport.CallLostError], with the same exception as at the end of Run.
func (p *Peer) Disconnected() { p.endConnection(transport.ErrClosed) }

// Run reads until the remote side closes the connection (Run then returns nil), the Conn fails, or
// ctx is done (Run then returns an error). At the end it completes all calls in flight, except a
// call that is being written, which completes when its write returns. Requests of the remote side
// stay open; see DrainRequests and Close.
func (p *Peer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.mu.Lock()
	p.disconnect = cancel
	p.mu.Unlock()
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		p.out.Close()
	})
	var err error
	for err == nil {
		m, relatedTo, readErr := p.in.Read()
		if readErr != nil {
			err = p.handleReadError(readErr)
			continue
		}
		p.touch(&p.lastReceived)
		p.dispatch(m, p.originOf(relatedTo), nil, 0)
	}
	if err == io.EOF {
		err = nil
	}
	if !stop() {
		<-closed
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	p.endConnection(err)
	return err
}

// endConnection completes the calls in flight, because no further response can arrive. A call that
// is being written stays in the table: only [Peer.TrySend] knows whether the call has reached the
// remote side.
func (p *Peer) endConnection(err error) {
	if err == nil {
		err = errors.New("it closed the connection")
	}
	p.calls.reject(closedError{err})
	// OnDisconnect returns before callTable.disconnect sets disconnectErr, because from then on
	// TrySend also completes calls, whose handlers may send them again over the next connection.
	if p.opts.OnDisconnect != nil {
		p.opts.OnDisconnect(err)
	}
	for _, c := range p.calls.disconnect(closedError{err}) {
		p.completeLost(c)
	}
}

// handleReadError processes an error of Read. It returns nil if reading continues.
func (p *Peer) handleReadError(err error) error {
	var malformed *transport.MalformedError
	var lost *transport.CallLostError
	switch {
	case errors.As(err, &lost): // first, because it may wrap a MalformedError
		p.completeByID(lost.ID, lost)
	case errors.As(err, &malformed):
		p.touch(&p.lastReceived)
		p.handleMalformed(malformed)
	case errors.Is(err, io.EOF):
		return io.EOF
	default:
		return err
	}
	return nil
}

// originOf returns the Origin of a message that belongs to the call with this id; "" = unknown
// call.
func (p *Peer) originOf(id wire.ID) Origin {
	if id == "" {
		return Origin{}
	}
	if c := p.callByID(id); c != nil {
		return Origin{Call: c}
	}
	return Origin{CallEnded: true}
}

// callByID returns the call in flight with this id, which may be a string; nil if there is none.
func (p *Peer) callByID(id wire.ID) *Call {
	n, _ := strconv.ParseInt(strings.Trim(string(id), `"`), 10, 64) // 0 is the id of no call
	c, _ := p.calls.byID.Get(n)
	return c
}

// dispatch processes one message. If b is not nil, the message is element i of that batch.
func (p *Peer) dispatch(m wire.Message, origin Origin, b *batch, i int) {
	switch m.Kind() {
	case wire.Response:
		p.handleResponse(m)
	case wire.Request:
		p.lastUsed.Store(p.lastReceived.Load())
		r := &Request{Message: m, owner: p, id: m.ID(), origin: origin, batch: b, index: i}
		limit := p.opts.MaxInFlight
		ping := m.Method() == protocol.MethodPing &&
			(p.opts.PassPing == nil || !p.opts.PassPing(m))
		if ping {
			limit = 0 // a ping is answered at once
		}
		if err := p.requests.add(r, limit); err != nil {
			if p.opts.OnRejected != nil {
				p.opts.OnRejected(m, err)
			}
			r.respond(wire.NewErrorResponse(r.id, err))
		} else if ping {
			r.Reply([]byte("{}"))
		} else {
			p.h.HandleRequest(r)
		}
	case wire.Notification:
		p.lastUsed.Store(p.lastReceived.Load())
		switch m.Method() {
		case protocol.NotificationProgress:
			p.handleProgress(m)
		case protocol.NotificationCancelled:
			// The request gets no response ("SHOULD NOT send a response for the cancelled
			// request"). The cancellation of an unknown or answered request is ignored.
			if r := p.requests.get(m.RequestID()); r != nil {
				r.cancel(m.Part(wire.PartParams))
			} else if c := p.callByID(m.RequestID()); c != nil && c.RemoteCancels {
				p.completeByID(c.ID(), ErrCancelled)
			}
		default:
			p.h.HandleNotification(m, origin)
		}
	case wire.Batch:
		p.handleBatch(m, origin)
	}
}

// handleMalformed processes input that is not a valid message:
//  1. a response that can be repaired, or that contains at least the id of a call, completes the
//     call;
//  2. other input is passed to OnMalformed, if set; then only an invalid request
//     ([wire.Message.WantsResponse]) gets an error response;
//  3. without OnMalformed, other input gets an error response.
func (p *Peer) handleMalformed(n *transport.MalformedError) {
	if salvaged := n.Message.Salvage(); n.LooksLikeResponse && salvaged.Kind() == wire.Response {
		p.handleResponse(salvaged)
		return
	}
	if n.LooksLikeResponse && p.completeByID(n.ID, &BadResponseError{n.Err}) {
		return
	}
	if p.opts.OnMalformed != nil {
		p.opts.OnMalformed(n)
		if n.Message.WantsResponse() { // otherwise the remote side would wait forever
			_ = p.send(wire.NewErrorResponse(n.Message.ID(), n.Err), "")
		}
		return
	}
	if p.opts.OnRejected != nil {
		p.opts.OnRejected(n.Message, n.Err)
	}
	id := n.ID
	if n.Err.Code == wire.CodeParseError {
		id = "" // an id found in invalid JSON is not reliable
	}
	_ = p.send(wire.NewErrorResponse(id, n.Err), "")
}

// Notify sends a notification; params may be nil.
func (p *Peer) Notify(method string, params []byte) error {
	return p.SendNotification(wire.NewNotification(method, params), "")
}

// SendNotification sends the notification m. relatedTo is the id of the request of the remote side
// to which the notification belongs; "" = none. If the remote side does not read, SendNotification
// ends the connection and returns an error that wraps [transport.ErrFull].
func (p *Peer) SendNotification(m wire.Message, relatedTo wire.ID) error {
	return p.send(m, relatedTo)
}

// send sends a response or notification. A full write queue ends the connection, because a remote
// side that does not read must not stall others. Other errors can be ignored, because Read reports
// the end of the connection.
func (p *Peer) send(m wire.Message, relatedTo wire.ID) error {
	p.touch(&p.lastUsed)
	err := p.out.Write(m, relatedTo)
	if errors.Is(err, transport.ErrFull) {
		p.disconnectStalled(err)
	}
	return err
}

// Backlogged reports whether a large part of the queue of unwritten messages is in use, but less
// than would end the connection. Dispensable notifications should be dropped then. Backlogged
// returns false for a Conn that does not report its backlog.
func (p *Peer) Backlogged() bool {
	out, ok := p.out.(interface{ Backlogged() bool })
	return ok && out.Backlogged()
}

// disconnectStalled ends the connection to a remote side that does not read.
func (p *Peer) disconnectStalled(err error) {
	p.mu.Lock()
	disconnect := p.disconnect
	p.mu.Unlock()
	p.log().Warn("disconnecting a remote side that does not read", "err", err)
	disconnect(err)
}

// DrainRequests waits until every request of the remote side has been cancelled or its response has
// been written to the Conn, or until ctx is done.
func (p *Peer) DrainRequests(ctx context.Context) { p.requests.drain(ctx) }

// removeRequest implements requestOwner.
func (p *Peer) removeRequest(r *Request) { p.requests.remove(r) }

// responseWritten implements requestOwner.
func (p *Peer) responseWritten() { p.requests.written() }

// Close ends the open requests of the remote side, with the response of [Options].CloseError or
// without a response, and closes the Conn.
func (p *Peer) Close() error {
	open := p.requests.all()
	var closeErr *wire.Error
	if len(open) > 0 && p.opts.CloseError != nil {
		closeErr = p.opts.CloseError()
	}
	for _, r := range open {
		r.Close(closeErr)
	}
	return p.out.Close()
}

// log returns the logger; it is never nil.
func (p *Peer) log() *slog.Logger {
	if p.opts.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.opts.Log()
}

// warnOnce logs each warning once per connection, so that repeated warnings do not flood the log.
func (p *Peer) warnOnce(msg string, args ...any) {
	if p.firstTime(msg) {
		p.log().Warn(msg, args...)
	}
}

// firstTime returns true when it is called for the first time with this key.
func (p *Peer) firstTime(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.warned[key]
	if p.warned == nil {
		p.warned = make(map[string]bool)
	}
	p.warned[key] = true
	return !seen
}
