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

// retryAfterRefreshFunc returns what is shown the answer to a call before its caller is.
func (bc *backendConn) retryAfterRefreshFunc(p *peer.Peer, q queuedCall) func(wire.Message, error) bool {
	return func(a wire.Message, err error) bool { return bc.retryAfterRefresh(p, q, a, err) }
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
