package backends

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func notSent(format string, args ...any) error {
	return &transport.CallLostError{Err: fmt.Errorf(format, args...)}
}

// sendError returns the error for a call that could not be sent.
func sendError(err error) error {
	if errors.Is(err, peer.ErrCancelled) || errors.Is(err, contract.ErrForbidden) ||
		isA[*wire.Error](err) {
		return err
	}
	return &transport.CallLostError{Err: err}
}

// send sends a call, or queues it while the backend starts. If the last start failed, the call
// fails, until the next try is due, with the reason and the time of that try.
func (bc *backendConn) send(q *queuedCall) {
	q.Timeout = bc.b.cfg.CallTimeout
	for !bc.sendOnce(q) {
		// The connection ended: the call is queued for the next one.
	}
}

// sendOnce sends, queues, redirects, reroutes or fails q. It reports false if the connection was
// closed meanwhile; the caller then retries.
func (bc *backendConn) sendOnce(q *queuedCall) bool {
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
	if q.IsCancelled() { // before Send, or while it moved between connections
		bc.mu.Unlock()
		q.fail(peer.ErrCancelled)
		return true
	}
	// a subscribe call that is queued after CloseSession would not be removed
	if q.subscribes() && !bc.b.set.sessions.isOpen(q.request.Session) {
		bc.mu.Unlock()
		q.fail(notSent("%w", errSessionOver))
		return true
	}
	p, server := bc.peer, bc.server
	if p != nil && bc.belongsElsewhereLocked(q) {
		bc.mu.Unlock()
		bc.b.reroute(q)
		return true
	}
	recorded := !q.subscribes() || bc.recordSubscriptionLocked(q)
	if p != nil && server.modern && q.subscription != nil {
		respond := bc.subscribeByListenLocked(q)
		bc.mu.Unlock()
		respond()
		return true
	}
	var err error
	if p == nil {
		err = bc.enqueueLocked(q)
	}
	bc.mu.Unlock()
	if !recorded {
		bc.outputLog.Warn("too many subscriptions; new subscription not recorded", "max",
			maxSubscriptions)
	}
	switch {
	case err != nil:
		q.fail(err)
	case p != nil:
		err := bc.trySend(p, server, q)
		if errors.Is(err, transport.ErrClosed) {
			bc.markDisconnected(p, err)
			return false
		}
		if err != nil {
			q.fail(sendError(err))
		}
	}
	return true
}

// enqueueLocked queues a call until the backend is ready, and starts the backend if necessary.
// It returns an error if waiting is useless, or the call was cancelled.
func (bc *backendConn) enqueueLocked(q *queuedCall) error {
	now := time.Now()
	if bc.sup.Disposition(now) != supervise.RejectCall && !bc.closed {
		bc.wakeLocked()
	}
	switch {
	case bc.sup.Disposition(now) == supervise.RejectCall:
		return notSent("%w", bc.sup.RejectError(now))
	case bc.closed:
		return notSent("it was stopped")
	case !q.enter(&bc.queue):
		return peer.ErrCancelled
	}
	bc.queued = append(bc.queued, q)
	return nil
}

// removeQueued removes a queued call and reports whether it was queued.
func (bc *backendConn) removeQueued(q *queuedCall) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	for _, list := range []*[]*queuedCall{&bc.queued, &bc.retryQueue, &bc.pendingSubscribes} {
		if i := slices.Index(*list, q); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// sendQueued makes p the current peer and sends the queued calls. It returns the downtime of the
// backend, and functions that end or reroute the calls that could not be sent. If the connection of
// p has already ended, sendQueued does nothing. It holds bc.mu throughout, so that no call
// overtakes the queued ones and each of them can be cancelled at any moment.
func (bc *backendConn) sendQueued(p *peer.Peer) (downtime time.Duration, deferred []func()) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if bc.disconnectedPeer == p {
		return 0, nil
	}
	bc.peer, downtime = p, bc.sup.Up(time.Now())
	bc.sendLevelLocked(nil) // it may have changed since replayState
	bc.resubscribeLocked()
	some := bc.queued
	bc.queued = nil
	return downtime, bc.sendAllLocked(p, some)
}

// sendAllLocked sends calls. It returns functions that end the calls that could not be sent,
// respond to subscribe and unsubscribe calls for a modern server, and reroute the calls that belong
// on another connection. If the connection has ended, the remaining calls are queued for the next
// one.
func (bc *backendConn) sendAllLocked(p *peer.Peer, some []*queuedCall) (deferred []func()) {
	for i, q := range some {
		switch {
		case bc.server.modern && q.subscription != nil:
			deferred = append(deferred, bc.subscribeByListenLocked(q))
			continue
		case bc.belongsElsewhereLocked(q):
			if q.subscribes() { // it belongs to the other connection
				bc.subs.reject(q.subscription.uri, q.request.Session)
			}
			deferred = append(deferred, func() { bc.b.reroute(q) })
			continue
		}
		err := bc.trySend(p, bc.server, q)
		if errors.Is(err, transport.ErrClosed) {
			// the connection has ended: the rest is queued for the next one
			bc.queued = append(some[i:len(some):len(some)], bc.queued...)
			bc.markDisconnectedLocked(p, err)
			return deferred
		}
		if err != nil {
			deferred = append(deferred, func() { q.fail(sendError(err)) })
		}
	}
	return deferred
}

// belongsElsewhereLocked reports whether a call on the shared connection belongs on the session's
// own connection: the server is legacy, and either each session has a connection
// (Backend.hasPerSessionConns), or the capabilities declared to the server differ from those of the
// session's client. The result depends on the handshake, so it is valid only while there is a
// connection.
func (bc *backendConn) belongsElsewhereLocked(q *queuedCall) bool {
	if bc.isPerSession() || bc.server.modern || q.staysOnConn || q.request.Session == "" {
		return false
	}
	return bc.b.hasPerSessionConns() ||
		bc.b.set.SingleClient && bc.capabilitiesDifferLocked(q.request.Session)
}

// reroute sends a call over the connection of the same backend that the call belongs on (redirect
// sends a call to another backend). The call stays on that connection, unless it is the shared
// connection and not ready: then the capabilities for its next handshake are unknown.
func (b *Backend) reroute(q *queuedCall) {
	bc := b.conn(q.request.Session, false)
	bc.mu.Lock()
	q.staysOnConn = bc.isPerSession() || bc.peer != nil
	bc.mu.Unlock()
	bc.send(q)
}

// trySend sends a call over p to the server s, in the form of the server's generation. It fails
// like peer.Peer.TrySend, and in these cases:
//
//   - A call that the filters in force do not permit is refused with [contract.ErrForbidden].
//   - A continuation is refused with a *[wire.Error] for a legacy server, because a legacy server
//     keeps a call open until it has the input. A continuation is also refused if the backend runs
//     another program than the one that requested the input, because the state and the user's
//     responses are not meant for that program.
//
// A call may be suspended for minutes, so q does not keep the text of a request that cannot be sent
// again (see queuedCall.sendAgain).
func (bc *backendConn) trySend(p *peer.Peer, s serverInfo, q *queuedCall) error {
	r := &q.request
	if !bc.b.filters.permits(r) {
		return contract.ErrForbidden
	}
	if r.Continuation && (!s.modern || r.ServerKey != "" && r.ServerKey != bc.b.serverKey) {
		return bc.b.continuationError(r.Message)
	}
	q.sentOver.Store(bc)
	q.sentBy, q.modern = p, s.modern
	m := r.Message
	if q.isRetry || !s.modern && bc.b.cfg.URL == "" {
		r.Message = wire.Message{}
	}
	err := p.TrySend(bc.b.withClientMeta(m, s, r.Session, r.AllowTask), &q.Call)
	if err != nil {
		r.Message = m // the call still belongs to the caller
	}
	return err
}

// withClientMeta returns a request in the form for a modern server, with the client metadata of a
// session; "" = no session: metadata without capabilities and log level. If tasks is set, the
// server may respond with a task, even if the session's client has not declared support for tasks.
// A request for a legacy server is returned unchanged.
func (b *Backend) withClientMeta(m wire.Message, s serverInfo, session string,
	tasks bool) wire.Message {
	if !s.modern {
		return m // including inputResponses, if any: some servers accept them in both generations
	}
	meta := protocol.ClientMeta{Revision: s.ProtocolVersion, ClientInfo: b.set.clientInfo}
	meta.Capabilities, meta.LogLevel = b.set.sessions.requestMeta(session)
	if tasks {
		meta.Capabilities = protocol.AddTasksExtension(meta.Capabilities)
	}
	return meta.AddTo(m)
}

func (b *Backend) continuationError(m wire.Message) error {
	why := "inputResponses without requestState: retry with the requestState of the result that requested the input"
	if !wire.IsNull(m.Part(wire.PartRequestState)) {
		why = "requestState: it is no longer valid: start the call again"
	}
	return wire.Errorf(wire.CodeInvalidParams, "Invalid params: backend %s: %s", b.cfg.Name, why)
}
