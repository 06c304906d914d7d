package backends

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A backend of the stateless era says what has changed on a subscriptions/listen of
// ours and nowhere else. There is one for all sessions: it asks for the changes of every
// list that the server tells of, and for the updates of every URI to which somebody is
// subscribed. It cannot be amended; when the URIs are others it is made anew.
//
//	line.listening ─ run (one goroutine) ─ arm: Offer, the acknowledgement ─ settle: who waits is answered
//	                   └ until something else is wanted (rearm), it drops, or the conversation ends

const (
	// ackTimeout is how long a server may take to acknowledge a listen. Then it is taken to
	// have agreed to all of it.
	ackTimeout = 5 * time.Second
	// firstListenTimeout is how long the first list waits for the first listen, so that no change
	// in between is missed. If it comes later the lists are read once more.
	firstListenTimeout = time.Second
	// listenEndTimeout is how long a server at a pipe may take to end a listen. There are those
	// that have one for each pipe, and would take the end of the old for that of the new.
	listenEndTimeout = time.Second
	// uriBatchDelay is for how long it is waited for further URIs before the listen is made anew.
	uriBatchDelay = 50 * time.Millisecond
	// pruneURIsDelay is for how long URIs are listened to that nobody wants to hear of any more,
	// if nothing else is the reason to make the listen anew.
	pruneURIsDelay = time.Minute
)

// A listenLoop keeps a conversation's listen up. A nil one does nothing.
type listenLoop struct {
	conn    *backendConn
	peer    *peer.Peer
	server  serverInfo
	cancel  context.CancelFunc
	running sync.WaitGroup
	ready   chan struct{} // closed when the first is up, or has failed, or there is nothing to listen to

	// The goroutine's own:
	current   *listenStream // nil if there is none
	missed    bool          // something may have been said while there was none
	pruneURIs bool          // there is too much in it
	pause     time.Duration
}

// listenLoop listens to a server of the stateless era until ctx is done, or end is
// called.
func (bc *backendConn) startListenLoop(ctx context.Context, p *peer.Peer, s serverInfo) *listenLoop {
	if !s.modern || bc.isPerSession() {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	ll := &listenLoop{conn: bc, peer: p, server: s, cancel: stop, ready: make(chan struct{}), pause: firstPause}
	ll.running.Go(func() { ll.run(ctx) })
	return ll
}

func (ll *listenLoop) stop() {
	if ll != nil {
		ll.cancel()
		ll.running.Wait()
	}
}

// awaitReady waits for the first listen, though not for long.
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

// run keeps the listen up.
func (ll *listenLoop) run(ctx context.Context) {
	began := time.Now()
	defer func() {
		ll.closeCurrent(ctx)
		ll.conn.setListen(nil)
	}()
	ll.conn.mu.Lock()
	ll.missed = len(ll.conn.subs.acceptedURIs()) > 0
	ll.conn.mu.Unlock()
	for ctx.Err() == nil {
		if ll.isDisconnected() { // what was missed is found out in the next conversation
			ll.markReady()
			<-ctx.Done()
			return
		}
		filter, uris := ll.wantedFilter()
		if ll.needsReopen(uris) {
			if !ll.replace(ctx, filter, uris) {
				continue
			}
		}
		ll.resolveSubscribes()
		ll.missed = ll.missed || time.Since(began) >= firstListenTimeout && !ll.isReady()
		ll.markReady()
		ll.refreshMissed()
		ll.awaitChange(ctx, len(uris) < ll.uriCount())
	}
}

// needsReopen reports whether another listen is needed. It is not at once if there are only
// fewer URIs: to make one anew is not for nothing, least of all at a pipe.
func (ll *listenLoop) needsReopen(uris []string) bool {
	if ll.current == nil || ll.pruneURIs {
		return true
	}
	return slices.ContainsFunc(uris, func(uri string) bool { return !slices.Contains(ll.current.uris, uri) })
}

// uriCount returns how many URIs are listened to.
func (ll *listenLoop) uriCount() int {
	if ll.current == nil {
		return 0
	}
	return len(ll.current.uris)
}

// replace puts another listen in the place of the one at hand; none if filter is nil. It
// reports false if that has failed, and it is to be tried again.
func (ll *listenLoop) replace(ctx context.Context, filter []byte, uris []string) bool {
	ll.pruneURIs = false
	if !ll.conn.b.hasManyStreams() || filter == nil {
		ll.missed = ll.missed || ll.current != nil
		ll.closeCurrent(ctx)
	}
	if filter == nil {
		return true
	}
	next, err := ll.open(ctx, filter, uris)
	switch {
	case err == nil:
		ll.closeCurrent(ctx)
		ll.current = next
		return true
	case ctx.Err() != nil, ll.rejectSubscribes(uris, err): // at once, without those
		return false
	}
	ll.missed = true
	ll.markReady()
	ll.noteFailure(err)
	ll.awaitRetry(ctx, err)
	return false
}

// markReady lets the first lists be read, which wait for the first listen.
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

// awaitChange waits until something else is to be listened to, or nothing is said any more.
func (ll *listenLoop) awaitChange(ctx context.Context, much bool) {
	var over peer.ResponseChan // nil: never
	if ll.current != nil {
		over = ll.current.ended
	}
	var later <-chan time.Time
	if much {
		later = time.After(pruneURIsDelay)
	}
	select {
	case <-ll.conn.reopen:
		select {
		case <-time.After(uriBatchDelay):
		case <-ctx.Done():
		}
		return
	case <-later:
		ll.pruneURIs = true
		return
	case <-ctx.Done():
		return
	case a := <-over:
		ll.conn.log.Debug("backend has ended what it was listened to", "err", a.Err)
	}
	if time.Since(ll.current.openedAt) > stableAfter {
		ll.pause = firstPause
	}
	ll.current, ll.missed = nil, true
	ll.conn.setListen(nil)
	ll.awaitRetry(ctx, nil)
}

// awaitRetry waits before the next try, which is the longer the more have failed, and without
// end if the server does not know what is asked; something new to ask for ends it.
func (ll *listenLoop) awaitRetry(ctx context.Context, err error) {
	later := time.After(ll.pause)
	ll.pause = min(2*ll.pause, longestRetryDelay)
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CodeMethodNotFound {
		later = nil
	}
	select {
	case <-later:
	case <-ll.conn.reopen:
	case <-ctx.Done():
	}
}

// noteFailure says, loudly the first time, that nothing is heard of changes.
func (ll *listenLoop) noteFailure(err error) {
	e, _ := errors.AsType[*wire.Error](err)
	ll.conn.noteReachability(err)
	if isLegacyRefusal(err) || e != nil && e.Code == protocol.CodeUnsupportedVersion {
		ll.conn.markSuspect()
		ll.conn.b.refreshTools()
	}
	say := ll.conn.log.Debug
	if ll.pause == firstPause && !ll.isDisconnected() { // which is told elsewhere
		say = ll.conn.log.Warn
	}
	say("backend cannot be listened to; its changes may be noticed late", "err", err)
}

// isDisconnected reports whether the conversation is over; soon the listening is, too.
func (ll *listenLoop) isDisconnected() bool {
	ll.conn.mu.Lock()
	defer ll.conn.mu.Unlock()
	return ll.conn.disconnectedPeer == ll.peer
}

// wantedFilter returns what is to be listened to, as the params of the request, nil if nothing
// is; and the URIs in it.
func (ll *listenLoop) wantedFilter() (params []byte, uris []string) {
	filter := make(map[string]any)
	for k, flag := range map[catalog.Kind]string{
		catalog.Tools: "toolsListChanged", catalog.Prompts: "promptsListChanged", catalog.Resources: "resourcesListChanged",
	} {
		if ll.server.has(k.Capability(), "listChanged") {
			filter[flag] = true
		}
	}
	if ll.server.has("resources", "subscribe") {
		ll.conn.mu.Lock()
		uris = ll.conn.b.permittedURIs(ll.conn.subs.uris())
		ll.missed, ll.conn.resubscribeURIs = ll.missed || len(ll.conn.resubscribeURIs) > 0, nil
		ll.conn.mu.Unlock()
	}
	if len(uris) > 0 {
		filter["resourceSubscriptions"] = uris
	}
	if len(filter) == 0 {
		return nil, nil
	}
	return wire.Encode(map[string]any{"notifications": filter}), uris
}

// closeCurrent ends the listen at hand, if there is one. At a pipe it also waits for the end of it.
func (ll *listenLoop) closeCurrent(ctx context.Context) {
	ls := ll.current
	if ls == nil {
		return
	}
	ll.current = nil
	if !ll.conn.b.hasManyStreams() && ctx.Err() == nil {
		_ = ll.peer.Notify(protocol.NotificationCancelled, []byte(`{"requestId":`+string(ls.call.ID())+`}`))
		select {
		case <-ls.ended:
			return
		case <-time.After(listenEndTimeout):
		case <-ctx.Done():
		}
	}
	ls.call.Cancel(nil)
}

// refreshMissed takes everything for changed if something may have been missed.
func (ll *listenLoop) refreshMissed() {
	if !ll.missed {
		return
	}
	ll.missed = false
	ll.conn.b.refreshAll()
	ll.conn.mu.Lock()
	uris := ll.conn.subs.acceptedURIs()
	ll.conn.mu.Unlock()
	for _, uri := range uris {
		ll.conn.forwardUpdate(updatedNotification(uri), peer.Origin{})
	}
}

// resolveSubscribes answers those who wait for what is listened to now.
func (ll *listenLoop) resolveSubscribes() {
	bc, ls := ll.conn, ll.current
	bc.mu.Lock()
	bc.listen = ls
	tell := bc.resolveSubscribesLocked(func(uri string) (known bool, err *wire.Error) {
		switch {
		case ls == nil:
			return false, nil
		case ls.covers(uri):
			return slices.Contains(ls.uris, uri), nil
		}
		return slices.Contains(ls.uris, uri), wire.Errorf(wire.CodeInvalidParams, "Invalid params: the backend sends no updates of this resource")
	})
	if ls != nil {
		ls.uris = slices.DeleteFunc(ls.uris, func(uri string) bool { return !ls.covers(uri) }) // who asks again asks it again
	}
	bc.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// rejectSubscribes answers those who wait for one of the URIs with the error for which none of
// them is listened to, and reports whether there were any.
func (ll *listenLoop) rejectSubscribes(uris []string, err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return false
	}
	bc := ll.conn
	bc.mu.Lock()
	tell := bc.resolveSubscribesLocked(func(uri string) (bool, *wire.Error) {
		return slices.Contains(uris, uri), wire.Errorf(wire.CodeInvalidParams, "Invalid params: the backend refuses the subscription: %s", e.Message)
	})
	bc.mu.Unlock()
	for _, f := range tell {
		f()
	}
	return len(tell) > 0
}

// setListen notes what is listened to, nil if nothing is.
func (bc *backendConn) setListen(ls *listenStream) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.listen = ls
}

func (bc *backendConn) signalReopen() {
	select {
	case bc.reopen <- struct{}{}:
	default:
	}
}
