package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
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

// queuedCall is a call that waits, for the backend to start or for another try.
type queuedCall struct {
	request   wire.Message
	call      *peer.Call
	subscribe *subscribeCall // likewise c.To, if it is a subscription
	isRetry   bool           // it is sent a second time
	pinned    bool           // it stays with the line to which it has come: see line.elsewhereLocked
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

func notSent(format string, args ...any) error {
	return &transport.CallLostError{Err: fmt.Errorf(format, args...)}
}

// send sends a call, or has it wait while the backend starts. A backend whose
// last start failed is not waited for: the caller learns why, and when the next is.
func (bc *backendConn) send(q queuedCall) {
	q.call.Timeout = bc.b.cfg.CallTimeout
	for !bc.sendOnce(q) {
		// The conversation ended at this moment: the call waits for the next.
	}
}

// sendOnce is send, but for a call that meets the end of the conversation.
func (bc *backendConn) sendOnce(q queuedCall) bool {
	bc.mu.Lock()
	if bc.mergedIntoShared {
		bc.mu.Unlock()
		bc.b.shared.send(q)
		return true
	}
	if bc.draining {
		bc.mu.Unlock()
		bc.b.redirect(q)
		return true
	}
	if q.call.IsCancelled() { // while it was on its way from one line to another
		bc.mu.Unlock()
		q.call.Handler.OnResponse(wire.Message{}, peer.ErrCancelled)
		return true
	}
	if q.subscribe != nil && !bc.b.set.isSessionOpen(q.subscribe.session) { // who closes it looks here afterwards
		bc.mu.Unlock()
		q.call.Handler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
		return true
	}
	p, server := bc.peer, bc.server
	if p != nil && bc.belongsElsewhereLocked(q) {
		bc.mu.Unlock()
		bc.b.reroute(q)
		return true
	}
	kept := q.subscribe == nil || bc.recordSubscriptionLocked(q.subscribe)
	if p != nil && server.modern && isSubscriptionRequest(q.request) {
		tell := bc.subscribeByListenLocked(q)
		bc.mu.Unlock()
		tell()
		return true
	}
	var refusal error
	if p == nil {
		refusal = bc.enqueueLocked(q)
	}
	bc.mu.Unlock()
	if !kept {
		bc.outputLog.Warn("too many subscriptions; this one is not kept", "max", maxSubscriptions)
	}
	switch {
	case refusal != nil:
		q.call.Handler.OnResponse(wire.Message{}, refusal)
	case p != nil:
		err := bc.trySend(p, server, q)
		if errors.Is(err, transport.ErrClosed) {
			bc.markDisconnected(p, err)
			return false
		}
		if err != nil {
			q.call.Handler.OnResponse(wire.Message{}, sendError(err))
		}
	}
	return true
}

// enqueueLocked has a call wait for the backend to be ready, and sees to it that it becomes so;
// or says why not.
func (bc *backendConn) enqueueLocked(q queuedCall) (refusal error) {
	now := time.Now()
	if bc.sup.disposition(now) != rejectCall && !bc.closed {
		bc.wakeLocked()
	}
	switch {
	case bc.sup.disposition(now) == rejectCall:
		return bc.sup.rejectError(now)
	case bc.closed:
		return notSent("it was stopped")
	}
	bc.queued = append(bc.queued, q)
	return nil
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

// sendError returns what a call ends with that could not be offered.
func sendError(err error) error {
	if errors.Is(err, peer.ErrCancelled) || errors.Is(err, peer.ErrForbidden) || isA[*wire.Error](err) {
		return err
	}
	return &transport.CallLostError{Err: err}
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

// removeQueued takes a call out that waits, and reports whether it did.
func (bc *backendConn) removeQueued(c *peer.Call) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	for _, list := range []*[]queuedCall{&bc.queued, &bc.retryQueue, &bc.pendingSubscribes} {
		for i, q := range *list {
			if q.call == c {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				return true
			}
		}
	}
	return false
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

// sendQueued is up; it returns for how long the backend was away, and what ends the calls that
// could not be sent. It holds l.mu so that no call overtakes those that waited, and that each of
// them can be cancelled at any moment.
func (bc *backendConn) sendQueued(p *peer.Peer) (down time.Duration, refused []func()) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if bc.disconnectedPeer == p {
		return 0, nil
	}
	bc.peer, down = p, bc.sup.up(time.Now())
	bc.sendLevelLocked(nil) // it may have been changed since it was restored
	bc.resubscribeLocked()
	some := bc.queued
	bc.queued = nil
	return down, bc.sendAllLocked(p, some)
}

// belongsElsewhereLocked reports whether what has come to the line that all share belongs on one of
// its session's own: the server that has greeted us is of the session era, and there is to be
// a line for each (Backend.private), or it was told of other capabilities than those of the
// session's client. This can only be said of the conversation over which it is to go, so
// not while there is none.
func (bc *backendConn) belongsElsewhereLocked(q queuedCall) bool {
	if bc.isPerSession() || bc.server.modern || q.pinned || q.call.SessionID == "" {
		return false
	}
	return bc.b.hasPerSessionConns() || bc.b.set.SingleClient && bc.capabilitiesDifferLocked(q.call.SessionID)
}

// reroute sends what was elsewhere, on the line that it belongs on. It stays there, unless that
// is the line that all share, and nobody knows what its next server will be told.
func (b *Backend) reroute(q queuedCall) {
	bc := b.conn(q.call.SessionID, false)
	bc.mu.Lock()
	q.pinned = bc.isPerSession() || bc.peer != nil
	bc.mu.Unlock()
	bc.send(q)
}

// sendAllLocked sends calls, and returns what ends those that could not be sent, and what moves
// those that belong elsewhere.
func (bc *backendConn) sendAllLocked(p *peer.Peer, some []queuedCall) (refused []func()) {
	for i, q := range some {
		switch {
		case bc.server.modern && isSubscriptionRequest(q.request):
			refused = append(refused, bc.subscribeByListenLocked(q))
			continue
		case bc.belongsElsewhereLocked(q):
			if q.subscribe != nil {
				bc.subs.reject(q.subscribe.uri, q.subscribe.session) // it was only to be sent from here
			}
			refused = append(refused, func() { bc.b.reroute(q) })
			continue
		}
		err := bc.trySend(p, bc.server, q)
		if errors.Is(err, transport.ErrClosed) {
			bc.queued = append(some[i:len(some):len(some)], bc.queued...)
			bc.markDisconnectedLocked(p, err) // it has ended already: they wait for the next
			return refused
		}
		if err != nil {
			refused = append(refused, func() { q.call.Handler.OnResponse(wire.Message{}, sendError(err)) })
		}
	}
	return refused
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

// currentPeer returns the peer of the conversation and what its server said of itself; nil
// if the line is not ready.
func (bc *backendConn) currentPeer() (*peer.Peer, serverInfo) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.peer, bc.server
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
