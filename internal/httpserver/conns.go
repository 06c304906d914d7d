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
	// maxConnsPerSession bounds the connections on which a request was let in, for each session that may be open.
	maxConnsPerSession = 4
	// maxUnadmittedConns bounds the other connections: on which nothing was sent yet, or no valid token.
	maxUnadmittedConns = 1024
)

// connTracker knows the connections of a server. A connection is a stranger's until a request on it
// is let in. Strangers have a bound of their own, so that they take no place from clients: when
// there is one more, the stranger that has been idle the longest is closed, or, if none is idle,
// the one that has been busy the longest. When there are too many clients, the connection of one
// that has been idle the longest is closed; if none is idle, the newest stays among the strangers.
type connTracker struct {
	maxClients    int // connections of clients
	maxUnadmitted int
	log           *slog.Logger

	mu          sync.Mutex
	all         map[net.Conn]*connInfo
	unadmitted  connPool
	admitted    connPool
	changed     sync.Cond
	lastWarning time.Time // when it was logged last that there are too many
}

// A connPool is a set of connections, each list in the order in which they came into it.
type connPool struct{ idle, busy list.List }

func (p *connPool) len() int { return p.idle.Len() + p.busy.Len() }

// connInfo is a connection. HTTP/2 calls one idle whose last frame is not yet written, and closes it
// by itself once keep-alives are disabled.
type connInfo struct {
	tracker  *connTracker
	conn     net.Conn
	admitted atomic.Bool // it is in clients, or was

	// Guarded by tracker.mu.
	state http.ConnState
	http2 bool
	pool  *connPool // nil once it is closed
	list  *list.List
	elem  *list.Element // in list
}

func newConnTracker(most int, log *slog.Logger) *connTracker {
	t := &connTracker{maxClients: most, maxUnadmitted: unadmittedLimit(maxDescriptors()), log: log, all: make(map[net.Conn]*connInfo)}
	t.changed.L = &t.mu
	return t
}

// unadmittedLimit returns how many strangers there may be in a process that may have so many
// descriptors: half at most, so that clients and programs have theirs.
func unadmittedLimit(descriptors int) int {
	if descriptors <= 0 {
		return maxUnadmittedConns
	}
	return max(min(maxUnadmittedConns, descriptors/2), 1)
}

type connKey struct{}

// connContext is the server's ConnContext, which is called before note.
func (t *connTracker) connContext(ctx context.Context, c net.Conn) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := &connInfo{tracker: t, conn: c}
	t.all[c] = info
	t.moveLocked(info, &t.unadmitted)
	if t.unadmitted.len() > t.maxUnadmitted {
		t.warnLocked("too many connections without a request that was let in: the oldest is closed", t.maxUnadmitted)
		oldest := t.unadmitted.busy.Front()
		if t.unadmitted.idle.Len() > 1 || oldest == nil { // the last of idle is the new one
			oldest = t.unadmitted.idle.Front()
		}
		t.closeLocked(oldest.Value.(*connInfo))
	}
	return context.WithValue(ctx, connKey{}, info)
}

// markAdmitted notes that the connection of a request is a client's.
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
		t.warnLocked("no room for a further connection", t.maxClients)
		if t.admitted.idle.Len() == 0 {
			return
		}
		t.closeLocked(t.admitted.idle.Front().Value.(*connInfo))
	}
	info.admitted.Store(true)
	t.moveLocked(info, &t.admitted)
}

// onStateChange is the server's ConnState.
func (t *connTracker) onStateChange(c net.Conn, state http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.all[c]
	if secure, ok := c.(*tls.Conn); ok && info.state == http.StateNew && state != http.StateNew {
		info.http2 = secure.ConnectionState().NegotiatedProtocol == "h2"
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

// moveLocked puts a connection at the end of one of the lists of a pool, or into none.
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

// closeLocked closes a connection; the server tells that it is closed. It does not wait for the other
// side, as the Close of a TLS connection does.
func (t *connTracker) closeLocked(info *connInfo) {
	t.moveLocked(info, nil)
	c := info.conn
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	_ = c.Close()
}

func (t *connTracker) warnLocked(what string, most int) {
	if now := time.Now(); now.Sub(t.lastWarning) > logThrottle {
		t.lastWarning = now
		t.log.Warn(what, "max", most)
	}
}

// wait waits until no connection has anything under way, but no longer than
// patience; with none, until there is no connection.
func (t *connTracker) wait(timeout time.Duration) {
	late := false
	if timeout > 0 {
		timer := time.AfterFunc(timeout, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			late = true
			t.changed.Broadcast()
		})
		defer timer.Stop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for !late && t.busyLocked(timeout == 0) {
		t.changed.Wait()
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
