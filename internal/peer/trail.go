package peer

import "mcpgateway/internal/wire"

// A ProgressRelay is what is left of a call that was answered though the far side goes on
// with it, as with a task ("the progressToken provided in the original request MUST
// continue to be used throughout the task's lifetime", tasks).
type ProgressRelay struct {
	peer  *Peer
	id    int64
	token wire.ID // "" = nobody wants progress
	owner string
	to    func(wire.Message)
}

// maxTrails bounds those of one conversation. Progress of what is beyond is dropped.
const maxTrails = 4096

// RelayProgress has what progress still comes go to to, until [ProgressRelay.End], and counts for
// [Peer.SoleSession] until then. It is for Done to call. The call itself is not held
// on to.
func (c *Call) RelayProgress(to func(wire.Message)) *ProgressRelay {
	t := &ProgressRelay{token: c.Token, owner: c.SessionID, to: to}
	d := c.sent.Load()
	if d == nil {
		return t
	}
	p := d.peer
	t.peer, t.id = p, d.id
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.end != nil:
		return t
	case len(p.trails) >= maxTrails:
		p.strays.giveUp(t.id, c.SessionID) // better than nothing
		return t
	case p.trails == nil:
		p.trails = make(map[int64]*ProgressRelay)
	}
	p.trails[t.id] = t
	p.trailing.add(t.owner, 1)
	return t
}

// Stop ends a trail. Calling it again does nothing.
func (t *ProgressRelay) Stop() {
	if t.peer == nil {
		return
	}
	t.peer.mu.Lock()
	defer t.peer.mu.Unlock()
	if t.peer.trails[t.id] == t {
		delete(t.peer.trails, t.id)
		t.peer.trailing.add(t.owner, -1)
		t.peer.strays.giveUp(t.id, t.owner) // what has ended for us may go on there
	}
}

// trailed passes on the progress of a call that was answered.
func (p *Peer) trailed(id int64, m wire.Message) {
	p.mu.Lock()
	t := p.trails[id]
	p.mu.Unlock()
	if t != nil && t.token != "" {
		t.to(m.Splice(wire.Edit{Part: wire.PartToken, Text: []byte(t.token)}))
	}
}
