package gateway

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A clientConn is the part of a client's connection that requests of both generations use.
type clientConn struct {
	g         *Gateway
	id        string // session id, for logs and audit records
	principal string // authenticated identity of the client; "" if there is no authentication
	// done when the connection has ended; the context of the goroutines in work
	ctx  context.Context
	work sync.WaitGroup // goroutines that serve requests

	stopped    atomic.Bool // the gateway is shutting down
	backlogged func() bool // reports whether much unsent data is queued for the client

	// stateless clients retained by this connection, the latest last; used only by the reading
	// goroutine
	clients []*statelessClient

	mu            sync.Mutex
	listens       map[*listenRequest]bool
	backlogLogged time.Time // time of the last warning of isBacklogged
}

// log returns the connection's logger. The logger is created on demand, because most connections
// log little.
func (cc *clientConn) log() *slog.Logger { return cc.g.Log.With("session", cc.id) }

// isBacklogged reports whether so much unsent data is queued for the client that notifications must
// be delayed or dropped. If every notification were queued, a backend that sends faster than the
// client reads would fill the queue. A full queue ends the connection and its calls at all
// backends. isBacklogged logs a warning at most once per backlogLogInterval.
func (cc *clientConn) isBacklogged(backend string) bool {
	if !cc.backlogged() {
		return false
	}
	cc.mu.Lock()
	now := time.Now()
	logNow := now.Sub(cc.backlogLogged) >= backlogLogInterval
	if logNow {
		cc.backlogLogged = now
	}
	cc.mu.Unlock()
	if logNow {
		cc.log().Warn("notifications delayed or dropped for slow client", "backend", backend)
	}
	return true
}
