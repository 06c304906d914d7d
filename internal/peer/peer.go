// Package peer holds one conversation, both ways: it matches answers to the
// calls it sent, keeps the requests it was sent until they are answered, and sees
// to progress, cancellation and deadlines.
//
// MCP is symmetric: a [Peer] is all there is, and what it was sent decides
// whether its owner is a session or a backend. Whatever the owner of a Peer
// does, each call ends once and each request is answered at most once.
//
// What the far side says is read by Run, or handed to Receive by whoever has it already, so
// that nobody need wait for it.
//
// It refuses to decode what it passes on, and to wait: apart from Run, Call,
// Ask, Drain, Finish and Close nothing here blocks.
package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/idmap"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A Handler is what a Peer's owner does with what the far side asks. Its
// methods are called on the goroutine that reads, or receives, one after the other, in order
// of arrival: they must not wait.
type Handler interface {
	// HandleRequest is called with a request. It owes one answer, now or later.
	HandleRequest(*Request)
	// HandleNotification is called with a notification other than those that concern a call
	// or a request at hand, which the Peer sees to itself. On says on whose stream it
	// came.
	HandleNotification(m wire.Message, on Origin)
}

// A Origin is where something came that the far side says: on the stream of a call of ours, if
// the transport has one for each, or on none of a call. The zero value is none of a call: it may
// be of any call, or of no call at all.
type Origin struct {
	Call *Call // that is in flight and has the stream; nil if there is none
	// CallEnded says that it is the stream of a call that has come to its end for us: it was
	// answered, given up or taken back. What comes there is of that call and of no other.
	CallEnded bool
}

// Options of a Peer. The zero value works.
type Options struct {
	Log func() *slog.Logger // asked when there is something to log; nil = none
	// MaxInFlight bounds the requests of the far side that are open at one time;
	// beyond it they are refused. 0 = no bound.
	MaxInFlight int
	// AllowBatches, asked about each batch, says whether the conversation may have
	// any. nil = never.
	AllowBatches func() bool
	// RejectInBatch, asked about each request in a batch, returns what that is refused with if
	// it may not stand in one; what else is in the batch is seen to. nil = none is.
	RejectInBatch func(wire.Message) *wire.Error
	// PassPing, asked about each ping, says whether it is one of an era that has none: then
	// it is handed on like any other request. nil = none is.
	PassPing func(wire.Message) bool
	// OnMalformed is called with what is no message. A request that can be read in two ways is
	// answered with an error, too. nil = answer all of it with an error, as JSON-RPC 2.0 §5.1
	// has it.
	OnMalformed func(*transport.MalformedError)
	// OnRejected is called with a request that the Peer itself answers with an
	// error, before it does; may be nil.
	OnRejected func(wire.Message, *wire.Error)
	// CloseError, asked by Close, returns what that answers to the requests that are still
	// open. nil = nothing.
	CloseError func() *wire.Error
	// OnDisconnect is called once Run has read its last, or by End, before the calls in flight
	// end: whoever hears of such an end finds that the owner knows of it, too. The error is
	// the reason, as Run returns it or for a far side that closed the connection. May be nil.
	OnDisconnect func(error)
}

// A Peer is this side of a conversation over a Conn.
type Peer struct {
	in   transport.Conn // nil = it is fed
	out  transport.Writer
	h    Handler
	opts Options

	calls idmap.Table[*Call] // what we asked

	createdAt              time.Time
	lastReceived, lastUsed atomic.Int64 // see Activity; since began

	isDisconnected atomic.Bool // over was called
	draining       atomic.Bool
	abandoning     atomic.Int32  // calls that are out of the table, and the far side is being told
	callEnded      chan struct{} // 1 slot: since finishing, one of calls has come to its end; nil before

	mu            sync.Mutex
	requests      map[wire.ID]*Request     // what they asked, under their ids
	inFlight      sessionCounts            // of calls
	recent        recentCalls              // calls at an end that the far side may still be at
	relays        map[int64]*ProgressRelay // calls answered that the far side goes on with
	relaySessions sessionCounts            // of those
	unwritten     int                      // requests that were taken out, and batches, whose answers are not written yet
	drainWaiters  []chan struct{}          // closed when nothing is owed any more
	warned        map[string]bool          // kinds of oddities that were logged
	disconnect    func(error)              // ends the conversation
	sendErr       error                    // why nothing can be sent any more, once the last was read
	disconnectErr error                    // why it did
}

// New returns a Peer. It starts nothing; the conversation begins with Run.
func New(conn transport.Conn, h Handler, opts Options) *Peer {
	p := NewPush(conn, h, opts)
	p.in = conn
	return p
}

// NewPush is New for a Peer that does not read, and has no Run: what the far side says is given
// to Receive, until End.
func NewPush(out transport.Writer, h Handler, opts Options) *Peer {
	return &Peer{out: out, h: h, opts: opts, createdAt: time.Now(), disconnect: func(error) { _ = out.Close() }}
}

// Receive does with a message what Run does with each that it reads. It must be called by
// one at a time, and not after End.
func (p *Peer) Receive(m wire.Message) {
	p.touch(&p.lastReceived)
	p.dispatch(m, Origin{}, nil, 0)
}

// Disconnected is the end of Run where there is none: no more is received, for the Conn has been closed, and all
// calls sent over it end.
func (p *Peer) Disconnected() { p.endConnection(transport.ErrClosed) }

// Run reads until the far side ends the conversation (nil), the Conn fails, or
// ctx is done (both an error); only then are all calls sent over it ended, but for one that is
// being written, which ends when its write does. What
// the far side asked before remains to be answered: see Drain and Close.
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
	err := p.read()
	if !stop() {
		<-closed
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	p.endConnection(err)
	return err
}

// endConnection ends the calls that were sent, for nothing can answer them any more. A call that is being
// written stays: only Offer learns whether it has reached the far side, see [Peer.TrySend].
func (p *Peer) endConnection(err error) {
	p.mu.Lock()
	p.sendErr = closedError{disconnectReason(err)}
	p.mu.Unlock()
	if p.opts.OnDisconnect != nil {
		p.opts.OnDisconnect(disconnectReason(err))
	}
	p.mu.Lock()
	p.disconnectErr, p.relays, p.relaySessions = disconnectReason(err), nil, nil
	p.mu.Unlock()
	p.isDisconnected.Store(true)
	all := p.calls.Drain(func(c *Call) bool { return c.isWriting(p) })
	p.signalCallEnded()
	for _, c := range all {
		p.countInFlight(c, -1)
		c.complete(wire.Message{}, &transport.CallLostError{ID: c.ID(), Err: disconnectReason(err), MayHaveRun: true})
	}
}

// closedError is why a call cannot be sent: it says how the conversation ended, and is
// a [transport.ErrClosed].
type closedError struct{ reason error }

func (e closedError) Error() string   { return e.reason.Error() }
func (e closedError) Unwrap() []error { return []error{e.reason, transport.ErrClosed} }

func disconnectReason(err error) error {
	if err == nil {
		return errors.New("it closed the connection")
	}
	return err
}

func (p *Peer) read() error {
	for {
		m, about, err := p.in.Read()
		if err == nil {
			p.touch(&p.lastReceived)
			p.dispatch(m, p.originOf(about), nil, 0)
		} else if err = p.handleReadError(err); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// handleReadError sees to what Read returns in the place of a message. It returns what ends the conversation.
func (p *Peer) handleReadError(err error) error {
	var noise *transport.MalformedError
	var lost *transport.CallLostError
	switch {
	case errors.As(err, &lost): // first: it may wrap the noise that there was instead
		p.handleLost(lost)
	case errors.As(err, &noise):
		p.touch(&p.lastReceived)
		p.handleMalformed(noise)
	case errors.Is(err, io.EOF):
		return io.EOF
	default:
		return err
	}
	return nil
}

// originOf returns the stream of the request of ours that has the id, that of no call if it is "".
func (p *Peer) originOf(id wire.ID) Origin {
	if id == "" {
		return Origin{}
	}
	if n, err := p.parseCallID([]byte(id)); err == nil {
		if c, ok := p.calls.Get(n); ok {
			return Origin{Call: c}
		}
	}
	return Origin{CallEnded: true}
}

// dispatch handles one message, in slot i of a batch unless batch is nil.
func (p *Peer) dispatch(m wire.Message, on Origin, b *batch, i int) {
	switch m.Kind() {
	case wire.Response:
		p.handleResponse(m)
	case wire.Request:
		p.lastUsed.Store(p.lastReceived.Load())
		p.handleRequest(m, on, b, i)
	case wire.Notification:
		p.lastUsed.Store(p.lastReceived.Load())
		p.handleNotification(m, on)
	case wire.Batch:
		p.handleBatch(m, on)
	}
}

func (p *Peer) handleNotification(m wire.Message, on Origin) {
	switch m.Method() {
	case "notifications/progress":
		p.handleProgress(m)
	case "notifications/cancelled":
		p.handleCancelled(m)
	default:
		p.h.HandleNotification(m, on)
	}
}

// handleMalformed answers what is no message, unless the owner sees to it. It may also be
// the answer to a call, be it an unusable one.
func (p *Peer) handleMalformed(n *transport.MalformedError) {
	if salvaged := n.Message.Salvage(); n.LooksLikeResponse && salvaged.Kind() == wire.Response {
		p.handleResponse(salvaged)
		return
	}
	if n.LooksLikeResponse {
		if c, ok := p.takeByID(n.ID); ok {
			p.noteCallEnd(c)
			c.complete(wire.Message{}, &BadResponseError{n.Err})
			return
		}
	}
	if p.opts.OnMalformed != nil {
		p.opts.OnMalformed(n)
		if n.Message.WantsResponse() { // else the far side waits for ever
			p.write(wire.NewErrorResponse(n.Message.ID(), n.Err), "")
		}
		return
	}
	if p.opts.OnRejected != nil {
		p.opts.OnRejected(n.Message, n.Err)
	}
	id := n.ID
	if n.Err.Code == wire.CodeParseError {
		id = "" // what is no JSON has no id that could be relied on
	}
	p.write(wire.NewErrorResponse(id, n.Err), "")
}

// BadResponseError is what a call ends with whose answer came but is no message.
type BadResponseError struct{ Err error }

func (b *BadResponseError) Error() string { return "its answer is unusable: " + b.Err.Error() }
func (b *BadResponseError) Unwrap() error { return b.Err }

func (p *Peer) handleLost(l *transport.CallLostError) {
	if c, ok := p.takeByID(l.ID); ok {
		p.noteCallEnd(c)
		c.completeOrIntercept(wire.Message{}, l)
	}
}

// Notify sends a notification; params may be nil.
func (p *Peer) Notify(method string, params []byte) error {
	return p.SendNotification(wire.NewNotification(method, params), "")
}

// SendNotification sends the notification m. About names the request of the far side that it
// belongs to, "" if there is none. Like everything that is sent it ends the
// conversation with a far side that does not read.
func (p *Peer) SendNotification(m wire.Message, about wire.ID) error {
	p.touch(&p.lastUsed)
	err := p.out.Write(m, about)
	if errors.Is(err, transport.ErrFull) {
		p.disconnectStalled(err)
	}
	return err
}

// Crowded reports whether much of what was sent waits for the far side, though not yet so much that
// the conversation ends. Notifications that can be left out should be. It is false for a Conn that
// does not tell.
func (p *Peer) Crowded() bool {
	out, tells := p.out.(interface{ Crowded() bool })
	return tells && out.Crowded()
}

// write sends what is owed to the far side. If too much waits for it already the
// conversation is over: a far side that does not read is hung up on, it must not
// stall others. That it is gone shows when it is read from.
func (p *Peer) write(m wire.Message, about wire.ID) {
	_ = p.SendNotification(m, about)
}

// disconnectStalled ends the conversation with a far side that does not read.
func (p *Peer) disconnectStalled(err error) {
	p.mu.Lock()
	hangUp := p.disconnect
	p.mu.Unlock()
	p.log().Warn("hung up: the other side does not read", "err", err)
	hangUp(err)
}

// DrainRequests waits until every request of the far side is cancelled, or answered and the answer
// given to the Conn, or ctx is done.
func (p *Peer) DrainRequests(ctx context.Context) {
	p.mu.Lock()
	if !p.owesResponseLocked() {
		p.mu.Unlock()
		return
	}
	done := make(chan struct{})
	p.drainWaiters = append(p.drainWaiters, done)
	p.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// errDraining is why nothing is sent after [Peer.DrainCalls].
var errDraining = errors.New("no more calls are sent over it")

// DrainCalls lets the calls that were sent come to their ends, and has no more be: Offer fails
// with a [transport.ErrClosed] as soon as Finish was called. It waits until none is in flight any
// more, or ctx is done. The conversation goes on meanwhile, and does after it.
func (p *Peer) DrainCalls(ctx context.Context) {
	p.mu.Lock()
	if p.sendErr == nil {
		p.sendErr = closedError{errDraining}
	}
	if p.callEnded == nil {
		p.callEnded = make(chan struct{}, 1)
	}
	p.mu.Unlock()
	p.draining.Store(true)
	p.calls.Close()
	for p.calls.Len() > 0 || p.abandoning.Load() > 0 {
		select {
		case <-p.callEnded:
		case <-ctx.Done():
			return
		}
	}
}

// signalCallEnded notes that a call has come to its end, for Finish.
func (p *Peer) signalCallEnded() {
	if p.draining.Load() {
		select {
		case p.callEnded <- struct{}{}:
		default:
		}
	}
}

// Close ends the conversation: what the far side still waits for is cancelled,
// and the Conn closed.
func (p *Peer) Close() error {
	p.mu.Lock()
	open := make([]*Request, 0, len(p.requests))
	for _, r := range p.requests {
		open = append(open, r)
	}
	p.mu.Unlock()
	var farewell *wire.Error
	if len(open) > 0 && p.opts.CloseError != nil {
		farewell = p.opts.CloseError()
	}
	for _, r := range open {
		r.closeWith(farewell)
	}
	return p.out.Close()
}

func (p *Peer) log() *slog.Logger {
	if p.opts.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.opts.Log()
}

// warnOnce logs the first of a kind of oddity, so that a stream of them does
// not drown the log.
func (p *Peer) warnOnce(kind string, args ...any) {
	p.mu.Lock()
	seen := p.warned[kind]
	if p.warned == nil {
		p.warned = make(map[string]bool)
	}
	p.warned[kind] = true
	p.mu.Unlock()
	if !seen {
		p.log().Warn(kind, args...)
	}
}

func (p *Peer) takeByID(id wire.ID) (*Call, bool) {
	n, err := p.parseCallID([]byte(id))
	if err != nil {
		return nil, false
	}
	return p.takeResponded(n)
}

// takeResponded removes the row of a call that is answered. That is noted, so that what is still
// said of it is not taken for another's.
func (p *Peer) takeResponded(id int64) (*Call, bool) {
	c, ok := p.calls.Take(id)
	p.signalCallEnded()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok {
		p.recent.noteLateResponse(id)
		return nil, false
	}
	p.inFlight.add(c.SessionID, -1)
	p.recent.noteResponded(c.SessionID)
	return c, true
}

// takeCall removes the row of a call that has come to another end.
func (p *Peer) takeCall(id int64) (*Call, bool) {
	c, ok := p.calls.Take(id)
	p.signalCallEnded()
	if ok {
		p.countInFlight(c, -1)
	}
	return c, ok
}

// countInFlight counts a call in flight, or that it is so no more. It counts before the call is, and while it is.
func (p *Peer) countInFlight(c *Call, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight.add(c.SessionID, n)
}

// parseCallID reads an id that we gave. A sloppy server may give it back as a string.
func (p *Peer) parseCallID(id []byte) (int64, error) {
	text := id
	quoted := len(text) > 2 && text[0] == '"'
	if quoted {
		text = text[1 : len(text)-1]
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if quoted && err == nil {
		p.warnOnce("answers with a string where a number was asked", "id", string(id))
	}
	return n, err
}
