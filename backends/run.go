package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
)

// runShared keeps the shared line up until ctx is done; one that is stopped until it is needed
// comes up then.
func (bc *backendConn) runShared(ctx context.Context) {
	needed := !bc.b.needsNoStart()
	if !needed {
		bc.log.Info("backend is started by its first call (lazy)")
	}
	for needed || bc.awaitDemand(ctx) {
		bc.markStarting()
		err := bc.connect(ctx)
		needed = ctx.Err() == nil && !errors.Is(err, errIdle)
		switch {
		case !needed:
		case bc.b.set.NoRestart:
			bc.markStopped(err)
			<-ctx.Done()
			return
		default:
			bc.recordEnd(err)
			bc.awaitRetry(ctx)
			needed = ctx.Err() == nil
		}
	}
	bc.markStopped(errStopped)
}

// needsNoStart reports whether the backend need not be started to be listed.
func (b *Backend) needsNoStart() bool {
	_, answered := b.currentListing()
	return b.cfg.Lazy && answered && !b.set.NoRestart && !b.set.IgnoreCache
}

// wake has the shared line come up if it is stopped until something is wanted of it.
func (bc *backendConn) wake() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.wakeLocked()
}

// wakeIfUnlisted has the shared line come up if it was not yet: somebody uses the backend, and
// what it lists may be another thing by now than what is known of it.
func (b *Backend) wakeIfUnlisted() {
	b.mu.Lock()
	listed := b.status.Settled
	b.mu.Unlock()
	if !listed {
		b.shared.wake()
	}
}

// awaitDemand waits until something is wanted of the shared line; it reports false if ctx is
// done first.
func (bc *backendConn) awaitDemand(ctx context.Context) bool {
	select {
	case <-bc.wakeup:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false
	}
	bc.log.Info("backend is started, for it is needed")
	return true
}

// runPerSession keeps a session's own line up for as long as something is wanted of it:
// a call waits for it, or there are subscriptions.
func (bc *backendConn) runPerSession(all context.Context) {
	ctx, cancel := context.WithCancel(all)
	defer cancel()
	bc.mu.Lock()
	bc.disconnect = cancel
	over := bc.closed
	bc.mu.Unlock()
	if !over && bc.reconnectLoop(ctx) {
		return
	}
	if all.Err() != nil {
		bc.markStopped(errStopped)
	} else {
		bc.markStopped(errSessionOver)
	}
}

// reconnectLoop is runOwn for as long as the session and the gateway go on; it reports whether it
// came to its end before.
func (bc *backendConn) reconnectLoop(ctx context.Context) bool {
	for {
		bc.awaitRetry(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case !bc.mayStart():
			if bc.exitIfIdle() {
				return true
			}
			continue
		}
		bc.markStarting()
		err := bc.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errMergedIntoShared):
			return true
		case !errors.Is(err, errIdle):
			bc.recordEnd(err)
		}
		if bc.exitIfIdle() {
			return true
		}
	}
}

// mayStart reports whether a session's own line may be started now, as far as the others
// of its backend are concerned; if not, what waits for it ends with the reason.
func (bc *backendConn) mayStart() bool {
	now := time.Now()
	bc.b.mu.Lock()
	next, reason := bc.b.sessionBreaker.allowStart(now, rand.Float64())
	bc.b.mu.Unlock()
	if reason == nil {
		return true
	}
	bc.mu.Lock()
	bc.sup.blockUntil(reason, next)
	why := bc.sup.rejectError(now)
	var dropped []queuedCall
	dropped, bc.queued = bc.queued, nil
	bc.mu.Unlock()
	bc.failCalls(dropped, why)
	return false
}

// exitIfIdle reports whether nothing is wanted of the line; its goroutine then ends, and
// the next call starts another.
func (bc *backendConn) exitIfIdle() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if len(bc.queued) > 0 || !bc.subs.empty() {
		return false
	}
	bc.running = false
	return true
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

// recordEnd notes that a conversation has ended, or could not be begun, and that nothing is left
// of it.
func (bc *backendConn) recordEnd(err error) {
	bc.markFailed(err)
	bc.mu.Lock()
	ran, open, circuit := bc.sup.reachedReady, bc.sup.isOpen(), bc.sup.breaker
	again := bc.loggedReason == err.Error()
	bc.loggedReason = err.Error()
	bc.mu.Unlock()
	bc.b.noteConnEnded(bc, ran, circuit)
	next := roundDuration(circuit.pause)
	switch first := circuit.failures == breakerThreshold; {
	case open && first:
		bc.log.Warn("backend fails again and again; until it is up its calls fail at once", "err", err, "next", next)
	case ran:
		bc.log.Warn("backend ended; it will be started again", "err", err, "next", next)
	case again:
		bc.log.Debug("backend failed to start, as before", "err", err, "next", next)
	default:
		bc.log.Warn("backend failed to start; it will be tried again", "err", err, "next", next)
	}
}

// roundDuration rounds a pause for who reads it.
func roundDuration(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// noteConnEnded lets the own lines of a backend know what became of one of its lines.
func (b *Backend) noteConnEnded(bc *backendConn, ran bool, circuit breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !bc.isPerSession() && circuit.isOpen():
		b.sessionBreaker.sharedBreaker = &circuit
	case !bc.isPerSession():
		b.sessionBreaker.sharedBreaker = nil // it was pardoned
	case !ran:
		b.sessionBreaker.failed(time.Now(), bc.session, circuit.reason, rand.Float64())
	}
}

// noteStartSucceeded is tell for a line that has come up.
func (b *Backend) noteStartSucceeded(bc *backendConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bc.isPerSession() {
		b.sessionBreaker.up()
	} else {
		b.sessionBreaker.sharedBreaker = nil
	}
}

// awaitRetry waits until the next try is due.
func (bc *backendConn) awaitRetry(ctx context.Context) {
	for ctx.Err() == nil {
		bc.mu.Lock()
		pause := time.Until(bc.sup.retryAt())
		bc.mu.Unlock()
		if pause <= 0 {
			return
		}
		select {
		case <-time.After(pause):
		case <-bc.retrySooner:
		case <-ctx.Done():
		}
	}
}

// retrySoon has what has failed so far count no more: there is a next try soon, and calls wait for
// it.
func (bc *backendConn) retrySoon() { bc.retryWithin(firstPause) }

// retryNow is pardon, and has the next try be made at once.
func (bc *backendConn) retryNow() { bc.retryWithin(0) }

func (bc *backendConn) retryWithin(pause time.Duration) {
	bc.mu.Lock()
	bc.sup.resetBackoff(time.Now(), pause)
	bc.mu.Unlock()
	select {
	case bc.retrySooner <- struct{}{}:
	default:
	}
}

// connect holds one conversation with the backend, from the dial to its end,
// and returns why it ended. Nothing of it is left then. If the way in which it failed
// tells of which era the backend is, there is another one at once.
func (bc *backendConn) connect(ctx context.Context) error {
	err := bc.connectByGeneration(ctx)
	if isA[retryOtherError](err) && ctx.Err() == nil {
		err = bc.connectByGeneration(ctx)
	}
	bc.probeErr = nil
	if !bc.reachedReady() {
		bc.b.forgetGeneration()
	}
	return err
}

// hasNeverListed reports whether it is not known what the backend has though there was a
// conversation before.
func (bc *backendConn) hasNeverListed() bool {
	bc.mu.Lock()
	before := !bc.sup.readyAt.IsZero()
	bc.mu.Unlock()
	bc.b.mu.Lock()
	defer bc.b.mu.Unlock()
	return !bc.isPerSession() && before && bc.b.raw[catalog.Tools] == nil
}

func (bc *backendConn) lastStartFailed() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.lastStartFailed
}

func (bc *backendConn) reachedReady() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.sup.reachedReady
}

// reconnectsAtOnce reports whether another conversation follows at once on one that failed so.
func (bc *backendConn) reconnectsAtOnce(err error) bool {
	_, pinned := bc.b.generation()
	return bc.b.fallsBackToSSE(err) || isA[retryOtherError](err) || !pinned && bc.mayBeLegacy(err) || errors.Is(err, errMergedIntoShared)
}

// runConn is converse over one connection.
func (bc *backendConn) runConn(ctx context.Context, by dialMode) error {
	started, err := bc.b.set.startSlots.acquire(ctx, bc.b.cfg)
	if err != nil {
		return err
	}
	defer started()
	conn, err := bc.b.dial(by)
	if err != nil {
		return err
	}
	talk, hangUp := context.WithCancelCause(bc.b.life) // which may be longer than ctx, for calls in flight
	defer hangUp(nil)
	work, stop := mergeContexts(talk, ctx) // in this order: what ends talk ends work at once
	defer stop()
	h := &inboundHandler{conn: bc, disconnect: hangUp}
	var p *peer.Peer
	p = peer.New(conn, h, peer.Options{
		Log: func() *slog.Logger { return bc.outputLog }, MaxInFlight: maxServerRequests, OnMalformed: h.onMalformed, AllowBatches: acceptBatches, OnDisconnect: func(why error) { bc.markDisconnected(p, why) },
	})
	h.peer = p
	ended := make(chan error, 1)
	go func() { ended <- p.Run(talk) }()
	defer p.Close()

	err = bc.serve(work, h, by, ended, started)
	if by == dialHTTPSSE && bc.reachedReady() {
		bc.b.setHTTPSSE(true)
	}
	if talk.Err() != nil && errors.Is(err, context.Canceled) {
		err = errDisconnected // there is a better reason
	}
	if err != nil && !errors.Is(err, errDisconnected) && ctx.Err() == nil && !bc.reconnectsAtOnce(err) {
		bc.markFailed(h.explain(err)) // at once, for to end a child may take a while
	}
	idle := context.Cause(talk) == errIdle
	if talk.Err() == nil && bc.b.serving.Err() != nil {
		bc.drainCalls(talk, p)
	}
	hangUp(nil)
	if why := <-ended; err == nil || errors.Is(err, errDisconnected) {
		err = why
	}
	switch {
	case idle:
		return errIdle
	case err == nil:
		err = errors.New("it closed the connection")
	}
	return h.explain(err)
}

// mergeContexts returns a context that is done when one of two is, for the reason of that one.
func mergeContexts(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// acceptBatches: a backend of a revision that has batches may answer in one, and those of
// others do not.
func acceptBatches() bool { return true }

// errDisconnected says that the conversation is over; why is what Run returned.
var errDisconnected = errors.New("ended")

// serve shakes hands and lets the calls through. The shared line then keeps the
// listing up to date until the conversation ends.
func (bc *backendConn) serve(ctx context.Context, h *inboundHandler, by dialMode, ended chan error, started func()) error {
	p := h.peer
	start, cancel := bc.b.withStartTimeout(ctx, fmt.Errorf("it was not ready within %v (start_timeout)", bc.b.cfg.StartTimeout))
	defer cancel()
	server, err := bc.handshake(start, p, by)
	if err != nil {
		return timeoutCause(start, err)
	}
	switch {
	case server.modern && bc.followsClient():
		return retryOtherError{errors.New("it speaks the era of the client, too")}
	case server.modern && bc.isPerSession():
		bc.mergeIntoShared()
		return errMergedIntoShared
	}
	missed := bc.replayState(start, p, server)
	early := server.modern && bc.hasNeverListed()
	started()
	bc.b.noteStartSucceeded(bc)
	listed := bc.beginRefresh()
	defer listed()
	bc.markReady(p)
	defer bc.startKeepAlive(ctx, h, server)()
	if early {
		bc.b.readLists(start, p, server, allKinds) // it may not outlive the listen, and is known then
	}
	listens := bc.startListenLoop(ctx, p, server) // behind up, so that it has what waited
	defer listens.stop()
	for _, uri := range missed {
		bc.forwardUpdate(updatedNotification(uri), peer.Origin{})
	}
	if bc.isPerSession() {
		listed()
		bc.b.wakeIfUnlisted()
		select {
		case err := <-ended:
			ended <- err // for converse
			return errDisconnected
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	listens.awaitReady(start)
	bc.b.readLists(start, p, server, allKinds)
	listed()
	return bc.refreshLoop(ctx, p, server, ended)
}

// A backend that says its lists have changed whenever it is asked for them is soon
// asked only now and then: after some lists in a row there is a pause before each,
// and it doubles while that goes on.
const (
	undelayedRefreshes  = 5
	longestRefreshDelay = 10 * time.Second
	// longestRetryDelay is the longest pause before lists that could not be read are asked for
	// again, or it is listened to again.
	longestRetryDelay = 30 * time.Second
)

func refreshDelay(inARow int) time.Duration {
	if inARow < undelayedRefreshes {
		return 0
	}
	return min(100*time.Millisecond<<min(inARow-undelayedRefreshes, 10), longestRefreshDelay)
}

// refreshLoop reads the backend's lists anew when they have changed, or when that
// failed, until the conversation ends.
//
// It also settles doubts about a server of the stateless era (line.again): it is
// discovered anew, and what waits for that is sent once more.
func (bc *backendConn) refreshLoop(ctx context.Context, p *peer.Peer, s serverInfo, ended chan error) error {
	b := bc.b
	retry, inARow, listed := firstPause, 0, time.Now()
	for {
		select {
		case err := <-ended:
			ended <- err // for converse
			return errDisconnected
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(refreshDelay(inARow)):
		}
		var again <-chan time.Time
		if bc.hasIssue(issueLists) || bc.hasIssue(issueUnreachable) {
			again = time.After(retry)
			retry = min(2*retry, longestRetryDelay)
		} else {
			retry = firstPause
		}
		which, tell := allKinds, func() {}
		select {
		case err := <-ended:
			ended <- err // for converse
			return errDisconnected
		case <-ctx.Done():
			return ctx.Err()
		case <-b.refreshSignal:
			if inARow++; time.Since(listed) > refreshDelay(inARow)+time.Second {
				inARow = 0
			}
			which, tell = b.takeStale()
		case <-again:
		case <-b.nextExpiry():
			b.markExpired()
			which, tell = b.takeStale()
		}
		if err := bc.refresh(ctx, p, &s, which); err != nil {
			tell()
			return err
		}
		tell()
		bc.sendRetries(p)
		listed = time.Now()
	}
}

// beginRefresh notes that lists are being read, until done is called.
func (bc *backendConn) beginRefresh() (done func()) {
	bc.refreshing.Add(1)
	return sync.OnceFunc(func() { bc.refreshing.Add(-1) })
}

// refresh settles doubts about the server, and reads lists anew: all of them if it could not
// be reached before, and none if it cannot be now.
func (bc *backendConn) refresh(ctx context.Context, p *peer.Peer, s *serverInfo, which [catalog.NumKinds]bool) error {
	defer bc.beginRefresh()()
	ctx, cancel := bc.b.withStartTimeout(ctx, peer.ErrTimeout)
	defer cancel()
	away := bc.hasIssue(issueUnreachable)
	if err := bc.rediscover(ctx, p, s); err != nil {
		return err
	}
	switch {
	case bc.hasIssue(issueUnreachable):
		return nil
	case away:
		which = allKinds
	}
	bc.b.readLists(ctx, p, *s, which)
	return nil
}

// withStartTimeout bounds ctx by the time that a start may take, if there is such a bound.
func (b *Backend) withStartTimeout(ctx context.Context, why error) (context.Context, context.CancelFunc) {
	if b.cfg.StartTimeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, b.cfg.StartTimeout, why)
}

// timeoutCause names the time limit, where it is what ended a call.
func timeoutCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}
