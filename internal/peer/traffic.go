package peer

import (
	"sync/atomic"
	"time"
)

// Activity says what has happened in a conversation, to tell one that is quiet from one
// whose far side is busy.
type Activity struct {
	LastReceived time.Time // when anything came last
	// LastUsed is when a call ended last, or the far side said or was told something, other than
	// what the owner asks on its own behalf: with Call, Ask or AskAll, or marked [Call.Aside].
	// Before that it is the beginning.
	LastUsed time.Time
	InFlight bool // a call is in flight
}

// Activity may be called at any time.
func (p *Peer) Activity() Activity {
	return Activity{
		LastReceived: p.createdAt.Add(time.Duration(p.lastReceived.Load())),
		LastUsed:     p.createdAt.Add(time.Duration(p.lastUsed.Load())),
		InFlight:     p.calls.Len() > 0,
	}
}

// touch notes that something happens now.
func (p *Peer) touch(what *atomic.Int64) { what.Store(int64(time.Since(p.createdAt))) }

// noteCallEnd notes that a call ended.
func (p *Peer) noteCallEnd(c *Call) {
	if !c.Internal {
		p.touch(&p.lastUsed)
	}
}

// CloseIfIdle lets nothing be sent any more, if nobody is waiting for anything: there is no call
// in flight but perhaps but, and none that the far side goes on with, and it has asked nothing that is
// open. Otherwise nothing happens, and it answers false. From then on Offer fails with a
// [transport.ErrClosed] that is why, and no call is lost that comes at this moment. The
// conversation itself is for the owner to end.
func (p *Peer) CloseIfIdle(why error, but *Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sendErr != nil || p.owesResponseLocked() || len(p.relays) > 0 {
		return false
	}
	p.sendErr = closedError{why}
	if p.calls.CloseIf(func(c *Call) bool { return c == but }) {
		return true
	}
	p.sendErr = nil
	return false
}
