package backends

import (
	"context"
	"sync"
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

// refreshLoop reads the backend's lists again when they have changed or expired, or after a
// failure, until the connection ends. It returns the reason for the end; errDisconnected means that
// p.Run has the reason.
//
// For a modern server it also discovers the server again if necessary, and sends the calls in
// retryQueue.
func (bc *backendConn) refreshLoop(ctx context.Context, p *peer.Peer, s serverInfo,
	ended chan error) error {
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
			which, notify = bc.takeStale()
		case <-retryTimer:
		case <-b.lists.nextExpiry():
			b.lists.markExpired()
			which, notify = bc.takeStale()
		}
		if err := bc.refresh(ctx, p, &s, which); err != nil {
			notify()
			return err
		}
		notify()
		bc.sendRetries(p)
		listed = time.Now()
	}
}

// takeStale returns the lists that must be read now. The caller must then call notify, which
// notifies each session whose own connection has announced a change.
func (bc *backendConn) takeStale() (which [catalog.NumKinds]bool, notify func()) {
	which, announcedTo := bc.b.lists.takeStale()
	return which, func() {
		for session, changed := range announcedTo {
			for k := range catalog.Kind(catalog.NumKinds) {
				if changed[k] {
					bc.b.set.clientSide().HandleNotification(bc.b.cfg.Name,
						contract.Attribution{Session: session},
						wire.NewNotification(k.ChangedNotification(), nil))
				}
			}
		}
	}
}

// beginRefresh notes that lists are being read, until the function done is called.
func (bc *backendConn) beginRefresh() (done func()) {
	bc.refreshing.Add(1)
	return sync.OnceFunc(func() { bc.refreshing.Add(-1) })
}

// refresh discovers the server again if necessary, and reads lists: all lists if the server was
// unreachable before, and none if it is unreachable now. It fails only if the server is no longer
// modern.
func (bc *backendConn) refresh(ctx context.Context, p *peer.Peer, s *serverInfo,
	which [catalog.NumKinds]bool) error {
	defer bc.beginRefresh()()
	ctx, cancel := bc.b.withStartTimeout(ctx, peer.ErrTimeout)
	defer cancel()
	wasUnreachable := bc.hasIssue(supervise.IssueUnreachable)
	if err := bc.rediscover(ctx, p, s); err != nil {
		return err
	}
	switch {
	case bc.hasIssue(supervise.IssueUnreachable):
		return nil
	case wasUnreachable:
		which = allKinds
	}
	bc.b.reader.read(ctx, p, *s, which)
	return nil
}

// markSuspect makes the next refresh discover the server again.
func (bc *backendConn) markSuspect() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.needsRediscovery = true
}

// rediscoverTimeout is the longest wait for the response to a repeated server/discover.
const rediscoverTimeout = 10 * time.Second

// rediscover sends server/discover again if the server is modern and is suspect or was unreachable,
// and updates s. It fails if the server is no longer modern. Any other failure is only logged, and
// noted by noteReachability.
func (bc *backendConn) rediscover(ctx context.Context, p *peer.Peer, s *serverInfo) error {
	bc.mu.Lock()
	suspect := bc.needsRediscovery || bc.sup.HasIssue(supervise.IssueUnreachable)
	bc.needsRediscovery = false
	bc.mu.Unlock()
	if !suspect || !s.modern {
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
		bc.log.Debug("repeated server/discover failed", "err", err)
		return nil
	}
	*s = found
	bc.mu.Lock()
	bc.server = found
	bc.mu.Unlock()
	bc.setIssue(supervise.IssueUnreachable, nil)
	return nil
}
