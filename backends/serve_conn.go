package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// runConn waits for a start slot, dials, runs the connection until it ends, and returns the reason
// for the end. If the connection cannot be made, it returns the reason for that.
func (c *connector) runConn(ctx context.Context, mode dialMode) error {
	bc := c.conn
	slots := bc.b.set.startSlots
	if bc.b.cfg.Command == "" {
		slots = nil // only processes need a start slot
	}
	started, err := slots.Acquire(ctx)
	if err != nil {
		return err
	}
	defer started()
	l := newLink(bc)
	defer bc.setPID(0)
	conn, err := bc.b.dial(mode, func(id wire.ID) { l.peer.NoteReconnect(id) }, bc.setPID)
	if err != nil {
		return err
	}
	// outlives ctx while calls are in flight
	connCtx, disconnect := context.WithCancelCause(bc.b.lifetime.alive)
	defer disconnect(nil)
	// connCtx is the parent, so its end ends workCtx at once
	workCtx, stop := mergeContexts(connCtx, ctx)
	defer stop()
	h := &inboundHandler{link: l, disconnect: disconnect}
	p := peer.New(conn, h, peer.Options{
		Log: func() *slog.Logger { return bc.outputLog }, MaxInFlight: maxBackendRequests,
		OnMalformed: h.onMalformed, AllowBatches: acceptBatches,
		OnDisconnect: l.disconnected,
	})
	l.peer = p
	ended := make(chan error, 1)
	go func() { ended <- p.Run(connCtx) }()
	defer p.Close()

	err = c.serve(workCtx, h, mode, ended, started)
	if mode == dialHTTPSSE && bc.reachedReady() {
		c.detection.setHTTPSSE(true)
	}
	if connCtx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errDisconnected // Run returns a better reason
	}
	if err != nil && !errors.Is(err, errDisconnected) && ctx.Err() == nil &&
		!c.reconnectsAtOnce(err) {
		bc.markFailed(h.explain(err)) // at once, because ending a child may take a while
	}
	idle := context.Cause(connCtx) == errIdle
	if connCtx.Err() == nil && bc.b.lifetime.serving.Err() != nil {
		c.drainCalls(connCtx, p)
	}
	disconnect(nil)
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

// mergeContexts returns a context that is done when the first of a and b is done, with the cause of
// that context.
func mergeContexts(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// acceptBatches always reports true: a backend of a revision with batches may respond in a batch,
// and other backends send none.
func acceptBatches() bool { return true }

// errDisconnected means that the connection has ended; the reason is the result of peer.Run.
var errDisconnected = errors.New("ended")

// serve performs the handshake and lets calls through. It then waits for the end of the connection.
// On the shared connection it meanwhile keeps the lists up to date. It returns the reason for the
// end, or errDisconnected.
func (c *connector) serve(ctx context.Context, h *inboundHandler, mode dialMode, ended chan error,
	started func()) error {
	bc, l := c.conn, h.link
	b := bc.b
	start, cancel := b.withStartTimeout(ctx,
		fmt.Errorf("it was not ready within %v (start_timeout)", b.cfg.StartTimeout))
	defer cancel()
	sh := serverHandshake{connector: c, link: l, mode: mode}
	if err := sh.run(start); err != nil {
		return timeoutCause(start, err)
	}
	modern := l.isModern()
	switch {
	case modern && c.followsClient():
		return retryOtherError{errors.New("it also supports the generation of the client")}
	case modern && bc.isPerSession():
		bc.mergeIntoShared()
		return errMergedIntoShared
	}
	missedURIs := l.replayState(start)
	_, toolsKnown := b.lists.tools()
	// if it was ready before and tools are still unknown, it may end on subscriptions/listen
	early := modern && bc.wasReady() && !toolsKnown
	started()
	b.perSession.noteStarted(bc)
	listed := l.beginRefresh()
	defer listed()
	bc.markReady(l)
	defer startKeepAlive(ctx, h)()
	if early {
		b.reader.read(start, l, allKinds)
	}
	listens := startListenLoop(ctx, l) // after markReady, which sends queued subscribes
	defer listens.stop()
	for _, uri := range missedURIs {
		bc.forwardUpdate(updatedNotification(uri), attributionOf(b, peer.Origin{}))
	}
	if bc.isPerSession() {
		listed()
		if !b.lists.wasListed() {
			b.shared.wake() // the backend is in use, and its lists may differ from the cache
		}
		select {
		case err := <-ended:
			ended <- err // for runConn
			return errDisconnected
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	listens.awaitReady(start)
	b.reader.read(start, l, allKinds)
	listed()
	r := refresher{link: l, ended: ended}
	return r.run(ctx)
}

// drainCalls waits for the end of the calls in flight at a removed backend, or for the end of ctx
// or of the session of a per-session connection.
func (c *connector) drainCalls(ctx context.Context, p *peer.Peer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.conn.starts.onClose(cancel) {
		p.DrainCalls(ctx)
	}
}

// timeoutCause returns the cause of ctx if err is due to the end of ctx, else err.
func timeoutCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}
