package backends

import (
	"errors"
	"fmt"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// queuedCall is a call that waits, for the backend to start or for another try.
type queuedCall struct {
	request   wire.Message
	call      *peer.Call
	subscribe *subscribeCall // likewise c.To, if it is a subscription
	isRetry   bool           // it is sent a second time
	pinned    bool           // it stays with the line to which it has come: see line.elsewhereLocked
}

func notSent(format string, args ...any) error {
	return &transport.CallLostError{Err: fmt.Errorf(format, args...)}
}

// sendError returns what a call ends with that could not be offered.
func sendError(err error) error {
	if errors.Is(err, peer.ErrCancelled) || errors.Is(err, peer.ErrForbidden) || isA[*wire.Error](err) {
		return err
	}
	return &transport.CallLostError{Err: err}
}

// send sends a call, or has it wait while the backend starts. A backend whose
// last start failed is not waited for: the caller learns why, and when the next is.
func (bc *backendConn) send(q queuedCall) {
	q.call.Timeout = bc.b.cfg.CallTimeout
	for !bc.sendOnce(q) {
		// The conversation ended at this moment: the call waits for the next.
	}
}

// sendOnce is send, but for a call that meets the end of the conversation.
func (bc *backendConn) sendOnce(q queuedCall) bool {
	bc.mu.Lock()
	if bc.mergedIntoShared {
		bc.mu.Unlock()
		bc.b.shared.send(q)
		return true
	}
	if bc.draining {
		bc.mu.Unlock()
		bc.b.redirect(q)
		return true
	}
	if q.call.IsCancelled() { // while it was on its way from one line to another
		bc.mu.Unlock()
		q.call.Handler.OnResponse(wire.Message{}, peer.ErrCancelled)
		return true
	}
	if q.subscribe != nil && !bc.b.set.isSessionOpen(q.subscribe.session) { // who closes it looks here afterwards
		bc.mu.Unlock()
		q.call.Handler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
		return true
	}
	p, server := bc.peer, bc.server
	if p != nil && bc.belongsElsewhereLocked(q) {
		bc.mu.Unlock()
		bc.b.reroute(q)
		return true
	}
	kept := q.subscribe == nil || bc.recordSubscriptionLocked(q.subscribe)
	if p != nil && server.modern && isSubscriptionRequest(q.request) {
		tell := bc.subscribeByListenLocked(q)
		bc.mu.Unlock()
		tell()
		return true
	}
	var refusal error
	if p == nil {
		refusal = bc.enqueueLocked(q)
	}
	bc.mu.Unlock()
	if !kept {
		bc.outputLog.Warn("too many subscriptions; this one is not kept", "max", maxSubscriptions)
	}
	switch {
	case refusal != nil:
		q.call.Handler.OnResponse(wire.Message{}, refusal)
	case p != nil:
		err := bc.trySend(p, server, q)
		if errors.Is(err, transport.ErrClosed) {
			bc.markDisconnected(p, err)
			return false
		}
		if err != nil {
			q.call.Handler.OnResponse(wire.Message{}, sendError(err))
		}
	}
	return true
}

// enqueueLocked has a call wait for the backend to be ready, and sees to it that it becomes so;
// or says why not.
func (bc *backendConn) enqueueLocked(q queuedCall) (refusal error) {
	now := time.Now()
	if bc.sup.disposition(now) != rejectCall && !bc.closed {
		bc.wakeLocked()
	}
	switch {
	case bc.sup.disposition(now) == rejectCall:
		return bc.sup.rejectError(now)
	case bc.closed:
		return notSent("it was stopped")
	}
	bc.queued = append(bc.queued, q)
	return nil
}

// removeQueued takes a call out that waits, and reports whether it did.
func (bc *backendConn) removeQueued(c *peer.Call) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	for _, list := range []*[]queuedCall{&bc.queued, &bc.retryQueue, &bc.pendingSubscribes} {
		for i, q := range *list {
			if q.call == c {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				return true
			}
		}
	}
	return false
}

// sendQueued is up; it returns for how long the backend was away, and what ends the calls that
// could not be sent. It holds l.mu so that no call overtakes those that waited, and that each of
// them can be cancelled at any moment.
func (bc *backendConn) sendQueued(p *peer.Peer) (down time.Duration, refused []func()) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if bc.disconnectedPeer == p {
		return 0, nil
	}
	bc.peer, down = p, bc.sup.up(time.Now())
	bc.sendLevelLocked(nil) // it may have been changed since it was restored
	bc.resubscribeLocked()
	some := bc.queued
	bc.queued = nil
	return down, bc.sendAllLocked(p, some)
}

// sendAllLocked sends calls, and returns what ends those that could not be sent, and what moves
// those that belong elsewhere.
func (bc *backendConn) sendAllLocked(p *peer.Peer, some []queuedCall) (refused []func()) {
	for i, q := range some {
		switch {
		case bc.server.modern && isSubscriptionRequest(q.request):
			refused = append(refused, bc.subscribeByListenLocked(q))
			continue
		case bc.belongsElsewhereLocked(q):
			if q.subscribe != nil {
				bc.subs.reject(q.subscribe.uri, q.subscribe.session) // it was only to be sent from here
			}
			refused = append(refused, func() { bc.b.reroute(q) })
			continue
		}
		err := bc.trySend(p, bc.server, q)
		if errors.Is(err, transport.ErrClosed) {
			bc.queued = append(some[i:len(some):len(some)], bc.queued...)
			bc.markDisconnectedLocked(p, err) // it has ended already: they wait for the next
			return refused
		}
		if err != nil {
			refused = append(refused, func() { q.call.Handler.OnResponse(wire.Message{}, sendError(err)) })
		}
	}
	return refused
}

// belongsElsewhereLocked reports whether what has come to the line that all share belongs on one of
// its session's own: the server that has greeted us is of the session era, and there is to be
// a line for each (Backend.private), or it was told of other capabilities than those of the
// session's client. This can only be said of the conversation over which it is to go, so
// not while there is none.
func (bc *backendConn) belongsElsewhereLocked(q queuedCall) bool {
	if bc.isPerSession() || bc.server.modern || q.pinned || q.call.SessionID == "" {
		return false
	}
	return bc.b.hasPerSessionConns() || bc.b.set.SingleClient && bc.capabilitiesDifferLocked(q.call.SessionID)
}

// reroute sends what was elsewhere, on the line that it belongs on. It stays there, unless that
// is the line that all share, and nobody knows what its next server will be told.
func (b *Backend) reroute(q queuedCall) {
	bc := b.conn(q.call.SessionID, false)
	bc.mu.Lock()
	q.pinned = bc.isPerSession() || bc.peer != nil
	bc.mu.Unlock()
	bc.send(q)
}

// trySend sends a call over the conversation with s, in the words of its era. A call that the
// filters in force do not permit is refused with [peer.ErrForbidden]. A request that goes on with
// a call is refused with a *[wire.Error] for a server of the session era, where a call that asks
// something is open until it is answered, and for another program than the one that asked: the
// state and the answers of the user are not for it.
func (bc *backendConn) trySend(p *peer.Peer, s serverInfo, q queuedCall) error {
	if !bc.b.permits(q.request, q.call) {
		return peer.ErrForbidden
	}
	if q.call.IsContinuation && (!s.modern || q.call.ServerKey != "" && q.call.ServerKey != bc.b.programID) {
		return bc.b.continuationError(q.request)
	}
	q.call.Modern, q.call.ServerKey, q.call.InterceptResponse = s.modern, bc.b.programID, nil
	switch {
	case s.modern:
		q.call.InterceptResponse = bc.retryAfterRefreshFunc(p, q)
	case bc.b.cfg.URL != "" && !q.isRetry:
		q.call.InterceptResponse = bc.retryInNewSessionFunc(p, q)
	}
	return p.TrySend(bc.b.withClientMeta(q.request, s, q.call.SessionID, q.call.AllowTask), q.call)
}

// withClientMeta returns a request as a server reads it that is of the stateless era, on
// behalf of a session; "" = of nobody, who can do nothing and wants no log. With tasks it
// may be answered with a task, whatever the session's client has declared. One of the
// session era reads it as it is.
func (b *Backend) withClientMeta(m wire.Message, s serverInfo, session string, tasks bool) wire.Message {
	if !s.modern {
		return m // with answers that it was not asked for, if there are any: some servers read them in either era
	}
	stamp := protocol.ClientMeta{Revision: s.ProtocolVersion, ClientInfo: b.set.clientInfo}
	stamp.Capabilities, stamp.LogLevel = b.set.requestMeta(session)
	if tasks {
		stamp.Capabilities = protocol.AddTasksExtension(stamp.Capabilities)
	}
	return stamp.AddTo(m)
}

func (b *Backend) continuationError(m wire.Message) error {
	why := "inputResponses without requestState: the call that asked goes on with the requestState that it was answered with"
	if !wire.IsNull(m.Part(wire.PartRequestState)) {
		why = "requestState: it is of no use any more: begin the call anew"
	}
	return wire.Errorf(wire.CodeInvalidParams, "Invalid params: backend %s: %s", b.cfg.Name, why)
}
