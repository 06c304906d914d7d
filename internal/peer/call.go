package peer

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An ResponseHandler gets what comes back for a call. Its methods must not wait: they run
// on the goroutine that reads from the far side, or on a timer's.
type ResponseHandler interface {
	// OnProgress is called with each progress notification, its token
	// replaced by the caller's. Only calls with a Token have any.
	OnProgress(wire.Message)
	// OnResponse is called exactly once: with the response, be it a result or an
	// error, as the far side sent it, under our id; or with the reason why there
	// is none: ErrTimeout, ErrCancelled, a *BadResponseError, or a *transport.CallLostError, which
	// says whether the far side may have acted upon the call.
	OnResponse(wire.Message, error)
}

// A Call is a call in flight: the row that waits for its answer. The fields
// are the caller's to set before Send and must not be changed afterwards.
type Call struct {
	Handler    ResponseHandler // perhaps with others around it, of those who pass the call on
	Tag        any             // whoever sends the call, by which it knows its own; nobody else looks at it
	Token      wire.ID         // the caller's own progress token, "" = wants none
	Name       []byte          // takes the place of params.name, as JSON; nil = none does
	RemoteName string          // the far side's own name of the tool or prompt; "" = it is in Name or in the message
	SessionID  string          // on whose behalf; see [Peer.SoleSession]
	RelatedTo  wire.ID         // the request of the far side that the call belongs to, "" = none
	Timeout    time.Duration   // since the start or the last progress; 0 = none
	// Modern is set by whoever sends the call over a conversation of the
	// stateless era (2026-07-28), before it does: it says in which era the answer is.
	Modern bool
	// AllowTask says that a server of the stateless era may answer with a task, whatever
	// the client has declared: whoever has sent the call sees to that.
	AllowTask bool
	// IsContinuation says that the call goes on with one of the stateless era that was answered with what
	// a server needs. For a server of the session era it would be another call: whoever sends it
	// ends it then with a *[wire.Error].
	IsContinuation bool
	// ServerKey is the program that the call is sent to, as the owner tells programs apart. Whoever
	// sends the call sets it before it does. If it is set and GoesOn is, too, the call is for
	// that program alone: at another it ends with a *[wire.Error].
	ServerKey string
	// Internal says that the call is on the owner's own behalf: see [Activity].
	Internal bool
	// InterceptResponse, if it is set, is shown the answer, or the reason why there is none,
	// before To is; not so if the call was taken back, or has met its deadline or
	// the end of the conversation. If it returns true the call has not ended: who has
	// set it offers the call once more, or tells To of its end. Like To it must not wait.
	InterceptResponse func(wire.Message, error) bool

	noCancelNotice bool // the far side is not told when it is taken back
	sentVia        atomic.Pointer[transmission]
	firstSend      transmission // what sent points at, unless the call is offered once more
	cancelled      atomic.Bool  // it was taken back

	mu     sync.Mutex
	timer  *time.Timer // nil before it was sent, after its end, and without a Timeout
	pauses int
}

// A transmission is over which Peer a call was sent last, and under which id.
type transmission struct {
	peer    *Peer
	id      int64
	at      time.Time
	writing atomic.Bool // Offer has put the call into the table, and has not returned from the write
}

// isWriting reports whether Offer is still writing the call to p.
func (c *Call) isWriting(p *Peer) bool {
	d := c.sentVia.Load()
	return d != nil && d.peer == p && d.writing.Load()
}

// ID returns the id under which the call was sent last, "" before that.
func (c *Call) ID() wire.ID {
	if n := c.number(); n != 0 {
		return wire.ID(strconv.FormatInt(n, 10))
	}
	return ""
}

func (c *Call) number() int64 {
	if d := c.sentVia.Load(); d != nil {
		return d.id
	}
	return 0
}

// SentAt returns when the call was sent last, zero before that.
func (c *Call) SentAt() time.Time {
	if d := c.sentVia.Load(); d != nil {
		return d.at
	}
	return time.Time{}
}

// ErrTimeout is what a call ends with that was not answered in time.
var ErrTimeout = errors.New("no answer in time")

// ErrQueueFull is what a call ends with that was not sent because the far side is at as many as it
// may be at. It is what a queue before a Peer says; a Peer has no such bound.
var ErrQueueFull = errors.New("busy")

// ErrForbidden is what a call ends with that was not sent because the configuration no longer
// permits it. A Peer permits everything.
var ErrForbidden = errors.New("the configuration does not permit it")

// ErrCancelled is what a call ends with that its caller took back.
var ErrCancelled = errors.New("cancelled")

// Send sends the request m under an id of ours, which takes the place of the one
// it has, as it does that of a progress token. It returns at once. c.To.Done is called once, perhaps before Send returns.
func (p *Peer) Send(m wire.Message, c *Call) {
	switch err := p.TrySend(m, c); {
	case errors.Is(err, ErrCancelled):
		c.Handler.OnResponse(wire.Message{}, err)
	case err != nil:
		c.Handler.OnResponse(wire.Message{}, &transport.CallLostError{Err: p.closeReason(err)})
	}
}

// closeReason returns why the conversation is over, if that is what err says.
func (p *Peer) closeReason(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(err, transport.ErrClosed) && p.disconnectErr != nil {
		return p.disconnectErr
	}
	return err
}

// TrySend is Send for who knows what else to do with a call that cannot be sent: the
// error says why not, nothing has reached the far side, c.To is not told, and c
// may be sent again. A [transport.ErrClosed] means that the conversation is over,
// and a [transport.ErrFull] ends it: a far side that does not read is of no use. An
// [ErrCancelled] means that c was cancelled before.
func (p *Peer) TrySend(m wire.Message, c *Call) error {
	departs := &c.firstSend
	if departs.peer != nil { // somebody may still look at how it was sent before
		departs = new(transmission)
	}
	row := func(id int64) *Call {
		departs.peer, departs.id, departs.at = p, id, time.Now()
		departs.writing.Store(true)
		c.sentVia.Store(departs)
		c.startTimeout(departs)
		return c
	}
	p.countInFlight(c, 1)
	if !p.calls.Insert(row) {
		p.countInFlight(c, -1)
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.sendErr
	}
	id := departs.id
	// Whoever cancels c first says so, and then looks where it is: one of the two is
	// seen in time.
	if c.cancelled.Load() {
		if _, ok := p.takeCall(id); ok {
			c.stopTimeout()
			return ErrCancelled
		}
		return nil // it was found, and has ended
	}
	ours := strconv.AppendInt(make([]byte, 0, 20), id, 10)
	edits := [3]wire.Edit{{Part: wire.PartID, Text: ours}, {Part: wire.PartToken, Text: ours}}
	n := 2
	if c.Name != nil {
		edits[n] = wire.Edit{Part: wire.PartName, Text: c.Name}
		n++
	}
	out := m.Splice(edits[:n]...)
	if err := p.out.Write(out, c.RelatedTo); err != nil {
		if _, ok := p.takeCall(id); ok {
			c.stopTimeout()
			c.sentVia.Store(nil)
			if errors.Is(err, transport.ErrFull) {
				p.disconnectStalled(err)
			}
			return err // a write that failed has not reached the far side, not in part either
		}
		return nil
	}
	// The conversation may have ended during the write: whichever of over and Offer comes second finds the
	// call, because over looks at writing after it has set isOver, and Offer the other way round.
	if departs.writing.Store(false); p.isDisconnected.Load() {
		if _, ok := p.takeCall(id); ok {
			c.complete(wire.Message{}, &transport.CallLostError{ID: c.ID(), Err: p.closeReason(transport.ErrClosed), MayHaveRun: true})
		}
	}
	return nil
}

// Cancel takes a call back: the far side is told, and the call ends with
// ErrCancelled, unless it has ended already or was never sent. It is not sent
// any more then. Params are those of the caller's own cancellation, nil if there
// are none; its requestId is replaced.
func (c *Call) Cancel(params []byte) {
	c.cancelled.Store(true)
	if d := c.sentVia.Load(); d != nil {
		d.peer.abandon(d.id, ErrCancelled, params)
	}
}

// IsCancelled reports whether the call was cancelled.
func (c *Call) IsCancelled() bool { return c.cancelled.Load() }

// PauseTimeout stops the clock of a call while somebody is asked on its behalf, a person
// perhaps. Each Hold needs a Release, which starts it anew. Both may be called at
// any time, also before Send and after the end.
func (c *Call) PauseTimeout() { c.resetTimeout(1) }

// ResumeTimeout takes a Hold back.
func (c *Call) ResumeTimeout() { c.resetTimeout(-1) }

// startTimeout starts the clock, unless the call is on hold already.
func (c *Call) startTimeout(d *transmission) {
	if c.Timeout <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(c.Timeout, func() { d.peer.abandon(d.id, ErrTimeout, nil) })
	if c.pauses > 0 {
		c.timer.Stop()
	}
}

// resetTimeout starts the clock anew, unless the call is on hold.
func (c *Call) resetTimeout(hold int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses += hold
	if c.timer == nil {
		return
	}
	running := c.timer.Stop()
	if c.pauses == 0 && (running || hold < 0) { // one that has run out is not wound by progress
		c.timer.Reset(c.Timeout)
	}
}

func (c *Call) stopTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

func (p *Peer) abandon(id int64, why error, params []byte) {
	p.abandoning.Add(1)
	defer func() {
		p.abandoning.Add(-1)
		p.signalCallEnded()
	}()
	// The call becomes a stray before it stops being a call, so that there is no
	// moment at which nobody knows of it.
	if c, ok := p.calls.Get(id); ok {
		p.mu.Lock()
		p.recent.noteAbandoned(id, c.SessionID)
		p.mu.Unlock()
	}
	c, ok := p.takeCall(id)
	if !ok {
		p.mu.Lock()
		p.recent.noteLateResponse(id) // if it was noted just now, it has ended at this moment
		p.mu.Unlock()
		return
	}
	p.noteCallEnd(c)
	if c.noCancelNotice {
		c.complete(wire.Message{}, why)
		return
	}
	if params == nil {
		params = wire.Encode(map[string]any{"requestId": id, "reason": why.Error()})
	}
	note := wire.NewNotification("notifications/cancelled", params).
		Splice(wire.Edit{Part: wire.PartRequestID, Text: []byte(c.ID())})
	_ = p.out.Write(note, c.cancelRelatedTo()) // a lost far side needs no telling
	c.complete(wire.Message{}, why)
}

// cancelRelatedTo names the request on whose stream the far side is told of c: the one of
// its own that c is about, or c itself where the streams are of our making.
func (c *Call) cancelRelatedTo() wire.ID {
	if c.RelatedTo != "" {
		return c.RelatedTo
	}
	return c.ID()
}

// complete is called by whoever took the call's row, so once.
func (c *Call) complete(m wire.Message, err error) {
	c.stopTimeout()
	c.Handler.OnResponse(m, err)
}

// completeOrIntercept is end for what Again may know something else to do with.
func (c *Call) completeOrIntercept(m wire.Message, err error) {
	c.stopTimeout()
	if c.InterceptResponse == nil || !c.InterceptResponse(m, err) {
		c.Handler.OnResponse(m, err)
	}
}

func (p *Peer) handleResponse(m wire.Message) {
	n, err := p.parseCallID(m.Part(wire.PartID))
	if err != nil {
		p.warnOnce("dropped an answer to no call", "id", string(m.ID()))
		return
	}
	c, ok := p.takeResponded(n)
	if !ok {
		// Late, after a cancel or a timeout; or made up.
		p.log().Debug("dropped an answer to no call in flight", "id", string(m.ID()))
		return
	}
	p.noteCallEnd(c)
	repaired, repair := m.Repair()
	if repair != "" {
		p.warnOnce("repaired an answer: it had "+repair, "id", string(m.ID()))
	}
	c.completeOrIntercept(repaired, nil)
}

// handleProgress passes progress on, if the call is in flight and wants any.
func (p *Peer) handleProgress(m wire.Message) {
	n, err := p.parseCallID(m.Part(wire.PartToken))
	if err != nil {
		return
	}
	c, ok := p.calls.Get(n)
	if !ok {
		p.relayProgress(n, m)
		return
	}
	c.resetTimeout(0)
	if c.Token != "" {
		c.Handler.OnProgress(m.Splice(wire.Edit{Part: wire.PartToken, Text: []byte(c.Token)}))
	}
}

// Call sends a request made of method and params and waits for its result. An
// error object of the far side is returned as a *wire.Error. When ctx ends
// first the far side is told that the call is cancelled.
func (p *Peer) Call(ctx context.Context, method string, params []byte) ([]byte, error) {
	m, err := p.RoundTrip(ctx, wire.NewRequest("0", method, params))
	switch {
	case err != nil:
		return nil, err
	case m.Part(wire.PartError) != nil:
		return nil, wire.ReadError(m.Part(wire.PartError))
	}
	return m.Part(wire.PartResult), nil
}

// RoundTrip is Call for a request at hand; it returns the response as it came.
func (p *Peer) RoundTrip(ctx context.Context, request wire.Message) (wire.Message, error) {
	a := p.RoundTripAll(ctx, request)[0]
	return a.Message, a.Err
}

// An Response is what came of one of several requests.
type Response struct {
	wire.Message // the response
	Err          error
}

// RoundTripAll is Ask for several requests, which are sent one behind the other before
// the first answer is waited for.
func (p *Peer) RoundTripAll(ctx context.Context, requests ...wire.Message) []Response {
	calls := make([]*Call, len(requests))
	waiters := make([]ResponseChan, len(requests))
	for i, r := range requests {
		waiters[i] = make(ResponseChan, 1)
		// "The initialize request MUST NOT be cancelled by clients" (cancellation). And
		// who has not answered server/discover may not bear to hear more of it, nor is there
		// anything to be stopped about a ping.
		quiet := r.Method() == "initialize" || r.Method() == "server/discover" || r.Method() == "ping"
		calls[i] = &Call{Handler: waiters[i], noCancelNotice: quiet, Internal: true}
		p.Send(r, calls[i])
	}
	answers := make([]Response, len(requests))
	for i, w := range waiters {
		select {
		case answers[i] = <-w:
		case <-ctx.Done():
			p.abandon(calls[i].number(), ctx.Err(), nil)
			answers[i] = <-w
		}
	}
	return answers
}

// A ResponseChan is the ResponseHandler of a call that somebody waits for. It needs one slot: Done
// comes once.
type ResponseChan chan Response

// OnProgress implements ResponseHandler.
func (w ResponseChan) OnProgress(wire.Message) {}

// OnResponse implements ResponseHandler.
func (w ResponseChan) OnResponse(m wire.Message, err error) { w <- Response{m, err} }
