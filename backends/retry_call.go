package backends

import (
	"cmp"
	"errors"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// sendAgain sends a call again that the server has refused without running it: because it does not
// know the HTTP session, or, if the server is modern, because of the form of the request. It
// reports whether it has taken over the call. A call is sent again once, and not after a
// cancellation, a timeout, the end of the connection or an invalid response. sendAgain may replace
// the response m.
func (q *queuedCall) sendAgain(m *wire.Message, err error) bool {
	l := q.sentOver.Load()
	switch {
	case l == nil: // a request of the gateway itself
		return false
	case err != nil && (!isA[*transport.CallLostError](err) || errors.Is(err, transport.ErrClosed)):
		return false
	case q.modern:
		return l.retryAfterRefresh(q, m, err)
	}
	return err != nil && l.conn.b.cfg.URL != "" && !q.isRetry && l.retryInNewSession(q, err)
}

// retryInNewSession reports whether a call was refused only because the server does not know the
// HTTP session. If so, retryInNewSession queues the call for the next session.
func (l *link) retryInNewSession(q *queuedCall, err error) bool {
	if !httpclient.IsUnknownSession(err) {
		return false
	}
	l.conn.log.Debug("session unknown to the backend; sending the call in a new session",
		"method", q.request.Message.Method(), "err", err)
	q.isRetry = true
	l.disconnected(err)
	l.conn.send(q)
	return true
}

// retryAfterRefresh handles the response to a call if a modern server has refused the form of the
// request, and so has not run it. It reports whether it has taken over the call. The tools are
// listed again, because their schemas contain the headers that a call needs. If the server has
// refused the version, or responds like a legacy server, it is discovered again before that
// (refresher). Then the call is sent once more. If the second try fails in the same way, the
// caller gets another error, because -32020 and -32022 concern only the gateway.
//
// Meanwhile the call has no timeout in the peer, and the refresh may have none either
// (start_timeout: 0). Therefore the call waits for at most its call_timeout, or noTimeoutWait if it
// has no timeout, and then ends as not run.
func (l *link) retryAfterRefresh(q *queuedCall, m *wire.Message, err error) bool {
	bc := l.conn
	l.noteReachability(err)
	e := wire.ReadError(m.Part(wire.PartError))
	suspect := e.Code == protocol.CodeUnsupportedVersion || isLegacyRefusal(err)
	switch {
	case !suspect && e.Code != protocol.CodeHeaderMismatch:
		return false
	case q.isRetry:
		if err == nil {
			*m = wire.NewErrorResponse(m.ID(), wire.Errorf(wire.CodeInternalError,
				"backend %s refuses the form of the request: %s", bc.b.cfg.Name, e.Message))
		}
		return false
	}
	q.isRetry = true
	wait := cmp.Or(q.Timeout, noTimeoutWait) // before another goroutine may own the call
	bc.mu.Lock()
	if bc.link != l || bc.phase != connOpen || !q.enter(&bc.calls.callQueue) {
		bc.mu.Unlock()
		bc.send(q) // over the next link, or to the successor; or it ends if it was cancelled
		return true
	}
	bc.calls.retries = append(bc.calls.retries, q)
	l.needsRediscovery = l.needsRediscovery || suspect
	bc.mu.Unlock()
	time.AfterFunc(wait, func() { l.expireRetry(q, wait) })
	bc.b.lists.refreshTools()
	return true
}

// noTimeoutWait is the longest wait of a call without call_timeout for the gateway's own request on
// which it depends: a refresh or a listen.
const noTimeoutWait = 2 * time.Minute

// expireRetry ends a call that still waits for the refresh. A call waits for it once.
func (l *link) expireRetry(q *queuedCall, waited time.Duration) {
	l.conn.mu.Lock()
	waits := removeCall(&l.conn.calls.retries, q)
	l.conn.mu.Unlock()
	if waits {
		q.fail(notSent(
			"it refuses the form of the request, and did not list its tools again within %v",
			waited))
	}
}

// sendRetries sends the calls that have waited for the refresh, if l is still the current link.
func (l *link) sendRetries() {
	l.conn.mu.Lock()
	var deferred []func()
	if l.conn.link == l {
		retries := l.conn.calls.retries
		l.conn.calls.retries = nil
		deferred = l.sendAllLocked(retries)
	}
	l.conn.mu.Unlock()
	for _, f := range deferred {
		f()
	}
}
