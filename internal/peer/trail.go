package peer

import "mcpgateway/internal/wire"

// A Trail is what is left of a call that was answered though the far side goes on
// with it, as with a task ("the progressToken provided in the original request MUST
// continue to be used throughout the task's lifetime", tasks).
type Trail struct {
	peer  *Peer
	id    int64
	token wire.ID // "" = nobody wants progress
	owner string
	to    func(wire.Message)
}

// maxTrails bounds those of one conversation. Progress of what is beyond is dropped.
const maxTrails = 4096

// Trail has what progress still comes go to to, until [Trail.End], and counts for
// [Peer.SoleOwner] until then. It is for Done to call. The call itself is not held
// on to.
func (c *Pending) Trail(to func(wire.Message)) *Trail {
	t := &Trail{token: c.Token, owner: c.Owner, to: to}
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
		p.strays.giveUp(t.id, c.Owner) // better than nothing
		return t
	case p.trails == nil:
		p.trails = make(map[int64]*Trail)
	}
	p.trails[t.id] = t
	p.trailing.add(t.owner, 1)
	return t
}

// End ends a trail. Calling it again does nothing.
func (t *Trail) End() {
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
