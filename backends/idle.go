package backends

import (
	"errors"

	"mcpgateway/internal/peer"
)

// errIdle is the reason for the end of an unused connection: see config.Backend.IdleStop.
var errIdle = errors.New("idle (idle_stop)")

// stopIfIdle stops an unused connection until there is demand, and reports whether it has stopped
// the connection. The caller must then end the connection of p. A connection is in use if it has
// calls in flight or queued, open requests of the server, subscriptions, or lists that must be
// read. A call that arrives at this moment is queued for the next start.
func (bc *backendConn) stopIfIdle(p *peer.Peer) bool {
	unread := !bc.isPerSession() && bc.b.lists.hasUnread()
	bc.mu.Lock()
	var listen *peer.Call
	if bc.listen != nil {
		listen = bc.listen.call
	}
	inUse := unread || bc.peer != p || bc.refreshing.Load() > 0 || !bc.subs.empty() ||
		len(bc.queued)+len(bc.retryQueue)+len(bc.pendingSubscribes) > 0
	stops := !inUse && p.CloseIfIdle(errIdle, listen)
	if stops {
		bc.disconnectedPeer, bc.peer = p, nil
		bc.sup.Stop(nil)
	}
	bc.mu.Unlock()
	if stops {
		bc.log.Info("idle backend stopped", "dur", bc.b.cfg.IdleStop)
	}
	return stops
}

// isProcess reports whether the backend is a process.
func (b *Backend) isProcess() bool { return b.cfg.Command != "" }
