package backends

import (
	"context"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/catalog"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// Refreshes are delayed if a backend announces changed lists after every listing: after
// undelayedRefreshes refreshes in a row, there is a delay before each further refresh. The delay
// doubles up to longestRefreshDelay.
const (
	undelayedRefreshes  = 5
	longestRefreshDelay = 10 * time.Second
	// longestRetryDelay is the longest pause before a failed listing or a failed listen is
	// tried again.
	longestRetryDelay = 30 * time.Second
)

func refreshDelay(inARow int) time.Duration {
	if inARow < undelayedRefreshes {
		return 0
	}
	return min(100*time.Millisecond<<min(inARow-undelayedRefreshes, 10), longestRefreshDelay)
}

// A refresher keeps the lists of a backend up to date, over the link of its shared connection.
type refresher struct {
	link  *link
	ended chan error // capacity 1: the result of peer.Peer.Run
}

// run reads the backend's lists again when they have changed or expired, or after a
// failure, until the connection ends. It returns the reason for the end; errDisconnected means that
// p.Run has the reason.
//
// For a modern server it also discovers the server again if necessary, and sends the calls that
// wait for that.
func (r *refresher) run(ctx context.Context) error {
	bc, ended := r.link.conn, r.ended
	b := bc.b
	retry, inARow, listed := supervise.FirstPause, 0, time.Now()
	for {
		select {
		case err := <-ended:
			ended <- err // for runConn
			return errDisconnected
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(refreshDelay(inARow)):
		}
		var retryTimer <-chan time.Time
		if bc.hasIssue(supervise.IssueLists) || bc.hasIssue(supervise.IssueUnreachable) {
			retryTimer = time.After(retry)
			retry = min(2*retry, longestRetryDelay)
		} else {
			retry = supervise.FirstPause
		}
		which, notify := allKinds, func() {}
		select {
		case err := <-ended:
			ended <- err // for runConn
			return errDisconnected
		case <-ctx.Done():
			return ctx.Err()
		case <-b.lists.signal:
			if inARow++; time.Since(listed) > refreshDelay(inARow)+time.Second {
				inARow = 0
			}
			which, notify = r.takeStale()
		case <-retryTimer:
		case <-b.lists.nextExpiry():
			b.lists.markExpired()
			which, notify = r.takeStale()
		}
		if err := r.refresh(ctx, which); err != nil {
			notify()
			return err
		}
		notify()
		r.link.sendRetries()
		listed = time.Now()
	}
}

// takeStale returns the lists that must be read now. The caller must then call notify, which
// notifies each session whose own connection has announced a change.
func (r *refresher) takeStale() (which [catalog.NumKinds]bool, notify func()) {
	b := r.link.conn.b
	which, announcedTo := b.lists.takeStale()
	return which, func() {
		for session, changed := range announcedTo {
			for k := range catalog.Kind(catalog.NumKinds) {
				if changed[k] {
					b.set.clients.HandleNotification(b.cfg.Name,
						contract.Attribution{Session: session},
						wire.NewNotification(k.ChangedNotification(), nil))
				}
			}
		}
	}
}

// refresh discovers the server again if necessary, and reads lists: all lists if the server was
// unreachable before or its capabilities have changed, and none if it is unreachable now. It fails
// only if the server is no longer modern.
func (r *refresher) refresh(ctx context.Context, which [catalog.NumKinds]bool) error {
	bc := r.link.conn
	defer r.link.beginRefresh()()
	ctx, cancel := bc.b.withStartTimeout(ctx, peer.ErrTimeout)
	defer cancel()
	wasUnreachable, before := bc.hasIssue(supervise.IssueUnreachable), r.link.info()
	if err := r.rediscover(ctx); err != nil {
		return err
	}
	switch {
	case bc.hasIssue(supervise.IssueUnreachable):
		return nil
	case !sameJSON(before.Capabilities, r.link.info().Capabilities):
		bc.subs.signalReopen() // the listen may lack lists
		which = allKinds
	case wasUnreachable:
		which = allKinds
	}
	bc.b.reader.read(ctx, r.link, which)
	return nil
}

// rediscoverTimeout is the longest wait for the response to a repeated server/discover.
const rediscoverTimeout = 10 * time.Second

// rediscover sends server/discover again if the server is modern and is suspect or was unreachable,
// and updates link.server. It fails if the server is no longer modern. Any other failure is only
// logged, and noted by noteReachability.
func (r *refresher) rediscover(ctx context.Context) error {
	l, bc := r.link, r.link.conn
	bc.mu.Lock()
	suspect := l.needsRediscovery || bc.sup.HasIssue(supervise.IssueUnreachable)
	l.needsRediscovery = false
	bc.mu.Unlock()
	if !suspect || !l.isModern() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rediscoverTimeout, peer.ErrTimeout)
	defer cancel()
	found, err := l.discover(ctx)
	switch {
	case isA[legacyServerError](err):
		return err
	case err != nil:
		l.noteReachability(err)
		bc.log.Debug("repeated server/discover failed", "err", err)
		return nil
	}
	l.server.Store(&found)
	bc.setIssue(supervise.IssueUnreachable, nil)
	return nil
}
