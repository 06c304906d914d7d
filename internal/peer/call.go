package peer

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A ResponseHandler receives the progress and the response of a call. Its methods must not block:
// they run on the goroutine that reads from the remote side, on that of a timer, or on that of a
// caller of Send, TrySend or Cancel. The caller holds no lock.
type ResponseHandler interface {
	// OnProgress is called with each progress notification, its token replaced by the Token of the
	// call. It is not called if the call has no Token.
	OnProgress(wire.Message)
	// OnResponse is called exactly once each time the call was sent: with the response of the
	// remote side (a result or an error), under the id of the Call; or with the error that replaces
	// the response: ErrTimeout, ErrCancelled, a *BadResponseError, or a *transport.CallLostError,
	// which reports whether the remote side may have acted upon the call. The last wraps
	// [transport.ErrClosed] if the connection has ended. OnResponse may send the call again.
	OnResponse(wire.Message, error)
}

// A Call is an outbound request in flight. The caller sets the exported fields before Send and must
// not change them while the call is in flight.
type Call struct {
	Handler   ResponseHandler
	Token     wire.ID       // progress token of the caller; "" = no progress wanted
	Name      []byte        // JSON string that replaces params.name; nil = unchanged
	SessionID string        // session on whose behalf the call is made; "" = none
	RelatedTo wire.ID       // request of the remote side that the call belongs to; "" = none
	Timeout   time.Duration // maximum time since the start or the last progress; 0 = no limit
	// Internal is true if the gateway makes the call for itself. The call then does not count as
	// use of the connection; see [Activity].
	Internal bool

	noCancelNotice bool // abandoning the call sends no notification
	sentVia        atomic.Pointer[transmission]
	firstSend      transmission // target of sentVia until the call is sent a second time
	cancelled      atomic.Bool

	mu     sync.Mutex
	timer  *time.Timer // nil before the call is sent, after its end, and without a Timeout
	pauses int         // number of calls of PauseTimeout without a call of ResumeTimeout
}

// A transmission records one entry of a call in the table of calls of a Peer. TrySend makes the
// entry. A call that is sent again, over the same or another Peer, gets a new entry.
type transmission struct {
	peer    *Peer       // Peer in whose table the entry is or was
	id      int64       // key of the entry, and id under which the request is sent
	at      time.Time   // time at which the call was sent
	writing atomic.Bool // TrySend has inserted the call and has not returned from the write
}

// isWriting reports whether TrySend is still writing the call to p.
func (c *Call) isWriting(p *Peer) bool {
	d := c.sentVia.Load()
	return d != nil && d.peer == p && d.writing.Load()
}

// ID returns the id under which the call was last sent; "" = never sent.
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

// SentAt returns the time at which the call was last sent; zero = never.
func (c *Call) SentAt() time.Time {
	if d := c.sentVia.Load(); d != nil {
		return d.at
	}
	return time.Time{}
}

// ErrTimeout is the error of a call that got no response within its Timeout.
var ErrTimeout = errors.New("no answer in time")

// ErrCancelled is the error of a call that its caller cancelled.
var ErrCancelled = errors.New("cancelled")

// Send sends the request m. A new id replaces the id of m, and the progress token of m if there is
// one. Send does not block. c.Handler.OnResponse is called once, possibly before Send returns. If m
// cannot be sent, OnResponse gets ErrCancelled or a *transport.CallLostError without an id.
func (p *Peer) Send(m wire.Message, c *Call) {
	switch err := p.TrySend(m, c); {
	case errors.Is(err, ErrCancelled):
		c.Handler.OnResponse(wire.Message{}, err)
	case err != nil:
		c.Handler.OnResponse(wire.Message{}, &transport.CallLostError{Err: p.closeReason(err)})
	}
}

// closeReason returns the reason for the end of the connection if err reports that end, and err
// otherwise.
func (p *Peer) closeReason(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(err, transport.ErrClosed) && p.disconnectErr != nil {
		return p.disconnectErr
	}
	return err
}

// TrySend sends the request m. If m cannot be sent, TrySend returns an error: then nothing has
// reached the remote side, c.Handler is not called, and c may be sent again, over this or another
// Peer, unless it was cancelled. The error is [ErrCancelled] if c was cancelled before, wraps
// [transport.ErrClosed] if the connection has ended or is draining, and wraps [transport.ErrFull]
// if the remote side does not read. ErrFull ends the connection. The Conn may return other errors.
// If TrySend returns nil, c.Handler has been or will be called.
func (p *Peer) TrySend(m wire.Message, c *Call) error {
	sent := &c.firstSend
	if sent.peer != nil { // the record of an earlier send may still be read
		sent = new(transmission)
	}
	newCall := func(id int64) *Call {
		sent.peer, sent.id, sent.at = p, id, time.Now()
		sent.writing.Store(true)
		c.sentVia.Store(sent)
		c.startTimeout(sent)
		return c
	}
	p.countInFlight(c, 1)
	if !p.calls.Insert(newCall) {
		p.countInFlight(c, -1)
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.sendErr
	}
	id := sent.id
	// Cancel sets cancelled before it reads sentVia; TrySend sets sentVia before it reads
	// cancelled. At least one of the two sees what the other has set.
	if c.cancelled.Load() {
		if _, ok := p.takeCall(id); ok {
			c.stopTimeout()
			return ErrCancelled
		}
		return nil // Cancel has completed the call
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
			return err // a failed write has not reached the remote side, not even in part
		}
		return nil
	}
	// The connection may have ended during the write. endConnection sets isDisconnected before it
	// reads writing; TrySend clears writing before it reads isDisconnected. The later of the two
	// finds the call.
	if sent.writing.Store(false); p.isDisconnected.Load() {
		if _, ok := p.takeCall(id); ok {
			p.completeLost(c)
		}
	}
	return nil
}

// Cancel cancels the call, which then cannot be sent, or sent again. If the call is in flight, the
// remote side is notified, and the call completes with ErrCancelled. params are the params of the
// notification, with the requestId replaced; nil = default params.
func (c *Call) Cancel(params []byte) {
	c.cancelled.Store(true)
	if d := c.sentVia.Load(); d != nil {
		d.peer.abandon(d.id, ErrCancelled, params)
	}
}

// IsCancelled reports whether the call was cancelled.
func (c *Call) IsCancelled() bool { return c.cancelled.Load() }

// PauseTimeout stops the timeout, for example while a user is asked for input on behalf of the
// call. Each PauseTimeout must be followed by one ResumeTimeout. Both methods may be called at any
// time, including before Send and after the end of the call.
func (c *Call) PauseTimeout() { c.resetTimeout(1) }

// ResumeTimeout undoes one PauseTimeout. After the last pause the full timeout starts again.
func (c *Call) ResumeTimeout() { c.resetTimeout(-1) }

// startTimeout starts the timeout, unless it is paused.
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

// resetTimeout adds pause to the number of pauses, and restarts the timeout if no pause remains.
func (c *Call) resetTimeout(pause int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses += pause
	if c.timer == nil {
		return
	}
	running := c.timer.Stop()
	if c.pauses == 0 && (running || pause < 0) { // progress does not revive an expired timeout
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

// abandon removes the call with this id from the table of calls, notifies the remote side unless
// noCancelNotice is set, and completes the call with the error why. It does nothing if the call is
// not in the table. params are the params of the notification, with the requestId replaced; nil =
// default params.
func (p *Peer) abandon(id int64, why error, params []byte) {
	p.abandoning.Add(1)
	defer func() {
		p.abandoning.Add(-1)
		p.signalCallEnded()
	}()
	// The call is noted as abandoned before it leaves the table, so that attribution finds it in at
	// least one of the two places at any time.
	if c, ok := p.calls.Get(id); ok {
		p.mu.Lock()
		p.sessions.recent.noteAbandoned(id, c.SessionID)
		p.mu.Unlock()
	}
	c, ok := p.takeCall(id)
	if !ok {
		p.mu.Lock()
		// undoes noteAbandoned: the call has ended in between
		p.sessions.recent.noteLateResponse(id)
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
	note := wire.NewNotification(protocol.NotificationCancelled, params).
		Splice(wire.Edit{Part: wire.PartRequestID, Text: []byte(c.ID())})
	_ = p.out.Write(note, c.cancelRelatedTo()) // a lost remote side needs no notification
	c.complete(wire.Message{}, why)
}

// cancelRelatedTo returns the request on whose stream the cancellation of c is sent: the request of
// the remote side that c belongs to, or else c itself, for transports in which this side creates
// the streams.
func (c *Call) cancelRelatedTo() wire.ID {
	if c.RelatedTo != "" {
		return c.RelatedTo
	}
	return c.ID()
}

// complete ends the call, or at least this try. It is called once each time the call was sent, by
// the function that removed the call from the table.
func (c *Call) complete(m wire.Message, err error) {
	c.stopTimeout()
	c.Handler.OnResponse(m, err)
}

// completeLost ends a call that was in flight when the connection ended.
func (p *Peer) completeLost(c *Call) {
	p.mu.Lock()
	why := closedError{p.disconnectErr}
	p.mu.Unlock()
	c.complete(wire.Message{}, &transport.CallLostError{ID: c.ID(), Err: why, MayHaveRun: true})
}

func (p *Peer) handleResponse(m wire.Message) {
	n, err := p.parseCallID(m.Part(wire.PartID))
	if err != nil {
		p.warnOnce("dropped a response with an id that was never sent", "id", string(m.ID()))
		return
	}
	c, ok := p.takeResponded(n)
	if !ok {
		// The response is late, after a cancellation or timeout, or the server has invented its id.
		p.log().Debug("dropped a response without a call in flight", "id", string(m.ID()))
		return
	}
	p.noteCallEnd(c)
	repaired, repair := m.Repair()
	if repair != "" && p.firstTime(repair) {
		p.log().Warn("repaired a response", "text", repair, "id", string(m.ID()))
	}
	c.complete(repaired, nil)
}

// handleProgress forwards progress to the Handler of a call in flight, or to the relay of an
// answered call. It also restarts the timeout of the call.
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

// Call sends a request with method and params and waits for the result. An error response is
// returned as a *wire.Error. If ctx is done first, the request is cancelled, and Call returns the
// error of ctx.
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

// RoundTrip sends the request, waits for the response and returns it, also if it is an error
// response. If ctx is done first, the request is cancelled, and RoundTrip returns the error of ctx.
func (p *Peer) RoundTrip(ctx context.Context, request wire.Message) (wire.Message, error) {
	a := p.RoundTripAll(ctx, request)[0]
	return a.Message, a.Err
}

// A Response is the outcome of a request: a response, or the error that replaces it.
type Response struct {
	wire.Message
	Err error
}

// RoundTripAll sends all requests, waits for the responses, and returns them in the order of the
// requests. If ctx is done first, the requests without a response are cancelled, and their Err is
// the error of ctx. The remote side is not notified of the cancellation of initialize,
// server/discover and ping.
func (p *Peer) RoundTripAll(ctx context.Context, requests ...wire.Message) []Response {
	calls := make([]*Call, len(requests))
	waiters := make([]ResponseChan, len(requests))
	for i, r := range requests {
		waiters[i] = make(ResponseChan, 1)
		// "The initialize request MUST NOT be cancelled by clients" (cancellation). A server that
		// does not respond to server/discover might not tolerate a notification about that request.
		// A ping causes no work that could be stopped.
		method := r.Method()
		noNotice := method == protocol.MethodInitialize ||
			method == protocol.MethodServerDiscover ||
			method == protocol.MethodPing
		calls[i] = &Call{Handler: waiters[i], noCancelNotice: noNotice, Internal: true}
		p.Send(r, calls[i])
	}
	responses := make([]Response, len(requests))
	for i, w := range waiters {
		select {
		case responses[i] = <-w:
		case <-ctx.Done():
			p.abandon(calls[i].number(), ctx.Err(), nil)
			responses[i] = <-w
		}
	}
	return responses
}

// A ResponseChan is the ResponseHandler of a caller that waits for the response. It needs a
// capacity of 1, so that OnResponse, which is called once, does not block.
type ResponseChan chan Response

// OnProgress implements ResponseHandler.
func (w ResponseChan) OnProgress(wire.Message) {}

// OnResponse implements ResponseHandler.
func (w ResponseChan) OnResponse(m wire.Message, err error) { w <- Response{m, err} }
