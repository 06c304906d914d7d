package backends

import (
	"cmp"
	"slices"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// retryInNewSessionFunc returns the InterceptResponse of a call to a legacy server behind a URL. It
// is a separate function because a closure in trySend would put every call on the heap.
func (bc *backendConn) retryInNewSessionFunc(p *peer.Peer,
	q queuedCall) func(wire.Message, error) bool {
	return func(_ wire.Message, err error) bool { return bc.retryInNewSession(p, q, err) }
}

// retryInNewSession reports whether a call over p was refused only because the server does not know
// the HTTP session. If so, retryInNewSession queues the call for the next session, and the call is
// sent once more.
func (bc *backendConn) retryInNewSession(p *peer.Peer, q queuedCall, err error) bool {
	if err == nil || !httpclient.IsUnknownSession(err) {
		return false
	}
	bc.log.Debug("session unknown to the backend; sending the call in a new session",
		"method", q.request.Method(), "err", err)
	q.isRetry = true
	bc.markDisconnected(p, err)
	bc.send(q)
	return true
}

// retryAfterRefreshFunc returns the InterceptResponse of a call to a modern server.
func (bc *backendConn) retryAfterRefreshFunc(p *peer.Peer,
	q queuedCall) func(wire.Message, error) bool {
	return func(a wire.Message, err error) bool { return bc.retryAfterRefresh(p, q, a, err) }
}

// retryAfterRefresh handles the response to a call if a modern server has refused the form of the
// request, and so has not run it. It reports whether it handles the response. The tools are listed
// again, because their schemas contain the headers that a call needs. If the server has refused the
// version, or responds like a legacy server, it is discovered again before that (refreshLoop). Then
// the call is sent once more. If the second try fails in the same way, the caller gets another
// error, because -32020 and -32022 concern only the gateway.
//
// Meanwhile the call has no timeout in the peer, and the refresh may have none either
// (start_timeout: 0). Therefore the call waits for at most its call_timeout, or refreshRetryTimeout
// if it has no timeout, and then ends as not run.
func (bc *backendConn) retryAfterRefresh(p *peer.Peer, q queuedCall, a wire.Message,
	err error) bool {
	bc.noteReachability(err)
	e := wire.ReadError(a.Part(wire.PartError))
	suspect := e.Code == protocol.CodeUnsupportedVersion || isLegacyRefusal(err)
	switch {
	case !suspect && e.Code != protocol.CodeHeaderMismatch:
		return false
	case q.isRetry && err != nil:
		return false
	case q.isRetry:
		q.call.Handler.OnResponse(wire.NewErrorResponse(a.ID(), wire.Errorf(wire.CodeInternalError,
			"backend %s refuses the form of the request: %s", bc.b.cfg.Name, e.Message)), nil)
		return true
	}
	q.isRetry = true
	bc.mu.Lock()
	switch {
	case bc.draining, q.call.IsCancelled():
		bc.mu.Unlock()
		bc.send(q) // which redirects it, or ends it if it was cancelled
		return true
	case bc.disconnectedPeer == p:
		bc.queued = append(bc.queued, q)
	default:
		bc.retryQueue = append(bc.retryQueue, q)
		wait := cmp.Or(q.call.Timeout, refreshRetryTimeout)
		time.AfterFunc(wait, func() { bc.expireRetry(q.call, wait) })
	}
	bc.needsRediscovery = bc.needsRediscovery || suspect
	bc.mu.Unlock()
	bc.b.refreshTools()
	return true
}

// refreshRetryTimeout is the longest wait for the refresh of a call without call_timeout.
const refreshRetryTimeout = 2 * time.Minute

// expireRetry ends a call that still waits in retryQueue. A call is never queued there twice.
func (bc *backendConn) expireRetry(c *peer.Call, waited time.Duration) {
	bc.mu.Lock()
	i := slices.IndexFunc(bc.retryQueue, func(q queuedCall) bool { return q.call == c })
	if i >= 0 {
		bc.retryQueue = slices.Delete(bc.retryQueue, i, i+1)
	}
	bc.mu.Unlock()
	if i >= 0 {
		c.Handler.OnResponse(wire.Message{},
			notSent(
				"it refuses the form of the request, and did not list its tools again within %v",
				waited))
	}
}

// sendRetries sends the calls in retryQueue, if p is still the current peer.
func (bc *backendConn) sendRetries(p *peer.Peer) {
	bc.mu.Lock()
	var deferred []func()
	if bc.peer == p {
		some := bc.retryQueue
		bc.retryQueue = nil
		deferred = bc.sendAllLocked(p, some)
	}
	bc.mu.Unlock()
	for _, f := range deferred {
		f()
	}
}
