package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConnsPerSession is the maximum number of admitted connections per permitted session
	// (MaxSessions).
	maxConnsPerSession = 4
	// maxUnadmittedConns is the maximum number of connections without an admitted request.
	maxUnadmittedConns = 1024
)

// A connTracker limits the connections of an http.Server. A connection is admitted when a request
// on it has passed authentication. Unadmitted connections have a separate limit, so that they
// cannot displace clients.
//
//   - Too many unadmitted connections: the connection that has been idle the longest is closed; if
//     no other connection is idle, the connection that has been busy the longest.
//   - Too many admitted connections: the connection that has been idle the longest is closed; if no
//     connection is idle, the new connection stays unadmitted.
type connTracker struct {
	maxClients    int // maximum number of admitted connections
	maxUnadmitted int
	log           *slog.Logger

	mu          sync.Mutex
	all         map[net.Conn]*connInfo
	unadmitted  connPool
	admitted    connPool
	changed     sync.Cond
	lastWarning time.Time // time of the last log record about the limits
}

// A connPool is a set of connections. Each list has the order of insertion.
type connPool struct{ idle, busy list.List }

func (p *connPool) len() int { return p.idle.Len() + p.busy.Len() }

// connInfo is the state of one connection. An HTTP/2 connection may be reported as idle while its
// last frame is being written. net/http closes an idle HTTP/2 connection once keep-alives are
// disabled.
type connInfo struct {
	tracker  *connTracker
	conn     net.Conn
	admitted atomic.Bool // the connection is or was in tracker.admitted

	// Guarded by tracker.mu.
	state http.ConnState
	http2 bool
	pool  *connPool // nil once the connection is closed
	list  *list.List
	elem  *list.Element // element of list
}

func newConnTracker(maxClients int, log *slog.Logger) *connTracker {
	t := &connTracker{
		maxClients: maxClients, maxUnadmitted: unadmittedLimit(maxDescriptors()),
		log: log, all: make(map[net.Conn]*connInfo),
	}
	t.changed.L = &t.mu
	return t
}

// unadmittedLimit returns the maximum number of unadmitted connections: at most half of the file
// descriptors, so that the other half is available for clients and child processes.
func unadmittedLimit(descriptors int) int {
	if descriptors <= 0 {
		return maxUnadmittedConns
	}
	return max(min(maxUnadmittedConns, descriptors/2), 1)
}

type connKey struct{}

// connContext is the http.Server's ConnContext; it is called before onStateChange.
func (t *connTracker) connContext(ctx context.Context, c net.Conn) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := &connInfo{tracker: t, conn: c}
	t.all[c] = info
	t.moveLocked(info, &t.unadmitted)
	if t.unadmitted.len() > t.maxUnadmitted {
		t.warnLocked("too many unauthenticated connections; closed one of them", t.maxUnadmitted)
		oldest := t.unadmitted.busy.Front()
		if t.unadmitted.idle.Len() > 1 || oldest == nil { // the last idle connection is the new one
			oldest = t.unadmitted.idle.Front()
		}
		t.closeLocked(oldest.Value.(*connInfo))
	}
	return context.WithValue(ctx, connKey{}, info)
}

// markAdmitted marks the connection of a request as admitted, unless there are too many admitted
// connections and none of them is idle.
func markAdmitted(r *http.Request) {
	info, _ := r.Context().Value(connKey{}).(*connInfo)
	if info == nil || info.admitted.Load() {
		return
	}
	t := info.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if info.pool != &t.unadmitted {
		return
	}
	if t.admitted.len() >= t.maxClients {
		t.warnLocked("too many connections", t.maxClients)
		if t.admitted.idle.Len() == 0 {
			return
		}
		t.closeLocked(t.admitted.idle.Front().Value.(*connInfo))
	}
	info.admitted.Store(true)
	t.moveLocked(info, &t.admitted)
}

// onStateChange is the http.Server's ConnState.
func (t *connTracker) onStateChange(c net.Conn, state http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.all[c]
	if tlsConn, ok := c.(*tls.Conn); ok && info.state == http.StateNew && state != http.StateNew {
		info.http2 = tlsConn.ConnectionState().NegotiatedProtocol == "h2"
	}
	info.state = state
	switch state {
	case http.StateClosed, http.StateHijacked:
		t.moveLocked(info, nil)
		delete(t.all, c)
	case http.StateActive, http.StateIdle:
		if info.pool != nil {
			t.moveLocked(info, info.pool)
		}
	}
	t.changed.Broadcast()
}

// moveLocked moves a connection to the end of the idle or the busy list of a pool. If the argument
// to is nil, moveLocked removes the connection.
func (t *connTracker) moveLocked(info *connInfo, to *connPool) {
	if info.list != nil {
		info.list.Remove(info.elem)
	}
	info.pool, info.list, info.elem = to, nil, nil
	if to == nil {
		return
	}
	info.list = &to.idle
	if info.state == http.StateActive {
		info.list = &to.busy
	}
	info.elem = info.list.PushBack(info)
}

// closeLocked closes a connection; net/http then reports the change of state. Unlike Close of a TLS
// connection, closeLocked does not wait for the peer.
func (t *connTracker) closeLocked(info *connInfo) {
	t.moveLocked(info, nil)
	c := info.conn
	if tlsConn, ok := c.(*tls.Conn); ok {
		c = tlsConn.NetConn()
	}
	_ = c.Close()
}

func (t *connTracker) warnLocked(message string, limit int) {
	if now := time.Now(); now.Sub(t.lastWarning) > logThrottle {
		t.lastWarning = now
		t.log.Warn(message, "max", limit)
	}
}

// wait waits until no connection is active, at most for timeout. An HTTP/2 connection counts as
// active until it is closed. If timeout is 0, it waits, without a limit, until all connections are
// closed.
func (t *connTracker) wait(timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waitFor(&t.changed, timeout, func() bool { return !t.busyLocked(timeout == 0) })
}

// waitFor waits on a condition until done reports true, at most for timeout; 0 = without a limit.
// The caller holds c.L, and done is called with it held.
func waitFor(c *sync.Cond, timeout time.Duration, done func() bool) {
	if done() {
		return
	}
	timedOut := false
	if timeout > 0 {
		timer := time.AfterFunc(timeout, func() {
			c.L.Lock()
			defer c.L.Unlock()
			timedOut = true
			c.Broadcast()
		})
		defer timer.Stop()
	}
	for !timedOut && !done() {
		c.Wait()
	}
}

func (t *connTracker) busyLocked(all bool) bool {
	for _, info := range t.all {
		if all || info.http2 || info.state == http.StateActive {
			return true
		}
	}
	return false
}
