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
	says    *slog.Logger // for what the backend says, see sparing

	reading atomic.Int32 // lists of the backend's are being read over it, or are about to be

	hasty error // how it ended at the question of its era, just before; of who holds the conversation

	wake chan struct{} // 1 slot: a line that all share is needed, and stopped until then

	mu       sync.Mutex
	sup      supervisor
	began    time.Time
	peer     *peer.Peer // nil unless it is ready
	server   server     // of the conversation
	declared []byte     // the capabilities that it was told in the handshake, if it is of the session era
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
	nowhere  atomic.Bool   // it cannot be reached: illNowhere of sup, for who has no time

	// Of an own line:
	runs   bool          // a goroutine keeps it up
	hurry  chan struct{} // 1 slot: the next try is due earlier than it was
	hangUp context.CancelFunc
	closed bool // its session is over
	handed bool // the shared line goes on with what it was for

	retired bool     // its backend is
	adopted []string // URIs of which the server is to be told yet: see adopt

	news [catalog.NumKinds]bool // these lists have changed, and its client was not told yet; guarded by b.mu
}

// waiting is a call that waits, for the backend to start or for another try.
type waiting struct {
	m     wire.Message
	c     *peer.Call
	sub   *subscribing // likewise c.To, if it is a subscription
	again bool         // it is sent a second time
	moved bool         // it stays with the line to which it has come: see line.elsewhereLocked
}

func newLine(b *Backend, session string) *line {
	l := &line{
		b: b, session: session, log: b.log, says: b.says,
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), rearm: make(chan struct{}, 1),
	}
	if session != "" {
		l.log, l.says = b.log.With("session", session), b.says.With("session", session)
	}
	return l
}

func (l *line) own() bool { return l.session != "" }

func notSent(format string, args ...any) error {
	return &transport.CallLostError{Err: fmt.Errorf(format, args...)}
}

// send sends a call, or has it wait while the backend starts. A backend whose
// last start failed is not waited for: the caller learns why, and when the next is.
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
	if l.retired {
		l.mu.Unlock()
		l.b.passOn(w)
		return true
	}
	if w.c.IsCancelled() { // while it was on its way from one line to another
		l.mu.Unlock()
		w.c.Handler.OnResponse(wire.Message{}, peer.ErrCancelled)
		return true
	}
	if w.sub != nil && !l.b.set.isOpen(w.sub.session) { // who closes it looks here afterwards
		l.mu.Unlock()
		w.c.Handler.OnResponse(wire.Message{}, notSent("%w", errSessionOver))
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
	var refusal error
	if p == nil {
		refusal = l.parkLocked(w)
	}
	l.mu.Unlock()
	if !kept {
		l.says.Warn("too many subscriptions; this one is not kept", "max", maxSubscriptions)
	}
	switch {
	case refusal != nil:
		w.c.Handler.OnResponse(wire.Message{}, refusal)
	case p != nil:
		err := l.offer(p, server, w)
		if errors.Is(err, transport.ErrClosed) {
			l.lost(p, err)
			return false
		}
		if err != nil {
			w.c.Handler.OnResponse(wire.Message{}, notOffered(err))
		}
	}
	return true
}

// parkLocked has a call wait for the backend to be ready, and sees to it that it becomes so;
// or says why not.
func (l *line) parkLocked(w waiting) (refusal error) {
	now := time.Now()
	if l.sup.course(now) != fails && !l.closed {
		l.wakeLocked()
	}
	switch {
	case l.sup.course(now) == fails:
		return l.sup.refusal(now)
	case l.closed:
		return notSent("it was stopped")
	}
	l.waiting = append(l.waiting, w)
	return nil
}

// excuse returns why the backend is not as it should be, in the words that a call would end
// with; nil if it is, or that is not known.
func (l *line) excuse() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch why := l.sup.problem(); {
	case l.sup.course(now) == fails:
		return l.sup.refusal(now)
	case why != nil && !l.sup.stands().IsUp():
		return notSent("it is not running: %w", why)
	default:
		return why
	}
}

// notOffered returns what a call ends with that could not be offered.
func notOffered(err error) error {
	if errors.Is(err, peer.ErrCancelled) || errors.Is(err, peer.ErrForbidden) || isA[*wire.Error](err) {
		return err
	}
	return &transport.CallLostError{Err: err}
}

// wakeLocked has the line come up, if it is stopped until something is wanted of it, or is an
// own one that nothing keeps up.
func (l *line) wakeLocked() {
	switch {
	case !l.own():
		if l.sup.stands() == Stopped {
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
	case l.runs || l.closed:
	case l.b.spawn(l.runOwn):
		l.runs = true
	default:
		l.sup.stop(errStopped)
	}
}

// takeBack takes a call out that waits, and reports whether it did.
func (l *line) takeBack(c *peer.Call) bool {
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
	select {
	case <-l.wake: // it does
	default:
	}
	l.began = time.Now()
	l.sup.start()
	l.server = server{}
	l.doubt = false
	l.nowhere.Store(false)
}

// up lets calls through. Those that waited go first.
func (l *line) up(p *peer.Peer) {
	down, refused := l.letThrough(p)
	if down > 0 {
		l.log.Info("backend is back", "dur", roundly(down))
	}
	for _, tell := range refused {
		tell()
	}
}

// letThrough is up; it returns for how long the backend was away, and what ends the calls that
// could not be sent. It holds l.mu so that no call overtakes those that waited, and that each of
// them can be cancelled at any moment.
func (l *line) letThrough(p *peer.Peer) (down time.Duration, refused []func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone == p {
		return 0, nil
	}
	l.peer, down = p, l.sup.up(time.Now())
	l.levelLocked(nil) // it may have been changed since it was restored
	l.tellAdoptedLocked()
	some := l.waiting
	l.waiting = nil
	return down, l.offerLocked(p, some)
}

// elsewhereLocked reports whether what has come to the line that all share belongs on one of
// its session's own: the server that has greeted us is of the session era, and there is to be
// a line for each (Backend.private), or it was told of other capabilities than those of the
// session's client. This can only be said of the conversation over which it is to go, so
// not while there is none.
func (l *line) elsewhereLocked(w waiting) bool {
	if l.own() || l.server.stateless || w.moved || w.c.SessionID == "" {
		return false
	}
	return l.b.private() || l.b.set.SingleClient && l.toldOtherLocked(w.c.SessionID)
}

// move sends what was elsewhere, on the line that it belongs on. It stays there, unless that
// is the line that all share, and nobody knows what its next server will be told.
func (b *Backend) move(w waiting) {
	l := b.line(w.c.SessionID, false)
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
			l.lostLocked(p, err) // it has ended already: they wait for the next
			return refused
		}
		if err != nil {
			refused = append(refused, func() { w.c.Handler.OnResponse(wire.Message{}, notOffered(err)) })
		}
	}
	return refused
}

// lost notes that the conversation over p has ended. Nothing is sent any more, what
// is asked from now on waits for the next one; down follows when everything of
// this one is gone. Why is the reason as far as it is known until then.
func (l *line) lost(p *peer.Peer, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lostLocked(p, why)
}

func (l *line) lostLocked(p *peer.Peer, why error) {
	l.gone = p
	if len(l.again)+len(l.arming) > 0 {
		l.waiting = slices.Concat(l.again, l.arming, l.waiting)
		l.again, l.arming = nil, nil
	}
	if l.peer == p {
		l.peer = nil
		l.sup.lost(time.Now(), why)
	}
}

// talk returns the peer of the conversation and what its server said of itself; nil
// if the line is not ready.
func (l *line) talk() (*peer.Peer, server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer, l.server
}

// failed notes that a start failed, or that what was up has ended, and why. Calls that
// wait end if there is nothing to wait for any more.
func (l *line) failed(err error) {
	now := time.Now()
	l.mu.Lock()
	l.sup.failed(now, err, rand.Float64())
	why := notSent("it did not start: %w", err)
	if l.sup.ran {
		why = l.sup.refusal(now)
	}
	var dropped []waiting
	if l.sup.course(now) == fails {
		dropped, l.waiting = l.waiting, nil
	}
	l.mu.Unlock()
	l.end(dropped, why)
}

// down notes that the line was stopped for good, and why.
func (l *line) down(why error) {
	l.mu.Lock()
	l.sup.stop(why)
	var dropped []waiting
	dropped, l.waiting = l.waiting, nil
	l.mu.Unlock()
	l.end(dropped, notSent("it did not start: %w", why))
}

// end ends what has waited. The backend has answered thereby.
func (l *line) end(dropped []waiting, why error) {
	for _, w := range dropped {
		w.c.Handler.OnResponse(wire.Message{}, why)
	}
	if !l.own() {
		l.b.answer(true, nil)
	}
}
