package backends

import (
	"errors"
	"slices"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
)

// errIdle is why a conversation ends that nobody needs: see config.Backend.IdleStop.
var errIdle = errors.New("nobody needs it (idle_stop)")

// stopIfIdle has the line stop until something is wanted of it, if nothing is now, and
// reports whether it does. A call that comes at this moment waits for the next start.
func (bc *backendConn) stopIfIdle(p *peer.Peer) bool {
	unread := !bc.isPerSession() && bc.b.hasUnreadLists()
	bc.mu.Lock()
	var listen *peer.Call
	if bc.listen != nil {
		listen = bc.listen.call
	}
	wanted := unread || bc.peer != p || bc.refreshing.Load() > 0 || !bc.subs.empty() || len(bc.queued)+len(bc.retryQueue)+len(bc.pendingSubscribes) > 0
	stops := !wanted && p.CloseIfIdle(errIdle, listen)
	if stops {
		bc.disconnectedPeer, bc.peer = p, nil
		bc.sup.stop(nil)
	}
	bc.mu.Unlock()
	if stops {
		bc.log.Info("backend is stopped, for nobody needs it", "dur", bc.b.cfg.IdleStop)
	}
	return stops
}

// hasUnreadLists reports whether its tools were never listed, so that nobody could call it, and start
// it so; or whether some of its lists have changed and were not read since.
func (b *Backend) hasUnreadLists() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.raw[catalog.Tools] == nil || slices.Contains(b.stale[:], true)
}

// isProcess reports whether the backend is a process.
func (b *Backend) isProcess() bool { return b.cfg.Command != "" }
