package backends

import (
	"errors"
	"net/http"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/httpclient"
)

// setIssue notes what is wrong with the backend though there is a connection; err is nil if that
// is nothing any more.
func (bc *backendConn) setIssue(which issue, err error) {
	bc.mu.Lock()
	before := bc.sup.State()
	bc.sup.issues[which] = err
	after := bc.sup.State()
	bc.unreachable.Store(bc.sup.issues[issueUnreachable] != nil)
	bc.mu.Unlock()
	switch {
	case before == after:
	case after == Degraded && which != issueLists: // of which those who read them tell
		bc.log.Warn("backend is not well; calls go to it all the same", "err", err)
	case before == Degraded && after == Ready:
		bc.log.Info("backend is well again")
	}
}

func (bc *backendConn) hasIssue(which issue) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.issues[which] != nil
}

// isUnreachable reports whether a request failed because there is no server at the other end,
// or none that a proxy could reach.
func isUnreachable(err error) bool {
	lost, ok := errors.AsType[*transport.CallLostError](err)
	if !ok {
		return false
	}
	if status, ok := errors.AsType[*httpclient.StatusError](err); ok {
		return status.Code == http.StatusBadGateway || status.Code == http.StatusServiceUnavailable || status.Code == http.StatusGatewayTimeout
	}
	return !lost.MayHaveRun && !errors.Is(err, transport.ErrClosed)
}

// noteReachability notes what came of a request to a server of the stateless era: behind a URL there
// is no connection that could break, and tell that it is gone. Follow then looks for it, and
// reads its lists anew when it is back.
func (bc *backendConn) noteReachability(err error) {
	switch gone := isUnreachable(err); {
	case !bc.b.hasManyStreams():
	case gone && !bc.unreachable.Load():
		bc.setIssue(issueUnreachable, err)
		bc.b.refreshTools()
	case !gone && (err == nil || isA[*httpclient.StatusError](err)) && bc.unreachable.Load():
		bc.setIssue(issueUnreachable, nil)
		bc.b.refreshAll()
	}
}
