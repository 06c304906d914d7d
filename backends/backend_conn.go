package backends

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/internal/peer"
)

// A backendConn is a logical connection to a backend. It reconnects: it has at most one network
// connection or process at a time, and a queue for the calls that wait for the next one.
//
// Each backend has one connection that all sessions share. The gateway keeps it up, unless the
// backend is lazy or idle, and reads the lists over it. A client session that needs a connection of
// its own (see Backend.needsSessionConn) opens it on first use, and the connection declares the
// capabilities of that client. A modern backend receives the capabilities with each request, so
// sessions share one connection to it.
type backendConn struct {
	b       *Backend
	session string // session of a per-session connection; "" = shared connection
	log     *slog.Logger
	// rate-limited, for records that may be frequent, such as those about the output of the backend
	outputLog *slog.Logger

	refreshing atomic.Int32 // number of list refreshes that run or are about to run

	// failure of server/discover over the preceding connection, nil = none; used by the connecting
	// goroutine only
	probeErr error

	wakeup      chan struct{} // capacity 1: start the stopped shared connection
	retrySooner chan struct{} // capacity 1: the next try is due earlier than it was

	mu        sync.Mutex
	sup       supervise.Supervisor
	startedAt time.Time
	peer      *peer.Peer // nil unless ready
	server    serverInfo // server of the current connection, known from its handshake
	// client capabilities that were sent in the handshake with a legacy backend
	declaredCapabilities []byte
	disconnectedPeer     *peer.Peer    // the last peer whose connection ended
	loggedReason         string        // reason for the last end of the connection, as logged
	queued               []*queuedCall // calls that wait for peer
	queue                callQueue     // queued, retryQueue and pendingSubscribes
	sentLevel            string        // log level that was sent to the backend
	subs                 subscriptions

	// For a modern backend:
	retryQueue        []*queuedCall // calls to be sent once more
	needsRediscovery  bool          // the information in server may be outdated
	pendingSubscribes []*queuedCall // subscribe calls that wait for an acknowledged listen
	// the current subscriptions/listen, nil if there is none
	listen        *listenStream
	openingListen *listenStream // listen that is not acknowledged yet; nil = none
	reopen        chan struct{} // capacity 1: the wanted URIs have changed
	unreachable   atomic.Bool   // sup has issueUnreachable; readable without mu

	// For a per-session connection:
	running          bool               // a goroutine runs reconnectLoop
	disconnect       context.CancelFunc // ends the connection and its reconnecting
	closed           bool               // its session is over
	mergedIntoShared bool               // its calls go to the shared connection

	draining bool // its backend is draining
	// URIs to which the server must still be subscribed: see takeOverSubscriptions and
	// resubscribePermitted
	resubscribeURIs []string
}

func newBackendConn(b *Backend, session string) *backendConn {
	bc := &backendConn{
		b: b, session: session, log: b.log, outputLog: b.outputLog,
		wakeup: make(chan struct{}, 1), retrySooner: make(chan struct{}, 1),
		reopen: make(chan struct{}, 1),
	}
	bc.queue.remove = bc.removeQueued
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
	return bc.sup.ReachedReady()
}

func (bc *backendConn) lastStartFailed() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.LastStartFailed()
}

// wake starts the shared connection if it is stopped until there is demand.
func (bc *backendConn) wake() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.wakeLocked()
}

// wakeLocked starts a shared connection that is stopped until there is demand. For a per-session
// connection it starts the goroutine that connects, unless this goroutine runs already or the
// session is over. If the gateway is ending, the per-session connection is stopped permanently
// instead.
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
	case bc.b.lifetime.goWorker(bc.runPerSession):
		bc.running = true
	default:
		bc.sup.Stop(errStopped)
	}
}

// markStarting notes that a start begins.
func (bc *backendConn) markStarting() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	select {
	case <-bc.wakeup: // this start fulfills the request
	default:
	}
	bc.startedAt = time.Now()
	bc.sup.Start()
	bc.server = serverInfo{}
	bc.needsRediscovery = false
	bc.unreachable.Store(false)
}

// markReady sends the queued calls, and lets later calls be sent at once. It does nothing if the
// connection of p has already ended.
func (bc *backendConn) markReady(p *peer.Peer) {
	downtime, deferred := bc.sendQueued(p)
	if downtime > 0 {
		bc.log.Info("backend recovered", "dur", roundDuration(downtime))
	}
	for _, f := range deferred {
		f()
	}
}

// markDisconnected notes that the connection of p has ended, and the reason. From now on calls are
// queued for the next connection. The method markFailed is called later, when nothing of the old
// connection is left.
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
		bc.sup.Disconnected(time.Now(), why)
	}
}

// markFailed notes that a start failed or a connection ended, and the reason. Queued calls fail
// unless they can wait for the next try. After a failure of the shared connection the backend
// counts as settled.
func (bc *backendConn) markFailed(err error) {
	now := time.Now()
	bc.mu.Lock()
	bc.sup.Failed(now, err, rand.Float64())
	why := notSent("it did not start: %w", err)
	if bc.sup.ReachedReady() {
		why = notSent("%w", bc.sup.RejectError(now))
	}
	var dropped []*queuedCall
	if bc.sup.Disposition(now) == supervise.RejectCall {
		dropped, bc.queued = bc.queued, nil
	}
	bc.mu.Unlock()
	bc.failCalls(dropped, why)
}

// markStopped notes that the connection was stopped permanently, and the reason. Queued calls fail.
// If the shared connection was stopped, the backend then counts as settled.
func (bc *backendConn) markStopped(why error) {
	bc.mu.Lock()
	bc.sup.Stop(why)
	var dropped []*queuedCall
	dropped, bc.queued = bc.queued, nil
	bc.mu.Unlock()
	bc.failCalls(dropped, notSent("it did not start: %w", why))
}

// failCalls fails calls that were queued. If bc is the shared connection, the backend then counts
// as settled.
func (bc *backendConn) failCalls(dropped []*queuedCall, why error) {
	failAll(dropped, why)
	if !bc.isPerSession() {
		bc.b.settle()
	}
}

// close marks a per-session connection as closed and lets it end. It does not wait for the end.
func (bc *backendConn) close() {
	bc.mu.Lock()
	bc.closed = true
	disconnect := bc.disconnect
	bc.mu.Unlock()
	if disconnect != nil {
		disconnect()
	}
}

// whyUnavailable returns the current fault of the backend, nil if no fault is known. If the backend
// is not running, the fault has the form of the error of a failed call.
func (bc *backendConn) whyUnavailable() error {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	now := time.Now()
	switch why := bc.sup.Problem(); {
	case bc.sup.Disposition(now) == supervise.RejectCall:
		return notSent("%w", bc.sup.RejectError(now))
	case why != nil && !bc.sup.State().IsUp():
		return notSent("it is not running: %w", why)
	default:
		return why
	}
}
