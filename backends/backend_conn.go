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

// A backendConn is a way to a backend: one conversation at a time, and the calls that
// wait for it. Each backend has one that all share, which is kept up and by which
// its lists are read. Where the sharing asks for it (see Backend.private), a client's
// session has one of its own, opened when it is first used, in which the backend is
// told what that client can do. A backend of the stateless era is told so with each
// request: all share the one line.
type backendConn struct {
	b         *Backend
	session   string // whose own it is; "" = it is shared
	log       *slog.Logger
	outputLog *slog.Logger // for what the backend says, see sparing

	refreshing atomic.Int32 // lists of the backend's are being read over it, or are about to be

	probeErr error // how it ended at the question of its era, just before; of who holds the conversation

	wakeup chan struct{} // 1 slot: a line that all share is needed, and stopped until then

	mu                   sync.Mutex
	sup                  supervisor
	startedAt            time.Time
	peer                 *peer.Peer   // nil unless it is ready
	server               serverInfo   // of the conversation
	declaredCapabilities []byte       // the capabilities that it was told in the handshake, if it is of the session era
	disconnectedPeer     *peer.Peer   // the last one whose conversation ended
	loggedReason         string       // why it ended last, as it was logged
	queued               []queuedCall // for it to become ready
	sentLevel            string       // the log level that the backend was told
	subs                 subscriptions

	// Of a conversation of the stateless era:
	retryQueue        []queuedCall  // calls that are to be sent once more
	needsRediscovery  bool          // whether the server is still what it said
	pendingSubscribes []queuedCall  // subscriptions that wait for what is listened to
	listen            *listenStream // the subscriptions/listen at hand, nil if there is none
	openingListen     *listenStream // the one that the server has not acknowledged yet
	reopen            chan struct{} // 1 slot: something else is to be listened to
	unreachable       atomic.Bool   // it cannot be reached: issueUnreachable of sup, for who has no time

	// Of an own line:
	running          bool          // a goroutine keeps it up
	retrySooner      chan struct{} // 1 slot: the next try is due earlier than it was
	disconnect       context.CancelFunc
	closed           bool // its session is over
	mergedIntoShared bool // the shared line goes on with what it was for

	draining        bool     // its backend is
	resubscribeURIs []string // URIs of which the server is to be told yet: see adopt

	notifyAfterRefresh [catalog.NumKinds]bool // these lists have changed, and its client was not told yet; guarded by b.mu
}

func newBackendConn(b *Backend, session string) *backendConn {
	bc := &backendConn{
		b: b, session: session, log: b.log, outputLog: b.outputLog,
		wakeup: make(chan struct{}, 1), retrySooner: make(chan struct{}, 1), reopen: make(chan struct{}, 1),
	}
	if session != "" {
		bc.log, bc.outputLog = b.log.With("session", session), b.outputLog.With("session", session)
	}
	return bc
}

func (bc *backendConn) isPerSession() bool { return bc.session != "" }

// currentPeer returns the peer of the conversation and what its server said of itself; nil
// if the line is not ready.
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

// wake has the shared line come up if it is stopped until something is wanted of it.
func (bc *backendConn) wake() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.wakeLocked()
}

// wakeLocked has the line come up, if it is stopped until something is wanted of it, or is an
// own one that nothing keeps up.
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
	case <-bc.wakeup: // it does
	default:
	}
	bc.startedAt = time.Now()
	bc.sup.start()
	bc.server = serverInfo{}
	bc.needsRediscovery = false
	bc.unreachable.Store(false)
}

// markReady lets calls through. Those that waited go first.
func (bc *backendConn) markReady(p *peer.Peer) {
	down, refused := bc.sendQueued(p)
	if down > 0 {
		bc.log.Info("backend is back", "dur", roundDuration(down))
	}
	for _, tell := range refused {
		tell()
	}
}

// markDisconnected notes that the conversation over p has ended. Nothing is sent any more, what
// is asked from now on waits for the next one; down follows when everything of
// this one is gone. Why is the reason as far as it is known until then.
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

// markFailed notes that a start failed, or that what was up has ended, and why. Calls that
// wait end if there is nothing to wait for any more.
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

// markStopped notes that the line was stopped for good, and why.
func (bc *backendConn) markStopped(why error) {
	bc.mu.Lock()
	bc.sup.stop(why)
	var dropped []queuedCall
	dropped, bc.queued = bc.queued, nil
	bc.mu.Unlock()
	bc.failCalls(dropped, notSent("it did not start: %w", why))
}

// failCalls ends what has waited. The backend has answered thereby.
func (bc *backendConn) failCalls(dropped []queuedCall, why error) {
	for _, q := range dropped {
		q.call.Handler.OnResponse(wire.Message{}, why)
	}
	if !bc.isPerSession() {
		bc.b.settle(true, nil)
	}
}

// close ends a session's own line.
func (bc *backendConn) close() {
	bc.mu.Lock()
	bc.closed = true
	hangUp := bc.disconnect
	bc.mu.Unlock()
	if hangUp != nil {
		hangUp()
	}
}

// whyUnavailable returns why the backend is not as it should be, in the words that a call would end
// with; nil if it is, or that is not known.
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
