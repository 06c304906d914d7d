package backends

import (
	"errors"
	"fmt"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func notSent(format string, args ...any) error {
	return &transport.CallLostError{Err: fmt.Errorf(format, args...)}
}

// sendError returns the error for a call that could not be sent.
func sendError(err error) error {
	if errors.Is(err, peer.ErrCancelled) || errors.Is(err, contract.ErrForbidden) ||
		isA[*contract.QuestionError](err) || isA[*contract.NotApprovedError](err) ||
		isA[*wire.Error](err) {
		return err
	}
	return &transport.CallLostError{Err: err}
}

// send sends a call, or queues it while the backend starts. If the last start failed, the call
// fails, until the next try is due, with the reason and the time of that try.
func (bc *backendConn) send(q *queuedCall) {
	q.SetTimeout(bc.b.cfg.CallTimeout)
	for !bc.sendOnce(q) {
		// The connection ended: the call is queued for the next one.
	}
}

// sendOnce sends, queues, redirects, reroutes or fails q. It reports false if the connection was
// closed meanwhile; the caller then retries.
func (bc *backendConn) sendOnce(q *queuedCall) bool {
	bc.mu.Lock()
	switch {
	case bc.phase == connMerged:
		bc.mu.Unlock()
		bc.b.shared.send(q)
		return true
	case bc.phase == connDraining:
		bc.mu.Unlock()
		bc.b.redirect(q)
		return true
	case q.IsCancelled(): // before Send, or while it moved between connections
		bc.mu.Unlock()
		q.fail(peer.ErrCancelled)
		return true
	case q.subscribes() && !bc.b.set.sessions.isOpen(q.request.Session):
		// a subscribe call that is queued after CloseSession would not be removed
		bc.mu.Unlock()
		q.fail(notSent("%w", errSessionOver))
		return true
	}
	l := bc.link
	if l != nil && l.belongsElsewhere(q) {
		bc.mu.Unlock()
		bc.b.reroute(q)
		return true
	}
	recorded := !q.subscribes() || bc.recordSubscriptionLocked(q)
	if l != nil && l.isModern() && q.subscription != nil {
		respond := bc.subscribeByListenLocked(q)
		bc.mu.Unlock()
		respond()
		return true
	}
	var err error
	if l == nil {
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
	case l != nil:
		err := l.trySend(q)
		if errors.Is(err, transport.ErrClosed) {
			l.disconnected(err)
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
	if bc.sup.State() == NeedsLogin && bc.b.login.needed() == nil { // somebody has just logged in
		bc.sup.ResetBackoff(now, 0)
		signal(bc.starts.retrySooner)
	}
	if bc.sup.Disposition(now) != supervise.RejectCall && bc.phase != connClosed {
		bc.wakeLocked()
	}
	switch {
	case bc.sup.Disposition(now) == supervise.RejectCall:
		return notSent("%w", bc.sup.RejectError(now))
	case bc.phase == connClosed:
		return notSent("it was stopped")
	}
	return bc.calls.add(q)
}

// markReady makes l the current link and sends the queued calls. From now on calls are sent at
// once. It does nothing if the connection of l has already ended.
func (bc *backendConn) markReady(l *link) {
	downtime, deferred := bc.sendQueued(l)
	if downtime > 0 {
		bc.log.Info("backend recovered", "dur", roundDuration(downtime))
	}
	for _, f := range deferred {
		f()
	}
}

// sendQueued makes l the current link and sends the queued calls. It returns the downtime of the
// backend, and functions that end or reroute the calls that could not be sent. It holds bc.mu
// throughout, so that no call overtakes the queued ones and each of them can be cancelled at any
// moment.
func (bc *backendConn) sendQueued(l *link) (downtime time.Duration, deferred []func()) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if l.ended {
		return 0, nil
	}
	bc.link, downtime = l, bc.sup.Up(time.Now())
	l.sendLevelLocked(nil) // it may have changed since replayState
	bc.resubscribeLocked()
	return downtime, l.sendAllLocked(bc.calls.take())
}

// sendAllLocked sends calls over the current link. It returns functions that end the calls that
// could not be sent, respond to subscribe and unsubscribe calls for a modern server, and reroute
// the calls that belong on another connection. If the connection has ended, the remaining calls are
// queued for the next one.
func (l *link) sendAllLocked(some []*queuedCall) (deferred []func()) {
	bc, modern := l.conn, l.isModern()
	for i, q := range some {
		switch {
		case modern && q.subscription != nil:
			deferred = append(deferred, bc.subscribeByListenLocked(q))
			continue
		case l.belongsElsewhere(q):
			if q.subscribes() { // it belongs to the other connection
				bc.subs.reject(q.subscription.uri, q.request.Session)
			}
			deferred = append(deferred, func() { bc.b.reroute(q) })
			continue
		}
		err := l.trySend(q)
		if errors.Is(err, transport.ErrClosed) {
			// the connection has ended: the rest is queued for the next one
			bc.calls.waiting = append(some[i:len(some):len(some)], bc.calls.waiting...)
			l.disconnectedLocked(err)
			return deferred
		}
		if err != nil {
			deferred = append(deferred, func() { q.fail(sendError(err)) })
		}
	}
	return deferred
}

// belongsElsewhere reports whether a call on the shared connection belongs on the session's own
// connection: the server is legacy, and either each session has a connection
// (Backend.hasPerSessionConns), or the capabilities declared to the server differ from those of the
// session's client. The result depends on the handshake, so it is valid only for a ready link.
func (l *link) belongsElsewhere(q *queuedCall) bool {
	b := l.conn.b
	if l.conn.isPerSession() || l.isModern() || q.staysOnConn || q.request.Session == "" {
		return false
	}
	return b.hasPerSessionConns() ||
		b.set.SingleClient && l.capabilitiesDiffer(q.request.Session)
}

// trySend sends a call in the form of the server's generation. It fails like peer.Peer.TrySend, and
// in these cases:
//
//   - A call that the filters in force do not permit is refused with [contract.ErrForbidden], and a
//     call of a tool that is not approved with a *[contract.NotApprovedError].
//   - A call that must be confirmed, and was not, is refused with a *[contract.QuestionError].
//   - A continuation is refused with a *[wire.Error] for a legacy server, because a legacy server
//     keeps a call open until it has the input. A continuation is also refused if the backend runs
//     another program than the one that requested the input, because the state and the user's
//     responses are not meant for that program.
//
// A call may be suspended for minutes, so q does not keep the text of a request that cannot be sent
// again (see queuedCall.sendAgain).
func (l *link) trySend(q *queuedCall) error {
	r, b, modern := &q.request, l.conn.b, l.isModern()
	if err := b.check(r); err != nil {
		return err
	}
	if r.Continuation && (!modern || r.ServerKey != "" && r.ServerKey != b.known.serverKey) {
		return b.continuationError(r.Message)
	}
	q.sentOver.Store(l)
	q.modern = modern
	m := r.Message
	if q.isRetry || !modern && b.cfg.URL == "" {
		r.Message = wire.Message{}
	}
	sent := l.withClientMeta(m, r.Session, r.AllowTask)
	if r.Span != nil {
		sent = l.withTrace(sent, r)
	}
	err := l.peer.TrySend(sent, &q.Call)
	if err != nil {
		r.Message = m // the call still belongs to the caller
	}
	return err
}
