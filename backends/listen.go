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

const acknowledged = "notifications/subscriptions/acknowledged"

const (
	// ackWait is how long a server may take to acknowledge a listen. Then it is taken to
	// have agreed to all of it.
	ackWait = 5 * time.Second
	// listWait is how long the first list waits for the first listen, so that no change
	// in between is missed. If it comes later the lists are read once more.
	listWait = time.Second
	// quitWait is how long a server at a pipe may take to end a listen. There are those
	// that have one for each pipe, and would take the end of the old for that of the new.
	quitWait = time.Second
	// manyWait is for how long it is waited for further URIs before the listen is made anew.
	manyWait = 50 * time.Millisecond
	// trimWait is for how long URIs are listened to that nobody wants to hear of any more,
	// if nothing else is the reason to make the listen anew.
	trimWait = time.Minute
)

// A listening keeps a conversation's listen up. A nil one does nothing.
type listening struct {
	l       *line
	p       *peer.Peer
	s       server
	stop    context.CancelFunc
	running sync.WaitGroup
	armed   chan struct{} // closed when the first is up, or has failed, or there is nothing to listen to

	// The goroutine's own:
	now    *hearing // nil if there is none
	missed bool     // something may have been said while there was none
	trim   bool     // there is too much in it
	pause  time.Duration
}

// listening listens to a server of the stateless era until ctx is done, or end is
// called.
func (l *line) listening(ctx context.Context, p *peer.Peer, s server) *listening {
	if !s.stateless || l.own() {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	g := &listening{l: l, p: p, s: s, stop: stop, armed: make(chan struct{}), pause: firstPause}
	g.running.Go(func() { g.run(ctx) })
	return g
}

func (g *listening) end() {
	if g != nil {
		g.stop()
		g.running.Wait()
	}
}

// await waits for the first listen, though not for long.
func (g *listening) await(ctx context.Context) {
	if g == nil {
		return
	}
	select {
	case <-g.armed:
	case <-time.After(listWait):
	case <-ctx.Done():
	}
}

// run keeps the listen up.
func (g *listening) run(ctx context.Context) {
	began := time.Now()
	defer func() {
		g.quit(ctx)
		g.l.hearing(nil)
	}()
	g.l.mu.Lock()
	g.missed = len(g.l.subs.agreedTo()) > 0
	g.l.mu.Unlock()
	for ctx.Err() == nil {
		if g.lost() { // what was missed is found out in the next conversation
			g.arrive()
			<-ctx.Done()
			return
		}
		filter, uris := g.wanted()
		if g.outdated(uris) {
			if !g.renew(ctx, filter, uris) {
				continue
			}
		}
		g.settle()
		g.missed = g.missed || time.Since(began) >= listWait && !g.arrived()
		g.arrive()
		g.catchUp()
		g.hear(ctx, len(uris) < g.heard())
	}
}

// outdated reports whether another listen is needed. It is not at once if there are only
// fewer URIs: to make one anew is not for nothing, least of all at a pipe.
func (g *listening) outdated(uris []string) bool {
	if g.now == nil || g.trim {
		return true
	}
	return slices.ContainsFunc(uris, func(uri string) bool { return !slices.Contains(g.now.uris, uri) })
}

// heard returns how many URIs are listened to.
func (g *listening) heard() int {
	if g.now == nil {
		return 0
	}
	return len(g.now.uris)
}

// renew puts another listen in the place of the one at hand; none if filter is nil. It
// reports false if that has failed, and it is to be tried again.
func (g *listening) renew(ctx context.Context, filter []byte, uris []string) bool {
	g.trim = false
	if !g.l.b.hasStreams() || filter == nil {
		g.missed = g.missed || g.now != nil
		g.quit(ctx)
	}
	if filter == nil {
		return true
	}
	next, err := g.arm(ctx, filter, uris)
	switch {
	case err == nil:
		g.quit(ctx)
		g.now = next
		return true
	case ctx.Err() != nil, g.refused(uris, err): // at once, without those
		return false
	}
	g.missed = true
	g.arrive()
	g.failed(err)
	g.rest(ctx, err)
	return false
}

// arrive lets the first lists be read, which wait for the first listen.
func (g *listening) arrive() {
	if !g.arrived() {
		close(g.armed)
	}
}

func (g *listening) arrived() bool {
	select {
	case <-g.armed:
		return true
	default:
		return false
	}
}

// hear waits until something else is to be listened to, or nothing is said any more.
func (g *listening) hear(ctx context.Context, much bool) {
	var over peer.ResponseChan // nil: never
	if g.now != nil {
		over = g.now.over
	}
	var later <-chan time.Time
	if much {
		later = time.After(trimWait)
	}
	select {
	case <-g.l.rearm:
		select {
		case <-time.After(manyWait):
		case <-ctx.Done():
		}
		return
	case <-later:
		g.trim = true
		return
	case <-ctx.Done():
		return
	case a := <-over:
		g.l.log.Debug("backend has ended what it was listened to", "err", a.Err)
	}
	if time.Since(g.now.began) > settledAfter {
		g.pause = firstPause
	}
	g.now, g.missed = nil, true
	g.l.hearing(nil)
	g.rest(ctx, nil)
}

// rest waits before the next try, which is the longer the more have failed, and without
// end if the server does not know what is asked; something new to ask for ends it.
func (g *listening) rest(ctx context.Context, err error) {
	later := time.After(g.pause)
	g.pause = min(2*g.pause, lastRetry)
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CodeMethodNotFound {
		later = nil
	}
	select {
	case <-later:
	case <-g.l.rearm:
	case <-ctx.Done():
	}
}

// failed says, loudly the first time, that nothing is heard of changes.
func (g *listening) failed(err error) {
	e, _ := errors.AsType[*wire.Error](err)
	g.l.reached(err)
	if foreign(err) || e != nil && e.Code == protocol.CodeUnsupportedVersion {
		g.l.doubtful()
		g.l.b.refresh()
	}
	say := g.l.log.Debug
	if g.pause == firstPause && !g.lost() { // which is told elsewhere
		say = g.l.log.Warn
	}
	say("backend cannot be listened to; its changes may be noticed late", "err", err)
}

// lost reports whether the conversation is over; soon the listening is, too.
func (g *listening) lost() bool {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	return g.l.gone == g.p
}

// wanted returns what is to be listened to, as the params of the request, nil if nothing
// is; and the URIs in it.
func (g *listening) wanted() (params []byte, uris []string) {
	filter := make(map[string]any)
	for k, flag := range map[catalog.Kind]string{
		catalog.Tools: "toolsListChanged", catalog.Prompts: "promptsListChanged", catalog.Resources: "resourcesListChanged",
	} {
		if g.s.has(k.Capability(), "listChanged") {
			filter[flag] = true
		}
	}
	if g.s.has("resources", "subscribe") {
		g.l.mu.Lock()
		uris = g.l.b.permitted(g.l.subs.uris())
		g.missed, g.l.adopted = g.missed || len(g.l.adopted) > 0, nil
		g.l.mu.Unlock()
	}
	if len(uris) > 0 {
		filter["resourceSubscriptions"] = uris
	}
	if len(filter) == 0 {
		return nil, nil
	}
	return wire.Encode(map[string]any{"notifications": filter}), uris
}

// quit ends the listen at hand, if there is one. At a pipe it also waits for the end of it.
func (g *listening) quit(ctx context.Context) {
	h := g.now
	if h == nil {
		return
	}
	g.now = nil
	if !g.l.b.hasStreams() && ctx.Err() == nil {
		_ = g.p.Notify("notifications/cancelled", []byte(`{"requestId":`+string(h.c.ID())+`}`))
		select {
		case <-h.over:
			return
		case <-time.After(quitWait):
		case <-ctx.Done():
		}
	}
	h.c.Cancel(nil)
}

// catchUp takes everything for changed if something may have been missed.
func (g *listening) catchUp() {
	if !g.missed {
		return
	}
	g.missed = false
	g.l.b.changedAll()
	g.l.mu.Lock()
	uris := g.l.subs.agreedTo()
	g.l.mu.Unlock()
	for _, uri := range uris {
		g.l.updated(updated(uri), peer.Origin{})
	}
}

// settle answers those who wait for what is listened to now.
func (g *listening) settle() {
	l, h := g.l, g.now
	l.mu.Lock()
	l.listened = h
	tell := l.settleLocked(func(uri string) (known bool, err *wire.Error) {
		switch {
		case h == nil:
			return false, nil
		case h.hears(uri):
			return slices.Contains(h.uris, uri), nil
		}
		return slices.Contains(h.uris, uri), wire.Errorf(wire.CodeInvalidParams, "Invalid params: the backend sends no updates of this resource")
	})
	if h != nil {
		h.uris = slices.DeleteFunc(h.uris, func(uri string) bool { return !h.hears(uri) }) // who asks again asks it again
	}
	l.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// refused answers those who wait for one of the URIs with the error for which none of
// them is listened to, and reports whether there were any.
func (g *listening) refused(uris []string, err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return false
	}
	l := g.l
	l.mu.Lock()
	tell := l.settleLocked(func(uri string) (bool, *wire.Error) {
		return slices.Contains(uris, uri), wire.Errorf(wire.CodeInvalidParams, "Invalid params: the backend refuses the subscription: %s", e.Message)
	})
	l.mu.Unlock()
	for _, f := range tell {
		f()
	}
	return len(tell) > 0
}

// hearing notes what is listened to, nil if nothing is.
func (l *line) hearing(h *hearing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listened = h
}

func (l *line) pokeListening() {
	select {
	case l.rearm <- struct{}{}:
	default:
	}
}
