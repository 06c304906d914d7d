package backends

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/catalog"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A modern backend announces changes only on a subscriptions/listen stream, in short a listen, that
// the gateway has requested. The gateway has one listen for all sessions. The listen requests the
// changes of every list whose changes the server announces, and the updates of every URI with a
// subscription. A listen cannot be amended; if the URIs change, it is replaced.
//
//	startListenLoop ─ run (one goroutine) ─ open: send, acknowledgement ─ resolveSubscribes
//	                    └ until other URIs are wanted (reopen), the listen or the connection ends

const (
	// ackTimeout is the longest wait for the acknowledgement of a listen. After it the server is
	// assumed to have accepted the whole listen.
	ackTimeout = 5 * time.Second
	// firstListenTimeout is the longest wait of the first refresh for the first listen, so that no
	// change in between is missed. If the listen is opened later, the lists are read once more.
	firstListenTimeout = time.Second
	// listenEndTimeout is the longest wait for the end of a listen on stdio. Some servers have one
	// listen per process, and would end the new listen instead of the old one.
	listenEndTimeout = time.Second
	// uriBatchDelay is the time for which further URIs are collected before the listen is replaced.
	uriBatchDelay = 50 * time.Millisecond
	// pruneURIsDelay is the time after which a listen with unused URIs is replaced, if there is no
	// other reason to replace it earlier.
	pruneURIsDelay = time.Minute
)

// A listenLoop keeps the listen of a connection open. A nil listenLoop does nothing.
type listenLoop struct {
	link    *link
	cancel  context.CancelFunc
	running sync.WaitGroup
	// closed when the first listen is open, or has failed, or there is nothing to listen to
	ready chan struct{}

	// Used by the goroutine only:
	current   *listenStream // nil if there is none
	missed    bool          // changes may have been missed while there was no listen
	pruneURIs bool          // replace the listen, because it has unused URIs
	pause     time.Duration
}

// startListenLoop keeps a listen at a modern server open until ctx is done or the method stop is
// called. It returns nil for a legacy server and for a per-session connection.
func startListenLoop(ctx context.Context, l *link) *listenLoop {
	if !l.isModern() || l.conn.isPerSession() {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	ll := &listenLoop{link: l, cancel: stop, ready: make(chan struct{}),
		pause: supervise.FirstPause}
	ll.running.Go(func() { ll.run(ctx) })
	return ll
}

func (ll *listenLoop) stop() {
	if ll != nil {
		ll.cancel()
		ll.running.Wait()
	}
}

// awaitReady waits for the first listen, for firstListenTimeout at most.
func (ll *listenLoop) awaitReady(ctx context.Context) {
	if ll == nil {
		return
	}
	select {
	case <-ll.ready:
	case <-time.After(firstListenTimeout):
	case <-ctx.Done():
	}
}

// run keeps the listen open.
func (ll *listenLoop) run(ctx context.Context) {
	began := time.Now()
	defer func() {
		ll.closeCurrent(ctx)
		ll.withdraw()
	}()
	ll.link.conn.mu.Lock()
	ll.missed = len(ll.link.conn.subs.acceptedURIs()) > 0
	ll.link.conn.mu.Unlock()
	for ctx.Err() == nil {
		if ll.link.hasEnded() { // the next connection determines what was missed
			ll.markReady()
			<-ctx.Done()
			return
		}
		ll.withdraw() // a subscribe now waits: the listen may be replaced by one without its URI
		wanted := ll.wantedFilter()
		if ll.needsReopen(wanted) && !ll.replace(ctx, wanted) {
			continue
		}
		ll.resolveSubscribes()
		ll.missed = ll.missed || time.Since(began) >= firstListenTimeout && !ll.isReady()
		ll.markReady()
		ll.refreshMissed()
		ll.awaitChange(ctx, len(wanted.uris))
	}
}

// needsReopen reports whether the listen must be opened or replaced now. Unused URIs in the listen
// are no reason to replace it at once, because a replacement takes time, especially on stdio.
func (ll *listenLoop) needsReopen(wanted listenFilter) bool {
	if ll.current == nil || ll.pruneURIs || !slices.Equal(wanted.lists, ll.current.lists) {
		return true
	}
	return slices.ContainsFunc(wanted.uris,
		func(uri string) bool { return !slices.Contains(ll.current.uris, uri) })
}

// replace replaces the current listen. If the wanted filter is empty, replace only ends the current
// listen. It reports false if the new listen has failed; the wait before the next try is then over.
func (ll *listenLoop) replace(ctx context.Context, wanted listenFilter) bool {
	ll.pruneURIs = false
	if !ll.link.conn.b.hasManyStreams() || wanted.isEmpty() {
		ll.missed = ll.missed || ll.current != nil
		ll.closeCurrent(ctx)
	}
	if wanted.isEmpty() {
		return true
	}
	next, err := ll.open(ctx, wanted)
	switch {
	case err == nil:
		// if the current listen has ended, it may have ended before the next one was open
		ll.missed = ll.missed || ll.current != nil &&
			(len(ll.current.ended) > 0 || !slices.Equal(wanted.lists, ll.current.lists))
		ll.closeCurrent(ctx)
		ll.current = next
		return true
	case ctx.Err() != nil, ll.rejectSubscribes(wanted.uris, err):
		return false // retry at once without the refused URIs
	}
	ll.missed = true
	ll.markReady()
	ll.resolveSubscribes() // the current listen, if there is one, stays open
	ll.noteFailure(err)
	ll.awaitRetry(ctx, err)
	return false
}

// markReady lets the first refresh begin, which waits for the first listen.
func (ll *listenLoop) markReady() {
	if !ll.isReady() {
		close(ll.ready)
	}
}

func (ll *listenLoop) isReady() bool {
	select {
	case <-ll.ready:
		return true
	default:
		return false
	}
}

// awaitChange waits until the listen must be replaced or has ended. If it has ended, awaitChange
// also waits until the next try is due. wanted is the number of wanted URIs.
func (ll *listenLoop) awaitChange(ctx context.Context, wanted int) {
	var ended peer.ResponseChan // nil blocks forever
	var prune <-chan time.Time
	if ll.current != nil {
		ended = ll.current.ended
		if wanted < len(ll.current.uris) {
			prune = time.After(pruneURIsDelay)
		}
	}
	select {
	case <-ll.link.conn.subs.reopen:
		select {
		case <-time.After(uriBatchDelay):
		case <-ctx.Done():
		}
		return
	case <-prune:
		ll.pruneURIs = true
		return
	case <-ctx.Done():
		return
	case a := <-ended:
		ll.link.conn.log.Debug("backend ended subscriptions/listen", "err", a.Err)
	}
	if time.Since(ll.current.openedAt) > supervise.StableAfter {
		ll.pause = supervise.FirstPause
	}
	ll.current, ll.missed = nil, true
	ll.withdraw()
	ll.awaitRetry(ctx, nil)
}

// awaitRetry waits before the next try, longer after each failure. A change of the wanted URIs ends
// the wait. If the server does not know the method, only such a change or the end of ctx ends the
// wait.
func (ll *listenLoop) awaitRetry(ctx context.Context, err error) {
	timer := time.After(ll.pause)
	ll.pause = min(2*ll.pause, longestRetryDelay)
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CodeMethodNotFound {
		timer = nil
	}
	select {
	case <-timer:
	case <-ll.link.conn.subs.reopen:
	case <-ctx.Done():
	}
}

// noteFailure logs that changes are not received, the first time as a warning. If the server was
// not reached, or may no longer be modern, it also lets the server be discovered again.
func (ll *listenLoop) noteFailure(err error) {
	e, _ := errors.AsType[*wire.Error](err)
	ll.link.noteReachability(err)
	if isLegacyRefusal(err) || e != nil && e.Code == protocol.CodeUnsupportedVersion {
		ll.link.markSuspect()
		ll.link.conn.b.lists.refreshTools()
	}
	logAt := ll.link.conn.log.Debug
	// the end of a connection is logged elsewhere
	if ll.pause == supervise.FirstPause && !ll.link.hasEnded() {
		logAt = ll.link.conn.log.Warn
	}
	logAt("subscriptions/listen failed; changes may be noticed late", "err", err)
}

// wantedFilter returns the filter of the wanted listen. It clears subscriptions.resubscribe: their
// updates count as missed.
func (ll *listenLoop) wantedFilter() (wanted listenFilter) {
	info := ll.link.info()
	for k := range catalog.Kind(catalog.NumKinds) {
		if flag := listenFlags[k]; flag != "" && info.has(k.Capability(), "listChanged") {
			wanted.lists = append(wanted.lists, flag)
		}
	}
	if info.has("resources", "subscribe") {
		bc := ll.link.conn
		bc.mu.Lock()
		wanted.uris = bc.b.filters.permittedURIs(bc.subs.uris())
		ll.missed = ll.missed || len(bc.subs.resubscribe) > 0
		bc.subs.resubscribe = nil
		bc.mu.Unlock()
	}
	return wanted
}

// closeCurrent ends the current listen, if there is one. On stdio it also waits for the end of the
// listen, for listenEndTimeout at most.
func (ll *listenLoop) closeCurrent(ctx context.Context) {
	ls := ll.current
	if ls == nil {
		return
	}
	ll.current = nil
	if !ll.link.conn.b.hasManyStreams() && ctx.Err() == nil {
		_ = ll.link.peer.Notify(protocol.NotificationCancelled,
			[]byte(`{"requestId":`+string(ls.call.ID())+`}`))
		select {
		case <-ls.ended:
			return
		case <-time.After(listenEndTimeout):
		case <-ctx.Done():
		}
	}
	ls.call.Cancel(nil)
}

// refreshMissed treats every list and every subscribed resource as changed if changes may have been
// missed.
func (ll *listenLoop) refreshMissed() {
	if !ll.missed {
		return
	}
	ll.missed = false
	ll.link.conn.b.lists.refreshAll()
	ll.link.conn.mu.Lock()
	uris := ll.link.conn.subs.acceptedURIs()
	ll.link.conn.mu.Unlock()
	for _, uri := range uris {
		ll.link.conn.forwardUpdate(updatedNotification(uri), contract.Attribution{})
	}
}

// resolveSubscribes publishes the current listen in the connection, and responds to the pending
// subscribes whose result is known from this listen. It removes from the listen the URIs that the
// server has not accepted.
func (ll *listenLoop) resolveSubscribes() {
	bc, ls := ll.link.conn, ll.current
	bc.mu.Lock()
	bc.subs.listen = ls
	respond := bc.resolveSubscribesLocked(func(uri string) (known bool, err *wire.Error) {
		switch {
		case ls == nil:
			return false, nil
		case ls.covers(uri):
			return slices.Contains(ls.uris, uri), nil
		}
		return slices.Contains(ls.uris, uri), wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: the backend sends no updates of this resource")
	})
	if ls != nil {
		// so that a new subscribe replaces the listen
		ls.uris = slices.DeleteFunc(ls.uris, func(uri string) bool { return !ls.covers(uri) })
	}
	bc.mu.Unlock()
	for _, f := range respond {
		f()
	}
}

// rejectSubscribes responds with err to the pending subscribes for the URIs of a refused
// listen, and reports whether there were any.
func (ll *listenLoop) rejectSubscribes(uris []string, err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return false
	}
	bc := ll.link.conn
	bc.mu.Lock()
	respond := bc.resolveSubscribesLocked(func(uri string) (bool, *wire.Error) {
		return slices.Contains(uris, uri), wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: the backend refuses the subscription: %s", e.Message)
	})
	bc.mu.Unlock()
	for _, f := range respond {
		f()
	}
	return len(respond) > 0
}

// withdraw removes the listen from the connection, so that subscribes wait for resolveSubscribes.
func (ll *listenLoop) withdraw() {
	ll.link.conn.mu.Lock()
	defer ll.link.conn.mu.Unlock()
	ll.link.conn.subs.listen = nil
}
