package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"mcpgateway/peer"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// A line is a way to a backend: one conversation at a time, and the calls that
// wait for it. Each backend has one that all share, which is kept up and by which
// its lists are read. Where the sharing asks for it (see Backend.private), a client's
// session has one of its own, opened when it is first used, in which the backend is
// told what that client can do.
type line struct {
	b       *Backend
	session string // whose own it is; "" = it is shared
	log     *slog.Logger

	mu       sync.Mutex
	state    State
	err      error // why the last start failed
	answered bool  // it has come up or failed, since it was started
	began    time.Time
	peer     *peer.Peer // nil unless it is ready
	server   server     // of the conversation
	ran      bool       // it was ready since it was started
	upAt     time.Time  // when it became so
	gone     *peer.Peer // the last one whose conversation ended
	said     string     // why it ended last, as it was logged
	waiting  []waiting  // for it to become ready
	level    string     // the log level that the backend was told
	subs     subscriptions

	// Of an own line:
	runs   bool // a goroutine keeps it up
	pause  time.Duration
	rested time.Time // when it may be tried again
	hangUp context.CancelFunc
	closed bool // its session is over
}

// waiting is a call that waits for the backend to start.
type waiting struct {
	m wire.Message
	c *peer.Pending
}

func newLine(b *Backend, session string) *line {
	l := &line{b: b, session: session, log: b.log, state: Stopped, pause: firstPause}
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
func (l *line) send(m wire.Message, c *peer.Pending) {
	c.Timeout = l.b.cfg.CallTimeout
	for !l.sent(m, c) {
		// The conversation ended at this moment: the call waits for the next.
	}
}

// sent is send, but for a call that meets the end of the conversation.
func (l *line) sent(m wire.Message, c *peer.Pending) bool {
	l.mu.Lock()
	p := l.peer
	if p == nil {
		l.wakeLocked()
	}
	err := l.err
	wait := p == nil && !l.closed &&
		(l.state == Starting || l.state == Failed && err == nil || !l.answered && l.state == Stopped)
	if wait {
		l.waiting = append(l.waiting, waiting{m, c})
	}
	l.mu.Unlock()
	switch {
	case wait:
	case p != nil:
		err := p.Offer(m, c)
		if errors.Is(err, transport.ErrClosed) {
			l.lost(p)
			return false
		}
		if err != nil {
			c.To.Done(wire.Message{}, &transport.Lost{Err: err})
		}
	case err != nil:
		c.To.Done(wire.Message{}, notSent("it is not running: %w", err))
	default:
		c.To.Done(wire.Message{}, notSent("it was stopped"))
	}
	return true
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

func (l *line) cancel(c *peer.Pending, params []byte) {
	l.mu.Lock()
	for i, w := range l.waiting {
		if w.c == c {
			l.waiting = append(l.waiting[:i:i], l.waiting[i+1:]...)
			l.mu.Unlock()
			c.To.Done(wire.Message{}, peer.ErrCancelled)
			return
		}
	}
	l.mu.Unlock()
	c.Cancel(params)
}

// starting notes that a start begins.
func (l *line) starting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Now()
	l.state = Starting
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
	l.state, l.err = Ready, nil
	l.levelLocked(nil) // it may have been changed since it was restored
	for len(l.waiting) > 0 {
		w := l.waiting[0]
		err := p.Offer(w.m, w.c)
		if errors.Is(err, transport.ErrClosed) {
			l.lostLocked(p) // it has ended already: they wait for the next
			return refused
		}
		l.waiting = l.waiting[1:]
		if err != nil {
			refused = append(refused, func() { w.c.To.Done(wire.Message{}, &transport.Lost{Err: err}) })
		}
	}
	l.waiting = nil
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
	l.answered = true
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
