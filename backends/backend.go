package backends

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/config"
	"mcpgateway/peer"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// A State is where a backend stands.
type State string

const (
	Stopped  State = "stopped"  // not started yet, or ended
	Starting State = "starting" // from the dial to the end of the handshake
	Ready    State = "ready"    // calls go to it
	Failed   State = "failed"   // waiting for the next try
)

// A Status is what can be said of a backend at one moment.
type Status struct {
	Name     string
	State    State
	Err      error  // why it is not ready, or why its tools could not be listed
	Server   string // name/version of its serverInfo
	Revision string
	Tools    int           // that it lists and that are allowed
	Answered bool          // since it was started: its tools are listed, or it failed
	Took     time.Duration // from the start to that
}

// A Backend is one MCP server and what is known of it.
type Backend struct {
	set    *Set
	cfg    config.Backend
	log    *slog.Logger
	relist chan struct{}         // 1 slot: its tools have changed
	flaws  map[catalog.Flaw]bool // of its tools, that were logged; run's own

	mu       sync.Mutex
	status   Status
	began    time.Time  // of the last start
	peer     *peer.Peer // nil unless it is ready
	ran      bool       // it was ready since it was started
	upAt     time.Time  // when it became so
	gone     *peer.Peer // the last one whose conversation ended
	waiting  []waiting  // for it to become so
	listing  catalog.Listing
	raw      []byte // the listing as it was read, all of it
	answered bool   // at some time: listing is its own, or it failed
}

// waiting is a call that waits for the backend to start.
type waiting struct {
	m wire.Message
	c *peer.Pending
}

func newBackend(s *Set, c config.Backend) *Backend {
	return &Backend{
		set:     s,
		cfg:     c,
		log:     s.Log.With("backend", c.Name),
		relist:  make(chan struct{}, 1),
		status:  Status{Name: c.Name, State: Stopped},
		listing: catalog.Listing{Backend: c.Name},
	}
}

// Status tells how the backend is.
func (b *Backend) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// offer returns what the backend offers as far as is known, and whether that
// can be relied on.
func (b *Backend) offer() (catalog.Listing, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listing, b.answered
}

// excuse returns why the backend has never listed its tools, nil if it has.
func (b *Backend) excuse() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.raw != nil {
		return nil
	}
	return b.status.Err
}

func notSent(format string, args ...any) error {
	return &transport.Lost{Err: fmt.Errorf(format, args...)}
}

// send sends a call, or has it wait while the backend starts. A backend whose
// last start failed is not waited for: the caller learns why.
func (b *Backend) send(m wire.Message, c *peer.Pending) {
	c.Timeout = b.cfg.CallTimeout
	for !b.sent(m, c) {
		// The conversation ended at this moment: the call waits for the next.
	}
}

// sent is send, but for a call that meets the end of the conversation.
func (b *Backend) sent(m wire.Message, c *peer.Pending) bool {
	b.mu.Lock()
	p, err := b.peer, b.status.Err
	wait := p == nil && (b.status.State == Starting || b.status.State == Failed && err == nil || !b.status.Answered && b.status.State == Stopped)
	if wait {
		b.waiting = append(b.waiting, waiting{m, c})
	}
	b.mu.Unlock()
	switch {
	case wait:
	case p != nil:
		err := p.Offer(m, c)
		if errors.Is(err, transport.ErrClosed) {
			b.lost(p)
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

func (b *Backend) cancel(c *peer.Pending, params []byte) {
	b.mu.Lock()
	for i, w := range b.waiting {
		if w.c == c {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			b.mu.Unlock()
			c.To.Done(wire.Message{}, peer.ErrCancelled)
			return
		}
	}
	b.mu.Unlock()
	c.Cancel(params)
}

// starting notes that a start begins.
func (b *Backend) starting() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began = time.Now()
	b.status.State = Starting
	b.status.Answered = false
	b.ran = false
}

// up lets calls through. Those that waited go first: b.mu is held so that none
// overtakes them, and that each can be cancelled at any moment.
func (b *Backend) up(p *peer.Peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone == p {
		return
	}
	b.peer, b.ran, b.upAt = p, true, time.Now()
	b.status.State, b.status.Err = Ready, nil
	for len(b.waiting) > 0 {
		w := b.waiting[0]
		err := p.Offer(w.m, w.c)
		if errors.Is(err, transport.ErrClosed) {
			b.lostLocked(p) // it has ended already: they wait for the next
			return
		}
		b.waiting = b.waiting[1:]
		if err != nil {
			w.c.To.Done(wire.Message{}, &transport.Lost{Err: err})
		}
	}
	b.waiting = nil
}

// lost notes that the conversation over p has ended. Nothing is sent any more, what
// is asked from now on waits for the next one; down follows when everything of
// this one is gone.
func (b *Backend) lost(p *peer.Peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lostLocked(p)
}

func (b *Backend) lostLocked(p *peer.Peer) {
	b.gone = p
	if b.peer == p {
		b.peer = nil
		b.status.State, b.status.Err = Failed, nil
	}
}

// talksOver reports whether calls go out over p.
func (b *Backend) talksOver(p *peer.Peer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peer == p
}

// down notes that the backend is not running, and why if that is a failure.
// Calls that wait for it end if it failed to start; if it had been running they
// wait for the next start.
func (b *Backend) down(s State, err error) {
	b.mu.Lock()
	b.status.State = s
	b.status.Answered = true
	b.status.Took = time.Since(b.began)
	first := !b.answered
	b.answered = true
	var dropped []waiting
	if b.ran && s == Failed {
		b.status.Err = nil
	} else {
		b.status.Err = err
		dropped, b.waiting = b.waiting, nil
	}
	b.mu.Unlock()
	for _, w := range dropped {
		w.c.To.Done(wire.Message{}, notSent("it did not start: %w", err))
	}
	if first {
		b.set.publish()
	}
}

// listed takes a listing of the backend's own, or why there is none.
func (b *Backend) listed(l catalog.Listing, raw []byte, err error) {
	b.mu.Lock()
	b.status.Answered = true
	b.status.Took = time.Since(b.began)
	b.status.Err = err
	news := !b.answered
	b.answered = true
	if err == nil {
		news = news || string(raw) != string(b.raw) || l.Instructions != b.listing.Instructions
		b.listing, b.raw = l, raw
		b.status.Tools = len(l.Tools)
	}
	b.mu.Unlock()
	if news {
		b.set.publish()
	}
}

// errStopped is why a backend's calls end when the gateway does.
var errStopped = errors.New("the gateway is ending")
