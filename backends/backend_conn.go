package backends

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// A backendConn is a logical connection to a backend that reconnects: one network connection or
// process at a time, and the calls queued for it.
//
// Each backend has one that all sessions share. It is kept up, and the lists are read over it.
// If the configuration asks for it (see Backend.hasPerSessionConns), each client session has
// its own, opened on first use, over which the backend is told the capabilities of that client.
// A modern backend receives the capabilities with each request, so all sessions share one
// connection.
type backendConn struct {
	b         *Backend
	session   string // session of a per-session connection; "" = shared connection
	log       *slog.Logger
	outputLog *slog.Logger // for the output of the backend, see rateLimitedHandler

	refreshing atomic.Int32 // number of list refreshes that run or are about to

	// why the preceding connection ended during the probe; used by the connecting goroutine
	// only
	probeErr error

	wakeup chan struct{} // capacity 1: start the stopped shared connection

	mu        sync.Mutex
	sup       supervisor
	startedAt time.Time
	peer      *peer.Peer // nil unless ready
	server    serverInfo // from the handshake of the current connection
	// client capabilities that were sent in the handshake with a legacy backend
	declaredCapabilities []byte
	disconnectedPeer     *peer.Peer   // the last peer whose connection ended
	loggedReason         string       // why the connection ended last, as logged
	queued               []queuedCall // calls that wait for peer
	sentLevel            string       // log level that the backend was sent
	subs                 subscriptions

	// For a modern backend:
	retryQueue        []queuedCall // calls to be sent once more
	needsRediscovery  bool         // server may be outdated
	pendingSubscribes []queuedCall // subscribe calls that wait for an acknowledged listen
	// the current subscriptions/listen, nil if there is none
	listen        *listenStream
	openingListen *listenStream // listen that is not acknowledged yet; nil = none
	reopen        chan struct{} // capacity 1: the wanted URIs have changed
	unreachable   atomic.Bool   // sup has issueUnreachable; readable without mu

	// For a per-session connection:
	running          bool               // a goroutine runs reconnectLoop
	retrySooner      chan struct{}      // capacity 1: the next try was moved forward
	disconnect       context.CancelFunc // ends the connection and its reconnecting
	closed           bool               // its session is over
	mergedIntoShared bool               // its calls go to the shared connection

	draining bool // its backend is draining
	// URIs that the server is still to be subscribed to: see takeOverSubscriptions
	resubscribeURIs []string

	// changed lists whose client is notified after the refresh; guarded by b.mu
	notifyAfterRefresh [catalog.NumKinds]bool
}

func newBackendConn(b *Backend, session string) *backendConn {
	bc := &backendConn{
		b: b, session: session, log: b.log, outputLog: b.outputLog,
		wakeup: make(chan struct{}, 1), retrySooner: make(chan struct{}, 1),
		reopen: make(chan struct{}, 1),
	}
	if session != "" {
		bc.log, bc.outputLog = b.log.With("session", session), b.outputLog.With("session", session)
	}
	return bc
}

func (bc *backendConn) isPerSession() bool { return bc.session != "" }

// currentPeer returns the peer and the server of the current connection; the peer is nil if the
// connection is not ready.
func (bc *backendConn) currentPeer() (*peer.Peer, serverInfo) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.peer, bc.server
}

func (bc *backendConn) startTime() time.Time {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.startedAt
}

func (bc *backendConn) reachedReady() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.reachedReady
}

func (bc *backendConn) lastStartFailed() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.lastStartFailed
}

// wake starts the shared connection if it is stopped until there is demand.
func (bc *backendConn) wake() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.wakeLocked()
}

// wakeLocked starts the shared connection if it is stopped until there is demand, or the
// goroutine of a per-session connection that has none.
func (bc *backendConn) wakeLocked() {
	switch {
	case !bc.isPerSession():
		if bc.sup.State() == Stopped {
			select {
			case bc.wakeup <- struct{}{}:
			default:
			}
		}
	case bc.running || bc.closed:
	case bc.b.goWorker(bc.runPerSession):
		bc.running = true
	default:
		bc.sup.stop(errStopped)
	}
}

// markStarting notes that a start begins.
func (bc *backendConn) markStarting() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	select {
	case <-bc.wakeup: // the start is the response to it
	default:
	}
	bc.startedAt = time.Now()
	bc.sup.start()
	bc.server = serverInfo{}
	bc.needsRediscovery = false
	bc.unreachable.Store(false)
}

// markReady lets calls through. Queued calls go first.
func (bc *backendConn) markReady(p *peer.Peer) {
	downtime, deferred := bc.sendQueued(p)
	if downtime > 0 {
		bc.log.Info("backend recovered", "dur", roundDuration(downtime))
	}
	for _, f := range deferred {
		f()
	}
}

// markDisconnected notes that the connection of p has ended, and the reason if it is known.
// From now on calls are queued for the next connection. markFailed follows when all of the old
// connection is gone.
func (bc *backendConn) markDisconnected(p *peer.Peer, why error) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.markDisconnectedLocked(p, why)
}

func (bc *backendConn) markDisconnectedLocked(p *peer.Peer, why error) {
	bc.disconnectedPeer = p
	if len(bc.retryQueue)+len(bc.pendingSubscribes) > 0 {
		bc.queued = slices.Concat(bc.retryQueue, bc.pendingSubscribes, bc.queued)
		bc.retryQueue, bc.pendingSubscribes = nil, nil
	}
	if bc.peer == p {
		bc.peer = nil
		bc.sup.disconnected(time.Now(), why)
	}
}

// markFailed notes that a start failed or a connection ended, and why. Queued calls end if no
// further try will serve them.
func (bc *backendConn) markFailed(err error) {
	now := time.Now()
	bc.mu.Lock()
	bc.sup.failed(now, err, rand.Float64())
	why := notSent("it did not start: %w", err)
	if bc.sup.reachedReady {
		why = bc.sup.rejectError(now)
	}
	var dropped []queuedCall
	if bc.sup.disposition(now) == rejectCall {
		dropped, bc.queued = bc.queued, nil
	}
	bc.mu.Unlock()
	bc.failCalls(dropped, why)
}

// markStopped notes that the connection was stopped for good, and why.
func (bc *backendConn) markStopped(why error) {
	bc.mu.Lock()
	bc.sup.stop(why)
	var dropped []queuedCall
	dropped, bc.queued = bc.queued, nil
	bc.mu.Unlock()
	bc.failCalls(dropped, notSent("it did not start: %w", why))
}

// failCalls fails calls that were queued. For the shared connection the backend counts as
// settled.
func (bc *backendConn) failCalls(dropped []queuedCall, why error) {
	for _, q := range dropped {
		q.call.Handler.OnResponse(wire.Message{}, why)
	}
	if !bc.isPerSession() {
		bc.b.settle(true, nil)
	}
}

// close closes a per-session connection.
func (bc *backendConn) close() {
	bc.mu.Lock()
	bc.closed = true
	disconnect := bc.disconnect
	bc.mu.Unlock()
	if disconnect != nil {
		disconnect()
	}
}

// whyUnavailable returns the fault of the backend, in the words with which a call would end;
// nil if it is healthy or the state is not known.
func (bc *backendConn) whyUnavailable() error {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	now := time.Now()
	switch why := bc.sup.problem(); {
	case bc.sup.disposition(now) == rejectCall:
		return bc.sup.rejectError(now)
	case why != nil && !bc.sup.State().IsUp():
		return notSent("it is not running: %w", why)
	default:
		return why
	}
}
