package backends

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"mcpgateway/internal/transport/httpclient"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

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

// retryAfterRefreshFunc returns what is shown the answer to a call before its caller is.
func (bc *backendConn) retryAfterRefreshFunc(p *peer.Peer, q queuedCall) func(wire.Message, error) bool {
	return func(a wire.Message, err error) bool { return bc.retryAfterRefresh(p, q, a, err) }
}

// retryInNewSessionFunc returns the function that gets the error of a call before its caller does. It is a function of its own because a
// closure in offer would put every call on the heap.
func (bc *backendConn) retryInNewSessionFunc(p *peer.Peer, q queuedCall) func(wire.Message, error) bool {
	return func(_ wire.Message, err error) bool { return bc.retryInNewSession(p, q, err) }
}

// retryInNewSession reports whether a call, sent over p, was refused only because the server does not
// know the session. It then waits for the next session, in which it is sent once more.
func (bc *backendConn) retryInNewSession(p *peer.Peer, q queuedCall, err error) bool {
	if err == nil || !httpclient.IsUnknownSession(err) {
		return false
	}
	bc.log.Debug("backend does not know the session; the call is sent again in a new one", "method", q.request.Method(), "err", err)
	q.isRetry = true
	bc.markDisconnected(p, err)
	bc.send(q)
	return true
}

func (b *Backend) continuationError(m wire.Message) error {
	why := "inputResponses without requestState: the call that asked goes on with the requestState that it was answered with"
	if !wire.IsNull(m.Part(wire.PartRequestState)) {
		why = "requestState: it is of no use any more: begin the call anew"
	}
	return wire.Errorf(wire.CodeInvalidParams, "Invalid params: backend %s: %s", b.cfg.Name, why)
}

// retryAfterRefresh reports whether what came of a call is the gateway's own affair: the server
// of the stateless era has refused how it was asked, and so not acted upon it. Then
// its tools are listed anew, for their schemas say which headers a call needs, or it
// is discovered anew (follow), and the call is sent once more. If that does not help
// the caller learns of it in words that are not for the backend's own clients alone.
//
// Meanwhile the call has no clock at the peer, and the list may have none either
// (start_timeout: 0). So it waits for its call_timeout at most, and if it has none for
// refreshRetryTimeout; then it ends as one that was not run.
func (bc *backendConn) retryAfterRefresh(p *peer.Peer, q queuedCall, a wire.Message, err error) bool {
	bc.noteReachability(err)
	e := wire.ReadError(a.Part(wire.PartError))
	doubt := e.Code == protocol.CodeUnsupportedVersion || isLegacyRefusal(err)
	switch {
	case !doubt && e.Code != protocol.CodeHeaderMismatch:
		return false
	case q.isRetry && err != nil:
		return false
	case q.isRetry:
		q.call.Handler.OnResponse(wire.NewErrorResponse(a.ID(), wire.Errorf(wire.CodeInternalError,
			"backend %s refuses how the gateway asks it: %s", bc.b.cfg.Name, e.Message)), nil)
		return true
	}
	q.isRetry = true
	bc.mu.Lock()
	switch {
	case bc.draining, q.call.IsCancelled():
		bc.mu.Unlock()
		bc.send(q) // which knows where to
		return true
	case bc.disconnectedPeer == p:
		bc.queued = append(bc.queued, q)
	default:
		bc.retryQueue = append(bc.retryQueue, q)
		wait := cmp.Or(q.call.Timeout, refreshRetryTimeout)
		time.AfterFunc(wait, func() { bc.expireRetry(q.call, wait) })
	}
	bc.needsRediscovery = bc.needsRediscovery || doubt
	bc.mu.Unlock()
	bc.b.refreshTools()
	return true
}

// refreshRetryTimeout is how long a call that has no call_timeout waits for what may help it.
const refreshRetryTimeout = 2 * time.Minute

// expireRetry ends a call that was spared, unless it waits for that no more: it is sent once
// more only once.
func (bc *backendConn) expireRetry(c *peer.Call, waited time.Duration) {
	bc.mu.Lock()
	i := slices.IndexFunc(bc.retryQueue, func(q queuedCall) bool { return q.call == c })
	if i >= 0 {
		bc.retryQueue = slices.Delete(bc.retryQueue, i, i+1)
	}
	bc.mu.Unlock()
	if i >= 0 {
		c.Handler.OnResponse(wire.Message{}, notSent("it refuses how the gateway asks it, and did not list its tools anew within %v", waited))
	}
}

// isLegacyRefusal reports whether a request was refused as by an HTTP server that knows only the
// session era, before anything was done.
func isLegacyRefusal(err error) bool {
	lost, ok := errors.AsType[*transport.CallLostError](err)
	status, _ := errors.AsType[*httpclient.StatusError](err)
	return ok && !lost.MayHaveRun && status != nil && (status.Code == 400 || status.Code == 404 || status.Code == 405)
}

// markSuspect has the server discovered anew when its lists are read next.
func (bc *backendConn) markSuspect() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.needsRediscovery = true
}

// refreshTools has the tools listed anew.
func (b *Backend) refreshTools() {
	b.requestRefresh(catalog.Tools.ChangedNotification(), func(catalog.Kind) {})
}

// rediscoverTimeout is how long a server that could not be reached may take to say that it is there.
const rediscoverTimeout = 10 * time.Second

// rediscover discovers a server of the stateless era anew if there is doubt about it, or it
// could not be reached. It fails if the server is of that era no more.
func (bc *backendConn) rediscover(ctx context.Context, p *peer.Peer, s *serverInfo) error {
	bc.mu.Lock()
	doubt := bc.needsRediscovery || bc.sup.issues[issueUnreachable] != nil
	bc.needsRediscovery = false
	bc.mu.Unlock()
	if !doubt || !s.modern {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rediscoverTimeout, peer.ErrTimeout)
	defer cancel()
	found, err := bc.discover(ctx, p)
	switch {
	case isA[legacyServerError](err):
		return err
	case err != nil:
		bc.noteReachability(err)
		bc.log.Debug("backend could not be asked anew what it is", "err", err)
		return nil
	}
	*s = found
	bc.mu.Lock()
	bc.server = found
	bc.mu.Unlock()
	bc.setIssue(issueUnreachable, nil)
	return nil
}

// sendRetries sends what was spared.
func (bc *backendConn) sendRetries(p *peer.Peer) {
	bc.mu.Lock()
	var refused []func()
	if bc.peer == p {
		some := bc.retryQueue
		bc.retryQueue = nil
		refused = bc.sendAllLocked(p, some)
	}
	bc.mu.Unlock()
	for _, tell := range refused {
		tell()
	}
}

// errMergedIntoShared is why a session's own line ends that has found the backend to be of
// the stateless era.
var errMergedIntoShared = errors.New("it needs no connection for each session")

// mergeIntoShared ends a session's own line: what waits for it goes over the one that all
// share, as does what is sent from now on.
func (bc *backendConn) mergeIntoShared() {
	bc.b.mu.Lock()
	if bc.b.perSession[bc.session] == bc {
		delete(bc.b.perSession, bc.session)
	}
	bc.b.mu.Unlock()
	bc.mu.Lock()
	bc.mergedIntoShared = true
	waiting, uris := bc.queued, bc.subs.acceptedURIs()
	bc.queued, bc.subs = nil, subscriptions{}
	bc.mu.Unlock()
	bc.b.shared.addSubscriptions(bc.session, uris)
	for _, q := range waiting {
		bc.b.shared.send(q)
	}
}

// addSubscriptions takes over a session's subscriptions from another line, unless it is over. A line
// of the session era must not have begun to start: it tells the backend then.
func (bc *backendConn) addSubscriptions(session string, uris []string) {
	bc.mu.Lock()
	if bc.draining {
		bc.mu.Unlock()
		bc.b.redirectSubscriptions(session, uris)
		return
	}
	defer bc.mu.Unlock()
	for _, uri := range uris {
		bc.subs.add(uri, session)
		bc.subs.accept(uri, session)
	}
	if !bc.b.set.isSessionOpen(session) {
		bc.subs.removeAll(session, false)
	}
	if !bc.isPerSession() && !bc.subs.empty() {
		bc.wakeLocked() // it may be stopped until it is needed
	}
	bc.signalReopen()
}
