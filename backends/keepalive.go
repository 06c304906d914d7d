package backends

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

const (
	// pingAfter is the time without a received message after which a ping is sent.
	pingAfter = time.Minute
	// pingTimeout is the longest wait for the response to a ping; after it the next ping is sent.
	pingTimeout = 10 * time.Second
	// maxUnansweredPings is the number of pings in a row without a response that end the
	// connection.
	maxUnansweredPings = 3
)

// errHung is the reason for the end of a connection whose server no longer responds.
var errHung = fmt.Errorf("it hangs: %d pings in a row got no response, each within %v",
	maxUnansweredPings, pingTimeout)

// A keepAlive watches a connection. It pings a silent legacy server, and ends the connection if the
// server does not respond or the connection is unused for idleStop. Any message from the server
// counts as a response to a ping, and a server that works on a call is not pinged. A reachable
// server that does not respond to a ping, and has responded to none before, is not pinged again.
type keepAlive struct {
	link     *link
	pings    bool          // the server is legacy, and may respond to pings
	idleStop time.Duration // end the connection after this time without use; 0 = never

	lastPing    time.Time // zero = none yet
	unanswered  int       // pings in a row
	hasAnswered bool      // it has responded to a ping
}

// startKeepAlive watches the connection of h until ctx is done or the function end is called.
func startKeepAlive(ctx context.Context, h *inboundHandler) (end func()) {
	b := h.link.conn.b
	k := &keepAlive{link: h.link, pings: !h.link.isModern()}
	if b.isProcess() && !b.set.NoRestart {
		k.idleStop = b.cfg.IdleStop
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if why := k.run(ctx); why != nil {
			h.disconnect(why)
		}
	})
	return func() {
		stop()
		running.Wait()
	}
}

// run returns the reason for which the connection must end, nil if ctx is done or there is nothing
// to watch.
func (k *keepAlive) run(ctx context.Context) error {
	checkedAt := time.Now()
	for {
		due := k.nextCheck(checkedAt)
		if due.IsZero() {
			return nil
		}
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil
		}
		checkedAt = time.Now()
		if t := k.link.peer.Activity(); k.idleStop > 0 && checkedAt.Sub(t.LastUsed) >= k.idleStop &&
			k.stopIfIdle() {
			return errIdle
		}
		if k.pings {
			k.pingIfDue(ctx, checkedAt)
		}
		if k.unanswered >= maxUnansweredPings {
			return errHung
		}
	}
}

// nextCheck returns the time of the next check after a check at checkedAt; zero = never.
func (k *keepAlive) nextCheck(checkedAt time.Time) (next time.Time) {
	t := k.link.peer.Activity()
	if k.pings {
		next = laterOf(t.LastReceived.Add(pingAfter), checkedAt.Add(pingTimeout))
		if k.unanswered > 0 {
			// to notice a message soon
			next = laterOf(k.lastPing.Add(pingTimeout), checkedAt.Add(time.Second))
		}
	}
	if k.idleStop > 0 {
		due := t.LastUsed.Add(k.idleStop)
		if !due.After(checkedAt) { // it is in use
			due = checkedAt.Add(min(k.idleStop, pingTimeout))
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}

// pingIfDue pings the server if that is due.
func (k *keepAlive) pingIfDue(ctx context.Context, now time.Time) {
	t := k.link.peer.Activity()
	if k.unanswered > 0 && t.LastReceived.After(k.lastPing) {
		k.markResponsive()
	}
	quiet := now.Sub(t.LastReceived) >= pingAfter
	if t.InFlight || !quiet || now.Sub(k.lastPing) < pingTimeout {
		return
	}
	k.lastPing = now
	pingCtx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := k.link.peer.RoundTrip(pingCtx, wire.NewRequest("0", protocol.MethodPing, nil))
	if ctx.Err() != nil {
		return
	}
	t = k.link.peer.Activity()
	switch unreachable := isUnreachable(err); {
	case err == nil, t.LastReceived.After(now), isA[*httpclient.StatusError](err) && !unreachable:
		k.hasAnswered = k.hasAnswered || err == nil
		k.markResponsive()
	case t.InFlight: // it may be working on a call
	case !unreachable && !k.hasAnswered:
		k.link.conn.log.Debug("no response to ping; will not ping again",
			"dur", pingTimeout)
		k.pings = false
		k.markResponsive() // it may have been unreachable before
	default:
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("silent for %v", pingTimeout)
		}
		k.unanswered++
		k.link.conn.setIssue(supervise.IssueNoPong, fmt.Errorf("no response to ping: %w", err))
	}
}

func (k *keepAlive) markResponsive() {
	k.unanswered = 0
	k.link.conn.setIssue(supervise.IssueNoPong, nil)
}

// errIdle is the reason for the end of an unused connection: see config.Backend.IdleStop.
var errIdle = errors.New("idle (idle_stop)")

// stopIfIdle stops an unused connection until there is demand, and reports whether it has stopped
// the connection. The caller must then end the connection. A connection is in use if it has calls
// in flight or queued, open requests of the server, subscriptions, or lists that must be read. A
// call that arrives at this moment is queued for the next start.
func (k *keepAlive) stopIfIdle() bool {
	l, bc := k.link, k.link.conn
	unread := !bc.isPerSession() && bc.b.lists.hasUnread()
	bc.mu.Lock()
	var listen *peer.Call
	if bc.subs.listen != nil {
		listen = bc.subs.listen.call
	}
	inUse := unread || bc.link != l || l.refreshing.Load() > 0 || !bc.subs.empty() ||
		!bc.calls.isEmpty()
	stops := !inUse && l.peer.CloseIfIdle(errIdle, listen)
	if stops {
		l.ended, bc.link = true, nil
		bc.sup.Stop(time.Now(), nil)
	}
	bc.mu.Unlock()
	if stops {
		bc.log.Info("idle backend stopped", "dur", bc.b.cfg.IdleStop)
	}
	return stops
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
