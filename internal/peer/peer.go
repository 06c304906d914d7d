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

	began       time.Time
	heard, used atomic.Int64 // see Activity; since began

	isOver    atomic.Bool // over was called
	finishing atomic.Bool
	givingUp  atomic.Int32  // calls that are out of the table, and the far side is being told
	left      chan struct{} // 1 slot: since finishing, one of calls has come to its end; nil before

	mu       sync.Mutex
	requests map[wire.ID]*Request     // what they asked, under their ids
	flying   owners                   // of calls
	strays   strays                   // calls at an end that the far side may still be at
	trails   map[int64]*ProgressRelay // calls answered that the far side goes on with
	trailing owners                   // of those
	settling int                      // requests that were taken out, and batches, whose answers are not written yet
	idle     []chan struct{}          // closed when nothing is owed any more
	warned   map[string]bool          // kinds of oddities that were logged
	hangUp   func(error)              // ends the conversation
	end      error                    // why nothing can be sent any more, once the last was read
	ended    error                    // why it did
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
	return &Peer{out: out, h: h, opts: opts, began: time.Now(), hangUp: func(error) { _ = out.Close() }}
}

// Receive does with a message what Run does with each that it reads. It must be called by
// one at a time, and not after End.
func (p *Peer) Receive(m wire.Message) {
	p.note(&p.heard)
	p.receive(m, Origin{}, nil, 0)
}

// Disconnected is the end of Run where there is none: no more is received, for the Conn has been closed, and all
// calls sent over it end.
func (p *Peer) Disconnected() { p.over(transport.ErrClosed) }

// Run reads until the far side ends the conversation (nil), the Conn fails, or
// ctx is done (both an error); only then are all calls sent over it ended, but for one that is
// being written, which ends when its write does. What
// the far side asked before remains to be answered: see Drain and Close.
func (p *Peer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.mu.Lock()
	p.hangUp = cancel
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
	p.over(err)
	return err
}

// over ends the calls that were sent, for nothing can answer them any more. A call that is being
// written stays: only Offer learns whether it has reached the far side, see [Peer.TrySend].
func (p *Peer) over(err error) {
	p.mu.Lock()
	p.end = ended{why(err)}
	p.mu.Unlock()
	if p.opts.OnDisconnect != nil {
		p.opts.OnDisconnect(why(err))
	}
	p.mu.Lock()
	p.ended, p.trails, p.trailing = why(err), nil, nil
	p.mu.Unlock()
	p.isOver.Store(true)
	all := p.calls.Drain(func(c *Call) bool { return c.isWriting(p) })
	p.leave()
	for _, c := range all {
		p.fly(c, -1)
		c.end(wire.Message{}, &transport.CallLostError{ID: c.ID(), Err: why(err), MayHaveRun: true})
	}
}

// ended is why a call cannot be sent: it says how the conversation ended, and is
// a [transport.ErrClosed].
type ended struct{ why error }

func (e ended) Error() string   { return e.why.Error() }
func (e ended) Unwrap() []error { return []error{e.why, transport.ErrClosed} }

func why(err error) error {
	if err == nil {
		return errors.New("it closed the connection")
	}
	return err
}

func (p *Peer) read() error {
	for {
		m, about, err := p.in.Read()
		if err == nil {
			p.note(&p.heard)
			p.receive(m, p.stream(about), nil, 0)
		} else if err = p.trouble(err); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// trouble sees to what Read returns in the place of a message. It returns what ends the conversation.
func (p *Peer) trouble(err error) error {
	var noise *transport.MalformedError
	var lost *transport.CallLostError
	switch {
	case errors.As(err, &lost): // first: it may wrap the noise that there was instead
		p.lost(lost)
	case errors.As(err, &noise):
		p.note(&p.heard)
		p.noise(noise)
	case errors.Is(err, io.EOF):
		return io.EOF
	default:
		return err
	}
	return nil
}

// stream returns the stream of the request of ours that has the id, that of no call if it is "".
func (p *Peer) stream(id wire.ID) Origin {
	if id == "" {
		return Origin{}
	}
	if n, err := p.ours([]byte(id)); err == nil {
		if c, ok := p.calls.Get(n); ok {
			return Origin{Call: c}
		}
	}
	return Origin{CallEnded: true}
}

// receive handles one message, in slot i of a batch unless batch is nil.
func (p *Peer) receive(m wire.Message, on Origin, b *batch, i int) {
	switch m.Kind() {
	case wire.Response:
		p.answered(m)
	case wire.Request:
		p.used.Store(p.heard.Load())
		p.asked(m, on, b, i)
	case wire.Notification:
		p.used.Store(p.heard.Load())
		p.told(m, on)
	case wire.Batch:
		p.unpack(m, on)
	}
}

func (p *Peer) told(m wire.Message, on Origin) {
	switch m.Method() {
	case "notifications/progress":
		p.progressed(m)
	case "notifications/cancelled":
		p.cancelled(m)
	default:
		p.h.HandleNotification(m, on)
	}
}

// noise answers what is no message, unless the owner sees to it. It may also be
// the answer to a call, be it an unusable one.
func (p *Peer) noise(n *transport.MalformedError) {
	if salvaged := n.Message.Salvage(); n.LooksLikeResponse && salvaged.Kind() == wire.Response {
		p.answered(salvaged)
		return
	}
	if n.LooksLikeResponse {
		if c, ok := p.takeByID(n.ID); ok {
			p.noteEnd(c)
			c.end(wire.Message{}, &BadResponseError{n.Err})
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

func (p *Peer) lost(l *transport.CallLostError) {
	if c, ok := p.takeByID(l.ID); ok {
		p.noteEnd(c)
		c.endUnless(wire.Message{}, l)
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
	p.note(&p.used)
	err := p.out.Write(m, about)
	if errors.Is(err, transport.ErrFull) {
		p.hang(err)
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

// hang ends the conversation with a far side that does not read.
func (p *Peer) hang(err error) {
	p.mu.Lock()
	hangUp := p.hangUp
	p.mu.Unlock()
	p.log().Warn("hung up: the other side does not read", "err", err)
	hangUp(err)
}

// DrainRequests waits until every request of the far side is cancelled, or answered and the answer
// given to the Conn, or ctx is done.
func (p *Peer) DrainRequests(ctx context.Context) {
	p.mu.Lock()
	if !p.owesLocked() {
		p.mu.Unlock()
		return
	}
	done := make(chan struct{})
	p.idle = append(p.idle, done)
	p.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// errFinishing is why nothing is sent after [Peer.DrainCalls].
var errFinishing = errors.New("no more calls are sent over it")

// DrainCalls lets the calls that were sent come to their ends, and has no more be: Offer fails
// with a [transport.ErrClosed] as soon as Finish was called. It waits until none is in flight any
// more, or ctx is done. The conversation goes on meanwhile, and does after it.
func (p *Peer) DrainCalls(ctx context.Context) {
	p.mu.Lock()
	if p.end == nil {
		p.end = ended{errFinishing}
	}
	if p.left == nil {
		p.left = make(chan struct{}, 1)
	}
	p.mu.Unlock()
	p.finishing.Store(true)
	p.calls.Close()
	for p.calls.Len() > 0 || p.givingUp.Load() > 0 {
		select {
		case <-p.left:
		case <-ctx.Done():
			return
		}
	}
}

// leave notes that a call has come to its end, for Finish.
func (p *Peer) leave() {
	if p.finishing.Load() {
		select {
		case p.left <- struct{}{}:
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
		r.part(farewell)
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
	n, err := p.ours([]byte(id))
	if err != nil {
		return nil, false
	}
	return p.takeAnswered(n)
}

// takeAnswered removes the row of a call that is answered. That is noted, so that what is still
// said of it is not taken for another's.
func (p *Peer) takeAnswered(id int64) (*Call, bool) {
	c, ok := p.calls.Take(id)
	p.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok {
		p.strays.answeredLate(id)
		return nil, false
	}
	p.flying.add(c.SessionID, -1)
	p.strays.answered(c.SessionID)
	return c, true
}

// take removes the row of a call that has come to another end.
func (p *Peer) take(id int64) (*Call, bool) {
	c, ok := p.calls.Take(id)
	p.leave()
	if ok {
		p.fly(c, -1)
	}
	return c, ok
}

// fly counts a call in flight, or that it is so no more. It counts before the call is, and while it is.
func (p *Peer) fly(c *Call, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying.add(c.SessionID, n)
}

// ours reads an id that we gave. A sloppy server may give it back as a string.
func (p *Peer) ours(id []byte) (int64, error) {
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
