package backends

import (
	"context"
	"errors"
	"slices"

	"mcpgateway/backends/internal/limiter"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
)

// A backend that is removed from the table is drained. Its connections take no new calls: new and
// queued calls are redirected to the current backend of that name, or fail if there is none. Calls
// in flight end on their connection, which is closed afterwards.
//
//	Backend.drain ─ backendConn.startDraining for each: removes queued calls and subscriptions
//	  ├ serving is done: runShared and runPerSession do not reconnect, backendConn.serve returns,
//	  │   runConn waits for the calls in flight (drainCalls) and disconnects
//	  ├ Backend.redirectSubscriptions, redirect
//	  └ Set.removeDrained, when nothing of the backend runs

// start starts the backend. It runs while it is in the table and Set.Run runs.
func (b *Backend) start() {
	if !b.lifetime.goWorker(b.shared.runShared) {
		b.shared.markStopped(errStopped)
	}
}

// drain takes a removed backend out of service. It does not wait for its calls in flight.
func (b *Backend) drain() {
	var queued []*queuedCall
	for _, bc := range append([]*backendConn{b.shared}, b.perSession.drain()...) {
		calls, subscribed := bc.startDraining()
		queued = append(queued, calls...)
		for session, uris := range subscribed {
			b.redirectSubscriptions(session, uris)
		}
	}
	b.lifetime.remove()
	queued = append(queued, b.limiter.slots.Close()...)
	for _, q := range queued {
		b.redirect(q)
	}
	b.lifetime.whenEnded(func() { b.set.removeDrained(b) })
}

// startDraining stops the sending of calls. It returns the queued calls, and the accepted
// subscriptions of each session.
func (bc *backendConn) startDraining() ([]*queuedCall, map[string][]string) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.draining = true
	calls := slices.Concat(bc.retryQueue, bc.pendingSubscribes, bc.queued)
	bc.retryQueue, bc.pendingSubscribes, bc.queued = nil, nil, nil
	subscribed := bc.subs.acceptedBySession()
	bc.subs, bc.resubscribeURIs = subscriptions{}, nil
	return calls, subscribed
}

// drainCalls waits for the end of the calls in flight at a removed backend, or for the end of ctx
// or of the session of a per-session connection.
func (bc *backendConn) drainCalls(ctx context.Context, p *peer.Peer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bc.mu.Lock()
	bc.disconnect = cancel
	closed := bc.closed
	bc.mu.Unlock()
	if !closed {
		p.DrainCalls(ctx)
	}
}

// successor returns the current backend with the name of a draining backend, nil if there is none.
func (b *Backend) successor() *Backend {
	if next := b.set.current().byName[b.cfg.Name]; next != b {
		return next
	}
	return nil
}

// redirect sends a call for a draining backend to its successor, which is another backend (reroute
// changes only the connection). If there is no successor, the call fails.
// It loses the slot that it has at the draining backend.
func (b *Backend) redirect(q *queuedCall) {
	granted := b.limiter.release(q)
	q.slot, q.isRetry, q.staysOnConn = new(limiter.Slot), false, false
	if next := b.successor(); next != nil {
		next.submit(q)
	} else {
		q.fail(b.set.current().whyAbsent(b.cfg.Name))
	}
	b.limiter.slots.SendQueued(granted) // the limiter may still have calls
}

// redirectSubscriptions moves subscriptions of a session to the successor, if there is one.
func (b *Backend) redirectSubscriptions(session string, uris []string) {
	if next := b.successor(); next != nil && len(uris) > 0 {
		next.conn(session, false).takeOverSubscriptions(session, uris)
	}
}

// takeOverSubscriptions takes over a session's subscriptions from the predecessor of the backend.
// The server is subscribed now or when it is ready. After that the session gets an update of each
// URI, because an update may have been missed. If the session is over, or a limit of subscriptions
// is reached, the subscription is dropped.
func (bc *backendConn) takeOverSubscriptions(session string, uris []string) {
	bc.mu.Lock()
	switch {
	case bc.draining:
		bc.mu.Unlock()
		bc.b.redirectSubscriptions(session, uris)
		return
	case bc.mergedIntoShared:
		bc.mu.Unlock()
		bc.b.shared.takeOverSubscriptions(session, uris)
		return
	}
	defer bc.mu.Unlock()
	if !bc.b.set.sessions.isOpen(session) {
		return // after this check, CloseSession removes the subscriptions
	}
	for _, uri := range uris {
		if bc.subs.add(uri, session) {
			bc.subs.accept(uri, session)
			bc.resubscribeURIs = append(bc.resubscribeURIs, uri)
		}
	}
	bc.wakeLocked()
	bc.resubscribeLocked()
}

// resubscribeLocked subscribes the server to the URIs in resubscribeURIs that the filters permit,
// if the server is ready, and then forwards an update of each URI. During a handshake, replayState
// or sendQueued subscribes the server.
func (bc *backendConn) resubscribeLocked() {
	uris := bc.resubscribeURIs
	if bc.peer == nil || len(uris) == 0 {
		return
	}
	if bc.server.modern {
		bc.signalReopen() // listenLoop clears resubscribeURIs
		return
	}
	bc.resubscribeURIs = nil
	p, s := bc.peer, bc.server
	bc.b.lifetime.goWorker(func(ctx context.Context) {
		if s.has("resources", "subscribe") {
			ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
			defer cancel()
			bc.sendRestoring(ctx, p, subscribeRequests(bc.b.filters.permittedURIs(uris)))
		}
		for _, uri := range uris {
			bc.forwardUpdate(updatedNotification(uri), contract.Attribution{})
		}
	})
}

// removeDrained is called when nothing of a removed backend is left. If its successor has failed to
// start, the successor is started again at once, because the removed backend may have been the
// reason.
func (s *Set) removeDrained(b *Backend) {
	s.mu.Lock()
	m := *s.current()
	m.draining = slices.DeleteFunc(slices.Clone(m.draining),
		func(one *Backend) bool { return one == b })
	s.table.Store(&m)
	s.mu.Unlock()
	if next := b.successor(); next != nil {
		next.shared.retryNow()
	}
}

// maxDraining bounds the draining backends of one name.
const maxDraining = 4

var errTooManyReloads = errors.New("the configuration was changed too often during the call")

// limitDraining kills the oldest draining backends of each name beyond maxDraining.
func (s *Set) limitDraining() {
	number := make(map[string]int)
	for _, b := range slices.Backward(s.current().draining) {
		if number[b.cfg.Name]++; number[b.cfg.Name] > maxDraining {
			b.lifetime.kill(errTooManyReloads)
		}
	}
}

// resubscribePermitted subscribes the server to the subscribed URIs that the new filter (after)
// permits and the previous filter (before) did not permit. A server that was started under the
// previous filter is not subscribed to them.
func (bc *backendConn) resubscribePermitted(before, after config.Filter) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	for _, uri := range bc.subs.acceptedURIs() {
		if !before.PermitsURI(uri) && after.PermitsURI(uri) {
			bc.resubscribeURIs = append(bc.resubscribeURIs, uri)
		}
	}
	bc.resubscribeLocked()
	bc.signalReopen()
}
