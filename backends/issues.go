package backends

import (
	"errors"
	"net/http"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
)

// setIssue sets an issue of a connected backend; nil = it is resolved. It logs when the backend
// becomes degraded, except for issueLists, or ready again.
func (bc *backendConn) setIssue(which supervise.HealthIssue, err error) {
	bc.mu.Lock()
	before := bc.sup.State()
	bc.sup.SetIssue(which, err)
	after := bc.sup.State()
	bc.unreachable.Store(bc.sup.HasIssue(supervise.IssueUnreachable))
	bc.mu.Unlock()
	switch {
	case before == after:
	case after == Degraded && which != supervise.IssueLists: // logged by listReader
		bc.log.Warn("backend degraded; calls still sent to it", "err", err)
	case before == Degraded && after == Ready:
		bc.log.Info("backend no longer degraded")
	}
}

func (bc *backendConn) hasIssue(which supervise.HealthIssue) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.HasIssue(which)
}

// isUnreachable reports whether a request failed because the gateway, or a proxy, could not reach
// the server.
func isUnreachable(err error) bool {
	lost, ok := errors.AsType[*transport.CallLostError](err)
	if !ok {
		return false
	}
	if status, ok := errors.AsType[*httpclient.StatusError](err); ok {
		return status.Code == http.StatusBadGateway ||
			status.Code == http.StatusServiceUnavailable || status.Code == http.StatusGatewayTimeout
	}
	return !lost.MayHaveRun && !errors.Is(err, transport.ErrClosed)
}

// noteReachability updates issueUnreachable after a request to a modern server behind a URL. Such a
// server has no lasting connection whose end would show that the server is gone. noteReachability
// does nothing for a server on stdio. While the server is unreachable, refreshLoop tries to reach
// it; its lists are read again after that.
func (bc *backendConn) noteReachability(err error) {
	switch unreachable := isUnreachable(err); {
	case !bc.b.hasManyStreams():
	case unreachable && !bc.unreachable.Load():
		bc.setIssue(supervise.IssueUnreachable, err)
		bc.b.lists.refreshTools()
	case !unreachable && (err == nil || isA[*httpclient.StatusError](err)) && bc.unreachable.Load():
		bc.setIssue(supervise.IssueUnreachable, nil)
		bc.b.lists.refreshAll()
	}
}
