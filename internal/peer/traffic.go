package peer

import (
	"sync/atomic"
	"time"
)

// Traffic says what has happened in a conversation, to tell one that is quiet from one
// whose far side is busy.
type Traffic struct {
	Heard time.Time // when anything came last
	// Used is when a call ended last, or the far side said or was told something, other than
	// what the owner asks on its own behalf: with Call, Ask or AskAll, or marked [Pending.Aside].
	// Before that it is the beginning.
	Used time.Time
	Busy bool // a call is in flight
}

// Traffic may be called at any time.
func (p *Peer) Traffic() Traffic {
	return Traffic{
		Heard: p.began.Add(time.Duration(p.heard.Load())),
		Used:  p.began.Add(time.Duration(p.used.Load())),
		Busy:  p.calls.Len() > 0,
	}
}

// note notes that something happens now.
func (p *Peer) note(what *atomic.Int64) { what.Store(int64(time.Since(p.began))) }

// noteEnd notes that a call ended.
func (p *Peer) noteEnd(c *Pending) {
	if !c.Aside {
		p.note(&p.used)
	}
}

// Retire lets nothing be sent any more, if nobody is waiting for anything: there is no call
// in flight but perhaps but, and none that the far side goes on with, and it has asked nothing that is
// open. Otherwise nothing happens, and it answers false. From then on Offer fails with a
// [transport.ErrClosed] that is why, and no call is lost that comes at this moment. The
// conversation itself is for the owner to end.
func (p *Peer) Retire(why error, but *Pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil || p.owesLocked() || len(p.trails) > 0 {
		return false
	}
	p.end = ended{why}
	if p.calls.CloseIf(func(c *Pending) bool { return c == but }) {
		return true
	}
	p.end = nil
	return false
}
