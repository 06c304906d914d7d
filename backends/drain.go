package backends

import (
	"context"
	"errors"
	"slices"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A backend that is a member of its Set no more is retired. Its lines take nothing new:
// what comes to them, and what waits there, is passed on to the backend that has the name
// now. What was sent over them stays there until it has come to its end, and then they do.
//
//	Backend.retire ─ line.retire, each: what waits there, and the subscriptions, are taken out
//	  ├ serving is done: line.run and runOwn start nothing anew, line.begin returns,
//	  │   talkOver waits for the calls in flight (peer.Finish) and hangs up
//	  ├ Backend.adopt, passOn
//	  └ Set.forget, when nothing of it runs any more

// start has the backend run for as long as it serves and Set.Run runs.
func (b *Backend) start() {
	b.mu.Lock()
	ok := b.draining || b.goWorker(b.shared.runShared)
	b.mu.Unlock()
	if !ok {
		b.shared.markStopped(errStopped)
	}
}

// goWorker is Set.spawn for what belongs to the backend; f is to end when it serves no more,
// or soon after.
func (b *Backend) goWorker(f func(serving context.Context)) bool {
	b.running.Add(1)
	ok := b.set.goWorker(func(context.Context) {
		defer b.running.Done()
		f(b.serving)
	})
	if !ok {
		b.running.Done()
	}
	return ok
}

// drain takes a backend out of service that is a member no more. It does not wait for the
// calls that are at it.
func (b *Backend) drain() {
	b.opening.Lock() // no line of its own is half open: the subscriptions are here or there
	b.mu.Lock()
	b.draining = true
	lines := []*backendConn{b.shared}
	for _, bc := range b.perSession {
		lines = append(lines, bc)
	}
	b.mu.Unlock()
	b.opening.Unlock()
	var left []queuedCall
	for _, bc := range lines {
		waiting, subscribed := bc.startDraining()
		left = append(left, waiting...)
		for session, uris := range subscribed {
			b.redirectSubscriptions(session, uris)
		}
	}
	b.stopServing()
	left = append(left, b.limiter.close()...)
	for _, q := range left {
		b.redirect(q)
	}
	b.set.goWorker(func(context.Context) {
		b.running.Wait()
		b.set.removeDrained(b)
	})
}

// startDraining has nothing be sent over the line any more. It returns what waits in it, and what
// the sessions are subscribed to over it.
func (bc *backendConn) startDraining() ([]queuedCall, map[string][]string) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.draining = true
	left := slices.Concat(bc.retryQueue, bc.pendingSubscribes, bc.queued)
	bc.retryQueue, bc.pendingSubscribes, bc.queued = nil, nil, nil
	subscribed := bc.subs.acceptedBySession()
	bc.subs, bc.resubscribeURIs = subscriptions{}, nil
	return left, subscribed
}

// drainCalls waits for the calls that are at a server whose backend is retired, or for the end
// of the session whose own line it is.
func (bc *backendConn) drainCalls(ctx context.Context, p *peer.Peer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bc.mu.Lock()
	bc.disconnect = cancel
	over := bc.closed
	bc.mu.Unlock()
	if !over {
		p.DrainCalls(ctx)
	}
}

// successor returns the member that has the name of a retired backend now, nil if there is none.
func (b *Backend) successor() *Backend {
	if next := b.set.current().byName[b.cfg.Name]; next != b {
		return next
	}
	return nil
}

// redirect sends what has come to a retired backend to the one that has its name now.
func (b *Backend) redirect(q queuedCall) {
	next := b.successor()
	switch {
	case next == nil:
		q.call.Handler.OnResponse(wire.Message{}, b.set.current().whyAbsent(b.cfg.Name))
	case q.request.Method() == protocol.MethodResourcesUnsubscribe:
		next.unsubscribe(uriParam(q.request), q.request, q.call)
	case q.subscribe != nil:
		next.conn(q.call.SessionID, false).send(queuedCall{request: q.request, call: q.call, subscribe: q.subscribe})
	default:
		next.limiter.submit(queuedCall{request: q.request, call: q.call})
	}
}

// redirectSubscriptions is passOn for what a session is subscribed to.
func (b *Backend) redirectSubscriptions(session string, uris []string) {
	if next := b.successor(); next != nil && len(uris) > 0 {
		next.conn(session, false).takeOverSubscriptions(session, uris)
	}
}

// takeOverSubscriptions takes over what a session was subscribed to at the backend that had the name before.
// The server is told of it, at once or when it is there, and the session then that there may
// be an update: one may have been missed.
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
	if !bc.b.set.isSessionOpen(session) {
		return // who closes it looks here afterwards
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

// resubscribeLocked tells the server of subscriptions that came from another backend, if
// there is one. One that is being greeted is told with those that there were before, or when
// it is ready.
func (bc *backendConn) resubscribeLocked() {
	uris := bc.resubscribeURIs
	if bc.peer == nil || len(uris) == 0 {
		return
	}
	if bc.server.modern {
		bc.signalReopen() // and takes them when it listens to them
		return
	}
	bc.resubscribeURIs = nil
	p, s := bc.peer, bc.server
	bc.b.goWorker(func(ctx context.Context) {
		if s.has("resources", "subscribe") {
			ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
			defer cancel()
			bc.resend(ctx, p, subscribeRequests(bc.b.permittedURIs(uris)))
		}
		for _, uri := range uris {
			bc.forwardUpdate(updatedNotification(uri), peer.Origin{})
		}
	})
}

// removeDrained is called when nothing of a retired backend is left. What could not start beside it
// may now.
func (s *Set) removeDrained(b *Backend) {
	b.kill(nil)
	s.mu.Lock()
	m := *s.current()
	m.draining = slices.DeleteFunc(slices.Clone(m.draining), func(one *Backend) bool { return one == b })
	s.table.Store(&m)
	s.mu.Unlock()
	if next := b.successor(); next != nil {
		next.shared.retryNow()
	}
}

// maxDraining bounds the retired backends of one name.
const maxDraining = 4

var errTooManyReloads = errors.New("the configuration was changed too often while it was at the call")

// limitDraining ends the oldest of the retired backends of a name of which there are too many.
func (s *Set) limitDraining() {
	number := make(map[string]int)
	for _, b := range slices.Backward(s.current().draining) {
		if number[b.cfg.Name]++; number[b.cfg.Name] > maxDraining {
			b.kill(errTooManyReloads)
		}
	}
}
