package backends

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/transport/httpclient"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

const (
	// quietFor is how long nothing must have been heard from a backend for it to be pinged.
	quietFor = time.Minute
	// pingWait is how long it may take to answer that; then it is pinged again.
	pingWait = 10 * time.Second
	// maxUnanswered is how many pings in a row may get no answer.
	maxUnanswered = 3
)

// errIdle is why a conversation ends that nobody needs: see config.Backend.IdleStop.
var errIdle = errors.New("nobody needs it (idle_stop)")

// errHung is why a conversation ends with a server that does not answer any more.
var errHung = fmt.Errorf("it hangs: it has left %d pings in a row unanswered, each for %v", maxUnanswered, pingWait)

// A watch looks after a conversation in which nothing happens: it pings a server of the
// session era, and ends the conversation if it has been of no use for long. To have heard
// of a server is proof enough that it lives, and one that is at a call is busy, not dead.
type watch struct {
	l     *line
	p     *peer.Peer
	pings bool          // its era has them, and it may be one that answers them
	idle  time.Duration // after so long it is of no use any more; 0 = never

	pinged     time.Time // last
	unanswered int       // in a row
	answers    bool      // it has answered one
}

// watch has a conversation looked after until ctx is done or end is called.
func (l *line) watch(ctx context.Context, h *handler, s server) (end func()) {
	w := &watch{l: l, p: h.peer, pings: !s.stateless}
	if l.b.isChild() && !l.b.set.NoRestart {
		w.idle = l.b.cfg.IdleStop
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if why := w.run(ctx); why != nil {
			h.hangUp(why)
		}
	})
	return func() {
		stop()
		running.Wait()
	}
}

// run returns why the conversation is to end, nil if it is not.
func (w *watch) run(ctx context.Context) error {
	looked := time.Now()
	for {
		due := w.due(looked)
		if due.IsZero() {
			return nil
		}
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil
		}
		looked = time.Now()
		if t := w.p.Activity(); w.idle > 0 && looked.Sub(t.LastUsed) >= w.idle && w.l.fallAsleep(w.p) {
			return errIdle
		}
		if w.pings {
			w.look(ctx, looked)
		}
		if w.unanswered >= maxUnanswered {
			return errHung
		}
	}
}

// due returns when there may be something to do next, after a look at looked; zero = never.
func (w *watch) due(looked time.Time) (first time.Time) {
	t := w.p.Activity()
	if w.pings {
		first = later(t.LastReceived.Add(quietFor), looked.Add(pingWait))
		if w.unanswered > 0 {
			first = later(w.pinged.Add(pingWait), looked.Add(time.Second)) // so soon it is noticed that it was heard
		}
	}
	if w.idle > 0 {
		due := t.LastUsed.Add(w.idle)
		if !due.After(looked) { // something is wanted of it
			due = looked.Add(min(w.idle, pingWait))
		}
		if first.IsZero() || due.Before(first) {
			first = due
		}
	}
	return first
}

// look pings the server if that is due.
func (w *watch) look(ctx context.Context, now time.Time) {
	t := w.p.Activity()
	if w.unanswered > 0 && t.LastReceived.After(w.pinged) {
		w.heard()
	}
	quiet := now.Sub(t.LastReceived) >= quietFor
	if t.InFlight || !quiet || now.Sub(w.pinged) < pingWait {
		return
	}
	w.pinged = now
	asking, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	_, err := w.p.RoundTrip(asking, wire.NewRequest("0", string(mcp.MethodPing), nil))
	if ctx.Err() != nil {
		return
	}
	t = w.p.Activity()
	switch gone := nowhere(err); {
	case err == nil, t.LastReceived.After(now), isA[*httpclient.StatusError](err) && !gone:
		w.answers = w.answers || err == nil
		w.heard()
	case t.InFlight: // it may be at that
	case !gone && !w.answers:
		w.l.log.Debug("backend does not answer ping; it will not be asked again", "dur", pingWait)
		w.pings = false
		w.heard() // as far as anybody can tell: it may have been gone before
	default:
		w.unanswered++
		w.l.ail(illSilent, fmt.Errorf("it does not answer ping: %w", silence(err)))
	}
}

func (w *watch) heard() {
	w.unanswered = 0
	w.l.ail(illSilent, nil)
}

// silence says for how long there was no answer, if that is all that is known.
func silence(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it is silent for %v", pingWait)
	}
	return err
}

// fallAsleep has the line stop until something is wanted of it, if nothing is now, and
// reports whether it does. A call that comes at this moment waits for the next start.
func (l *line) fallAsleep(p *peer.Peer) bool {
	unread := !l.own() && l.b.isUnread()
	l.mu.Lock()
	var listen *peer.Call
	if l.listened != nil {
		listen = l.listened.c
	}
	wanted := unread || l.peer != p || l.reading.Load() > 0 || !l.subs.empty() || len(l.waiting)+len(l.again)+len(l.arming) > 0
	stops := !wanted && p.CloseIfIdle(errIdle, listen)
	if stops {
		l.gone, l.peer = p, nil
		l.sup.stop(nil)
	}
	l.mu.Unlock()
	if stops {
		l.log.Info("backend is stopped, for nobody needs it", "dur", l.b.cfg.IdleStop)
	}
	return stops
}

// isUnread reports whether its tools were never listed, so that nobody could call it, and start
// it so; or whether some of its lists have changed and were not read since.
func (b *Backend) isUnread() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.raw[catalog.Tools] == nil || slices.Contains(b.stale[:], true)
}

// isChild reports whether the backend is a process.
func (b *Backend) isChild() bool { return b.cfg.Command != "" }

// ail notes what is wrong with the backend though there is a connection; err is nil if that
// is nothing any more.
func (l *line) ail(which ill, err error) {
	l.mu.Lock()
	before := l.sup.stands()
	l.sup.ills[which] = err
	after := l.sup.stands()
	l.nowhere.Store(l.sup.ills[illNowhere] != nil)
	l.mu.Unlock()
	switch {
	case before == after:
	case after == Degraded && which != illLists: // of which those who read them tell
		l.log.Warn("backend is not well; calls go to it all the same", "err", err)
	case before == Degraded && after == Ready:
		l.log.Info("backend is well again")
	}
}

func (l *line) ails(which ill) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sup.ills[which] != nil
}

// nowhere reports whether a request failed because there is no server at the other end,
// or none that a proxy could reach.
func nowhere(err error) bool {
	lost, ok := errors.AsType[*transport.CallLostError](err)
	if !ok {
		return false
	}
	if status, ok := errors.AsType[*httpclient.StatusError](err); ok {
		return status.Code == http.StatusBadGateway || status.Code == http.StatusServiceUnavailable || status.Code == http.StatusGatewayTimeout
	}
	return !lost.MayHaveRun && !errors.Is(err, transport.ErrClosed)
}

// reached notes what came of a request to a server of the stateless era: behind a URL there
// is no connection that could break, and tell that it is gone. Follow then looks for it, and
// reads its lists anew when it is back.
func (l *line) reached(err error) {
	switch gone := nowhere(err); {
	case !l.b.hasStreams():
	case gone && !l.nowhere.Load():
		l.ail(illNowhere, err)
		l.b.refresh()
	case !gone && (err == nil || isA[*httpclient.StatusError](err)) && l.nowhere.Load():
		l.ail(illNowhere, nil)
		l.b.changedAll()
	}
}
