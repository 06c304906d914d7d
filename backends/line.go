package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/peer"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// A line is a way to a backend: one conversation at a time, and the calls that
// wait for it. Each backend has one that all share, which is kept up and by which
// its lists are read. Where the sharing asks for it (see Backend.private), a client's
// session has one of its own, opened when it is first used, in which the backend is
// told what that client can do. A backend of the stateless era is told so with each
// request: all share the one line.
type line struct {
	b       *Backend
	session string // whose own it is; "" = it is shared
	log     *slog.Logger

	mu       sync.Mutex
	state    State
	err      error // why the last start failed
	why      error // why the last conversation ended, or could not be begun; nil while there is one
	answered bool  // it has come up or failed, since it was started
	began    time.Time
	peer     *peer.Peer // nil unless it is ready
	server   server     // of the conversation
	declared []byte     // the capabilities that it was told in the handshake, if it is of the session era
	ran      bool       // it was ready since it was started
	upAt     time.Time  // when it became so
	gone     *peer.Peer // the last one whose conversation ended
	said     string     // why it ended last, as it was logged
	waiting  []waiting  // for it to become ready
	level    string     // the log level that the backend was told
	subs     subscriptions

	// Of a conversation of the stateless era:
	again    []waiting     // calls that are to be sent once more
	doubt    bool          // whether the server is still what it said
	arming   []waiting     // subscriptions that wait for what is listened to
	listened *hearing      // the subscriptions/listen at hand, nil if there is none
	opening  *hearing      // the one that the server has not acknowledged yet
	rearm    chan struct{} // 1 slot: something else is to be listened to

	// Of an own line:
	runs   bool // a goroutine keeps it up
	pause  time.Duration
	rested time.Time // when it may be tried again
	hangUp context.CancelFunc
	closed bool // its session is over
	handed bool // the shared line goes on with what it was for

	news [catalog.NumKinds]bool // these lists have changed, and its client was not told yet; guarded by b.mu
}

// waiting is a call that waits, for the backend to start or for another try.
type waiting struct {
	m     wire.Message
	c     *peer.Pending
	sub   *subscribing // likewise c.To, if it is a subscription
	again bool         // it is sent a second time
	moved bool         // it stays with the line to which it has come: see line.elsewhereLocked
}

func newLine(b *Backend, session string) *line {
	l := &line{b: b, session: session, log: b.log, state: Stopped, pause: firstPause, rearm: make(chan struct{}, 1)}
	if session != "" {
		l.log = b.log.With("session", session)
	}
	return l
}

func (l *line) own() bool { return l.session != "" }

func notSent(format string, args ...any) error {
	return &transport.Lost{Err: fmt.Errorf(format, args...)}
}

// send sends a call, or has it wait while the backend starts. A backend whose
// last start failed is not waited for: the caller learns why.
func (l *line) send(w waiting) {
	w.c.Timeout = l.b.cfg.CallTimeout
	for !l.sent(w) {
		// The conversation ended at this moment: the call waits for the next.
	}
}

// sent is send, but for a call that meets the end of the conversation.
func (l *line) sent(w waiting) bool {
	l.mu.Lock()
	if l.handed {
		l.mu.Unlock()
		l.b.shared.send(w)
		return true
	}
	p, server := l.peer, l.server
	if p != nil && l.elsewhereLocked(w) {
		l.mu.Unlock()
		l.b.move(w)
		return true
	}
	kept := w.sub == nil || l.holdLocked(w.sub)
	if p != nil && server.stateless && isSubscription(w.m) {
		tell := l.subscribeLocked(w)
		l.mu.Unlock()
		tell()
		return true
	}
	if p == nil {
		l.wakeLocked()
	}
	err := l.err
	wait := p == nil && !l.closed &&
		(l.state == Starting || l.state == Failed && err == nil || !l.answered && l.state == Stopped)
	if wait {
		l.waiting = append(l.waiting, w)
	}
	l.mu.Unlock()
	if !kept {
		l.log.Warn("too many subscriptions; this one is not kept", "max", maxSubscriptions)
	}
	switch {
	case wait:
	case p != nil:
		err := l.offer(p, server, w)
		if errors.Is(err, transport.ErrClosed) {
			l.lost(p)
			return false
		}
		if err != nil {
			w.c.To.Done(wire.Message{}, notOffered(err))
		}
	case err != nil:
		w.c.To.Done(wire.Message{}, notSent("it is not running: %w", err))
	default:
		w.c.To.Done(wire.Message{}, notSent("it was stopped"))
	}
	return true
}

// notOffered returns what a call ends with that could not be offered.
func notOffered(err error) error {
	if errors.Is(err, peer.ErrCancelled) || isA[*wire.Error](err) {
		return err
	}
	return &transport.Lost{Err: err}
}

// wakeLocked has an own line kept up from now on, unless it is, or has failed
// just now.
func (l *line) wakeLocked() {
	if !l.own() || l.runs || l.closed || l.err != nil && time.Now().Before(l.rested) {
		return
	}
	if l.b.set.spawn(l.runOwn) {
		l.runs, l.state, l.err = true, Starting, nil
	} else {
		l.state, l.err = Stopped, errStopped
	}
}

// takeBack takes a call out that waits, and reports whether it did.
func (l *line) takeBack(c *peer.Pending) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range []*[]waiting{&l.waiting, &l.again, &l.arming} {
		for i, w := range *list {
			if w.c == c {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				return true
			}
		}
	}
	return false
}

// starting notes that a start begins.
func (l *line) starting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Now()
	l.state = Starting
	l.server = server{}
	l.doubt = false
	l.answered = false
	l.ran = false
}

// up lets calls through. Those that waited go first.
func (l *line) up(p *peer.Peer) {
	for _, tell := range l.letThrough(p) {
		tell()
	}
}

// letThrough is up; it returns what ends the calls that could not be sent. It holds
// l.mu so that no call overtakes those that waited, and that each of them can be
// cancelled at any moment.
func (l *line) letThrough(p *peer.Peer) (refused []func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone == p {
		return nil
	}
	l.peer, l.ran, l.upAt = p, true, time.Now()
	l.state, l.err, l.why = Ready, nil, nil
	l.levelLocked(nil) // it may have been changed since it was restored
	some := l.waiting
	l.waiting = nil
	return l.offerLocked(p, some)
}

// elsewhereLocked reports whether what has come to the line that all share belongs on one of
// its session's own: the server that has greeted us is of the session era, and there is to be
// a line for each (Backend.private), or it was told of other capabilities than those of the
// session's client. This can only be said of the conversation over which it is to go, so
// not while there is none.
func (l *line) elsewhereLocked(w waiting) bool {
	if l.own() || l.server.stateless || w.moved || w.c.Owner == "" {
		return false
	}
	return l.b.private() || l.b.set.Solo && l.toldOtherLocked(w.c.Owner)
}

// move sends what was elsewhere, on the line that it belongs on. It stays there, unless that
// is the line that all share, and nobody knows what its next server will be told.
func (b *Backend) move(w waiting) {
	l := b.line(w.c.Owner, false)
	l.mu.Lock()
	w.moved = l.own() || l.peer != nil
	l.mu.Unlock()
	l.send(w)
}

// offerLocked sends calls, and returns what ends those that could not be sent, and what moves
// those that belong elsewhere.
func (l *line) offerLocked(p *peer.Peer, some []waiting) (refused []func()) {
	for i, w := range some {
		switch {
		case l.server.stateless && isSubscription(w.m):
			refused = append(refused, l.subscribeLocked(w))
			continue
		case l.elsewhereLocked(w):
			if w.sub != nil {
				l.subs.refused(w.sub.uri, w.sub.session) // it was only to be sent from here
			}
			refused = append(refused, func() { l.b.move(w) })
			continue
		}
		err := l.offer(p, l.server, w)
		if errors.Is(err, transport.ErrClosed) {
			l.waiting = append(some[i:len(some):len(some)], l.waiting...)
			l.lostLocked(p) // it has ended already: they wait for the next
			return refused
		}
		if err != nil {
			refused = append(refused, func() { w.c.To.Done(wire.Message{}, notOffered(err)) })
		}
	}
	return refused
}

// lost notes that the conversation over p has ended. Nothing is sent any more, what
// is asked from now on waits for the next one; down follows when everything of
// this one is gone.
func (l *line) lost(p *peer.Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lostLocked(p)
}

func (l *line) lostLocked(p *peer.Peer) {
	l.gone = p
	if len(l.again)+len(l.arming) > 0 {
		l.waiting = slices.Concat(l.again, l.arming, l.waiting)
		l.again, l.arming = nil, nil
	}
	if l.peer == p {
		l.peer = nil
		l.state, l.err = Failed, nil
	}
}

// talk returns the peer of the conversation and what its server said of itself; nil
// if the line is not ready.
func (l *line) talk() (*peer.Peer, server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer, l.server
}

// down notes that there is no conversation, and why if that is a failure. Calls
// that wait for one end if it could not be begun; if it had been they wait for the
// next.
func (l *line) down(s State, err error) {
	l.mu.Lock()
	l.state = s
	l.answered, l.why = true, err
	var dropped []waiting
	if l.ran && s == Failed {
		l.err = nil
	} else {
		l.err = err
		dropped, l.waiting = l.waiting, nil
	}
	l.mu.Unlock()
	for _, w := range dropped {
		w.c.To.Done(wire.Message{}, notSent("it did not start: %w", err))
	}
	if !l.own() {
		l.b.answer(nil)
	}
}
