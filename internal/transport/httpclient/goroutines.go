package httpclient

import (
	"context"
	"sync"
	"time"
)

// maxIdle bounds the goroutines that wait for a message to send. A few waiting goroutines are
// useful, because calls often follow one another.
const maxIdle = 8

// idleTime is the time after which waiting goroutines end that were not needed meanwhile.
const idleTime = 10 * time.Second

// goroutines are the goroutines of a Conn: one for each message being sent, some that wait for the
// next message, and one for each stream that belongs to no message.
type goroutines struct {
	ctx     context.Context    // done when the connection has ended
	handoff chan *outgoingPost // received by idle goroutines
	drained chan struct{}      // closed when ended is true and all goroutines have ended

	mu      sync.Mutex
	running int         // goroutines, including the idle ones
	idle    int         // goroutines that wait for an outgoingPost
	spare   int         // smallest value of idle since the trimmer was started
	trimmer *time.Timer // runs trim; nil = not running
	ended   bool
}

func newGoroutines(ctx context.Context) *goroutines {
	return &goroutines{ctx: ctx, handoff: make(chan *outgoingPost), drained: make(chan struct{})}
}

// post passes p to an idle goroutine, or to a new goroutine. end must not have been called.
func (g *goroutines) post(p *outgoingPost) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case g.handoff <- p:
		g.idle--
		g.spare = min(g.spare, g.idle)
	default:
		g.spare = 0
		g.startLocked(func() { g.runPosts(p) })
	}
}

// start runs f in a goroutine. end must not have been called.
func (g *goroutines) start(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.startLocked(f)
}

func (g *goroutines) startLocked(f func()) {
	g.running++
	go func() {
		f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running--
		g.signalDrainedLocked()
	}()
}

// runPosts sends p and then further messages. Reusing a goroutine is cheaper: its stack already has
// the necessary size, while the stack of a new goroutine is copied several times until it is large
// enough.
func (g *goroutines) runPosts(p *outgoingPost) {
	for {
		p.run()
		p.c.release(p)
		g.mu.Lock()
		if g.idle >= maxIdle {
			g.mu.Unlock()
			return
		}
		g.idle++
		if g.trimmer == nil {
			g.spare, g.trimmer = g.idle, time.AfterFunc(idleTime, g.trim)
		}
		g.mu.Unlock()
		select {
		case p = <-g.handoff:
			if p == nil {
				return
			}
		case <-g.ctx.Done():
			return
		}
	}
}

// trim ends the goroutines that have waited since the trimmer was started.
func (g *goroutines) trim() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ; g.spare > 0 && g.ctx.Err() == nil; g.spare-- {
		select {
		case g.handoff <- nil:
			g.idle--
		default: // a goroutine does not wait yet
		}
	}
	if g.spare = g.idle; g.idle > 0 && g.ctx.Err() == nil {
		g.trimmer.Reset(idleTime)
	} else {
		g.trimmer = nil
	}
}

// busy returns the number of goroutines that are not idle.
func (g *goroutines) busy() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running - g.idle
}

// end closes drained as soon as all goroutines have ended.
func (g *goroutines) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.signalDrainedLocked()
}

func (g *goroutines) signalDrainedLocked() {
	if g.ended && g.running == 0 {
		close(g.drained)
	}
}
