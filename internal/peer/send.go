package peer

import (
	"context"
	"errors"
	"strconv"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Send sends the request m. A new id replaces the id of m, and the progress token of m if there is
// one. Send does not block. c.Handler.OnResponse is called once, possibly before Send returns. If m
// cannot be sent, OnResponse gets ErrCancelled or a *transport.CallLostError without an id.
func (p *Peer) Send(m wire.Message, c *Call) {
	switch err := p.TrySend(m, c); {
	case errors.Is(err, ErrCancelled):
		c.Handler.OnResponse(wire.Message{}, err)
	case err != nil:
		if end := p.calls.disconnectErr.Load(); end != nil && errors.Is(err, transport.ErrClosed) {
			err = end.reason
		}
		c.Handler.OnResponse(wire.Message{}, &transport.CallLostError{Err: err})
	}
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
		if before := c.sentVia.Load(); before != nil {
			sent.reconnects.Store(before.reconnects.Load() + 1)
		}
	}
	if err := p.calls.insert(c, sent); err != nil {
		return err
	}
	id := sent.id
	// Cancel sets cancelled before it reads sentVia; TrySend sets sentVia before it reads
	// cancelled. At least one of the two sees what the other has set.
	if c.cancelled.Load() {
		if _, ok := p.calls.take(id); ok {
			return ErrCancelled
		}
		p.endWrite(c, sent, false) // Cancel has completed the call
		return nil
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
		if _, ok := p.calls.take(id); ok {
			c.sentVia.Store(nil)
			if errors.Is(err, transport.ErrFull) {
				p.disconnectStalled(err)
			}
			return err // a failed write has not reached the remote side, not even in part
		}
		p.endWrite(c, sent, false)
		return nil
	}
	// The connection may have ended during the write. disconnect sets disconnectErr before it reads
	// phase; TrySend sets phase before it reads disconnectErr. The later of the two finds the call.
	if p.endWrite(c, sent, true); p.calls.disconnectErr.Load() != nil {
		if _, ok := p.calls.take(id); ok {
			p.completeLost(c)
		}
	}
	return nil
}

// NoteReconnect records that the transport has sent the request with this id again, or has resumed
// the stream of its response; see Call.Reconnects. It does nothing if the call has ended.
func (p *Peer) NoteReconnect(id wire.ID) {
	if c := p.callByID(id); c != nil {
		if sent := c.sentVia.Load(); sent != nil {
			sent.reconnects.Add(1)
		}
	}
}

// endWrite ends the phase beingWritten of a call. If the call was abandoned in that phase, and the
// request may have reached the remote side, endWrite writes the cancellation: the remote side would
// ignore a cancellation that precedes the request.
func (p *Peer) endWrite(c *Call, sent *transmission, reached bool) {
	if sent.phase.Swap(written) != abandonedInWrite {
		return
	}
	if reached && sent.notice != nil {
		_ = p.out.Write(*sent.notice, c.cancelRelatedTo())
	}
	p.calls.cancellationWritten()
}

// abandon removes the call with this id from the table of calls, notifies the remote side unless
// noCancelNotice is set, and completes the call with the error why. It does nothing if the call is
// not in the table. params are the params of the notification, with the requestId replaced; nil =
// default params.
func (p *Peer) abandon(id int64, why error, params []byte) {
	c, ok := p.calls.takeAbandoned(id)
	if !ok {
		return
	}
	p.noteCallEnd(c)
	sent := c.sentVia.Load()
	if !c.noCancelNotice {
		if params == nil {
			params = wire.Encode(map[string]any{"requestId": id, "reason": why.Error()})
		}
		notice := wire.NewNotification(protocol.NotificationCancelled, params).
			Splice(wire.Edit{Part: wire.PartRequestID, Text: []byte(c.ID())})
		sent.notice = &notice
	}
	if !sent.phase.CompareAndSwap(beingWritten, abandonedInWrite) {
		defer p.calls.cancellationWritten()
		if sent.notice != nil { // a lost remote side needs no notification
			_ = p.out.Write(*sent.notice, c.cancelRelatedTo())
		}
	}
	c.Handler.OnResponse(wire.Message{}, why)
}

// completeLost ends a call that was in flight when the connection ended.
func (p *Peer) completeLost(c *Call) {
	c.Handler.OnResponse(wire.Message{}, &transport.CallLostError{ID: c.ID(),
		Err: *p.calls.disconnectErr.Load(), MayHaveRun: true})
}

// completeByID ends the call with this id with the error why, which replaces its response. It
// returns false if the call is not in flight.
func (p *Peer) completeByID(id wire.ID, why error) bool {
	n, err := p.parseCallID([]byte(id))
	if err != nil {
		return false
	}
	c, ok := p.calls.takeResponded(n, time.Now())
	if ok {
		p.noteCallEnd(c)
		c.Handler.OnResponse(wire.Message{}, why)
	}
	return ok
}

func (p *Peer) handleResponse(m wire.Message) {
	n, err := p.parseCallID(m.Part(wire.PartID))
	if err != nil {
		p.warnOnce("dropped a response with an id that was never sent", "id", string(m.ID()))
		return
	}
	received := p.lastReceived.Load()
	c, ok := p.calls.takeResponded(n, p.createdAt.Add(time.Duration(received)))
	if !ok {
		// The response is late, after a cancellation or timeout, or the server has invented its id.
		p.log().Debug("dropped a response without a call in flight", "id", string(m.ID()))
		return
	}
	if !c.Internal {
		p.lastUsed.Store(received)
	}
	repaired, repair := m.Repair()
	if repair != "" && p.firstTime(repair) {
		p.log().Warn("repaired a response", "text", repair, "id", string(m.ID()))
	}
	c.Handler.OnResponse(repaired, nil)
}

// handleProgress forwards progress to the Handler of a call in flight, or to the relay of an
// answered call. It also restarts the timeout of the call.
func (p *Peer) handleProgress(m wire.Message) {
	n, err := p.parseCallID(m.Part(wire.PartToken))
	if err != nil {
		return
	}
	c, ok := p.calls.byID.Get(n)
	if !ok {
		p.calls.relayProgress(n, m)
		return
	}
	c.restartTimeout()
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

// parseCallID parses the id of an outbound call. Some servers return the number as a string.
func (p *Peer) parseCallID(id []byte) (int64, error) {
	text := id
	quoted := len(text) > 2 && text[0] == '"'
	if quoted {
		text = text[1 : len(text)-1]
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if quoted && err == nil {
		p.warnOnce("accepted a string in place of a numeric id", "id", string(id))
	}
	return n, err
}

// DrainCalls stops sending calls and waits for the calls in flight. TrySend fails with
// [transport.ErrClosed] from now on. DrainCalls returns when no call is in flight and all
// cancellations are written, or when ctx is done. The connection stays open.
func (p *Peer) DrainCalls(ctx context.Context) { p.calls.drain(ctx) }

// SoleSession returns the session that an unsolicited message of the remote side must belong to. It
// returns false unless one session has
//  1. all calls in flight, and there is at least one (calls without a session are ignored),
//  2. every [ProgressRelay],
//  3. every call that was abandoned within the last 30 s and has got no response since, and
//  4. every call that got its response within the last 2 s.
//
// SoleSession also returns false for a while after an overflow of the records (see maxRecentCalls).
func (p *Peer) SoleSession() (session string, ok bool) {
	p.calls.mu.Lock()
	defer p.calls.mu.Unlock()
	return p.calls.sessions.sole()
}

// SoleSessionWhere returns the session that a message must belong to, provided that the message
// concerns a call in flight of a session for which match returns true. It is intended for remote
// sides that send nothing about a call after its response. It returns false unless exactly one
// matching session has a call in flight, and no other matching session has abandoned a call within
// the last 30 s without a response since. After an overflow of the records (see maxRecentCalls) it
// returns false for a while. The function match must not use the Peer, because the lock of the Peer
// is held.
func (p *Peer) SoleSessionWhere(match func(session string) bool) (session string, ok bool) {
	p.calls.mu.Lock()
	defer p.calls.mu.Unlock()
	return p.calls.sessions.soleWhere(match)
}

// OldestSession returns the session of the oldest call in flight that has a session; "" = none.
func (p *Peer) OldestSession() (session string) { return p.calls.oldestSession() }

// CountCalls returns the number of calls in flight for which match reports true. match must not use
// the Peer.
func (p *Peer) CountCalls(match func(*Call) bool) (n int) {
	p.calls.byID.Each(func(c *Call) {
		if match(c) {
			n++
		}
	})
	return n
}
